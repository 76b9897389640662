"""What a run leaves behind: one `Trajectory` a line, validated when read back.

Everything in a record is literal: texts are UTF-8 and NFC as they were sent, amounts are minor units.
"""

from typing import Any

from pydantic import BaseModel, ConfigDict

from ticket_gym.types import Language, Split, StopReason

SCHEMA_VERSION = 1


class Record(BaseModel):
    """Base of all records: unknown fields are an error, so that a newer file is never half read."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Usage(Record):
    """Tokens of one episode, summed over its model calls."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    cached_tokens: int = 0
    model_calls: int = 0


class ModelInfo(Record):
    """What is known about a model, for tables and plots.

    Attributes:
        name: As the engine knows it, or the scripted agent's name.
        family: Models that differ mainly in size, such as `Qwen3`.
        size_b: Parameters in billions.
    """

    name: str
    family: str | None = None
    size_b: float | None = None


class RunConfig(Record):
    """Everything that could change a run's scores; `run.json` holds it, and a run is only continued with the same.

    Attributes:
        benchmark: Version and SHA-256 of the frozen benchmark (`{"version": "v0", "digest": ...}`).
        split: Split that was played.
        stream_seed: Which stream of an unlimited split.
        languages: Languages of the requests, in the paper's order.
        tool_language: Language of the tools, or None for that of the request.
        league: League, or None for that of the request.
        queries: Ids of the queries, in order.
        trials: Trials of each query, numbered from 0.
        seed: From which every trial's own seed is derived.
        max_steps: Step limit of an episode.
        require_response: Whether an episode that is cut off counts as a failure.
        model: Who played.
        agent: What the agent says about itself: engine and version, parser, template hash, sampling ...
        prompt_digest: SHA-256 of system prompts and tool schemas.
        versions: Versions of Python and the packages that matter.
    """

    schema_version: int = SCHEMA_VERSION
    benchmark: dict[str, str]
    split: Split
    stream_seed: int = 0
    languages: tuple[Language, ...]
    tool_language: Language | None = None
    league: Language | None = None
    queries: tuple[str, ...]
    trials: int
    seed: int = 0
    max_steps: int
    require_response: bool = False
    model: ModelInfo
    agent: dict[str, Any]
    prompt_digest: str
    versions: dict[str, str]


class CallRecord(Record):
    """One tool call as it was played.

    Attributes:
        id: The call's id within the conversation.
        name: Name as the agent wrote it.
        tool: Canonical tool name, or None where no tool answers to `name`.
        arguments: Arguments as the agent wrote them.
        error: Code of the error observation, or None when the call succeeded.
        repairs: Kinds of mending that the call needed; a strict score counts none.
    """

    id: str
    name: str
    tool: str | None
    arguments: Any = None
    error: str | None = None
    repairs: tuple[str, ...] = ()


class Trajectory(Record):
    """One episode: one (language, query, trial).

    Attributes:
        seed: Seed of this trial, given to the engine.
        reward: 1.0 or 0.0; None for an episode that the engine broke off, which has no score of its own.
        messages: The whole conversation in the OpenAI chat format.
        bookings: Booked game ids in the order of purchase.
        steps: Calls played, the final answer included.
        error: What the engine reported, for `engine_error` only.
        started_at: ISO 8601, UTC.
        wall_s: Seconds from the first model call to the end.
    """

    schema_version: int = SCHEMA_VERSION
    language: Language
    tool_language: Language
    league: Language
    split: Split
    query_id: str
    template: str
    trial: int
    seed: int
    reward: float | None
    success: bool
    stop_reason: StopReason
    messages: list[dict[str, Any]]
    calls: list[CallRecord]
    bookings: list[int]
    steps: int
    usage: Usage = Usage()
    error: str | None = None
    started_at: str = ""
    wall_s: float = 0.0
