"""A language model as an agent.

The conversation is recorded with each assistant message as the model wrote it; what a model is sent of it is the
engine's matter (`ticket_gym.engines.history`). A message without a tool call is the final answer, an empty one too.
Several calls in one message are played in their order. A message that was cut off or refused is recorded, and none of
its calls is played: the last one may be only half of what the model meant.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ticket_gym.agents.base import Turn
from ticket_gym.engines import Completion, Engine, Request
from ticket_gym.records import ModelInfo
from ticket_gym.session import Session
from ticket_gym.types import Message, ToolCall


class ModelAgent:
    """Plays with the messages of an engine; one agent plays any number of episodes at once."""

    def __init__(self, engine: Engine, model: ModelInfo | None = None) -> None:
        """Take the engine, and what is known of the model beside its name."""
        self.engine = engine
        self.model = model or ModelInfo(name=engine.name)

    @property
    def name(self) -> str:
        """The model's name."""
        return self.model.name

    def describe(self) -> dict[str, Any]:
        """What the engine says about itself."""
        return {"agent": "model", **self.engine.describe()}

    def start(self, session: Session, seed: int) -> "ModelPlayer":
        """A player for the session's episode."""
        codec = session.codec
        conversation = f"{codec.language}-{codec.tool_language}-{codec.league}/{session.playing.id}/{seed}"
        return ModelPlayer(self.engine, session.tools, seed, conversation)


class ModelPlayer:
    """Plays one episode."""

    def __init__(self, engine: Engine, tools: Sequence[dict[str, Any]], seed: int, conversation: str) -> None:
        """Take what stays the same in all turns of the episode.

        Args:
            engine: Where the messages come from.
            tools: OpenAI function schemas.
            seed: The trial's seed, from which each turn's own is derived.
            conversation: A name that no other episode under way has.
        """
        self._engine = engine
        self._tools = tools
        self._seed = seed
        self._conversation = conversation
        self._memory: dict[str, Any] = {}
        self._turns = 0
        self._ids: set[str] = set()

    async def turn(self, messages: list[Message]) -> Turn:
        """The model's next message."""
        seed = turn_seed(self._seed, self._turns)
        self._turns += 1
        request = Request(messages, self._tools, seed, self._conversation, self._memory)
        completion = await self._engine.complete(request)
        calls = tuple(self._identified(call) for call in completion.calls)
        message = _with_ids(completion, calls)
        return Turn(message, calls if completion.stop is None else (), completion.stop, completion.usage)

    def _identified(self, call: ToolCall) -> ToolCall:
        """The call with an id that is its own in the whole conversation.

        Servers that give no ids, or the same ones in each message, would make the results ambiguous. A new id has nine
        letters and digits because some chat templates accept nothing else.
        """
        identifier = call.id
        number = len(self._ids)
        while not identifier or identifier in self._ids:
            identifier = f"call{number:05d}"
            number += 1
        self._ids.add(identifier)
        return replace(call, id=identifier)


def _with_ids(completion: Completion, calls: Sequence[ToolCall]) -> Message:
    written = completion.message.get("tool_calls")
    if not isinstance(written, list):
        return completion.message
    identified = [{**call, "id": own.id} for call, own in zip(written, calls, strict=True)]
    return {**completion.message, "tool_calls": identified}


def turn_seed(seed: int, turn: int) -> int:
    """A turn's own seed, 0 to 2**31 - 1 (some servers take no more): equal seeds would repeat the same draws."""
    digest = hashlib.sha256(f"{seed}/{turn}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1
