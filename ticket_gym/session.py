"""One episode, without Gymnasium: what the environment and every adapter wrap."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from ticket_gym.codec import Codec, get_codec
from ticket_gym.errors import ConfigurationError, ToolError
from ticket_gym.records import CallRecord
from ticket_gym.request import Task
from ticket_gym.state import State
from ticket_gym.tasks import Diagnosis, Stream, TaskSource, diagnose, get_source
from ticket_gym.tools import Scene, call_tool
from ticket_gym.types import LANGUAGES, RESPOND, SPLITS, Language, Message, Split, StopReason, Tool
from ticket_gym.world import get_world

DEFAULT_MAX_STEPS = 50


@dataclass(frozen=True, slots=True)
class Settings:
    """What all episodes of a session have in common.

    Attributes:
        language: Of the request and the system prompt.
        tool_language: Of the tools; the language's by default.
        league: Whose clubs are played with; the language's by default.
        split: `test` (the frozen benchmark), `validation` or `train` (unlimited).
        seed: Which stream of tasks, for the unlimited splits; the test split has only one.
        templates: The templates to draw from; None for all.
        max_steps: Calls after which an episode is cut off.
        require_response: Whether an episode that is cut off gets no reward whatever it booked.
        stream: Extras of the `train` split.
    """

    language: Language = "en"
    tool_language: Language | None = None
    league: Language | None = None
    split: Split = "test"
    seed: int = 0
    templates: tuple[str, ...] | None = None
    max_steps: int = DEFAULT_MAX_STEPS
    require_response: bool = False
    stream: Stream = field(default_factory=Stream)

    def __post_init__(self) -> None:
        """Check the options that no other room checks.

        Raises:
            ConfigurationError: An option cannot be used; the message says which and what would be right.
        """
        for name in ("language", "tool_language", "league"):
            value = getattr(self, name)
            if value not in LANGUAGES and (name == "language" or value is not None):
                raise ConfigurationError(f"{name}={value!r}: choose one of {', '.join(LANGUAGES)}")
        if self.split not in SPLITS:
            raise ConfigurationError(f"split={self.split!r}: choose one of {', '.join(SPLITS)}")
        if not isinstance(self.require_response, bool):
            raise ConfigurationError(f"require_response={self.require_response!r}: must be True or False")
        if not isinstance(self.stream, Stream):
            raise ConfigurationError(f"stream={self.stream!r}: must be a ticket_gym.Stream")
        if isinstance(self.max_steps, bool) or not isinstance(self.max_steps, int) or self.max_steps < 1:
            raise ConfigurationError(f"max_steps={self.max_steps!r}: must be an integer from 1")

    def codec(self) -> Codec:
        """The border that these settings speak through."""
        return get_codec(self.language, self.tool_language, self.league)

    def source(self) -> TaskSource:
        """The tasks that these settings draw from."""
        return get_source(self.split, self.seed, self.templates, self.stream, self.codec().city_groups)


class Observation(NamedTuple):
    """What a call leads to.

    Attributes:
        text: What the agent reads: JSON in the tool language; empty after the final answer.
        tool: Canonical name of the tool that was meant, None for an unknown one and for the answer.
        error: Code of the error observation, None when the call succeeded.
        repairs: Kinds of mending that the call needed.
        terminated: The agent has ended the episode.
        truncated: The step limit has ended it.
    """

    text: str
    tool: Tool | None = None
    error: str | None = None
    repairs: tuple[str, ...] = ()
    terminated: bool = False
    truncated: bool = False


class Session:
    """Plays one episode after another; `reset` begins one, `call` plays it, `reward` scores it.

    `call` never raises on what an agent writes and never changes anything once the episode is over. A session is
    picklable and deep-copyable; `snapshot` and `restore` give and take its state as plain JSON data.
    """

    __slots__ = ("_codec", "_scene", "_source", "_state", "settings", "steps", "stop_reason", "task")

    def __init__(self, settings: Settings | None = None, **options: Any) -> None:
        """Make a session.

        Args:
            settings: Shared settings; give either these or single `options`.
            **options: Fields of `Settings`.

        Raises:
            ConfigurationError: A setting cannot be used.
        """
        if settings is not None and options:
            raise ConfigurationError("give either settings or single options, not both")
        if unknown := options.keys() - {option.name for option in fields(Settings)}:
            names = ", ".join(option.name for option in fields(Settings))
            raise ConfigurationError(f"unknown options {', '.join(sorted(unknown))}; there are {names}")
        if options.get("templates") is not None:
            options["templates"] = as_templates(options["templates"])
        self.settings = settings or Settings(**options)
        self._codec = self.settings.codec()
        self._source = self.settings.source()
        self._scene: Scene | None = None
        self._state = State(0)
        self.task: Task | None = None
        self.steps = 0
        self.stop_reason: StopReason | None = None

    # What every episode shares

    @property
    def codec(self) -> Codec:
        """The border that this session speaks through."""
        return self._codec

    @property
    def source(self) -> TaskSource:
        """The tasks that this session draws from."""
        return self._source

    @property
    def tools(self) -> list[dict[str, Any]]:
        """OpenAI function schemas of the five tools."""
        return self._codec.schemas

    @property
    def system_prompt(self) -> str:
        """The rules of the game, in the language of the request."""
        return self._codec.system_prompt

    # The episode

    def reset(self, task: str | Task) -> str:
        """Begin an episode and return the user's request.

        Args:
            task: A task, or its id: `t07-03` in the test split, `train-0-1234` in an unlimited one.

        Raises:
            UnknownTaskError: The split holds no such task.
        """
        task = self._source.get(task) if isinstance(task, str) else task
        world = get_world(task.split, task.world)
        user = world.users[task.user]
        self._scene = Scene(world, world.seasons[task.season], user)
        self._state = State(user.balance)
        self.task = task
        self.steps = 0
        self.stop_reason = None
        return self._codec.render_request(task)

    def call(self, name: str, arguments: object = None) -> Observation:
        """Play one call: a tool by its localised name, or `respond` with the final answer."""
        scene = self._scene
        if scene is None:
            raise ConfigurationError("the session has no episode yet: call reset(task) first")
        tool = self._codec.tool_named(name)
        if self.done:
            return Observation(self._codec.render_error(ToolError("episode_over"), None), tool, "episode_over")
        self.steps += 1
        if name == RESPOND:
            self.stop_reason = StopReason.RESPONDED
            return Observation("", terminated=True)
        repairs: tuple[str, ...] = ()
        error: str | None = None
        try:
            parsed = self._codec.parse(name, arguments)
            repairs = parsed.repairs
            result = call_tool(parsed.tool, scene, self._state, parsed.arguments)
            text = self._codec.render(result, scene)
        except ToolError as problem:
            text = self._codec.render_error(problem, tool)
            error = problem.code
        truncated = self.steps >= self.settings.max_steps
        if truncated:
            self.stop_reason = StopReason.MAX_STEPS
        return Observation(text, tool, error, repairs, truncated=truncated)

    def finish(self, reason: StopReason) -> None:
        """End the episode for a reason outside it, such as a full context window; the first reason stands."""
        if self.stop_reason is None:
            self.stop_reason = reason

    # What can be read at any time

    @property
    def playing(self) -> Task:
        """The task of the present episode.

        Raises:
            ConfigurationError: No episode has begun.
        """
        if self.task is None:
            raise ConfigurationError("the session has no episode yet: call reset(task) first")
        return self.task

    @property
    def done(self) -> bool:
        """Whether the episode is over."""
        return self.stop_reason is not None

    @property
    def messages(self) -> list[Message]:
        """The conversation as it begins: system prompt and request."""
        return [
            {"role": "system", "content": self.system_prompt},
            {"role": "user", "content": self._codec.render_request(self.playing)},
        ]

    @property
    def bookings(self) -> tuple[int, ...]:
        """Booked games in the order of purchase."""
        return tuple(self._state.bookings)

    @property
    def balance(self) -> int:
        """What the user has left, in minor units."""
        return self._state.balance

    @property
    def success(self) -> bool:
        """Whether the bookings are exactly the expected ones (and the episode was not cut off, where required)."""
        cut_off = self.settings.require_response and self.stop_reason is not StopReason.RESPONDED
        return not cut_off and tuple(sorted(self._state.bookings)) == self.playing.expected

    @property
    def reward(self) -> float:
        """1.0 for success once the episode is over, else 0.0."""
        return float(self.done and self.success)

    def diagnose(self, calls: Sequence[CallRecord] = ()) -> Diagnosis:
        """Why the episode failed, exactly; see `ticket_gym.tasks.diagnosis`."""
        return diagnose(self.playing, self.bookings, self.stop_reason, calls, success=self.success)

    # Plain data in and out

    def snapshot(self) -> dict[str, Any]:
        """The episode's state as JSON data; `restore` takes it in any session with the same settings."""
        return {
            "task": self.playing.id,
            "balance": self._state.balance,
            "bookings": list(self._state.bookings),
            "steps": self.steps,
            "stop_reason": self.stop_reason,
        }

    def restore(self, snapshot: Mapping[str, Any], task: Task | None = None) -> None:
        """Continue from a snapshot; the task is looked up by its id unless it is given.

        Raises:
            ConfigurationError: It is no snapshot, or of another task source; the present episode goes on.
        """
        try:
            state = State(int(snapshot["balance"]), [int(game) for game in snapshot["bookings"]])
            steps = int(snapshot["steps"])
            reason = None if snapshot["stop_reason"] is None else StopReason(snapshot["stop_reason"])
            task = task or self._source.get(snapshot["task"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ConfigurationError(f"this is no snapshot of a session: {error!r}") from error
        self.reset(task)
        self._state, self.steps, self.stop_reason = state, steps, reason

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by reference: worlds and packs are never copied."""
        return _rebuild, (self.settings, self.task, None if self.task is None else self.snapshot())


def as_templates(templates: object) -> tuple[str, ...]:
    """A selection of templates as a tuple; one name alone is a selection of one."""
    if isinstance(templates, str):
        return (templates,)
    if isinstance(templates, Sequence) and all(isinstance(name, str) for name in templates):
        return tuple(templates)
    raise ConfigurationError(f"templates={templates!r}: must be a list of template names such as t07")


def _rebuild(settings: Settings, task: Task | None, snapshot: Mapping[str, Any] | None) -> Session:
    session = Session(settings)
    if snapshot is not None:
        session.restore(snapshot, task)
    return session
