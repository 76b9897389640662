"""What scoring a run gives: the scores, with everything that must stand beside a score.

Every score is over the whole declared grid: a missing trial and an engine error count as failures, and their
numbers are in `Counts`. "Overall" is the mean of the languages, each with the same weight.
"""

from dataclasses import dataclass

from ticket_gym.metrics.intervals import Estimate
from ticket_gym.types import Language, StopReason


@dataclass(frozen=True, slots=True)
class PassHat:
    """pass^k by the three estimators (see `estimators`); `unbiased` is None where k exceeds the number of trials."""

    k: int
    paper: Estimate
    unbiased: Estimate | None
    pooled: Estimate


@dataclass(frozen=True, slots=True)
class Score:
    """The score on a set of queries.

    Attributes:
        queries: Queries in the set.
        episodes: Declared episodes, played or not.
        successes: Successful ones among them.
        pass_hat: pass^1, pass^2 and so on.
    """

    queries: int
    episodes: int
    successes: int
    pass_hat: tuple[PassHat, ...]

    @property
    def success_rate(self) -> Estimate:
        """Share of successful episodes, which is pass^1."""
        return self.pass_hat[0].paper

    @property
    def headline(self) -> Estimate:
        """The paper's estimator at the greatest k."""
        return self.pass_hat[-1].paper


@dataclass(frozen=True, slots=True)
class Counts:
    """Episodes: `expected = present + missing`; `engine_error` and `stop_reasons` are of those present."""

    expected: int
    present: int
    missing: int
    engine_error: int
    stop_reasons: dict[StopReason, int]


@dataclass(frozen=True, slots=True)
class Effort:
    """Means per episode over the `episodes` that were played (engine errors left out)."""

    episodes: int
    steps: float
    prompt_tokens: float
    completion_tokens: float
    reasoning_tokens: float
    cached_tokens: float
    model_calls: float
    wall_s: float


@dataclass(frozen=True, slots=True)
class ToolUse:
    """Calls of one tool, those answered by an error, and those that needed a repair."""

    calls: int
    errors: int
    repaired: int


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """One language, or all of them.

    Attributes:
        counts: Episodes declared, present, missing.
        total: Score on all queries.
        solvable: Score on the queries that some game satisfies; None where the grid has none.
        unsolvable: Score on the queries where nothing may be bought; None where the grid has none.
        strict: Score on all queries where a success must have needed no repair.
        effort: Steps, tokens and time; None where no episode was played.
        tools: Use by canonical tool; `respond` is the answer, `unknown` a name that no tool has.
        error_codes: Error observations by code.
    """

    counts: Counts
    total: Score
    solvable: Score | None
    unsolvable: Score | None
    strict: Score
    effort: Effort | None
    tools: dict[str, ToolUse]
    error_codes: dict[str, int]


@dataclass(frozen=True, slots=True)
class TemplateSummary:
    """The paper's pass^k on one template: point values only, for its queries are few."""

    queries: int
    overall: float
    languages: dict[Language, float]


@dataclass(frozen=True, slots=True)
class Summary:
    """One run, scored.

    Attributes:
        k: The greatest k, that of `Score.headline`.
        trials: M.
        confidence: Level of all intervals.
        do_nothing: pass^k, any k, of an agent that never buys: the share of unsolvable queries.
        overall: All languages with the same weight.
        languages: Each language of the grid, in its order.
        gaps: Language minus overall, of the headline score.
        deviation: Standard deviation (divisor: the number of languages) of the headline score across languages.
        templates: The headline score by template.
    """

    k: int
    trials: int
    confidence: float
    do_nothing: float
    overall: GroupSummary
    languages: dict[Language, GroupSummary]
    gaps: dict[Language, Estimate]
    deviation: float
    templates: dict[str, TemplateSummary]
