"""Confidence intervals by a bootstrap clustered on the query.

Population. The queries count as a random draw from the requests that the templates can produce, and the trials as a
draw from the agent. An interval is about the score over that population, not about these very queries. All languages
of a query, and all its trials, move together, because they share its difficulty. An interval aims at what its
estimator estimates (see `estimators`): the paper's covers `E[(c/M)^k]`, not `E[p^k]`.

Templates. By default queries are resampled without regard to their template. A benchmark that fixes how many queries
each template has varies less than that, and such an interval covers at least its level. With `strata` the resampling
stays within each template, and the population is new queries from these templates in these shares.

Method. BCa (Efron 1987, JASA 82; Efron & Tibshirani 1993, chapter 14). Each stratum of n queries is resampled n - 1
at a time and rescaled (Rao & Wu 1988, JASA 83), which makes the bootstrap variance unbiased, also in small strata.
Where fewer than `EDGE` successes or failures are there to resample (all right, all wrong, few queries) a bootstrap
has too little to work with, or no width at all; exact Clopper-Pearson limits on the number of queries take its place.
They are wide rather than too narrow: all of 170 queries right gives 0.979 to 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ticket_gym.errors import ConfigurationError
from ticket_gym.metrics.distributions import (
    FloatArray,
    check_confidence,
    clopper_pearson,
    normal_cdf,
    normal_quantile,
)

EDGE = 5.0
"""Fewer expected successes or failures than this, counted in queries: exact limits instead of the bootstrap."""

_TIE = 1e-12


@dataclass(frozen=True, slots=True)
class Estimate:
    """A score with its confidence interval; all three are fractions, not percent."""

    value: float
    low: float
    high: float


class QueryBootstrap:
    """Resamples of N queries, drawn once and used for every interval about them.

    The same arguments give the same intervals, to the bit on one platform.

    Attributes:
        queries: N.
        confidence: Two-sided level.
    """

    def __init__(
        self,
        queries: int,
        *,
        strata: Sequence[str] | None = None,
        resamples: int = 9_999,
        confidence: float = 0.95,
        seed: int = 0,
    ) -> None:
        """Draw the resamples.

        Args:
            queries: N, the number of clusters.
            strata: Stratum (such as the template) of each query, to resample within strata.
            resamples: How many resamples; they hold `resamples` x N floats.
            confidence: Two-sided level.
            seed: Seed of the draw.

        Raises:
            ConfigurationError: No queries, too few resamples, an impossible level, `strata` of another length, or a
                stratum with a single query, which shows no variation.
        """
        check_confidence(confidence)
        if queries < 1 or resamples < 100 or seed < 0:
            raise ConfigurationError(
                "a bootstrap needs queries >= 1, resamples >= 100 and seed >= 0; "
                f"got queries={queries}, resamples={resamples}, seed={seed}"
            )
        self.queries = queries
        self.confidence = confidence
        self._strata = _members(queries, strata)
        self._weights = _resample(self._strata, queries, resamples, np.random.default_rng([seed, queries]))

    def interval(self, values: FloatArray, power: int = 1) -> Estimate:
        """The mean of `values` over the queries, and for `power` > 1 the mean over columns of each mean's power.

        Args:
            values: Values in [0, 1], shape (queries,) or (queries, languages).
            power: k of the pooled estimator.

        Raises:
            ConfigurationError: `values` of another length, or outside [0, 1].
        """
        columns = self._columns(values, 0.0)
        if power == 1:
            columns = columns.mean(axis=1, keepdims=True)
        means = columns.mean(axis=0)
        value = float(np.mean(means**power))
        mass = self.queries * float(means.mean())
        if min(mass, self.queries - mass) < EDGE or _constant(columns):
            low, high = clopper_pearson(self.queries * means, self.queries, self.confidence)
            return Estimate(value, float(np.mean(low**power)), float(np.mean(high**power)))
        draws = np.mean((self._weights @ columns) ** power, axis=1)
        slopes = power * means ** (power - 1)
        influence: FloatArray = (columns - means) @ slopes
        return Estimate(value, *self._bca(value, draws, influence))

    def difference(self, values: FloatArray) -> Estimate:
        """The mean of paired differences over the queries.

        Near no difference at all, or the greatest possible, exact limits of the gains and of the losses are combined.

        Args:
            values: Differences in [-1, 1], shape (queries,) or (queries, languages).

        Raises:
            ConfigurationError: `values` of another length, or outside [-1, 1].
        """
        columns = self._columns(values, -1.0).mean(axis=1, keepdims=True)
        paired = columns[:, 0]
        value = float(paired.mean())
        if min(np.abs(paired).sum(), self.queries - abs(paired.sum())) < EDGE or _constant(columns):
            totals = np.array([np.maximum(paired, 0.0).sum(), np.maximum(-paired, 0.0).sum()])
            low, high = clopper_pearson(totals, self.queries, self.confidence)
            return Estimate(value, float(low[0] - high[1]), float(high[0] - low[1]))
        return Estimate(value, *self._bca(value, (self._weights @ columns)[:, 0], paired - value))

    def _columns(self, values: FloatArray, lowest: float) -> FloatArray:
        columns = values[:, None] if values.ndim == 1 else values
        if columns.ndim != 2 or columns.shape[0] != self.queries or columns.shape[1] == 0:
            raise ConfigurationError(f"values must have a row for each of {self.queries} queries; got {values.shape}")
        if not (columns.min() >= lowest and columns.max() <= 1.0):
            raise ConfigurationError(f"values must lie in {lowest:g}..1; got {columns.min()}..{columns.max()}")
        return columns

    def _bca(self, value: float, draws: FloatArray, influence: FloatArray) -> tuple[float, float]:
        """Limits from the resampled statistics and each query's influence on the statistic."""
        below = (np.mean(draws < value - _TIE) + np.mean(draws <= value + _TIE)) / 2.0
        bias = normal_quantile(float(np.clip(below, 1.0 / len(draws), 1.0 - 1.0 / len(draws))))
        centred = influence.copy()
        for members in self._strata:
            centred[members] -= centred[members].mean()
        spread = float(np.sum(centred**2))
        acceleration = float(np.sum(centred**3)) / (6.0 * spread**1.5) if spread > _TIE else 0.0
        reach = normal_quantile((1.0 + self.confidence) / 2.0)
        levels = [_bca_level(bias, acceleration, -reach), _bca_level(bias, acceleration, reach)]
        low, high = np.quantile(draws, levels)
        return float(low), float(high)


def _bca_level(bias: float, acceleration: float, reach: float) -> float:
    shifted = bias + reach
    return normal_cdf(bias + shifted / (1.0 - acceleration * shifted))


def _constant(columns: FloatArray) -> bool:
    return bool(np.all(np.ptp(columns, axis=0) < _TIE))


def _members(queries: int, strata: Sequence[str] | None) -> list[np.ndarray[tuple[int], np.dtype[np.intp]]]:
    """Indices of the queries of each stratum."""
    if strata is None:
        return [np.arange(queries, dtype=np.intp)]
    if len(strata) != queries:
        raise ConfigurationError(f"strata must name one stratum for each of {queries} queries; got {len(strata)}")
    names = np.asarray(strata)
    members = [np.flatnonzero(names == name) for name in sorted(set(strata))]
    if min(len(indices) for indices in members) < 2:
        raise ConfigurationError("every stratum needs at least two queries; leave strata out to resample all together")
    return members


def _resample(
    strata: list[np.ndarray[tuple[int], np.dtype[np.intp]]], queries: int, resamples: int, rng: np.random.Generator
) -> FloatArray:
    """Weights of every query in every resample, shape (resamples, queries); each row sums to 1."""
    weights = np.empty((resamples, queries), dtype=np.float64)
    for members in strata:
        size = len(members)
        drawn = max(size - 1, 1)
        counts = rng.multinomial(drawn, np.full(size, 1.0 / size), size=resamples)
        weights[:, members] = counts * (size / (drawn * queries))
    return weights
