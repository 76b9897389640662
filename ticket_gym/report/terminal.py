"""The report in a terminal."""

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable
from rich.text import Text

from ticket_gym.report.findings import (
    causes_table,
    confusion_table,
    languages_table,
    runs_table,
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

_STYLES = {"": "", "muted": "dim", "strong": "bold", "bad": "bold red"}


def print_report(runs: Sequence[ScoredRun], console: Console) -> None:
    """Print the report.

    Args:
        runs: What `load_runs` gave.
        console: Where to.
    """
    for run in runs:
        for warning in run.warnings:
            console.print(f"[bold yellow]{escape(run.label)}:[/] {escape(warning)}")
    for table in _shared_tables(runs):
        _print(table, console)
    for run in runs:
        console.print()
        console.rule(f"[bold]{escape(run.label)}[/]", style="dim")
        for table in (templates_table(run), confusion_table(run), tools_table(run)):
            _print(table, console)


def print_scores(runs: Sequence[ScoredRun], console: Console) -> None:
    """Print the scores alone: languages and overall, the parts, pass^1 to pass^k, what is missing, and the cost.

    Args:
        runs: What `load_runs` gave.
        console: Where to.
    """
    for run in runs:
        for warning in run.warnings:
            console.print(f"[bold yellow]{escape(run.label)}:[/] {escape(warning)}")
    for table in (
        scores_table(runs),
        parts_table(runs),
        estimators_table(runs),
        episodes_table(runs),
        *costs_tables(runs),
    ):
        _print(table, console)


def _shared_tables(runs: Sequence[ScoredRun]) -> Iterator[Table]:
    yield scores_table(runs)
    if len(runs) > 1:
        yield runs_table(runs, by_language=False)
    yield parts_table(runs)
    yield estimators_table(runs)
    yield episodes_table(runs)
    yield causes_table(runs)
    yield effort_table(runs)
    yield from costs_tables(runs)
    if any(len(run.config.languages) > 1 for run in runs):
        yield profile_table(runs)
        yield languages_table(runs)


def _print(table: Table, console: Console) -> None:
    console.print()
    if table.rows:
        console.print(_lay_out(table))
    else:
        console.print(Text(table.title, style="bold"))
    if table.note:
        console.print(Text(table.note, style="dim"))


def _lay_out(table: Table) -> RichTable:
    laid_out = RichTable(
        title=Text(table.title, style="bold"),
        title_justify="left",
        box=None,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        header_style="dim",
    )
    for place, column in enumerate(table.columns):
        laid_out.add_column(
            Text(column),
            justify="left" if place < table.labels else "right",
            overflow="fold",
            no_wrap=place >= table.labels,
            vertical="top",
        )
    for row in table.rows:
        laid_out.add_row(*(_set(cell) for cell in row))
    return laid_out


def _set(cell: Cell) -> Text:
    text = Text(cell.text, style=_STYLES[cell.tone])
    for detail in cell.details:
        text.append(f"\n{detail}", style="dim")
    return text
