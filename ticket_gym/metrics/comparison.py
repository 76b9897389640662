"""Paired comparisons on the same queries: two runs, and the languages of one run.

The p-value is that of a permutation test by swapping. Under the null hypothesis the two sides are exchangeable within
each query: swapping all trials (and languages) of a query's two sides changes nothing in distribution. A swap
flips the sign of the query's difference (Fisher 1935; Efron & Tibshirani 1993, chapter 15). With
`p = (1 + #{|T*| >= |T|}) / (1 + permutations)` the test keeps its level for any number of random swaps (Phipson & Smyth
2010, arXiv 1603.05766).

The interval of a difference is a paired bootstrap on the query (see `intervals`), at its own level, not widened
for many comparisons; `p_adjusted` is what to read where several are looked at.

The pooled estimator is not offered: it is a power of the success rate, which k = 1 compares.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np

from ticket_gym.errors import ConfigurationError
from ticket_gym.metrics.distributions import FloatArray, benjamini_hochberg
from ticket_gym.metrics.estimators import MeanEstimator, query_scores
from ticket_gym.metrics.intervals import Estimate, QueryBootstrap
from ticket_gym.metrics.outcomes import Outcomes
from ticket_gym.types import Language

Correction = Literal["holm", "benjamini-hochberg", "none"]
"""Holm (1979, Scand. J. Stat. 6) bounds the chance of any false finding; Benjamini-Hochberg the share of false ones."""

_TIE = 1e-9


@dataclass(frozen=True, slots=True)
class Comparison:
    """First minus second.

    Attributes:
        difference: Difference of the scores, a fraction, with its own interval.
        p_value: Two-sided, of this comparison alone.
        p_adjusted: Corrected for the comparisons that were made along with it.
    """

    difference: Estimate
    p_value: float
    p_adjusted: float


@dataclass(frozen=True, slots=True)
class RunComparison:
    """Two runs on the same grid.

    Attributes:
        overall: Mean of the languages; one question, hence not corrected.
        languages: Each language, corrected for their number.
    """

    overall: Comparison
    languages: dict[Language, Comparison]


def compare_runs(
    first: Outcomes,
    second: Outcomes,
    *,
    k: int = 3,
    estimator: MeanEstimator = "paper",
    correction: Correction = "holm",
    confidence: float = 0.95,
    resamples: int = 9_999,
    seed: int = 0,
) -> RunComparison:
    """Compare two runs on pass^k, overall and in each language.

    Args:
        first: One run.
        second: The other; it must declare the same grid, trials included.
        k: How many trials must all succeed.
        estimator: The paper's, or the unbiased one.
        correction: How the languages' p-values are adjusted.
        confidence: Level of the intervals.
        resamples: Bootstrap resamples, and permutations of the test.
        seed: Seed of both.

    Raises:
        ConfigurationError: The grids differ, or an option cannot be used.
    """
    if first.grid != second.grid:
        raise ConfigurationError(f"runs can be compared only on one grid; they differ in {_differing(first, second)}")
    trials, languages = first.grid.trials, first.grid.languages
    scores = [query_scores(run.successes, trials, k, estimator) for run in (first, second)]
    by_language = (scores[0] - scores[1]).T
    paired = np.column_stack([by_language.mean(axis=1), by_language])
    overall, *rest = _compare(paired, "none", confidence, resamples, seed)
    p_adjusted = adjust_p_values([each.p_value for each in rest], correction)
    corrected = (Comparison(each.difference, each.p_value, p) for each, p in zip(rest, p_adjusted, strict=True))
    return RunComparison(overall, dict(zip(languages, corrected, strict=True)))


def compare_languages(
    outcomes: Outcomes,
    *,
    k: int = 3,
    estimator: MeanEstimator = "paper",
    correction: Correction = "holm",
    confidence: float = 0.95,
    resamples: int = 9_999,
    seed: int = 0,
) -> dict[tuple[Language, Language], Comparison]:
    """Compare the languages of one run in pairs: for six languages 15 comparisons, corrected for their number.

    Every query is the same in all languages, so that a pair is compared query by query. Options as in `compare_runs`.

    Raises:
        ConfigurationError: An option cannot be used.
    """
    pairs = list(combinations(range(len(outcomes.grid.languages)), 2))
    if not pairs:
        return {}
    scores = query_scores(outcomes.successes, outcomes.grid.trials, k, estimator)
    paired = np.column_stack([scores[one] - scores[other] for one, other in pairs])
    names = [(outcomes.grid.languages[one], outcomes.grid.languages[other]) for one, other in pairs]
    return dict(zip(names, _compare(paired, correction, confidence, resamples, seed), strict=True))


def sign_flip_p_values(paired: FloatArray, *, permutations: int = 9_999, seed: int = 0) -> FloatArray:
    """Two-sided p-values that the mean of each column of paired differences is zero.

    Args:
        paired: Differences, shape (queries, comparisons).
        permutations: Random swaps, the same for all columns.
        seed: Seed of the swaps.

    Returns:
        Shape (comparisons,); at least `1 / (1 + permutations)`, and 1 where there is no difference at all.

    Raises:
        ConfigurationError: No queries, or fewer than 100 permutations.
    """
    queries = paired.shape[0]
    if queries < 1 or permutations < 100 or seed < 0:
        raise ConfigurationError(
            "a permutation test needs queries >= 1, permutations >= 100 and seed >= 0; "
            f"got queries={queries}, permutations={permutations}, seed={seed}"
        )
    rng = np.random.default_rng([seed, queries, 1])
    signs = rng.integers(0, 2, size=(permutations, queries)) * 2.0 - 1.0
    extreme = np.abs(signs @ paired) >= np.abs(paired.sum(axis=0)) - _TIE
    return np.asarray((1.0 + extreme.sum(axis=0)) / (1.0 + permutations), dtype=np.float64)


def adjust_p_values(p_values: Sequence[float], correction: Correction = "holm") -> list[float]:
    """P-values corrected for their number, in the order given.

    Raises:
        ConfigurationError: An unknown correction.
    """
    p = np.asarray(p_values, dtype=np.float64)
    if correction == "none" or p.size == 0:
        return [float(each) for each in p]
    if correction == "benjamini-hochberg":
        return [float(each) for each in benjamini_hochberg(p)]
    if correction != "holm":
        raise ConfigurationError(f"correction must be 'holm', 'benjamini-hochberg' or 'none'; got {correction!r}")
    order = np.argsort(p, kind="stable")
    stepped = np.minimum(np.maximum.accumulate(p[order] * np.arange(p.size, 0, -1)), 1.0)
    adjusted = np.empty_like(p)
    adjusted[order] = stepped
    return [float(each) for each in adjusted]


def _compare(
    paired: FloatArray, correction: Correction, confidence: float, resamples: int, seed: int
) -> list[Comparison]:
    """One comparison for each column of differences, shape (queries, comparisons)."""
    bootstrap = QueryBootstrap(len(paired), resamples=resamples, confidence=confidence, seed=seed)
    p_values = [float(p) for p in sign_flip_p_values(paired, permutations=resamples, seed=seed)]
    adjusted = adjust_p_values(p_values, correction)
    return [
        Comparison(bootstrap.difference(column), p, q)
        for column, p, q in zip(paired.T, p_values, adjusted, strict=True)
    ]


def _differing(first: Outcomes, second: Outcomes) -> str:
    axes = ("languages", "queries", "trials")
    return ", ".join(axis for axis in axes if getattr(first.grid, axis) != getattr(second.grid, axis))
