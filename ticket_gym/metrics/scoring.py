"""Scoring a run: from its outcomes to its summary."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ticket_gym.errors import ConfigurationError
from ticket_gym.metrics.distributions import FloatArray
from ticket_gym.metrics.estimators import IntArray, query_scores
from ticket_gym.metrics.intervals import QueryBootstrap
from ticket_gym.metrics.outcomes import BoolArray, Outcomes, QueryInfo, Tally
from ticket_gym.metrics.summary import (
    Counts,
    Effort,
    GroupSummary,
    PassHat,
    Score,
    Summary,
    TemplateSummary,
    ToolUse,
)
from ticket_gym.types import StopReason


class _Part(NamedTuple):
    """A set of queries, as a mask over the grid's, with its resamples."""

    mask: BoolArray
    bootstrap: QueryBootstrap


def summarize(
    outcomes: Outcomes,
    *,
    k: int = 3,
    confidence: float = 0.95,
    stratify: bool = False,
    resamples: int = 9_999,
    seed: int = 0,
) -> Summary:
    """Score a run.

    Args:
        outcomes: The run on its grid.
        k: Greatest k of pass^k; smaller ones are given too.
        confidence: Level of the intervals.
        stratify: Whether intervals are about new queries from these templates in these shares, which makes them
            narrower, or about new requests of any template (see `intervals`).
        resamples: Bootstrap resamples.
        seed: Seed of the bootstrap; the same seed gives the same summary.

    Raises:
        ConfigurationError: An option cannot be used.
    """
    if k < 1:
        raise ConfigurationError(f"k must be at least 1; got {k}")
    grid = outcomes.grid
    parts = _parts(grid.queries, stratify, resamples, confidence, seed)
    scores = query_scores(outcomes.successes, grid.trials, k)
    by_language = scores.mean(axis=1)
    bootstrap = parts["total"].bootstrap
    return Summary(
        k=k,
        trials=grid.trials,
        confidence=confidence,
        do_nothing=float(np.mean([not query.solvable for query in grid.queries])),
        overall=_group(outcomes, list(range(len(grid.languages))), parts, k),
        languages={language: _group(outcomes, [row], parts, k) for row, language in enumerate(grid.languages)},
        gaps={
            language: bootstrap.difference(scores[row] - scores.mean(axis=0))
            for row, language in enumerate(grid.languages)
        },
        deviation=float(np.std(by_language)),
        templates=_templates(outcomes, scores),
    )


def _parts(
    queries: Sequence[QueryInfo], stratify: bool, resamples: int, confidence: float, seed: int
) -> dict[str, _Part]:
    """All queries, the solvable and the unsolvable ones; a part without queries is left out."""
    solvable = np.array([query.solvable for query in queries], dtype=np.bool_)
    parts: dict[str, _Part] = {}
    for name, mask in (("total", np.ones_like(solvable)), ("solvable", solvable), ("unsolvable", ~solvable)):
        templates = [query.template for query, inside in zip(queries, mask, strict=True) if inside]
        if templates:
            strata = templates if stratify else None
            parts[name] = _Part(
                mask,
                QueryBootstrap(len(templates), strata=strata, resamples=resamples, confidence=confidence, seed=seed),
            )
    return parts


def _group(outcomes: Outcomes, rows: list[int], parts: dict[str, _Part], k: int) -> GroupSummary:
    trials = outcomes.grid.trials
    successes = outcomes.successes[rows]
    by_part = {name: _score(successes[:, mask], trials, k, bootstrap) for name, (mask, bootstrap) in parts.items()}
    tally = Tally()
    for row in rows:
        tally.merge(outcomes.tallies[row])
    return GroupSummary(
        counts=_counts(outcomes, rows, tally),
        total=by_part["total"],
        solvable=by_part.get("solvable"),
        unsolvable=by_part.get("unsolvable"),
        strict=_score(outcomes.strict_successes[rows], trials, k, parts["total"].bootstrap),
        effort=_effort(tally),
        tools={
            tool: ToolUse(calls, tally.errors[tool], tally.repaired[tool])
            for tool, calls in sorted(tally.calls.items())
        },
        error_codes=dict(sorted(tally.error_codes.items())),
    )


def _score(successes: IntArray, trials: int, k: int, bootstrap: QueryBootstrap) -> Score:
    """Score from counts of successes, shape (languages, queries)."""
    rates: FloatArray = successes.T / trials
    pass_hat = tuple(
        PassHat(
            k=each,
            paper=bootstrap.interval(query_scores(successes, trials, each, "paper").T),
            unbiased=(
                bootstrap.interval(query_scores(successes, trials, each, "unbiased").T) if each <= trials else None
            ),
            pooled=bootstrap.interval(rates, power=each),
        )
        for each in range(1, k + 1)
    )
    return Score(
        queries=successes.shape[1],
        episodes=successes.size * trials,
        successes=int(successes.sum()),
        pass_hat=pass_hat,
    )


def _counts(outcomes: Outcomes, rows: list[int], tally: Tally) -> Counts:
    recorded = outcomes.recorded[rows]
    return Counts(
        expected=recorded.size,
        present=int(recorded.sum()),
        missing=int((~recorded).sum()),
        engine_error=int(outcomes.engine_error[rows].sum()),
        stop_reasons={reason: tally.stop_reasons[reason] for reason in StopReason},
    )


def _effort(tally: Tally) -> Effort | None:
    if not tally.played:
        return None
    return Effort(
        episodes=tally.played,
        steps=tally.steps / tally.played,
        prompt_tokens=tally.prompt_tokens / tally.played,
        completion_tokens=tally.completion_tokens / tally.played,
        reasoning_tokens=tally.reasoning_tokens / tally.played,
        cached_tokens=tally.cached_tokens / tally.played,
        model_calls=tally.model_calls / tally.played,
        wall_s=tally.wall_s / tally.played,
    )


def _templates(outcomes: Outcomes, scores: FloatArray) -> dict[str, TemplateSummary]:
    """Means by template of each query's score, shape (languages, queries)."""
    grid = outcomes.grid
    templates: dict[str, TemplateSummary] = {}
    for template in sorted({query.template for query in grid.queries}):
        members = [column for column, query in enumerate(grid.queries) if query.template == template]
        means = scores[:, members].mean(axis=1)
        languages = {language: float(mean) for language, mean in zip(grid.languages, means, strict=True)}
        templates[template] = TemplateSummary(len(members), float(means.mean()), languages)
    return templates
