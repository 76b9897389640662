"""`ticket-gym doctor`: can this model or server do what the benchmark needs?"""

import asyncio

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ticket_gym.cli.options import BaseUrlsOption, EngineOption, EngineOptionsOption, ModelOption, read_engine
from ticket_gym.doctor import Check, examine
from ticket_gym.engines import Engine

MARKS = {"ok": Text("ok", "green"), "warn": Text("warning", "yellow"), "fail": Text("failed", "bold red")}


def doctor(
    engine: EngineOption = "openai",
    model: ModelOption = "",
    base_url: BaseUrlsOption = None,
    option: EngineOptionsOption = None,
) -> None:
    """Check in seconds that a model or server can do what the benchmark needs."""
    # A server that does not answer should be told of in seconds, not after all the patience of a run.
    patience = ["retries=1", "timeout_s=60"] if engine == "openai" else []
    checks = asyncio.run(_examine(read_engine(engine, model, base_url, [*patience, *(option or ())])))
    table = Table(box=None, pad_edge=False)
    for column in ("check", "", "found", "what mends it"):
        table.add_column(column, overflow="fold")
    for check in checks:
        table.add_row(Text(check.name), MARKS[check.status], Text(check.found), Text(check.remedy))
    Console().print(table)
    if any(check.status == "fail" for check in checks):
        raise typer.Exit(1)


async def _examine(engine: Engine) -> list[Check]:
    try:
        return await examine(engine)
    finally:
        await engine.aclose()
