"""The Gymnasium environment: a thin face of `Session`."""

import copy
import operator
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import gymnasium as gym
from gymnasium.error import ResetNeeded

from ticket_gym.codec import Codec
from ticket_gym.codec.rendering import quote
from ticket_gym.errors import ConfigurationError
from ticket_gym.records import CallRecord
from ticket_gym.request import Task
from ticket_gym.session import DEFAULT_MAX_STEPS, Observation, Session, as_templates
from ticket_gym.spaces import Call, ToolCallSpace, UnicodeText
from ticket_gym.tasks import Diagnosis, Stream
from ticket_gym.types import Argument, Language, Split, ToolCall

BLOCKS = 2**24
"""Worlds of an unlimited split that requests are drawn from."""
DRAWS_PER_BLOCK = 64
"""Requests drawn before another world is taken: making a world costs as much as a hundred requests."""

PlayedCall = tuple[str, str | None, str | None]
"""What the diagnosis needs of a call: name as written, canonical tool, error code."""


class TicketBenchEnv(gym.Env[str, Call]):
    """One episode is one user's request; an action is a tool call, an observation its result, the reward 1.0 or 0.0.

    `reset` draws a request with the environment's own generator, or takes the one that `options` name: `{"query":
    "t07-03"}` or `{"index": 12}`. Its `info` says which request it is and in which languages it is played. Each `step`
    tells in `info` the canonical `tool` that was meant, the `error` code, the `repairs` that the call needed and the
    `steps` so far; the last one adds `success`, `stop_reason`, `bookings` and `diagnosis`.
    """

    # Gymnasium declares it as an instance's, but reads it from the class.
    metadata: dict[str, Any] = {"render_modes": ["ansi", "human"], "render_fps": 1}  # noqa: RUF012

    def __init__(
        self,
        *,
        language: Language = "en",
        tool_language: Language | None = None,
        league: Language | None = None,
        split: Split = "test",
        seed: int = 0,
        templates: Sequence[str] | None = None,
        max_steps: int = DEFAULT_MAX_STEPS,
        require_response: bool = False,
        paraphrases: bool = True,
        other_cities: bool = True,
        unaffordable: bool = True,
        render_mode: str | None = None,
    ) -> None:
        """Make an environment. All keywords are plain data, so that its spec can be written as JSON.

        Args:
            language: Of the request and the system prompt.
            tool_language: Of the tools; the language's by default.
            league: Whose clubs are played with; the language's by default.
            split: `test` (the frozen benchmark), `validation` or `train` (unlimited).
            seed: Which stream of tasks, for the unlimited splits.
            templates: The templates to draw from; None for all.
            max_steps: Calls after which an episode is truncated.
            require_response: Whether a truncated episode gets no reward whatever it booked.
            paraphrases: `train` only: requests come in all wordings.
            other_cities: `train` only: any city of the league may be named.
            unaffordable: `train` only: some requests are for a game beyond the balance.
            render_mode: `ansi`: `render` returns the transcript; `human`: it is printed as it grows.

        Raises:
            ConfigurationError: A keyword cannot be used; the message says which and what would be right.
        """
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise ConfigurationError(f"render_mode={render_mode!r}: choose ansi or human, or none")
        self.render_mode = render_mode
        self._session = Session(
            language=language,
            tool_language=tool_language,
            league=league,
            split=split,
            seed=seed,
            templates=None if templates is None else as_templates(templates),
            max_steps=max_steps,
            require_response=require_response,
            stream=Stream(paraphrases, other_cities, unaffordable),
        )
        self._first = 0
        self._draws_left = 0
        self._calls: list[PlayedCall] = []
        self._transcript: list[str] = []
        self.action_space = ToolCallSpace(_get_arguments(self._session.codec))
        self.observation_space = UnicodeText()

    # What an agent is given

    @property
    def tools(self) -> list[dict[str, Any]]:
        """OpenAI function schemas of the five tools: a copy, free to be changed."""
        return copy.deepcopy(self._session.tools)

    @property
    def system_prompt(self) -> str:
        """The rules of the game, in the language of the request."""
        return self._session.system_prompt

    @property
    def session(self) -> Session:
        """The session that this environment plays."""
        return self._session

    @property
    def task_id(self) -> str | None:
        """Id of the present request; None before the first `reset`."""
        return None if self._session.task is None else self._session.task.id

    # The episode

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Begin an episode.

        Args:
            seed: Seeds the generator that draws requests; without it the draws go on.
            options: `{"query": id}` or `{"index": position}` for a certain request.

        Returns:
            The user's request, and which one it is.

        Raises:
            ConfigurationError: An option is unknown or cannot be used; the present episode goes on.
        """
        task = self._named_task(options) if options not in (None, {}) else None
        if seed is not None:
            super().reset(seed=seed)
            self._draws_left = 0
        if task is None:
            task = self._draw_task()
        text = self._session.reset(task)
        self._calls = []
        if self.render_mode is not None:
            self._transcript = []
            self._show(f"[{task.id}] {text}")
        codec = self._session.codec
        return text, {
            "query": task.id,
            "template": task.template,
            "split": task.split,
            "language": codec.language,
            "tool_language": codec.tool_language,
            "league": codec.league,
        }

    def step(self, action: object) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Play one call.

        Args:
            action: A `ToolCall` or its plain form `{"name": ..., "arguments": {...}}`. Anything else, too, is answered
                with an error observation.

        Raises:
            ResetNeeded: There is no episode, or it is over.
        """
        session = self._session
        if session.task is None or session.stop_reason is not None:
            raise ResetNeeded("there is no episode under way: call reset() first")
        name, arguments = _read_action(action)
        seen = session.call(name, arguments)
        self._calls.append((name, seen.tool, seen.error))
        info = {"tool": seen.tool, "error": seen.error, "repairs": seen.repairs, "steps": session.steps}
        reward = 0.0
        if seen.terminated or seen.truncated:
            reward = session.reward
            info.update(self._outcome())
        if self.render_mode is not None:
            self._show_step(name, arguments, seen)
        return seen.text, reward, seen.terminated, seen.truncated, info

    def render(self) -> str | None:
        """The transcript of the episode so far (`ansi`); in `human` mode it has been printed already."""
        if self.render_mode is None:
            gym.logger.warn("render() needs a render_mode, given to gym.make(): ansi or human")
        return "\n".join(self._transcript) if self.render_mode == "ansi" else None

    def _draw_task(self) -> Task:
        source, rng = self._session.source, self.np_random
        if source.size is not None:
            return source.at(int(rng.random() * source.size))
        if self._draws_left == 0:
            self._first = int(rng.random() * BLOCKS) * source.block
            self._draws_left = DRAWS_PER_BLOCK
        self._draws_left -= 1
        return source.at(self._first + int(rng.random() * source.block))

    def _named_task(self, options: Mapping[str, Any]) -> Task:
        if not isinstance(options, Mapping) or len(options) != 1 or not options.keys() <= {"query", "index"}:
            raise ConfigurationError(f"options={options!r}: must be {{'query': id}}, {{'index': position}} or nothing")
        source = self._session.source
        if "query" in options:
            if not isinstance(options["query"], str):
                raise ConfigurationError(f"options: query={options['query']!r}: must be an id such as t07-03")
            return source.get(options["query"])
        try:
            if isinstance(options["index"], bool):
                raise TypeError("a truth value is no position")
            return source.at(operator.index(options["index"]))
        except TypeError as error:
            raise ConfigurationError(f"options: index={options['index']!r}: must be an integer") from error

    def _outcome(self) -> dict[str, Any]:
        """What the last `info` of an episode adds: JSON data that nothing else holds."""
        session = self._session
        # Not validated, as an agent may have written text that no record could hold.
        calls = [
            CallRecord.model_construct(id="", name=name, tool=tool, error=error) for name, tool, error in self._calls
        ]
        return {
            "success": session.success,
            "stop_reason": str(session.stop_reason),
            "bookings": list(session.bookings),
            "diagnosis": _as_json(session.diagnose(calls)),
        }

    def _show_step(self, name: str, arguments: object, seen: Observation) -> None:
        self._show(f"> {quote(name)} {quote(arguments)}")
        if seen.text:
            self._show(seen.text)
        if self._session.done:
            self._show(f"[{self._session.stop_reason}, reward {self._session.reward:.0f}]")

    def _show(self, text: str) -> None:
        self._transcript.append(text)
        if self.render_mode == "human":
            # A terminal that knows fewer characters must not break an episode.
            encoding = sys.stdout.encoding or "utf-8"
            print(text.encode(encoding, "replace").decode(encoding))


def _read_action(action: object) -> tuple[str, object]:
    """Name and arguments of an action; the plain form, by far the most common, is read without detour."""
    if type(action) is dict and type(name := action.get("name")) is str:
        return name, action.get("arguments")
    call = ToolCall.from_action(action)
    return call.name, call.arguments


@lru_cache(maxsize=64)
def _get_arguments(codec: Codec) -> dict[str, tuple[Argument, ...]]:
    """The calls of a codec, made once for all environments that speak through it."""
    return codec.arguments()


def _as_json(diagnosis: Diagnosis) -> dict[str, Any]:
    return {
        "success": diagnosis.success,
        "primary": None if diagnosis.primary is None else str(diagnosis.primary),
        "causes": [str(cause) for cause in diagnosis.causes],
        "violations": [{"game": game, "violated": list(names)} for game, names in diagnosis.violations],
        "extra": list(diagnosis.extra),
        "missing": list(diagnosis.missing),
    }
