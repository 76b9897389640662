"""Words of the house: languages, splits, tool calls, why an episode ended."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, get_args

Language = Literal["pt", "fr", "de", "es", "it", "en"]
LANGUAGES: tuple[Language, ...] = get_args(Language)
"""The six languages in the paper's order."""

Split = Literal["test", "validation", "train"]
SPLITS: tuple[Split, ...] = get_args(Split)

SeasonKind = Literal["single", "double"]
SEASON_KINDS: tuple[SeasonKind, ...] = get_args(SeasonKind)

Tool = Literal["get_user_info", "list_games", "buy_game_ticket", "get_leaderboard", "get_weekday_from_date"]
"""Canonical tool names; each locale has its own."""
TOOLS: tuple[Tool, ...] = get_args(Tool)

RESPOND = "respond"
"""Name of the action that carries the final answer, in every language."""

Message = dict[str, object]
"""One chat message in the OpenAI format."""


class StopReason(StrEnum):
    """Why an episode ended."""

    RESPONDED = "responded"
    """The agent gave its final answer."""
    MAX_STEPS = "max_steps"
    """The step limit was reached before an answer."""
    CONTEXT_OVERFLOW = "context_overflow"
    """The conversation no longer fitted the model's context window."""
    LENGTH = "length"
    """The model's message was cut at its token limit."""
    REFUSED = "refused"
    """The model or its provider refused to go on (content filter or an explicit refusal)."""
    ENGINE_ERROR = "engine_error"
    """The engine failed after its retries: ours, not the agent's; a later run tries again."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call as the agent wrote it.

    Attributes:
        name: Tool name as the agent sees it (localised), or `respond`.
        arguments: Arguments as written: usually a mapping, but whatever the agent produced is kept.
        id: Identifier of the call within its message, when the engine gives one.
    """

    name: str
    arguments: object = None
    id: str | None = None

    def to_action(self) -> dict[str, object]:
        """The plain form `{"name": ..., "arguments": ...}` that `env.step` takes."""
        return {"name": self.name, "arguments": self.arguments}

    def to_message(self) -> dict[str, object]:
        """The call as it stands in an assistant message; arguments that are a text already are not encoded again."""
        written = self.arguments
        text = written if isinstance(written, str) else json.dumps(written, ensure_ascii=False)
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": text}}

    @classmethod
    def from_action(cls, action: object) -> "ToolCall":
        """Read an action; anything that is no call becomes a call without a name, which no tool answers to."""
        if isinstance(action, cls):
            return action
        if isinstance(action, Mapping) and isinstance(action.get("name"), str):
            return cls(action["name"], action.get("arguments"))
        return cls("", action)


ArgumentKind = Literal["integer", "boolean", "choice", "date", "text"]


@dataclass(frozen=True, slots=True)
class Argument:
    """One parameter of a tool as an action space sees it.

    Attributes:
        name: Localised parameter name.
        kind: What values it takes.
        required: Whether a call must hold it.
        choices: Allowed texts (`choice`), or examples to draw from.
        low: Smallest integer (`integer`).
        high: Largest integer that makes sense (`integer`).
    """

    name: str
    kind: ArgumentKind
    required: bool = False
    choices: tuple[str, ...] = ()
    low: int = 0
    high: int = 0
