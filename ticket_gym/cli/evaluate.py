"""`ticket-gym evaluate`: plays the benchmark and prints the scores."""

import asyncio
import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ticket_gym.agents import AGENTS, Agent, ModelAgent, make_agent
from ticket_gym.cli.options import (
    BaseUrlsOption,
    EngineOption,
    EngineOptionsOption,
    LanguagesOption,
    ModelOption,
    PricesOption,
    read_engine,
    read_language,
    read_languages,
    read_split,
    split_names,
)
from ticket_gym.display import ProgressDisplay
from ticket_gym.errors import ConfigurationError
from ticket_gym.journal import RunFolder
from ticket_gym.metrics import Prices
from ticket_gym.plan import make_config
from ticket_gym.records import ModelInfo, RunConfig
from ticket_gym.report import load_runs, print_scores, read_prices
from ticket_gym.runner import DEFAULT_CONCURRENCY
from ticket_gym.runner import play as play_run
from ticket_gym.session import DEFAULT_MAX_STEPS


def evaluate(
    agent: Annotated[str, typer.Option(help=f"Agent without a model: {', '.join(AGENTS)}.")] = "",
    engine: EngineOption = "",
    model: ModelOption = "",
    base_url: BaseUrlsOption = None,
    option: EngineOptionsOption = None,
    family: Annotated[str, typer.Option(help="The model's family, for tables and plots.")] = "",
    size: Annotated[float | None, typer.Option(help="The model's size in billions of parameters.")] = None,
    languages: LanguagesOption = "",
    templates: Annotated[str, typer.Option(help="Such as t07,t17; all by default.")] = "",
    queries: Annotated[str, typer.Option(help="Just these queries, such as t07-03,t17-01.")] = "",
    count: Annotated[int | None, typer.Option(help="Only so many queries.")] = None,
    trials: Annotated[int, typer.Option(help="Trials of each query.")] = 3,
    out: Annotated[Path | None, typer.Option(help="Run folder; the same command continues it.")] = None,
    concurrency: Annotated[int, typer.Option(help="Episodes under way at once.")] = DEFAULT_CONCURRENCY,
    retry_errors: Annotated[bool, typer.Option(help="Play episodes again that the engine broke off.")] = False,
    seed: Annotated[int, typer.Option(help="From which every trial's own seed is derived.")] = 0,
    split: Annotated[str, typer.Option(help="test (the benchmark), validation or train.")] = "test",
    stream_seed: Annotated[int, typer.Option(help="Which stream of validation or train.")] = 0,
    tool_language: Annotated[str, typer.Option(help="Language of the tools; that of the request by default.")] = "",
    league: Annotated[str, typer.Option(help="League; that of the request by default.")] = "",
    max_steps: Annotated[int, typer.Option(help="Step limit of an episode.")] = DEFAULT_MAX_STEPS,
    require_response: Annotated[bool, typer.Option(help="An episode that is cut off is a failure.")] = False,
    prices: PricesOption = None,
) -> None:
    """Play the benchmark with an agent or a model and print the scores."""
    table = None if prices is None else read_prices(prices)
    info = ModelInfo(name=model, family=family, size_b=size)
    with _player(agent, engine, model, base_url, option, concurrency, info) as player:
        config = make_config(
            player,
            languages=read_languages(languages),
            split=read_split(split),
            stream_seed=stream_seed,
            templates=split_names(templates) or None,
            queries=split_names(queries) or None,
            count=count,
            trials=trials,
            seed=seed,
            max_steps=max_steps,
            require_response=require_response,
            tool_language=read_language(tool_language) if tool_language else None,
            league=read_language(league) if league else None,
            model=player.model if isinstance(player, ModelAgent) else None,
        )
        if out is not None:
            _play(config, player, out, concurrency, retry_errors, table)
            return
        with tempfile.TemporaryDirectory() as folder:
            _play(config, player, Path(folder) / "run", concurrency, retry_errors, table)


@contextlib.contextmanager
def _player(
    agent: str,
    engine: str,
    model: str,
    base_urls: list[str] | None,
    options: list[str] | None,
    concurrency: int,
    info: ModelInfo,
) -> Iterator[Agent]:
    """Who plays; an engine is closed at the end, or a model would go on with messages that nobody waits for."""
    if bool(agent) == bool(engine):
        raise ConfigurationError("say who plays: either --agent (such as oracle) or --engine with --model")
    if agent:
        given = (("--model", model), ("--base-url", base_urls), ("--option", options))
        if unused := [name for name, value in given if value]:
            raise ConfigurationError(f"--agent {agent} has no use for {', '.join(unused)}")
        yield make_agent(agent)
        return
    # A client that asks for fewer messages than there are episodes would hold them up.
    limits = [f"concurrency={concurrency}"] if engine == "openai" else []
    player = ModelAgent(read_engine(engine, model, base_urls, [*limits, *(options or ())]), info)
    try:
        yield player
    finally:
        asyncio.run(player.engine.aclose())


def _play(
    config: RunConfig,
    agent: Agent,
    folder: Path,
    concurrency: int,
    retry_errors: bool,
    prices: Mapping[str, Prices] | None,
) -> None:
    console = Console(stderr=True)
    with RunFolder.open(folder, config) as journal, ProgressDisplay(console) as display:
        for notice in journal.notices:
            console.print(notice, style="yellow", markup=False)
        play_run(config, agent, journal, concurrency=concurrency, retry_errors=retry_errors, on_progress=display)
    print_scores(load_runs([folder], prices=prices), Console())
