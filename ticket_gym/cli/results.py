"""`ticket-gym report`, `submit` and `verify`: what runs are worth."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ticket_gym import report as reports
from ticket_gym.cli.options import PricesOption
from ticket_gym.errors import ConfigurationError, RunWriteError
from ticket_gym.report import (
    ScoredRun,
    load_runs,
    print_report,
    read_prices,
    write_csv,
    write_html,
    write_json,
    write_markdown,
)

RunsArgument = Annotated[list[Path], typer.Argument(help="Run folders.", show_default=False)]


def report(
    runs: RunsArgument,
    html: Annotated[Path | None, typer.Option(help="Write one page with tables, plots and conversations.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write Markdown tables.")] = None,
    csv: Annotated[Path | None, typer.Option(help="Write all figures, one a line.")] = None,
    json: Annotated[Path | None, typer.Option(help="Write all figures as JSON.")] = None,
    k: Annotated[int | None, typer.Option(help="k of pass^k; 3 by default.")] = None,
    confidence: Annotated[float, typer.Option(help="Level of the intervals.")] = 0.95,
    stratify: Annotated[bool, typer.Option(help="Intervals for new queries of these templates only.")] = False,
    prices: PricesOption = None,
) -> None:
    """Score runs from their episodes: a table in the terminal, and files."""
    table = None if prices is None else read_prices(prices)
    scored = load_runs(runs, k=k, confidence=confidence, stratify=stratify, prices=table)
    print_report(scored, Console())
    writers: dict[Callable[[Sequence[ScoredRun], Path], None], Path | None] = {
        write_html: html,
        write_markdown: markdown,
        write_csv: csv,
        write_json: json,
    }
    for write, path in writers.items():
        if path is not None:
            write(scored, path)
            typer.echo(f"{path} written", err=True)


def submit(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    out: Annotated[Path | None, typer.Option(help="Where to; the terminal by default.")] = None,
) -> None:
    """Write the leaderboard entry of a run: scores, configuration and hashes."""
    text = json.dumps(reports.submit(*load_runs([run])), ensure_ascii=False, indent=2)
    if out is None:
        typer.echo(text)
        return
    try:
        out.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise RunWriteError(f"{out}: cannot be written: {error.strerror}") from error


def verify(
    entry: Annotated[Path, typer.Argument(help="File that submit wrote.")],
    run: Annotated[Path, typer.Argument(help="Run folder.")],
) -> None:
    """Score a run again and compare it with its leaderboard entry."""
    try:
        claimed = json.loads(entry.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{entry}: is no leaderboard entry: {error}") from error
    if not isinstance(claimed, dict):
        raise ConfigurationError(f"{entry}: is no leaderboard entry")
    differences = reports.verify(claimed, *load_runs([run]))
    for difference in differences:
        typer.echo(difference)
    if differences:
        raise typer.Exit(1)
    typer.echo("The entry holds: every score, count and hash is the run's.")
