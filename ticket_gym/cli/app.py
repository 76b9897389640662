"""All subcommands in one table."""

from collections.abc import Callable

import typer

from ticket_gym import __version__
from ticket_gym.cli import benchmark, doctor, evaluate, explore, results

app = typer.Typer(
    name="ticket-gym",
    help="Multilingual tool calling: a benchmark and an environment of football ticket requests in six languages.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

COMMANDS: tuple[Callable[..., None], ...] = (
    evaluate.evaluate,
    results.report,
    explore.show,
    explore.play,
    doctor.doctor,
    results.submit,
    results.verify,
    benchmark.export,
    benchmark.build,
    benchmark.audit,
)

for command in COMMANDS:
    app.command()(command)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"ticket-gym {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Show the version."),
) -> None:
    """Options of the command as a whole."""
