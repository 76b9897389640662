"""`ticket-gym export`, `build` and `audit`: the benchmark itself."""

import time
from pathlib import Path
from typing import Annotated, get_args

import typer
from rich.console import Console
from rich.table import Table

from ticket_gym.cli.options import LanguagesOption, read_languages
from ticket_gym.errors import ConfigurationError, RunWriteError
from ticket_gym.export import Format, export_benchmark
from ticket_gym.session import Session
from ticket_gym.tasks import get_benchmark
from ticket_gym.tasks.audit import audit_split, find_overlaps
from ticket_gym.tasks.benchmark import FOLDER, SEED, build_files
from ticket_gym.types import Split

STREAMS: tuple[Split, ...] = ("train", "validation")


def export(
    folder: Annotated[Path, typer.Argument(help="Where to.")],
    languages: LanguagesOption = "",
    format: Annotated[str, typer.Option(help="jsonl or parquet.")] = "jsonl",
) -> None:
    """Write the benchmark as plain files, one folder or table a language."""
    forms: tuple[Format, ...] = get_args(Format)
    form = next((known for known in forms if known == format), None)
    if form is None:
        raise ConfigurationError(f"--format {format}: choose one of {', '.join(forms)}")
    files = export_benchmark(folder, read_languages(languages), form)
    typer.echo(f"{len(files)} files written to {folder}")


def build(
    check: Annotated[bool, typer.Option(help="Change nothing; fail where a file differs.")] = False,
) -> None:
    """Build the frozen benchmark's files again."""
    differing = []
    for name, text in build_files(SEED).items():
        file, content = FOLDER / name, text.encode("utf-8")
        if file.is_file() and file.read_bytes() == content:
            typer.echo(f"{name}: the same, byte for byte")
            continue
        differing.append(name)
        if not check:
            try:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
            except OSError as error:
                raise RunWriteError(f"{file}: cannot be written: {error.strerror}") from error
        typer.echo(f"{name}: {'DIFFERS' if check else 'written'}")
    if check and differing:
        raise typer.Exit(1)


def audit(
    count: Annotated[int, typer.Option(help="Tasks of each stream.")] = 20_000,
    seed: Annotated[int, typer.Option(help="Which streams.")] = 0,
    languages: LanguagesOption = "en",
    solvers: Annotated[bool, typer.Option(help="Ask both solvers again for every task.")] = True,
) -> None:
    """Prove that the splits share nothing, that streams never repeat, and that the solvers agree."""
    [language] = read_languages(languages)[:1]
    start = time.perf_counter()
    audits = [audit_split("test", get_benchmark().tasks, solvers=solvers)]
    for split in STREAMS:
        source = Session(split=split, seed=seed, language=language).source
        audits.append(audit_split(split, map(source.at, range(count)), solvers=solvers))
    table = Table("split", "tasks", "worlds' schedules", "repeated", "solvers disagree", "seconds", box=None)
    for found in audits:
        asked = str(len(found.disagreements)) if solvers else "not asked"
        numbers = (found.tasks, len(found.schedules), found.repeated)
        table.add_row(found.split, *map(str, numbers), asked, f"{found.seconds:.1f}")
    console = Console()
    console.print(table)
    shared = 0
    for overlap in find_overlaps(audits):
        shared += overlap.schedules + overlap.standings + overlap.queries
        console.print(
            f"{overlap.first} and {overlap.second} share {overlap.schedules} schedules, {overlap.standings} standings, "
            f"{overlap.queries} queries",
            highlight=False,
        )
    console.print(f"{time.perf_counter() - start:.1f} s in all", highlight=False)
    if shared or any(found.repeated or found.disagreements for found in audits):
        raise typer.Exit(1)
