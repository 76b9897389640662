"""The report as Markdown, CSV and JSON."""

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ticket_gym.errors import RunWriteError
from ticket_gym.metrics import ESTIMATORS, Cost, Estimate, RunComparison, Score
from ticket_gym.metrics.summary import GroupSummary
from ticket_gym.report.findings import (
    causes_table,
    compare_all_runs,
    confusion_table,
    languages_table,
    runs_table,
    template_causes_table,
    templates_table,
)
from ticket_gym.report.scoring import ScoredRun
from ticket_gym.report.tables import (
    Cell,
    Table,
    costs_tables,
    effort_table,
    episodes_table,
    estimators_table,
    parts_table,
    profile_table,
    scores_table,
    tools_table,
)

CSV_COLUMNS = ("run", "language", "part", "measure", "k", "estimator", "value", "low", "high")
JSON_FORMAT = "ticket_gym.report/1"


def write_markdown(runs: Sequence[ScoredRun], path: str | Path) -> None:
    """Write the report as Markdown.

    Raises:
        RunWriteError: The file cannot be written.
    """
    write_text(path, render_markdown(runs))


def write_csv(runs: Sequence[ScoredRun], path: str | Path) -> None:
    """Write every score and count as CSV, one figure a line.

    Raises:
        RunWriteError: The file cannot be written.
    """
    write_text(path, render_csv(runs))


def write_json(runs: Sequence[ScoredRun], path: str | Path) -> None:
    """Write the report as JSON.

    Raises:
        RunWriteError: The file cannot be written.
    """
    write_text(path, render_json(runs))


def write_text(path: str | Path, text: str) -> None:
    """Write a file as literal UTF-8 with plain line ends.

    Raises:
        RunWriteError: It cannot be written.
    """
    try:
        Path(path).write_text(text, encoding="utf-8", newline="")
    except OSError as error:
        raise RunWriteError(f"{path}: cannot be written: {error.strerror}") from error


# Markdown


def render_markdown(runs: Sequence[ScoredRun]) -> str:
    """The report as Markdown."""
    parts = ["# ticket_gym report"]
    parts += [f"> **{_plain(run.label)}:** {_plain(warning)}" for run in runs for warning in run.warnings]
    parts += [_markdown_table(table, "##") for table in _shared_tables(runs)]
    for run in runs:
        parts.append(f"## {_plain(run.label)}")
        tables = (templates_table(run), confusion_table(run), template_causes_table(run), tools_table(run))
        parts += [_markdown_table(table, "###") for table in tables]
    return "\n\n".join(parts) + "\n"


def _shared_tables(runs: Sequence[ScoredRun]) -> Iterator[Table]:
    yield scores_table(runs)
    if len(runs) > 1:
        yield runs_table(runs)
    for make in (parts_table, estimators_table, episodes_table, causes_table, effort_table):
        yield make(runs)
    yield from costs_tables(runs)
    yield profile_table(runs)
    yield languages_table(runs)


def _markdown_table(table: Table, heading: str) -> str:
    lines = [f"{heading} {_plain(table.title)}", ""]
    if table.rows:
        marks = ["---" if place < table.labels else "--:" for place in range(len(table.columns))]
        body = [[_markdown_cell(cell) for cell in row] for row in table.rows]
        for row in ([_plain(column) for column in table.columns], marks, *body):
            lines.append(f"| {' | '.join(row)} |")
        lines.append("")
    return "\n".join([*lines, _plain(table.note)]).rstrip()


def _markdown_cell(cell: Cell) -> str:
    text = f"**{_plain(cell.text)}**" if cell.tone in ("strong", "bad") else _plain(cell.text)
    return f"{text} ({_plain(', '.join(cell.details).replace(' to, ', ' to '))})" if cell.details else text


def _plain(text: str) -> str:
    """Text that Markdown does not read as anything else; a model may be called anything."""
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", " ".join(text.split()))


# CSV


def render_csv(runs: Sequence[ScoredRun]) -> str:
    """Every score and count of the runs, one figure a line; fractions, not percent."""
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for run in runs:
        for language, group in run.groups().items():
            writer.writerows((run.label, language, *figures) for figures in _figures(group))
        for language, gap in run.summary.gaps.items():
            writer.writerow((run.label, language, "total", "minus_overall", run.summary.k, "paper", *_limits(gap)))
        writer.writerow(
            (run.label, "overall", "total", "deviation", run.summary.k, "paper", run.summary.deviation, "", "")
        )
        writer.writerow((run.label, "overall", "total", "do_nothing", "", "", run.summary.do_nothing, "", ""))
        for cause, number in sorted(sum(run.causes().values(), Counter[str]()).items()):
            writer.writerow((run.label, "overall", "total", f"cause_{cause}", "", "", number, "", ""))
        for name, value in _cost_figures(run.cost).items():
            writer.writerow((run.label, "overall", "total", f"cost_{name}", "", "", value, "", ""))
    return target.getvalue()


def _figures(group: GroupSummary) -> Iterator[tuple[object, ...]]:
    parts = {"total": group.total, "solvable": group.solvable, "unsolvable": group.unsolvable, "strict": group.strict}
    for part, score in parts.items():
        if score is not None:
            yield from _score_figures(part, score)
    counts = group.counts
    for name in ("expected", "present", "missing", "engine_error"):
        yield "total", f"episodes_{name}", "", "", getattr(counts, name), "", ""
    for reason, number in counts.stop_reasons.items():
        yield "total", f"stopped_{reason.value}", "", "", number, "", ""
    for name, value in ({} if group.effort is None else asdict(group.effort)).items():
        yield "total", f"effort_{name}", "", "", value, "", ""
    for tool, use in group.tools.items():
        for name, number in asdict(use).items():
            yield "total", f"tool_{tool}_{name}", "", "", number, "", ""
    for code, number in group.error_codes.items():
        yield "total", f"error_{code}", "", "", number, "", ""


def _cost_figures(cost: Cost | None) -> dict[str, object]:
    """Figures of the cost. A cost that is not known, or that there is none of, is empty; such tokens are left out."""
    if cost is None:
        return {}
    figures = cost.model_dump(exclude={"names", "prices"})
    return {**(figures.pop("usage") or {}), **figures}


def _score_figures(part: str, score: Score) -> Iterator[tuple[object, ...]]:
    yield part, "successes", "", "", score.successes, "", ""
    for pass_hat in score.pass_hat:
        for estimator in ESTIMATORS:
            found: Estimate | None = getattr(pass_hat, estimator)
            if found is not None:
                yield part, "pass_hat", pass_hat.k, estimator, *_limits(found)


def _limits(score: Estimate) -> tuple[float, float, float]:
    return score.value, score.low, score.high


# JSON


def render_json(runs: Sequence[ScoredRun]) -> str:
    """The report as JSON: the summaries as they are, fractions and full precision."""
    data = {
        "format": JSON_FORMAT,
        "runs": [_run_data(run) for run in runs],
        "comparisons": [_comparison_data(*compared) for compared in compare_all_runs(runs)],
    }
    return json.dumps(data, ensure_ascii=False, indent=2, allow_nan=False) + "\n"


def _run_data(run: ScoredRun) -> dict[str, Any]:
    return {
        "label": run.label,
        "warnings": run.warnings,
        "config": run.config.model_dump(mode="json"),
        "scoring": asdict(run.scoring),
        "episodes_sha256": run.episodes_digest,
        "summary": asdict(run.summary),
        "cost": None if run.cost is None else run.cost.model_dump(mode="json"),
        "language_pairs": [
            {"first": first, "second": second, **asdict(found)}
            for (first, second), found in run.compare_languages().items()
        ],
        "causes": {template: dict(sorted(causes.items())) for template, causes in sorted(run.causes().items())},
    }


def _comparison_data(first: ScoredRun, second: ScoredRun, found: RunComparison | str) -> dict[str, Any]:
    data = {"not_comparable": found} if isinstance(found, str) else asdict(found)
    return {"first": first.label, "second": second.label, **data}
