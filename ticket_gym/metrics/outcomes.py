"""From a stream of episodes to one aligned table: (language, query, trial) to success, nothing dropped."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ticket_gym.errors import ConfigurationError, RunError
from ticket_gym.metrics.estimators import IntArray
from ticket_gym.records import Trajectory
from ticket_gym.types import RESPOND, Language, StopReason

BoolArray = NDArray[np.bool_]

UNKNOWN_TOOL = "unknown"
"""Under which calls are counted whose name no tool answers to."""


@dataclass(frozen=True, slots=True)
class QueryInfo:
    """What scoring must know about a query.

    Attributes:
        id: Query id, such as `t07-03`.
        template: Template id, such as `t07`.
        solvable: Whether any game satisfies the request.
    """

    id: str
    template: str
    solvable: bool


@dataclass(frozen=True, slots=True)
class Grid:
    """Every episode that a run has declared: `languages` x `queries` x trials `0..trials-1`.

    Raises:
        ConfigurationError: An axis is empty or holds something twice.
    """

    languages: tuple[Language, ...]
    queries: tuple[QueryInfo, ...]
    trials: int

    def __post_init__(self) -> None:
        """Check the axes."""
        ids = [query.id for query in self.queries]
        if not self.languages or not ids or self.trials < 1:
            raise ConfigurationError("a grid needs at least one language, one query and one trial")
        if len(set(self.languages)) < len(self.languages) or len(set(ids)) < len(ids):
            raise ConfigurationError("a grid must name every language and every query once")


@dataclass(slots=True)
class Tally:
    """Sums over the recorded episodes of one language or more.

    Steps, tokens, time and calls leave out `engine_error` episodes, which were not played to an end of their own; only
    `spent` and `uncounted` hold them, for they are paid for all the same.

    Attributes:
        recorded: Episodes with a record, engine errors among them.
        stop_reasons: Episodes by why they ended.
        spent: Tokens and model calls by their names in `Usage`.
        uncounted: Episodes whose model was called but whose tokens were not counted.
        played: Episodes that the following sums are over.
        wall_s: Seconds.
        calls: Calls by canonical tool; `respond` for the answer, `unknown` where no tool answers to the name.
        errors: Error observations, by the same names.
        repaired: Calls that needed mending, by the same names.
        error_codes: Error observations by code.
    """

    recorded: int = 0
    stop_reasons: Counter[StopReason] = field(default_factory=Counter)
    spent: Counter[str] = field(default_factory=Counter)
    uncounted: int = 0
    played: int = 0
    steps: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    cached_tokens: int = 0
    model_calls: int = 0
    wall_s: float = 0.0
    calls: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    repaired: Counter[str] = field(default_factory=Counter)
    error_codes: Counter[str] = field(default_factory=Counter)

    def add(self, episode: Trajectory) -> None:
        """Count one episode."""
        self.recorded += 1
        self.stop_reasons[episode.stop_reason] += 1
        usage = episode.usage
        self.spent.update(usage.model_dump())
        self.uncounted += _is_uncounted(episode)
        if episode.stop_reason == StopReason.ENGINE_ERROR:
            return
        self.played += 1
        self.steps += episode.steps
        self.prompt_tokens += usage.prompt_tokens
        self.completion_tokens += usage.completion_tokens
        self.reasoning_tokens += usage.reasoning_tokens
        self.cached_tokens += usage.cached_tokens
        self.model_calls += usage.model_calls
        self.wall_s += episode.wall_s
        for call in episode.calls:
            tool = call.tool or (RESPOND if call.name == RESPOND else UNKNOWN_TOOL)
            self.calls[tool] += 1
            if call.error is not None:
                self.errors[tool] += 1
                self.error_codes[call.error] += 1
            if call.repairs:
                self.repaired[tool] += 1

    def merge(self, other: "Tally") -> None:
        """Add the sums of `other`."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(frozen=True, slots=True)
class Outcomes:
    """A run, aligned on its grid. All arrays have the shape (languages, queries, trials).

    Attributes:
        grid: The axes.
        success: Success; False for a missing trial and for an engine error.
        strict: Success with no call that needed a repair.
        recorded: Whether the trial has a record.
        engine_error: Whether the record tells of an engine error.
        tallies: Sums for each language of the grid.
    """

    grid: Grid
    success: BoolArray
    strict: BoolArray
    recorded: BoolArray
    engine_error: BoolArray
    tallies: tuple[Tally, ...]

    @property
    def successes(self) -> IntArray:
        """Successful trials, shape (languages, queries)."""
        return np.asarray(self.success.sum(axis=2), dtype=np.int64)

    @property
    def strict_successes(self) -> IntArray:
        """Successful trials without any repair, shape (languages, queries)."""
        return np.asarray(self.strict.sum(axis=2), dtype=np.int64)


def collect_outcomes(episodes: Iterable[Trajectory], grid: Grid) -> Outcomes:
    """Read episodes once, in any order, keeping only what scores are made of.

    Raises:
        RunError: An episode that the grid does not hold, whose template differs from the grid's, or that comes twice.
    """
    shape = (len(grid.languages), len(grid.queries), grid.trials)
    success, strict, recorded, failed = (np.zeros(shape, dtype=np.bool_) for _ in range(4))
    tallies = tuple(Tally() for _ in grid.languages)
    languages = {language: index for index, language in enumerate(grid.languages)}
    queries = {query.id: index for index, query in enumerate(grid.queries)}
    for episode in episodes:
        cell = _place(episode, grid, languages, queries)
        if recorded[cell]:
            raise RunError(f"two records of one episode: {_name(episode)}")
        recorded[cell] = True
        tallies[cell[0]].add(episode)
        if episode.stop_reason == StopReason.ENGINE_ERROR:
            failed[cell] = True
        elif episode.success:
            success[cell] = True
            strict[cell] = not any(call.repairs for call in episode.calls)
    return Outcomes(grid, success, strict, recorded, failed, tallies)


def _is_uncounted(episode: Trajectory) -> bool:
    """Whether tokens must be missing: no prompt is empty, and no call was written without a token."""
    usage = episode.usage
    counted = usage.prompt_tokens and (usage.completion_tokens or not episode.calls)
    return bool(usage.model_calls and not counted)


def _place(
    episode: Trajectory, grid: Grid, languages: dict[Language, int], queries: dict[str, int]
) -> tuple[int, int, int]:
    language, query = languages.get(episode.language), queries.get(episode.query_id)
    if language is None or query is None or not 0 <= episode.trial < grid.trials:
        raise RunError(f"an episode outside the declared grid: {_name(episode)}")
    if episode.template != grid.queries[query].template:
        raise RunError(
            f"template {episode.template!r} where the grid says {grid.queries[query].template!r}: {_name(episode)}"
        )
    return language, query, episode.trial


def _name(episode: Trajectory) -> str:
    return f"language {episode.language}, query {episode.query_id}, trial {episode.trial}"
