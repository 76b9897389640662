"""Metrics: episodes onto their grid, missing trials, summaries, and how long it takes."""

import time
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

from ticket_gym.errors import ConfigurationError, RunError
from ticket_gym.metrics import Grid, QueryInfo, Summary, collect_outcomes, compare_languages, pass_hat_k, summarize
from ticket_gym.records import CallRecord, Trajectory, Usage
from ticket_gym.types import LANGUAGES, Language, StopReason

UNSOLVABLE = {
    "t04": 2,
    "t05": 2,
    "t07": 2,
    "t09": 3,
    "t10": 2,
    "t11": 2,
    "t12": 2,
    "t13": 2,
    "t15": 3,
    "t16": 3,
    "t17": 3,
}
QUERIES = tuple(
    QueryInfo(f"t{template:02}-{index:02}", f"t{template:02}", index >= UNSOLVABLE.get(f"t{template:02}", 0))
    for template in range(1, 18)
    for index in range(10)
)
GRID = Grid(LANGUAGES, QUERIES, 3)
SMALL = Grid(("fr", "en"), QUERIES[30:50], 3)
USAGE = Usage(prompt_tokens=100, completion_tokens=20, reasoning_tokens=5, cached_tokens=50, model_calls=2)
CALLS = [
    CallRecord(id="a", name="lister_matchs", tool="list_games", repairs=("number",)),
    CallRecord(id="b", name="acheter", tool="buy_game_ticket", error="unknown_game"),
    CallRecord(id="c", name="nonsense", tool=None, error="unknown_tool"),
    CallRecord(id="d", name="respond", tool=None),
]
CLEAN = [CallRecord(id="a", name="lister_matchs", tool="list_games"), CallRecord(id="b", name="respond", tool=None)]


def episode(language: Language, query: QueryInfo, trial: int, success: bool, **other: Any) -> Trajectory:
    """One record, made without validation because many are needed."""
    fields: dict[str, Any] = {
        "language": language,
        "query_id": query.id,
        "template": query.template,
        "trial": trial,
        "reward": float(success),
        "success": success,
        "stop_reason": StopReason.RESPONDED,
        "calls": CLEAN,
        "steps": 2,
        "usage": USAGE,
        "wall_s": 1.5,
    }
    return Trajectory.model_construct(**(fields | other))


def episodes(grid: Grid, rule: Callable[[Language, QueryInfo, int], bool]) -> Iterator[Trajectory]:
    """A complete run, successes by `rule`."""
    for language, query, trial in product(grid.languages, grid.queries, range(grid.trials)):
        yield episode(language, query, trial, rule(language, query, trial))


def score(records: Iterator[Trajectory] | list[Trajectory], grid: Grid, **options: Any) -> Summary:
    """Collect and summarize with few resamples."""
    return summarize(collect_outcomes(records, grid), **({"resamples": 199} | options))


def test_a_perfect_run() -> None:
    """Everything right, in every language: no deviation, no gap, intervals with a width."""
    summary = score(episodes(GRID, lambda *_: True), GRID)
    assert summary.overall.total.headline.value == 1
    assert 0.9 < summary.overall.total.pass_hat[2].pooled.low < summary.overall.total.headline.low < 1
    assert summary.deviation == 0
    assert list(summary.languages) == list(LANGUAGES)
    assert all(gap.value == 0 and gap.low < 0 < gap.high for gap in summary.gaps.values())
    assert summary.overall.counts.expected == summary.overall.counts.present == 3_060
    assert summary.overall.counts.missing == summary.overall.counts.engine_error == 0
    assert (summary.overall.total.queries, summary.overall.total.episodes) == (170, 3_060)


def test_do_nothing_scores_the_unsolvable_part() -> None:
    """An agent that buys nothing is right on the 26 unsolvable queries only: what any score must be held against."""
    summary = score(episodes(GRID, lambda _, query, __: not query.solvable), GRID)
    assert summary.do_nothing == pytest.approx(26 / 170)
    assert [each.paper.value for each in summary.overall.total.pass_hat] == pytest.approx([26 / 170] * 3)
    assert summary.overall.solvable is not None
    assert summary.overall.unsolvable is not None
    assert (summary.overall.solvable.queries, summary.overall.unsolvable.queries) == (144, 26)
    assert (summary.overall.solvable.headline.value, summary.overall.unsolvable.headline.value) == (0, 1)
    assert (summary.overall.unsolvable.episodes, summary.overall.unsolvable.successes) == (468, 468)
    assert summary.templates["t01"].overall == 0
    assert summary.templates["t17"].overall == pytest.approx(0.3)


def test_missing_trials_and_engine_errors_are_failures() -> None:
    """An agent that is always right, but half of its trials were lost: half the score, and the counts say why."""
    records = [each for each in episodes(SMALL, lambda *_: True) if each.trial == 0 or each.language == "en"]
    records[0] = episode("fr", SMALL.queries[0], 0, True, stop_reason=StopReason.ENGINE_ERROR)
    summary = score(records, SMALL)
    fr, en = summary.languages["fr"], summary.languages["en"]
    assert (fr.counts.expected, fr.counts.present, fr.counts.missing, fr.counts.engine_error) == (60, 20, 40, 1)
    assert fr.counts.stop_reasons[StopReason.ENGINE_ERROR] == 1
    assert fr.total.episodes == 60
    assert fr.total.success_rate.value == pytest.approx(19 / 60)
    assert fr.total.headline.value == pytest.approx(19 / 20 / 27)
    assert fr.total.pass_hat[2].unbiased is not None
    assert fr.total.pass_hat[2].unbiased.value == 0
    assert fr.effort is not None
    assert fr.effort.episodes == 19
    assert en.total.headline.value == 1
    assert summary.overall.total.headline.value == pytest.approx((19 / 20 / 27 + 1) / 2)
    assert (summary.overall.counts.expected, summary.overall.counts.missing) == (120, 40)


def test_nothing_recorded_at_all() -> None:
    """A run that never started is a score of zero with every trial missing, not an error and not a NaN."""
    summary = score([], SMALL)
    assert summary.overall.counts.missing == 120
    assert summary.overall.total.headline.value == 0
    assert 0 < summary.overall.total.headline.high < 0.2
    assert summary.overall.effort is None
    assert summary.overall.tools == {}


def test_scores_are_those_of_the_counts() -> None:
    """Random successes: every language's and the overall value is `pass_hat_k` of the counts; overall is the mean."""
    rng = np.random.default_rng(0)
    table = rng.random((6, 170, 3)) < rng.random((1, 170, 1))
    outcomes = collect_outcomes(episodes(GRID, _lookup(table)), GRID)
    summary = summarize(outcomes, resamples=199)
    assert np.array_equal(outcomes.success, table)
    for row, language in enumerate(LANGUAGES):
        total = summary.languages[language].total
        for each in total.pass_hat:
            counts = table[row].sum(axis=1)
            assert each.unbiased is not None
            assert each.paper.value == pytest.approx(pass_hat_k(counts, 3, each.k, "paper"))
            assert each.unbiased.value == pytest.approx(pass_hat_k(counts, 3, each.k, "unbiased"))
            assert each.pooled.value == pytest.approx(pass_hat_k(counts, 3, each.k, "pooled"))
            assert each.paper.low < each.paper.value < each.paper.high
    values = [each.total.headline.value for each in summary.languages.values()]
    overall = summary.overall.total.headline
    assert overall.value == pytest.approx(np.mean(values))
    assert summary.deviation == pytest.approx(np.std(values))
    gaps = {language: gap.value for language, gap in summary.gaps.items()}
    assert gaps == pytest.approx(
        {language: value - overall.value for language, value in zip(LANGUAGES, values, strict=True)}
    )
    assert np.mean([each.overall for each in summary.templates.values()]) == pytest.approx(overall.value)


def test_strict_score_tools_and_effort() -> None:
    """A repair costs the strict score only; calls, errors and repairs are counted by tool."""
    records = [
        episode(each.language, SMALL.queries[0], each.trial, True, calls=CALLS, steps=4)
        if each.query_id == SMALL.queries[0].id and each.language == "fr"
        else each
        for each in episodes(SMALL, lambda *_: True)
    ]
    fr = score(records, SMALL).languages["fr"]
    assert fr.total.headline.value == 1
    assert fr.strict.headline.value == pytest.approx(19 / 20)
    assert {tool: (use.calls, use.errors, use.repaired) for tool, use in fr.tools.items()} == {
        "buy_game_ticket": (3, 3, 0),
        "list_games": (60, 0, 3),
        "respond": (60, 0, 0),
        "unknown": (3, 3, 0),
    }
    assert fr.error_codes == {"unknown_game": 3, "unknown_tool": 3}
    assert fr.effort is not None
    assert fr.effort.steps == pytest.approx((57 * 2 + 3 * 4) / 60)
    assert (fr.effort.prompt_tokens, fr.effort.model_calls, fr.effort.wall_s) == (100, 2, 1.5)
    assert fr.counts.stop_reasons == {reason: 60 * (reason is StopReason.RESPONDED) for reason in StopReason}


def test_fewer_trials_than_k() -> None:
    """The unbiased estimator does not exist there and is None; the paper's still does."""
    grid = Grid(("pt",), QUERIES, 1)
    summary = score(episodes(grid, lambda *_: True), grid)
    assert [each.unbiased is None for each in summary.overall.total.pass_hat] == [False, True, True]
    assert summary.overall.total.headline.value == 1
    with pytest.raises(ConfigurationError, match="k must be"):
        score([], grid, k=0)


def test_parts_that_a_grid_lacks() -> None:
    """Template t01 has no unsolvable query."""
    grid = Grid(("pt",), QUERIES[:10], 2)
    summary = score(episodes(grid, lambda *_: True), grid)
    assert summary.overall.unsolvable is None
    assert summary.do_nothing == 0


def test_stratified_intervals_keep_the_values() -> None:
    """Only the limits change."""
    rng = np.random.default_rng(1)
    table = rng.random((6, 170, 3)) < np.repeat(np.linspace(0.2, 0.95, 17), 10)[None, :, None]
    outcomes = collect_outcomes(episodes(GRID, _lookup(table)), GRID)
    plain, stratified = (summarize(outcomes, stratify=each).overall.total.headline for each in (False, True))
    assert plain.value == stratified.value
    assert stratified.high - stratified.low < plain.high - plain.low


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"trial": 3}, "outside the declared grid.*trial 3"),
        ({"trial": -1}, "outside the declared grid"),
        ({"language": "pt"}, "outside the declared grid: language pt"),
        ({"query_id": "t01-00"}, "outside the declared grid"),
        ({"template": "t01"}, "template 't01' where the grid says 't04'"),
        ({"trial": 1}, "two records of one episode: language fr, query t04-00, trial 1"),
    ],
)
def test_records_that_do_not_belong(change: dict[str, object], message: str) -> None:
    """An episode twice, or one that was never declared, is an error and never a score."""
    records = list(episodes(SMALL, lambda *_: True))
    records[0] = records[0].model_copy(update=change)
    with pytest.raises(RunError, match=message):
        collect_outcomes(records, SMALL)


@pytest.mark.parametrize(
    ("languages", "queries", "trials"),
    [((), QUERIES, 3), (("pt",), (), 3), (("pt",), QUERIES, 0), (("pt", "pt"), QUERIES, 3), (("pt",), QUERIES * 2, 3)],
)
def test_impossible_grids(languages: tuple[Language, ...], queries: tuple[QueryInfo, ...], trials: int) -> None:
    """Empty axes and repetitions are refused."""
    with pytest.raises(ConfigurationError, match="grid"):
        Grid(languages, queries, trials)


def test_order_of_records_does_not_matter() -> None:
    """Episodes end in any order."""
    rng = np.random.default_rng(2)
    table = rng.random((2, 20, 3)) < 0.5
    records = list(episodes(SMALL, _lookup(table, SMALL)))
    shuffled = [records[index] for index in rng.permutation(len(records))]
    assert score(records, SMALL) == score(shuffled, SMALL)


def test_hundred_thousand_episodes() -> None:
    """Scored in seconds, from a stream; the time is told, not asserted."""
    grid = Grid(LANGUAGES, QUERIES, 100)
    rng = np.random.default_rng(3)
    table = rng.random((6, 170, 100)) < rng.random((1, 170, 1))
    calls = CLEAN * 4
    records = [each.model_copy(update={"calls": calls}) for each in episodes(grid, _lookup(table, grid))]
    start = time.perf_counter()
    outcomes = collect_outcomes(records, grid)
    collected = time.perf_counter()
    summary = summarize(outcomes)
    scored = time.perf_counter()
    compare_languages(outcomes)
    compared = time.perf_counter()
    print(
        f"{len(records)} episodes: collected in {collected - start:.2f} s, scored in {scored - collected:.2f} s, "
        f"15 language pairs in {compared - scored:.2f} s"
    )
    assert summary.overall.counts.present == len(records) == 102_000
    assert summary.overall.total.success_rate.value == pytest.approx(table.mean())


def _lookup(
    table: np.ndarray[Any, np.dtype[np.bool_]], grid: Grid = GRID
) -> Callable[[Language, QueryInfo, int], bool]:
    rows = {language: row for row, language in enumerate(grid.languages)}
    columns = {query.id: column for column, query in enumerate(grid.queries)}
    return lambda language, query, trial: bool(table[rows[language], columns[query.id], trial])
