"""pass^k: the chance that k independent trials of a query all succeed, by three labelled estimators.

pass^k comes from tau-bench (Yao et al. 2024, arXiv 2406.12045). With c successes in M trials of each of N queries:

- **paper**, `(1/N) sum (c/M)^k`: the benchmark's own score. It estimates `E[(c/M)^k]`, which for k > 1 lies above
  `E[p^k]`, p being a query's true success probability; the more so the smaller M is.
- **unbiased**, `(1/N) sum C(c,k) / C(M,k)`: estimates `E[p^k]` without bias, the analogue of the pass@k of Chen et al.
  (2021, arXiv 2107.03374).
- **pooled**, `((1/N) sum c/M)^k`: estimates `(E p)^k`, as if every query were equally hard; at most `E[p^k]`.

The three agree for k = 1.
"""

from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from ticket_gym.errors import ConfigurationError
from ticket_gym.metrics.distributions import FloatArray

Estimator = Literal["paper", "unbiased", "pooled"]
ESTIMATORS: tuple[Estimator, ...] = get_args(Estimator)
"""The three estimators, the paper's first."""

MeanEstimator = Literal["paper", "unbiased"]
"""The estimators that are a mean of one value per query."""

IntArray = NDArray[np.int64]


def pass_hat_k(successes: IntArray, trials: int = 3, k: int = 3, estimator: Estimator = "paper") -> float:
    """One pass^k score, in [0, 1].

    Args:
        successes: Successful trials of each query, shape (queries,), or (languages, queries) for the mean of the
            languages' scores.
        trials: M, the trials of every query; a trial that is missing is no success.
        k: How many trials must all succeed.
        estimator: Which of the three formulas.

    Raises:
        ConfigurationError: Counts outside 0..`trials`, no counts at all, `k` below 1, or `k` above `trials` with the
            unbiased estimator, which does not exist then.
    """
    if estimator == "pooled":
        _check(successes, trials, k)
        rates: FloatArray = np.mean(successes, axis=-1) / trials
        return float(np.mean(rates**k))
    return float(np.mean(query_scores(successes, trials, k, estimator)))


def query_scores(successes: IntArray, trials: int, k: int, estimator: MeanEstimator = "paper") -> FloatArray:
    """What each query contributes to pass^k: `(c/M)^k` or `C(c,k) / C(M,k)`, in [0, 1], shaped like `successes`.

    Raises:
        ConfigurationError: As `pass_hat_k`.
    """
    _check(successes, trials, k)
    if estimator == "paper":
        return np.asarray((successes / trials) ** k, dtype=np.float64)
    if estimator != "unbiased":
        raise ConfigurationError(f"estimator must be 'paper' or 'unbiased' for scores by query; got {estimator!r}")
    if k > trials:
        raise ConfigurationError(f"the unbiased pass^{k} needs at least {k} trials of each query; got {trials}")
    scores = np.ones(successes.shape, dtype=np.float64)
    for drawn in range(k):
        scores *= np.maximum(successes - drawn, 0) / (trials - drawn)
    return scores


def _check(successes: IntArray, trials: int, k: int) -> None:
    if trials < 1 or k < 1:
        raise ConfigurationError(f"trials and k must be at least 1; got trials={trials}, k={k}")
    if successes.size == 0:
        raise ConfigurationError("pass^k needs at least one query")
    if not np.issubdtype(successes.dtype, np.integer):
        raise ConfigurationError(f"successes must be an integer array; got {successes.dtype}")
    if successes.min() < 0 or successes.max() > trials:
        raise ConfigurationError(f"successes must lie in 0..{trials}; got {successes.min()}..{successes.max()}")
