"""The one place that touches SciPy: distribution functions and exact limits, with types."""

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from ticket_gym.errors import ConfigurationError

FloatArray = NDArray[np.float64]


def normal_cdf(x: float) -> float:
    """Standard normal distribution function."""
    return float(special.ndtr(x))


def normal_quantile(p: float) -> float:
    """Standard normal quantile."""
    return float(special.ndtri(p))


def clopper_pearson(total: FloatArray, n: int, confidence: float) -> tuple[FloatArray, FloatArray]:
    """Exact binomial limits (Clopper & Pearson 1934, Biometrika 26).

    `total` may be fractional: the sum of `n` independent values in [0, 1] varies at most as much as a binomial count of
    the same mean does, so that the limits err on the wide side.

    Args:
        total: Sums of `n` values in [0, 1], any shape.
        n: Number of values in each sum.
        confidence: Two-sided level, such as 0.95.

    Returns:
        Lower and upper limits of the mean, in [0, 1], shaped like `total`.
    """
    total = np.clip(total, 0.0, float(n))
    tail = (1.0 - confidence) / 2.0
    inner_low, inner_high = np.maximum(total, 1e-300), np.maximum(n - total, 1e-300)
    low = np.where(total > 0, special.betaincinv(inner_low, n - total + 1.0, tail), 0.0)
    high = np.where(total < n, special.betaincinv(total + 1.0, inner_high, 1.0 - tail), 1.0)
    return low, high


def benjamini_hochberg(p_values: FloatArray) -> FloatArray:
    """P-values adjusted to control the false discovery rate (Benjamini & Hochberg 1995, JRSS B 57)."""
    return np.asarray(stats.false_discovery_control(p_values, method="bh"), dtype=np.float64)


def check_confidence(confidence: float) -> None:
    """Refuse a level that is no probability.

    Raises:
        ConfigurationError: `confidence` is not strictly between 0 and 1.
    """
    if not 0.0 < confidence < 1.0:
        raise ConfigurationError(f"confidence must lie strictly between 0 and 1, such as 0.95; got {confidence!r}")
