"""Reports on run folders: tables, files, one page to look at, and leaderboard entries.

`load_runs` scores the runs; everything else shows what it found.
"""

from ticket_gym.report.entry import submit, verify
from ticket_gym.report.explain import Explainer
from ticket_gym.report.files import (
    render_csv,
    render_json,
    render_markdown,
    write_csv,
    write_json,
    write_markdown,
)
from ticket_gym.report.page import render_html, write_html
from ticket_gym.report.prices import read_prices
from ticket_gym.report.scoring import ScoredRun, Scoring, load_runs
from ticket_gym.report.terminal import print_report, print_scores

__all__ = [
    "Explainer",
    "ScoredRun",
    "Scoring",
    "load_runs",
    "print_report",
    "print_scores",
    "read_prices",
    "render_csv",
    "render_html",
    "render_json",
    "render_markdown",
    "submit",
    "verify",
    "write_csv",
    "write_html",
    "write_json",
    "write_markdown",
]
