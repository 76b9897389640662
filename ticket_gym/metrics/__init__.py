"""Scores with their uncertainty: pure functions over stored episodes.

`collect_outcomes` reads the episodes of a run onto its declared grid; `summarize` scores them; `compare_runs` and
`compare_languages` say what differs.
"""

from ticket_gym.metrics.comparison import (
    Comparison,
    RunComparison,
    adjust_p_values,
    compare_languages,
    compare_runs,
)
from ticket_gym.metrics.costs import Cost, Prices, measure_cost
from ticket_gym.metrics.estimators import ESTIMATORS, pass_hat_k
from ticket_gym.metrics.intervals import Estimate, QueryBootstrap
from ticket_gym.metrics.outcomes import Grid, Outcomes, QueryInfo, collect_outcomes
from ticket_gym.metrics.scoring import summarize
from ticket_gym.metrics.summary import Score, Summary

__all__ = [
    "ESTIMATORS",
    "Comparison",
    "Cost",
    "Estimate",
    "Grid",
    "Outcomes",
    "Prices",
    "QueryBootstrap",
    "QueryInfo",
    "RunComparison",
    "Score",
    "Summary",
    "adjust_p_values",
    "collect_outcomes",
    "compare_languages",
    "compare_runs",
    "measure_cost",
    "pass_hat_k",
    "summarize",
]
