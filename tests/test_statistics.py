"""Statistics of the metrics: estimators against theory, coverage, false positives, power, on simulated agents."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from ticket_gym.errors import ConfigurationError
from ticket_gym.metrics import (
    ESTIMATORS,
    Estimate,
    Grid,
    Outcomes,
    QueryBootstrap,
    QueryInfo,
    adjust_p_values,
    compare_languages,
    compare_runs,
    pass_hat_k,
)
from ticket_gym.metrics.comparison import sign_flip_p_values
from ticket_gym.metrics.distributions import clopper_pearson
from ticket_gym.metrics.estimators import query_scores
from ticket_gym.types import LANGUAGES

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

QUERIES = 170
TEMPLATES = [f"t{1 + query // 10:02}" for query in range(QUERIES)]
RUNS = 1_000
"""Simulated runs per case: with 500, chance alone takes a true 95% out of 93 to 97% in one case of twenty-five."""

SKILLS = {"low": (1.0, 1.5), "middling": (2.0, 1.2), "high": (6.0, 0.6)}
"""Beta distributions of a query's success probability: pass^3 near 0.2, 0.4, 0.85."""


def noisy_oracle(rng: np.random.Generator, p: Floats, languages: int, trials: int) -> Counts:
    """Successes, shape (languages, queries), of an agent that is right with probability `p` on each query."""
    return rng.binomial(trials, p, size=(languages, len(p))).astype(np.int64)


def truths(skill: tuple[float, float], trials: int, k: int = 3) -> list[float]:
    """What each estimator estimates, exact from the moments of the Beta distribution."""
    a, b = skill
    moment = [float(np.prod([(a + j) / (a + b + j) for j in range(m)])) for m in range(k + 1)]
    counts = np.arange(trials + 1)
    chances = stats.betabinom.pmf(counts, trials, a, b)
    return [float(np.sum(chances * (counts / trials) ** k)), moment[k], moment[1] ** k]


def intervals(bootstrap: QueryBootstrap, successes: Counts, trials: int, k: int = 3) -> list[Estimate]:
    """Intervals of the three estimators, in their order."""
    return [
        bootstrap.interval(query_scores(successes, trials, k, "paper").T),
        bootstrap.interval(query_scores(successes, trials, k, "unbiased").T),
        bootstrap.interval((successes / trials).T, power=k),
    ]


def covered(found: Sequence[Estimate], true: Sequence[float]) -> list[bool]:
    """Which intervals hold the truth."""
    return [estimate.low <= truth <= estimate.high for estimate, truth in zip(found, true, strict=True)]


def outcomes(success: NDArray[np.bool_]) -> Outcomes:
    """A complete run from its success table, shape (languages, queries, trials)."""
    queries = tuple(QueryInfo(f"q{i:03}", TEMPLATES[i], True) for i in range(success.shape[1]))
    grid = Grid(LANGUAGES[: success.shape[0]], queries, success.shape[2])
    return Outcomes(grid, success, success, np.ones_like(success), np.zeros_like(success), ())


def run(rng: np.random.Generator, p: Floats, languages: int = 6, trials: int = 3) -> Outcomes:
    """One run of a noisy oracle; `p` has shape (queries,) or (languages, queries)."""
    return outcomes(rng.random((languages, p.shape[-1], trials)) < p[..., None])


# Estimators


def test_estimators_by_hand() -> None:
    """Four queries with 0, 1, 2, 3 of 3."""
    counts = np.array([0, 1, 2, 3])
    assert ESTIMATORS == ("paper", "unbiased", "pooled")
    assert pass_hat_k(counts) == pytest.approx((1 / 27 + 8 / 27 + 1) / 4)
    assert pass_hat_k(counts, estimator="unbiased") == pytest.approx(1 / 4)
    assert pass_hat_k(counts, k=2, estimator="unbiased") == pytest.approx((0 + 0 + 1 / 3 + 1) / 4)
    assert pass_hat_k(counts, estimator="pooled") == pytest.approx(1 / 8)
    assert {pass_hat_k(counts, k=1, estimator=estimator) for estimator in ESTIMATORS} == {0.5}


def test_languages_weigh_equally() -> None:
    """The score of several languages is the mean of theirs, for every estimator."""
    counts = np.random.default_rng(0).integers(0, 4, size=(6, QUERIES))
    for estimator in ESTIMATORS:
        single = [pass_hat_k(row, estimator=estimator) for row in counts]
        assert pass_hat_k(counts, estimator=estimator) == pytest.approx(np.mean(single))


@pytest.mark.parametrize("trials", [3, 10])
@pytest.mark.parametrize("skill", SKILLS.values(), ids=SKILLS)
def test_estimators_land_where_theory_says(skill: tuple[float, float], trials: int) -> None:
    """The mean of many runs of a noisy oracle is what each estimator claims to estimate."""
    rng = np.random.default_rng(1)
    scores = []
    for _ in range(2_000):
        counts = noisy_oracle(rng, rng.beta(*skill, QUERIES), 1, trials)
        scores.append([pass_hat_k(counts, trials, 3, estimator) for estimator in ESTIMATORS])
    means, errors = np.mean(scores, axis=0), np.std(scores, axis=0) / np.sqrt(len(scores))
    # A power of a mean is biased upwards by about half its curvature times the variance of the mean: order 1/N.
    bias = [0.0, 0.0, 3 * skill[0] / sum(skill) * float(np.var(np.cbrt([score[2] for score in scores])))]
    expected = np.add(truths(skill, trials), bias)
    assert np.abs(means - expected) == pytest.approx(0, abs=float(4 * errors.max()))


def test_paper_estimator_lies_above_unbiased_for_few_trials() -> None:
    """The bias that the documentation tells of, and how it shrinks."""
    few, many = truths(SKILLS["middling"], 3), truths(SKILLS["middling"], 100)
    assert few[0] - few[1] > 0.05
    assert 0 < many[0] - many[1] < 0.004
    assert few[2] < few[1]


@pytest.mark.parametrize(
    ("counts", "trials", "k", "estimator", "message"),
    [
        ([1, 2], 3, 4, "unbiased", "at least 4 trials"),
        ([1, 4], 3, 3, "paper", "0..3"),
        ([-1, 2], 3, 3, "pooled", "0..3"),
        ([], 3, 3, "paper", "at least one query"),
        ([1, 2], 3, 0, "paper", "at least 1"),
        ([1, 2], 0, 1, "paper", "at least 1"),
        ([0.5], 3, 3, "paper", "integer"),
    ],
)
def test_impossible_scores_are_refused(counts: list[int], trials: int, k: int, estimator: str, message: str) -> None:
    """Each with a message that says what would be right."""
    array = np.array(counts) if counts else np.array([], dtype=np.int64)
    with pytest.raises(ConfigurationError, match=message):
        pass_hat_k(array, trials, k, estimator)  # type: ignore[arg-type]


# Intervals


@pytest.mark.parametrize(
    ("skill", "trials", "languages"), [("low", 3, 6), ("low", 10, 1), ("middling", 3, 1), ("middling", 10, 6)]
)
def test_intervals_cover_the_truth(skill: str, trials: int, languages: int) -> None:
    """93 to 97% of the 95% intervals hold the truth, for each estimator, one language or all."""
    rng = np.random.default_rng(2)
    bootstrap = QueryBootstrap(QUERIES, resamples=1_999)
    true = truths(SKILLS[skill], trials)
    hits = []
    for _ in range(RUNS):
        counts = noisy_oracle(rng, rng.beta(*SKILLS[skill], QUERIES), languages, trials)
        hits.append(covered(intervals(bootstrap, counts, trials), true))
    coverage = np.mean(hits, axis=0)
    print(f"{skill}, M = {trials}, {languages} language(s): {ESTIMATORS} covered in {coverage}")
    assert np.all((coverage >= 0.93) & (coverage <= 0.97)), coverage


@pytest.mark.parametrize("skill", [(0.05, 3.0), (0.3, 6.0), (6.0, 0.4), (40.0, 0.2)])
def test_intervals_near_the_ends_do_not_promise_too_much(skill: tuple[float, float]) -> None:
    """Agents that nearly always fail or succeed: too wide is allowed, too narrow is not."""
    rng = np.random.default_rng(3)
    bootstrap = QueryBootstrap(QUERIES, resamples=999)
    true = truths(skill, 3)
    hits = []
    for _ in range(RUNS):
        counts = noisy_oracle(rng, rng.beta(*skill, QUERIES), 1, 3)
        hits.append(covered(intervals(bootstrap, counts, 3), true))
    assert np.all(np.mean(hits, axis=0) >= 0.93), np.mean(hits, axis=0)


@pytest.mark.parametrize("trials", [3, 10])
def test_fixed_template_shares(trials: int) -> None:
    """Ten queries of each template, easy and hard ones: plain intervals cover at least, stratified ones exactly."""
    rng = np.random.default_rng(4)
    a = np.linspace(0.15, 0.95, 17) * 5
    every = [truths((float(each), float(5 - each)), trials) for each in a]
    true = [*np.mean(every, axis=0)[:2], float(np.mean(a / 5) ** 3)]
    plain = QueryBootstrap(QUERIES, resamples=999)
    stratified = QueryBootstrap(QUERIES, resamples=999, strata=TEMPLATES)
    hits, widths = [], []
    for _ in range(RUNS):
        counts = noisy_oracle(rng, rng.beta(np.repeat(a, 10), np.repeat(5 - a, 10)), 1, trials)
        both = intervals(plain, counts, trials) + intervals(stratified, counts, trials)
        hits.append(covered(both, true * 2))
        widths.append([estimate.high - estimate.low for estimate in both])
    coverage, width = np.mean(hits, axis=0), np.mean(widths, axis=0)
    print(f"M = {trials}: plain {coverage[:3]}, stratified {coverage[3:]}, widths {width}")
    assert np.all(coverage[:3] >= 0.93)
    assert np.all((coverage[3:] >= 0.93) & (coverage[3:] <= 0.97))
    assert np.all(width[3:] < width[:3])


def test_language_effects_are_part_of_the_overall_interval() -> None:
    """Languages that share each query's difficulty do not count as six times as many queries."""
    rng = np.random.default_rng(5)
    bootstrap = QueryBootstrap(QUERIES)
    p = rng.beta(0.5, 0.4, QUERIES)
    shared, apart = (
        noisy_oracle(rng, p, 6, 10),
        np.stack([noisy_oracle(rng, q, 1, 10)[0] for q in rng.permuted([p] * 6, axis=1)]),
    )
    wide, narrow = (bootstrap.interval(query_scores(counts, 10, 3).T) for counts in (shared, apart))
    assert wide.high - wide.low > 2 * (narrow.high - narrow.low)


def test_agrees_with_scipy() -> None:
    """The interval of a mean is SciPy's BCa interval, but for the correction of the variance and chance."""
    values = np.random.default_rng(6).beta(0.7, 0.4, QUERIES)
    ours = QueryBootstrap(QUERIES, resamples=20_000).interval(values)
    scipys = stats.bootstrap((values,), np.mean, n_resamples=20_000, method="BCa")
    assert ours.value == pytest.approx(values.mean())
    assert (ours.low, ours.high) == pytest.approx(tuple(scipys.confidence_interval), abs=0.006)


def test_pooled_interval_of_one_language_is_the_power_of_the_rate() -> None:
    """The pooled estimator is a monotone function of the success rate, and so are its limits."""
    rates = np.random.default_rng(7).binomial(3, 0.7, QUERIES) / 3
    bootstrap = QueryBootstrap(QUERIES)
    rate, pooled = bootstrap.interval(rates), bootstrap.interval(rates, power=3)
    assert (pooled.value, pooled.low, pooled.high) == pytest.approx(
        (rate.value**3, rate.low**3, rate.high**3), rel=1e-3
    )


@pytest.mark.parametrize("power", [1, 3])
@pytest.mark.parametrize("shape", [(1,), (26,), (170,), (170, 6)])
def test_all_right_and_all_wrong(shape: tuple[int, ...], power: int) -> None:
    """No interval has zero width: what has not been seen in N queries may still be there."""
    bootstrap = QueryBootstrap(shape[0])
    perfect, zero = bootstrap.interval(np.ones(shape), power), bootstrap.interval(np.zeros(shape), power)
    bound = 0.025 ** (1 / shape[0])
    assert (perfect.value, perfect.low, perfect.high) == pytest.approx((1, bound**power, 1))
    assert (zero.value, zero.low, zero.high) == pytest.approx((0, 0, (1 - bound) ** power))


def test_limits_enclose_the_value() -> None:
    """At every score, from one query to many, for scores and for differences."""
    rng = np.random.default_rng(8)
    for queries in (1, 2, 7, 26, 170):
        bootstrap = QueryBootstrap(queries, resamples=499)
        for _ in range(60):
            rates = rng.binomial(3, rng.choice([0.02, 0.5, 0.97]), size=(queries, 6)) / 3
            for found in (bootstrap.interval(rates), bootstrap.interval(rates, power=3)):
                assert 0 <= found.low <= found.value <= found.high <= 1
            apart = bootstrap.difference(rates[:, 0] - rates[:, 1])
            assert -1 <= apart.low <= apart.value <= apart.high <= 1


def test_clopper_pearson_against_scipy() -> None:
    """The exact limits are SciPy's, at counts; between counts they are monotone."""
    for count in (0, 1, 85, 169, 170):
        low, high = clopper_pearson(np.array([float(count)]), 170, 0.95)
        expected = stats.binomtest(count, 170).proportion_ci(0.95, method="exact")
        assert (low[0], high[0]) == pytest.approx((expected.low, expected.high))
    low, high = clopper_pearson(np.linspace(0, 170, 400), 170, 0.95)
    assert np.all(np.diff(low) >= 0)
    assert np.all(np.diff(high) >= 0)


def test_same_seed_same_interval() -> None:
    """And another seed a slightly different one."""
    values = np.random.default_rng(9).random(QUERIES)
    first, again, other = (QueryBootstrap(QUERIES, seed=seed).interval(values) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert first.low == pytest.approx(other.low, abs=0.005)


def test_confidence_widens() -> None:
    """A higher level gives a wider interval."""
    values = np.random.default_rng(10).random(QUERIES)
    narrow, wide = (QueryBootstrap(QUERIES, confidence=level).interval(values) for level in (0.8, 0.99))
    assert wide.low < narrow.low < narrow.high < wide.high


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"queries": 0}, "queries >= 1"),
        ({"queries": 5, "resamples": 10}, "resamples >= 100"),
        ({"queries": 5, "confidence": 95}, "between 0 and 1"),
        ({"queries": 3, "strata": ["a", "a"]}, "each of 3"),
        ({"queries": 3, "strata": ["a", "a", "b"]}, "at least two"),
    ],
)
def test_impossible_bootstraps_are_refused(options: dict[str, object], message: str) -> None:
    """Each with a message that says what would be right."""
    with pytest.raises(ConfigurationError, match=message):
        QueryBootstrap(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("values", [np.ones(4), np.full(5, 1.5), np.full(5, np.nan), np.ones((5, 0))])
def test_impossible_values_are_refused(values: Floats) -> None:
    """Of another length, out of range, not a number, without a column."""
    with pytest.raises(ConfigurationError, match="values must"):
        QueryBootstrap(5).interval(values)


# Comparisons


@pytest.mark.parametrize(("languages", "trials"), [(1, 3), (6, 3), (6, 10)])
def test_identical_agents_differ_at_the_stated_rate(languages: int, trials: int) -> None:
    """Two runs of one agent: p <= 0.05 in about 5%, and the interval leaves out 0 about as often."""
    rng = np.random.default_rng(11)
    bootstrap = QueryBootstrap(QUERIES, resamples=999)
    found, excluded = [], []
    for _ in range(RUNS):
        p = rng.beta(*SKILLS["middling"], QUERIES)
        one, two = (query_scores(noisy_oracle(rng, p, languages, trials), trials, 3).mean(axis=0) for _ in range(2))
        found.append(sign_flip_p_values((one - two)[:, None], permutations=999)[0])
        difference = bootstrap.difference(one - two)
        excluded.append(not difference.low <= 0 <= difference.high)
    rate = float(np.mean(np.array(found) <= 0.05))
    print(
        f"{languages} language(s), M = {trials}: p <= 0.05 in {rate:.3f}, interval without 0 in {np.mean(excluded):.3f}"
    )
    assert 0.03 <= rate <= 0.07
    assert 0.03 <= np.mean(excluded) <= 0.07
    assert stats.kstest(found, "uniform").pvalue > 0.001


def test_ten_points_are_found() -> None:
    """A true difference of 10 points in success on 170 x 6 queries, three trials: found every time, and covered."""
    rng = np.random.default_rng(12)
    p_values, hits = [], []
    for _ in range(50):
        p = rng.uniform(0.2, 1.0, QUERIES)
        better, worse = run(rng, p), run(rng, p - 0.1)
        compared = compare_runs(better, worse, k=1, resamples=999).overall
        p_values.append(compared.p_value)
        hits.append(compared.difference.low <= 0.1 <= compared.difference.high)
        assert compare_runs(better, worse, k=3, resamples=999).overall.p_value <= 0.05
    assert max(p_values) <= 0.01
    assert np.mean(hits) >= 0.86


def test_ten_points_of_pass_hat_3_are_found() -> None:
    """A true difference of 10 points in the benchmark's own score, of a language and of a run."""
    rng = np.random.default_rng(13)
    overall, corrected = [], []
    for _ in range(50):
        solved = rng.random(QUERIES)
        # The first agent masters one query in eight that the second does not; there it scores 0.8 more.
        better, worse = np.where(solved < 0.6, 0.95, 0.3), np.where(solved < 0.6 - 1 / 8, 0.95, 0.3)
        compared = compare_runs(run(rng, better), run(rng, worse), resamples=999)
        overall.append(compared.overall.p_value)
        corrected.append([each.p_adjusted for each in compared.languages.values()])
    found, by_language = (float(np.mean(np.array(p_values) <= 0.05)) for p_values in (overall, corrected))
    print(f"found overall in {found:.2f}, by language {by_language:.2f}")
    assert found >= 0.98
    assert by_language >= 0.75


def test_languages_of_one_agent_rarely_differ() -> None:
    """Fifteen pairs and no true difference: with Holm any finding at all in at most about 5% of runs."""
    rng = np.random.default_rng(14)
    pairs = list(combinations(range(6), 2))
    any_holm, any_bh, any_raw = [], [], []
    for _ in range(400):
        scores = query_scores(noisy_oracle(rng, rng.beta(*SKILLS["middling"], QUERIES), 6, 3), 3, 3)
        p = sign_flip_p_values(np.column_stack([scores[i] - scores[j] for i, j in pairs]), permutations=1_999).tolist()
        any_raw.append(min(p) <= 0.05)
        any_holm.append(min(adjust_p_values(p, "holm")) <= 0.05)
        any_bh.append(min(adjust_p_values(p, "benjamini-hochberg")) <= 0.05)
    print(f"any of 15 pairs: raw {np.mean(any_raw):.3f}, Holm {np.mean(any_holm):.3f}, BH {np.mean(any_bh):.3f}")
    assert np.mean(any_holm) <= 0.075
    assert np.mean(any_bh) <= 0.075
    assert np.mean(any_raw) > 0.2


def test_weak_language_is_found_and_others_are_not() -> None:
    """One language 15 points below the rest: its five pairs are found, the other ten are not."""
    rng = np.random.default_rng(15)
    p = np.tile(rng.uniform(0.4, 1.0, QUERIES), (6, 1))
    p[1] -= 0.15
    compared = compare_languages(run(rng, p))
    assert list(compared) == list(combinations(LANGUAGES, 2))
    for pair, each in compared.items():
        assert each.p_adjusted >= each.p_value
        assert (each.p_adjusted <= 0.05) == ("fr" in pair), (pair, each)
    assert compared["pt", "fr"].difference.value > 0 > compared["fr", "de"].difference.value


def test_runs_without_any_difference() -> None:
    """Nothing to test gives p = 1 and an interval that still has a width."""
    perfect = outcomes(np.ones((6, QUERIES, 3), dtype=np.bool_))
    compared = compare_runs(perfect, perfect)
    assert compared.overall.p_value == compared.overall.p_adjusted == 1
    assert compared.overall.difference.low == pytest.approx(-compared.overall.difference.high)
    assert 0.01 < compared.overall.difference.high < 0.05
    assert set(compared.languages) == set(LANGUAGES)


def test_runs_that_share_no_success() -> None:
    """The greatest difference there is."""
    perfect = outcomes(np.ones((6, QUERIES, 3), dtype=np.bool_))
    nothing = outcomes(np.zeros((6, QUERIES, 3), dtype=np.bool_))
    compared = compare_runs(perfect, nothing).overall
    assert compared.p_value == pytest.approx(1e-4)
    assert (compared.difference.value, compared.difference.high) == (1, 1)
    assert 0.9 < compared.difference.low < 1


def test_runs_on_other_grids_are_refused() -> None:
    """The message says in what they differ."""
    one, two = (outcomes(np.ones((2, QUERIES, trials), dtype=np.bool_)) for trials in (3, 4))
    with pytest.raises(ConfigurationError, match="differ in trials"):
        compare_runs(one, two)
    assert compare_languages(outcomes(np.ones((1, QUERIES, 3), dtype=np.bool_))) == {}


def test_corrections() -> None:
    """Worked examples, in the order given; Benjamini-Hochberg is SciPy's."""
    assert adjust_p_values([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert adjust_p_values([0.9, 0.8]) == [1, 1]
    assert adjust_p_values([0.01, 0.04, 0.03, 0.005], "benjamini-hochberg") == pytest.approx([0.02, 0.04, 0.04, 0.02])
    assert adjust_p_values([0.3, 0.2], "none") == [0.3, 0.2]
    assert adjust_p_values([]) == []
    with pytest.raises(ConfigurationError, match="holm"):
        adjust_p_values([0.1], "bonferroni")  # type: ignore[arg-type]


def test_sign_flip_is_exact_on_few_queries() -> None:
    """Against the full enumeration of all swaps."""
    paired = np.array([0.5, 1.0, 0.25, 0.75, -0.25, 1.0])
    signs = np.array([[1 if code >> bit & 1 else -1 for bit in range(6)] for code in range(64)])
    exact = float(np.mean(np.abs(signs @ paired) >= abs(paired.sum()) - 1e-9))
    assert sign_flip_p_values(paired[:, None], permutations=50_000)[0] == pytest.approx(exact, abs=0.005)
