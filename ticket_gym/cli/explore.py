"""`ticket-gym show` and `play`: look at a query, or answer it oneself."""

import json
import secrets
from typing import Annotated

import typer
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from ticket_gym.cli.options import LanguageOption, read_language, read_split
from ticket_gym.report import Explainer
from ticket_gym.request import Task
from ticket_gym.session import Session
from ticket_gym.tasks.plain import violated
from ticket_gym.types import RESPOND
from ticket_gym.world import Game, Season, User, World, get_world

NEAR_MISSES = 10
"""How many games that miss one constraint are shown for a request that none satisfies."""


def show(
    query: Annotated[str, typer.Argument(help="Such as t07-03, or train-0-1234.")],
    language: LanguageOption = "en",
) -> None:
    """Show a query: request, user, constraints, the games that match, and why the expected ones win."""
    session = _session_for(query, language)
    request, task = session.reset(query), session.playing
    world = get_world(task.split, task.world)
    user, season = world.users[task.user], world.seasons[task.season]
    explainer = Explainer(session.codec.league)
    console = Console()
    console.print(Panel(Text(request), title=f"{task.id} · {task.season} season", title_align="left"))
    facts = Table(box=None, show_header=False, pad_edge=False)
    facts.add_row("user", session.codec.clubs.users[user.id])
    for name, value in explainer.describe_request(task):
        facts.add_row(Text(name, "dim"), Text(value))
    console.print(facts, "")
    console.print(_games_table(explainer, task, _candidates(task, world, season, user), user))
    console.print()
    for reason in _reasons(task):
        console.print(Text(reason))


def _session_for(query: str, language: str) -> Session:
    split, dash, rest = query.partition("-")
    seed = rest.partition("-")[0]
    if dash and split in ("train", "validation") and seed.isdigit():
        return Session(language=read_language(language), split=read_split(split), seed=int(seed))
    return Session(language=read_language(language))


def _candidates(task: Task, world: World, season: Season, user: User) -> list[tuple[Game, tuple[str, ...]]]:
    """Matching games by price or, where there are none, those that miss one constraint."""
    missed = [(game, violated(game, world, user, task.constraints)) for game in season.games]
    matching = [(game, names) for game, names in missed if not names]
    if matching:
        return sorted(matching, key=lambda pair: pair[0].price)
    return [pair for pair in missed if len(pair[1]) == 1][:NEAR_MISSES]


def _games_table(explainer: Explainer, task: Task, games: list[tuple[Game, tuple[str, ...]]], user: User) -> Table:
    table = Table(box=None, pad_edge=False, title_justify="left")
    table.title = "games that match" if games and not games[0][1] else "no game matches; some that nearly do"
    for column in ("id", "date", "day", "home", "away", "city", "price", ""):
        table.add_column(column, justify="right" if column in ("id", "price") else "left")
    for game, names in games:
        facts = explainer.describe_game(task, game.id)
        expected = game.id in task.expected
        remark = "expected" if expected else f"not: {names[0]}" if names else ""
        if game.price > user.balance:
            remark = f"{remark} beyond the balance".strip()
        values = [str(facts[name]) for name in ("id", "date", "weekday", "home", "away", "city", "price")]
        table.add_row(*map(Text, values), Text(remark), style="bold green" if expected else "")
    return table


def _reasons(task: Task) -> list[str]:
    wanted = task.constraints
    if not task.solvable:
        return ["Nothing may be bought: no game that can be paid satisfies the request."]
    if wanted.select == "all":
        return ["Every matching game is expected."]
    if wanted.select == "cheapest":
        return ["The lowest price wins; prices are unique." if wanted.count == 1 else "The lowest prices win."]
    return ["The highest price that the balance covers wins; prices are unique."]


def play(
    query: Annotated[str, typer.Argument(help="Such as t07-03; one at random by default.")] = "",
    language: LanguageOption = "en",
    split: Annotated[str, typer.Option(help="test, validation or train.")] = "test",
) -> None:
    """Play an episode at the terminal: tool calls as `name {"argument": value}`, anything else is the answer."""
    console = Console()
    session = Session(language=read_language(language), split=read_split(split))
    request = session.reset(query or _random_query(session))
    console.print(Panel(Text(session.system_prompt), title="rules", title_align="left", style="dim"))
    console.print(_tools_table(session))
    console.print(Panel(Text(request), title=session.playing.id, title_align="left"))
    while not session.done:
        try:
            line = console.input("[bold]> [/]").strip()
        except (EOFError, KeyboardInterrupt):
            console.print()
            raise typer.Exit(1) from None
        if line:
            _answer(console, session, line)
    diagnosis = session.diagnose()
    if diagnosis.success:
        console.print(f"Reward 1. {session.steps} calls.", style="bold green")
        return
    names = ", ".join(cause.value for cause in diagnosis.causes)
    expected = ", ".join(map(str, session.playing.expected)) or "nothing"
    console.print(
        f"Reward 0: {names}. Expected: {expected}; booked: {session.bookings or 'nothing'}.", style="bold red"
    )


def _random_query(session: Session) -> str:
    return session.source.at(secrets.randbelow(session.source.size or 1_000_000)).id


def _tools_table(session: Session) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("tool")
    table.add_column("parameters")
    for schema in session.tools:
        function = schema["function"]
        table.add_row(Text(function["name"]), Text(", ".join(function["parameters"]["properties"]) or "-"))
    return table


def _answer(console: Console, session: Session, line: str) -> None:
    name, _, arguments = line.partition(" ")
    if session.codec.tool_named(name) is None and not arguments.startswith("{"):
        session.call(RESPOND, {"content": line})
        return
    text = session.call(name, arguments.strip() or {}).text
    console.print_json(json.dumps(json.loads(text)), ensure_ascii=False)
