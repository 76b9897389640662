"""An agent whose true score is known: played by the real runner, every estimator finds what theory says."""

from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats

from ticket_gym.agents import NoisyOracle, make_agent
from ticket_gym.errors import ConfigurationError
from ticket_gym.journal import MemoryJournal
from ticket_gym.metrics import ESTIMATORS, Grid, Outcomes, QueryInfo, collect_outcomes, pass_hat_k, summarize
from ticket_gym.metrics.estimators import Estimator
from ticket_gym.plan import make_config
from ticket_gym.records import RunConfig, Trajectory
from ticket_gym.runner import play
from ticket_gym.tasks import get_benchmark
from ticket_gym.types import Language, StopReason


def outcome_of(config: RunConfig, episodes: Sequence[Trajectory]) -> Outcomes:
    """Outcomes on the run's own grid."""
    tasks = get_benchmark().by_id
    queries = tuple(QueryInfo(query, tasks[query].template, tasks[query].solvable) for query in config.queries)
    return collect_outcomes(episodes, Grid(config.languages, queries, config.trials))


def moments(p: float, trials: int, k: int, estimator: Estimator) -> tuple[float, float]:
    """Mean and variance of what one query contributes, by summing over all counts of successes."""
    counts = np.arange(trials + 1)
    chances = stats.binom.pmf(counts, trials, p)
    values = np.array([pass_hat_k(np.array([count]), trials, k, estimator) for count in counts])
    mean = float(chances @ values)
    return mean, float(chances @ (values - mean) ** 2)


@pytest.mark.parametrize("trials", [3, 10])
def test_estimators_of_a_noisy_oracle_land_where_theory_says(trials: int) -> None:
    """Each query has its own probability; every estimator is within four standard errors of its expectation."""
    ids = [task.id for task in get_benchmark().tasks]
    chances = dict(zip(ids, np.random.default_rng(1).beta(3, 1.5, len(ids)).tolist(), strict=True))
    agent = NoisyOracle(chances)
    languages: list[Language] = ["fr"] if trials == 10 else ["fr", "en"]
    config = make_config(agent, languages=languages, trials=trials, seed=2)
    journal = MemoryJournal()
    play(config, agent, journal)
    outcomes = outcome_of(config, journal.episodes)
    summary = summarize(outcomes, resamples=999)
    for estimator in ESTIMATORS[:2]:
        expected = [moments(p, trials, 3, estimator) for p in chances.values()]
        mean = float(np.mean([mean for mean, _ in expected]))
        error = float(np.sqrt(sum(variance for _, variance in expected) / len(languages))) / len(ids)
        found = getattr(summary.overall.total.pass_hat[2], estimator)
        assert abs(found.value - mean) < 4 * error, (estimator, found.value, mean, error)
    p = np.array(list(chances.values()))
    error = float(np.sqrt((p * (1 - p)).sum() / trials / len(languages))) / len(ids)
    assert abs(summary.overall.total.success_rate.value - p.mean()) < 4 * error
    pooled = summary.overall.total.pass_hat[2].pooled
    assert abs(pooled.value ** (1 / 3) - p.mean()) < 4 * error
    headline = summary.overall.total.headline
    assert headline.low < headline.value < headline.high


def test_a_noisy_oracle_is_right_always_never_or_as_often_as_said() -> None:
    """Never means on solvable and unsolvable queries alike."""
    for name, low, high in (("noisy_oracle:1", 170, 170), ("noisy_oracle:0", 0, 0), ("noisy_oracle:0.7", 95, 143)):
        agent = make_agent(name)
        journal = MemoryJournal()
        last = play(make_config(agent, languages=["es"], trials=1), agent, journal)
        assert low <= last.successes <= high
        assert all(one.stop_reason is StopReason.RESPONDED for one in journal.episodes)


@pytest.mark.parametrize("name", ["noisy_oracle", "noisy_oracle:x", "noisy_oracle:1.5", "noisy_oracle:nan", "orakel"])
def test_unknown_agents_are_refused(name: str) -> None:
    """With the names that there are."""
    with pytest.raises(ConfigurationError, match=r"oracle"):
        make_agent(name)
