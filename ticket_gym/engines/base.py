"""What every engine takes and gives: a conversation with tools goes in, one assistant message comes out.

An engine knows nothing of tickets or episodes. It is given the conversation as it is recorded and sends what its model
should see of it (`ticket_gym.engines.history`); what comes back keeps the model's own words.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

from ticket_gym.errors import ConfigurationError
from ticket_gym.records import Usage
from ticket_gym.types import Message, StopReason, ToolCall

REASONING = "reasoning_content"
"""Key of an assistant message that holds what the model thought before it wrote; recorded, not part of its content."""
RAW_TEXT = "raw_text"
"""Key of an assistant message that holds the model's text before it was read, where the engine knows it."""


@dataclass(frozen=True, slots=True)
class Request:
    """One turn that is asked of a model.

    Attributes:
        messages: The conversation so far, as recorded: assistant messages may hold `REASONING` and `RAW_TEXT`, and
            calls with whatever arguments the model wrote.
        tools: OpenAI function schemas.
        seed: Seed of this turn, or None for the engine's own.
        conversation: Names the conversation, the same in all its turns: several servers share the load by it.
        memory: The engine's own notes on the conversation, such as token ids; the same object in all its turns, and
            dropped with it.
    """

    messages: Sequence[Message]
    tools: Sequence[dict[str, Any]] = ()
    seed: int | None = None
    conversation: str = ""
    memory: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Completion:
    """One assistant message.

    Attributes:
        message: As the model wrote it, to be recorded and sent back: `role`, `content`, `tool_calls`, and where there
            are any `REASONING`, `RAW_TEXT` and `refusal`.
        calls: Its tool calls in order, as many as `message["tool_calls"]`. Arguments are decoded where their text is a
            JSON object, and otherwise kept as text, for the session to answer. An id is None where none was given.
        stop: `LENGTH`, `REFUSED` or `CONTEXT_OVERFLOW` (the message was cut by the end of the context window), where
            the message cannot be acted on; else None.
        usage: Tokens of this one message; `model_calls` is 1.
    """

    message: Message
    calls: tuple[ToolCall, ...] = ()
    stop: StopReason | None = None
    usage: Usage = field(default_factory=lambda: Usage(model_calls=1))


class Engine(Protocol):
    """Produces model messages; many conversations may ask at once."""

    @property
    def name(self) -> str:
        """The model's name, for tables."""

    def describe(self) -> dict[str, Any]:
        """Everything about engine and model that could change a score, as JSON data.

        Engine and its version, model, parser or reader style, digest of the chat template and quantisation where they
        are known, sampling. Never a key, and nothing that only changes the speed.
        """

    async def complete(self, request: Request) -> Completion:
        """The model's next message.

        Raises:
            ContextOverflowError: The conversation no longer fits the model's context window.
            EngineError: No message could be had, after all retries; another conversation may fare better.
            EngineSetupError: No conversation will ever get a message: a wrong key, address or model.
        """

    async def aclose(self) -> None:
        """Let go of connections, processes and memory."""


_RANGES: dict[str, tuple[Callable[[float], bool], str]] = {
    "temperature": (lambda value: 0 <= value < math.inf, "a number from 0"),
    "top_p": (lambda value: 0 < value <= 1, "above 0 and up to 1"),
    "top_k": (lambda value: value >= 1 or value == -1, "an integer from 1, or -1 for all"),
    "min_p": (lambda value: 0 <= value <= 1, "from 0 to 1"),
    "repetition_penalty": (lambda value: 0 < value < math.inf, "above 0"),
    "presence_penalty": (lambda value: -2 <= value <= 2, "from -2 to 2"),
    "max_tokens": (lambda value: value >= 1, "an integer from 1"),
}


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are drawn. None leaves the choice to the model's own generation config.

    Attributes:
        temperature: From 0 (always the likeliest token).
        top_p: Probability mass that is drawn from, above 0 and up to 1.
        top_k: Number of tokens that are drawn from; -1 for all.
        min_p: Least probability relative to the likeliest token's, 0 to 1.
        repetition_penalty: Above 0; 1 for none.
        presence_penalty: -2 to 2; 0 for none.
        max_tokens: Longest message, reasoning included.
    """

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            ConfigurationError: A value is out of range; the message says which and what would be right.
        """
        for name, (is_right, right) in _RANGES.items():
            value = getattr(self, name)
            if value is not None and not is_right(value):
                raise ConfigurationError(f"{name}={value!r}: must be {right}")

    def given(self) -> dict[str, float | int]:
        """What was chosen, by name, without what is left to the model."""
        values = {option.name: getattr(self, option.name) for option in fields(self)}
        return {name: value for name, value in values.items() if value is not None}
