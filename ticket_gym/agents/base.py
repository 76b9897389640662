"""What plays an episode: an agent is asked for one turn after another."""

from dataclasses import dataclass, field
from typing import Any, Protocol

from ticket_gym.records import Usage
from ticket_gym.session import Session
from ticket_gym.types import Message, StopReason, ToolCall


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of the agent.

    Attributes:
        message: The assistant message as it goes into the conversation.
        calls: Its tool calls, in order, each with an id; none means that the message is the final answer.
        stop: Why the episode cannot go on after this turn, where it cannot.
        usage: Tokens that the turn took.
    """

    message: Message
    calls: tuple[ToolCall, ...] = ()
    stop: StopReason | None = None
    usage: Usage = field(default_factory=Usage)


class Player(Protocol):
    """Plays one episode."""

    async def turn(self, messages: list[Message]) -> Turn:
        """The next message, given the conversation so far.

        Raises:
            ContextOverflowError: The conversation no longer fits the model's context window.
            EngineError: No message could be had, after all retries.
            EngineSetupError: No episode could ever be played; it stops the run.
        """


class Agent(Protocol):
    """Makes a player for each episode; one agent may play thousands at once."""

    @property
    def name(self) -> str:
        """How the agent is called in tables."""

    def describe(self) -> dict[str, Any]:
        """Everything about the agent that could change a score, as JSON data."""

    def start(self, session: Session, seed: int) -> Player:
        """A player for the episode that the session has just begun.

        Args:
            session: For schemas, names and the structured request; players act through turns only.
            seed: This trial's own seed.
        """
