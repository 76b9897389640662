"""The environment for TRL's `GRPOTrainer`: an environment class and a data set of tasks.

    from ticket_gym.adapters.trl import environment_factory, training_dataset

    trainer = GRPOTrainer(
        model="Qwen/Qwen3-0.6B",
        args=GRPOConfig(max_completion_length=4096, max_tool_calling_iterations=20),
        train_dataset=training_dataset("train", "fr", ["t01", "t03"], n=2000),
        environment_factory=environment_factory("fr"),
    )

What a model is shown is what an evaluation shows it: system prompt, request, tool schemas (the same bytes in the same
order) and results. What differs is TRL's own doing:

- It reads the calls itself. A call that it cannot read ends the rollout, where an evaluation answers with an error;
  a tool that does not exist is answered by TRL, in English, and takes no step.
- It tells an environment neither that the model has given its final answer nor that its tokens ran out: an episode is
  over when its reward is asked for, and is judged by its bookings either way, as the benchmark judges one that is cut
  off.
- It may go on after the step limit: what is called then is answered with an error and changes nothing.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from ticket_gym.codec import Codec
from ticket_gym.errors import ConfigurationError
from ticket_gym.session import DEFAULT_MAX_STEPS, Session, Settings, as_templates
from ticket_gym.tasks import Stream
from ticket_gym.tools import ORDERS, PARAMETERS, Parameter, ValueKind
from ticket_gym.types import TOOLS, Language, Split, StopReason, Tool
from ticket_gym.wrappers import RewardMeter, RewardOptions

if TYPE_CHECKING:
    from datasets import Dataset

TYPES: Mapping[ValueKind, type] = {
    "page": int,
    "game": int,
    "year": int,
    "boolean": bool,
    "team": str,
    "city": str,
    "date": str,
}
"""Types that TRL turns into the JSON types of the evaluation's schemas; an order becomes a `Literal`."""


class TicketEnvironment:
    """One rollout's environment, reused for the next by `reset`; `environment_factory` makes a class per locale.

    TRL takes each public method but `reset` and `get_reward` for a tool, and lists them by attribute name. The tools
    are therefore the attributes `tool_1` to `tool_5` in the order of the evaluation, each with its localised
    `__name__`, which is the name that the model sees. By that name, too, they can be called from Python.
    """

    _settings: ClassVar[Settings]
    _reward: ClassVar[RewardOptions]

    def __init__(self) -> None:
        self._session = Session(self._settings)
        self._meter: RewardMeter | None = None
        self._final: float | None = None

    def __getattr__(self, name: str) -> Any:
        tool = type(self)._settings.codec().tool_named(name)
        if tool is None:
            raise AttributeError(f"{type(self).__name__} has no attribute and no tool {name!r}")
        return getattr(self, _attribute(tool))

    def reset(self, task: str | None = None, **row: Any) -> str | None:
        """Begin the episode that a row of `training_dataset` names.

        Args:
            task: Id of the task.
            **row: The row's other columns.

        Returns:
            None: the row's prompt holds the request already.

        Raises:
            ConfigurationError: The row names no task, or was made with other options than this environment.
        """
        if task is None:
            raise ConfigurationError("a row has no column 'task': train on a data set made by training_dataset()")
        request = self._session.reset(task)
        prompt = row.get("prompt")
        if prompt is not None and request not in prompt[-1]["content"]:
            raise ConfigurationError(
                f"{task}: the row's prompt holds another request than this environment plays; make data set and "
                "environment with the same language, league, split, seed and stream"
            )
        self._meter = RewardMeter(self._session, self._reward)
        self._final = None
        return None

    def get_reward(self) -> float:
        """End the episode and score it; asked again, the answer is the same.

        Raises:
            ConfigurationError: No episode has begun.
        """
        if self._final is None:
            if self._meter is None:
                raise ConfigurationError("the environment has no episode yet: call reset(task=...) first")
            self._session.finish(StopReason.RESPONDED)
            self._final = self._meter.total()
        return self._final

    def _play(self, tool: Tool, arguments: dict[str, Any]) -> str:
        """Play a call; whatever the model wrote is answered with text."""
        over = self._session.done
        observation = self._session.call(self._session.codec.tool_names[tool], arguments)
        if self._meter is not None and not over:
            self._meter.count_call()
        return observation.text


def environment_factory(
    language: Language = "en",
    *,
    tool_language: Language | None = None,
    league: Language | None = None,
    split: Split = "train",
    seed: int = 0,
    max_steps: int = DEFAULT_MAX_STEPS,
    stream: Stream | None = None,
    reward: RewardOptions | None = None,
) -> type[TicketEnvironment]:
    """Make the environment class for `GRPOTrainer(environment_factory=...)`.

    To train in several languages at once, pass `{"fr": environment_factory("fr"), ...}` and the concatenated data
    sets: their column `environment` names the language.

    Args:
        language: Of the request and the system prompt.
        tool_language: Of the tools; the language's by default.
        league: Whose clubs are played with; the language's by default.
        split: `train` or `validation`.
        seed: Which stream of tasks.
        max_steps: Calls after which an episode is over.
        stream: Extras of the `train` split.
        reward: What is paid beside the sparse reward; nothing by default.

    Raises:
        ConfigurationError: An option cannot be used; the message says which and what would be right.
    """
    settings = _settings(language, tool_language, league, split, seed, None, max_steps, stream)
    codec = settings.codec()
    cell = dict.fromkeys((codec.language, codec.tool_language, codec.league))
    members: dict[str, Any] = {_attribute(tool): _make_tool(codec, tool) for tool in TOOLS}
    members |= {"_settings": settings, "_reward": reward or RewardOptions(), "__doc__": TicketEnvironment.__doc__}
    return type("_".join(["TicketEnvironment", *cell]), (TicketEnvironment,), members)


def training_dataset(
    split: Split = "train",
    language: Language = "en",
    templates: Sequence[str] | None = None,
    n: int = 1000,
    seed: int = 0,
    *,
    first: int = 0,
    tool_language: Language | None = None,
    league: Language | None = None,
    stream: Stream | None = None,
) -> "Dataset":
    """A data set of tasks, one a row; every rollout of a group plays the row's task.

    Args:
        split: `train` or `validation`; the test split is for measuring.
        language: Of the request and the system prompt.
        templates: The templates to draw from; None for all.
        n: Number of rows.
        seed: Which stream of tasks.
        first: Position in the stream to begin with.
        tool_language: As in `environment_factory`.
        league: As in `environment_factory`.
        stream: As in `environment_factory`.

    Returns:
        Columns `prompt` (system prompt and request as chat messages), `task` (its id), `template`, `environment` (the
        language). Nothing in it tells which games are to be booked.

    Raises:
        ConfigurationError: An option cannot be used; the message says which and what would be right.
    """
    from datasets import Dataset

    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise ConfigurationError(f"n={n!r}: must be an integer from 1")
    settings = _settings(language, tool_language, league, split, seed, templates, DEFAULT_MAX_STEPS, stream)
    session = Session(settings)
    rows = []
    for index in range(first, first + n):
        task = session.source.at(index)
        session.reset(task)
        rows.append({"prompt": session.messages, "task": task.id, "template": task.template, "environment": language})
    return Dataset.from_list(rows)


def _settings(
    language: Language,
    tool_language: Language | None,
    league: Language | None,
    split: Split,
    seed: int,
    templates: Sequence[str] | None,
    max_steps: int,
    stream: Stream | None,
) -> Settings:
    if split == "test":
        raise ConfigurationError("split='test': the benchmark is for measuring; train on train, look at validation")
    chosen = None if templates is None else as_templates(templates)
    return Settings(language, tool_language, league, split, seed, chosen, max_steps, stream=stream or Stream())


def _attribute(tool: Tool) -> str:
    return f"tool_{TOOLS.index(tool) + 1}"


def _make_tool(codec: Codec, tool: Tool) -> Callable[..., str]:
    """A method that looks like a function written by hand for this locale, and takes whatever a model passes."""

    # A wrong or missing argument must reach the session, whose answer names it, instead of raising a TypeError here.
    def call(self: TicketEnvironment, /, **arguments: Any) -> str:
        return self._play(tool, arguments)

    text = codec.texts.tools[tool]
    parameters = [
        inspect.Parameter(
            text.parameters[name].name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if parameter.required else None,
            annotation=_annotation(codec, tool, name, parameter),
        )
        for name, parameter in PARAMETERS[tool].items()
    ]
    call.__name__ = text.name
    call.__qualname__ = f"TicketEnvironment.{text.name}"
    call.__doc__ = _docstring(codec, tool)
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    receiver = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    call.__signature__ = inspect.Signature([receiver, *parameters])  # type: ignore[attr-defined]
    return call


def _annotation(codec: Codec, tool: Tool, name: str, parameter: Parameter) -> Any:
    if parameter.kind == "order":
        words = codec.texts.tools[tool].parameters[name].values
        return Literal[tuple(words[order] for order in ORDERS)]
    return TYPES[parameter.kind]


def _docstring(codec: Codec, tool: Tool) -> str:
    """Google style, as TRL reads it: the description, then one line for each parameter."""
    text = codec.texts.tools[tool]
    lines = [f"    {words.name}: {words.description}" for words in (text.parameters[name] for name in PARAMETERS[tool])]
    return "\n".join([text.description, *(["", "Args:", *lines] if lines else [])])
