"""Agents without a model: a perfect one, careless ones, a lazy one and a random one.

Each is a generator that yields calls and is sent the text of their results; what it returns is its final answer. It
knows the structured constraints of the request and the names of the tools, never the expected games: whatever else it
needs it looks up with the tools, as a model would.
"""

import datetime
import json
import random
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from ticket_gym.agents.base import Turn
from ticket_gym.codec import Codec
from ticket_gym.errors import ConfigurationError
from ticket_gym.request import DAY_GROUPS, WEEKDAYS, Category, Constraints, Opponent
from ticket_gym.session import Session
from ticket_gym.tools import PARAMETERS
from ticket_gym.types import Message, ToolCall

Play = Generator[ToolCall, str, str]
"""Yields calls, is sent observations, returns the final answer."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A game as the list of games showed it.

    Attributes:
        price: In units of the currency.
    """

    id: int
    home: str
    away: str
    date: str
    price: Decimal


class Desk:
    """The tools by canonical names: words each call and reads its result, for generators to `yield from`."""

    def __init__(self, codec: Codec) -> None:
        """Take the border that the session speaks through."""
        self._codec = codec
        self._key = codec.texts.keys
        self._weekdays = {name: number for number, name in enumerate(map(codec.texts.weekdays.get, WEEKDAYS))}

    def call(self, tool: Any, **arguments: object) -> Generator[ToolCall, str, dict[str, Any]]:
        """Make a call and read its result."""
        named = {self._codec.parameter_name(tool, name): value for name, value in arguments.items()}
        text = yield ToolCall(self._codec.tool_names[tool], named)
        result: dict[str, Any] = json.loads(text)
        return result

    def user(self) -> Generator[ToolCall, str, tuple[str, Decimal]]:
        """The favourite team and the balance."""
        result = yield from self.call("get_user_info")
        return result[self._key["favourite_team"]], _amount(result[self._key["balance"]])

    def page(self, number: int, filters: Mapping[str, object]) -> Generator[ToolCall, str, tuple[list[Listed], int]]:
        """One page of a list of games, and how many pages there are. The first page is asked for without a number."""
        key = self._key
        turned = {"page": number} if number > 1 else {}
        result = yield from self.call("list_games", **turned, **filters)
        games = [
            Listed(
                game[key["id"]],
                game[key["home_team"]],
                game[key["away_team"]],
                game[key["date"]],
                _amount(game[key["price"]]),
            )
            for game in result[key["games"]]
        ]
        return games, result[key["total_pages"]]

    def games(self, **filters: object) -> Generator[ToolCall, str, list[Listed]]:
        """All pages of a list of games, by date."""
        games, pages = yield from self.page(1, filters)
        for number in range(2, pages + 1):
            more, _ = yield from self.page(number, filters)
            games += more
        return games

    def falls_on(self, date: str, days: str | None) -> Generator[ToolCall, str, bool]:
        """Whether a date is one of these days of the week; None for any day, which needs no call."""
        if days is None:
            return True
        result = yield from self.call("get_weekday_from_date", date=date)
        return self._weekdays[result[self._key["weekday"]]] in DAY_GROUPS[days]

    def named_teams(self, opponent: Opponent) -> Generator[ToolCall, str, set[str]]:
        """The teams that a leaderboard condition names."""
        key = self._key
        result = yield from self.call("get_leaderboard", year=opponent.year)
        rows = result[key["rows"]]
        if opponent.kind == "top":
            rows = rows[: opponent.value]
        else:
            figure = key["points" if opponent.kind == "points_over" else "goals_scored"]
            rows = [row for row in rows if row[figure] > opponent.value]
        return {row[key["team"]] for row in rows}

    def on_days(self, games: list[Listed], days: tuple[int, ...]) -> Generator[ToolCall, str, list[Listed]]:
        """The games played on some days of the week. One date is looked up, from there days are counted."""
        if not games:
            return []
        known = datetime.date.fromisoformat(games[0].date)
        result = yield from self.call("get_weekday_from_date", date=games[0].date)
        weekday = self._weekdays[result[self._key["weekday"]]]

        def day(game: Listed) -> int:
            return (weekday + (datetime.date.fromisoformat(game.date) - known).days) % 7

        return [game for game in games if day(game) in days]

    def buy(self, game: Listed) -> Generator[ToolCall, str, bool]:
        """Try to buy a ticket; whether it worked."""
        result = yield from self.call("buy_game_ticket", game_id=game.id)
        return self._key["error"] not in result


def play_request(codec: Codec, wanted: Constraints, *, mind_price: bool = True) -> Play:
    """Carry out a request with the tools.

    Args:
        codec: The border that the session speaks through.
        wanted: The request, or what an agent has understood of it.
        mind_price: Whether the price decides; otherwise the first games by date are taken.
    """
    desk = Desk(codec)
    chosen, _ = yield from choose_games(desk, codec, wanted, mind_price=mind_price)
    bought = 0
    for game in chosen:
        bought += yield from desk.buy(game)
    return str(bought)


def choose_games(
    desk: Desk, codec: Codec, wanted: Constraints, *, mind_price: bool = True
) -> Generator[ToolCall, str, tuple[list[Listed], Decimal]]:
    """The games that a request asks for, and the balance; the cheapest ones may cost more than that."""
    games, balance = yield from _matching(desk, codec, wanted)
    if wanted.select == "all":
        chosen = _payable(games, balance)
    elif not mind_price:
        chosen = games[: wanted.count]
    elif wanted.select == "cheapest":
        chosen = sorted(games, key=lambda game: game.price)[: wanted.count]
    else:
        affordable = [game for game in games if game.price <= balance]
        chosen = sorted(affordable, key=lambda game: game.price, reverse=True)[: wanted.count]
    return chosen, balance


def _matching(desk: Desk, codec: Codec, wanted: Constraints) -> Generator[ToolCall, str, tuple[list[Listed], Decimal]]:
    """Games that satisfy every constraint, by date, and the balance."""
    team, balance = yield from desk.user()
    filters: dict[str, object] = {}
    if wanted.favourite:
        filters["team"] = team
    if wanted.city is not None:
        filters["city"] = codec.city_name(wanted.city)
    games = yield from desk.games(**filters)
    if wanted.away:
        games = [game for game in games if game.away == team]
    if wanted.half is not None:
        games = [game for game in games if (int(game.date[5:7]) > 6) == (wanted.half == 2)]
    if wanted.opponent is not None:
        named = yield from desk.named_teams(wanted.opponent)
        games = [game for game in games if _other(game, team if wanted.favourite else None) in named]
    if wanted.days is not None:
        games = yield from desk.on_days(games, DAY_GROUPS[wanted.days])
    return games, balance


def play_expert(codec: Codec, wanted: Constraints, seed: int) -> Play:
    """Does everything right with few calls: a short example to imitate.

    The list of games is asked for in the order in which the request wants them, page after page only as needed, and a
    day of the week is looked up only for a game that fits in every other respect.
    """
    desk = Desk(codec)
    team, balance = None, None
    if wanted.favourite or wanted.select != "cheapest":
        team, balance = yield from desk.user()
    filters: dict[str, object] = {}
    if wanted.favourite:
        filters["team"] = team
    if wanted.city is not None:
        filters["city"] = codec.city_name(wanted.city)
    if wanted.select != "all":
        filters["order_by"] = codec.texts.tools["list_games"].parameters["order_by"].values["price"]
    if wanted.select == "most_expensive_affordable":
        filters["descending"] = True
    named = None if wanted.opponent is None else (yield from desk.named_teams(wanted.opponent))
    chosen: list[Listed] = []
    page, pages = 1, 1
    while page <= pages and len(chosen) != wanted.count:
        games, pages = yield from desk.page(page, filters)
        for game in games:
            if len(chosen) == wanted.count:
                break
            if _fits(game, wanted, team, named, balance) and (yield from desk.falls_on(game.date, wanted.days)):
                chosen.append(game)
                balance = None if balance is None else balance - game.price
        page += 1
    bought = 0
    for game in chosen:
        bought += yield from desk.buy(game)
    return str(bought)


def _fits(game: Listed, wanted: Constraints, team: str | None, named: set[str] | None, balance: Decimal | None) -> bool:
    """Whether a game satisfies every constraint but the day of the week; what is None does not matter."""
    own = team if wanted.favourite else None
    return (
        (not wanted.away or game.away == team)
        and (wanted.half is None or (int(game.date[5:7]) > 6) == (wanted.half == 2))
        and (named is None or _other(game, own) in named)
        and (balance is None or game.price <= balance)
    )


def _payable(games: list[Listed], balance: Decimal) -> list[Listed]:
    """Game after game, as far as the balance goes."""
    payable = []
    for game in games:
        if game.price <= balance:
            balance -= game.price
            payable.append(game)
    return payable


def _other(game: Listed, team: str | None) -> str:
    return game.home if game.away == team else game.away


def _amount(text: str) -> Decimal:
    return Decimal(text.split()[0])


def play_oracle(codec: Codec, wanted: Constraints, seed: int) -> Play:
    """Does everything right."""
    return play_request(codec, wanted)


def play_nothing(codec: Codec, wanted: Constraints, seed: int) -> Play:
    """Answers at once. Right whenever nothing should be bought: what any score has to be seen against."""
    yield from ()
    return "-"


def play_random(codec: Codec, wanted: Constraints, seed: int) -> Play:
    """Makes up to ten well-formed calls at random."""
    rng = random.Random(seed)
    calls = {tool: PARAMETERS[tool] for tool in PARAMETERS}
    arguments = codec.arguments()
    for _ in range(rng.randrange(10)):
        name = codec.tool_names[rng.choice(list(calls))]
        values: dict[str, object] = {}
        for argument in arguments[name]:
            if argument.required or rng.random() < 0.5:
                if argument.kind == "integer":
                    values[argument.name] = rng.randint(argument.low, argument.high)
                else:
                    values[argument.name] = rng.choice(argument.choices or (True, False))
        yield ToolCall(name, values)
    return "-"


def play_careless(codec: Codec, wanted: Constraints, seed: int, *, overlooks: Category) -> Play:
    """Does everything right, but overlooks one category of constraints."""
    return play_request(codec, without(wanted, overlooks), mind_price=overlooks != "P")


def without(wanted: Constraints, category: Category) -> Constraints:
    """What is left of a request when one category of constraints is overlooked; the price is not in the filters."""
    match category:
        case "S":
            return replace(wanted, half=None)
        case "W":
            return replace(wanted, days=None)
        case "L":
            return replace(wanted, city=None)
        case "B":
            return replace(wanted, opponent=None)
        case "P":
            return wanted


def _careless(category: Category) -> Callable[[Codec, Constraints, int], Play]:
    def play(codec: Codec, wanted: Constraints, seed: int) -> Play:
        return play_careless(codec, wanted, seed, overlooks=category)

    return play


SCRIPTS: Mapping[str, Callable[[Codec, Constraints, int], Play]] = {
    "oracle": play_oracle,
    "expert": play_expert,
    "do_nothing": play_nothing,
    "random": play_random,
    "careless_semester": _careless("S"),
    "careless_weekday": _careless("W"),
    "careless_price": _careless("P"),
    "careless_location": _careless("L"),
    "careless_leaderboard": _careless("B"),
}
"""Every scripted agent by name."""

CARELESS: Mapping[Category, str] = {
    "S": "careless_semester",
    "W": "careless_weekday",
    "P": "careless_price",
    "L": "careless_location",
    "B": "careless_leaderboard",
}
"""The agent that overlooks each category."""


class ScriptedPlayer:
    """Plays one episode from a script, one call a turn."""

    def __init__(self, play: Play) -> None:
        """Take the script."""
        self._play = play
        self._calls = 0

    def next_call(self, observation: str | None) -> ToolCall | str:
        """The next call, or the final answer, given the last result (None at the beginning)."""
        try:
            call = next(self._play) if observation is None else self._play.send(observation)
        except StopIteration as end:
            return str(end.value)
        self._calls += 1
        return replace(call, id=f"call_{self._calls}")

    async def turn(self, messages: list[Message]) -> Turn:
        """The next message."""
        last = messages[-1]
        call = self.next_call(str(last["content"]) if last["role"] == "tool" else None)
        if isinstance(call, str):
            return Turn({"role": "assistant", "content": call})
        return Turn({"role": "assistant", "content": None, "tool_calls": [call.to_message()]}, (call,))


class ScriptedAgent:
    """An agent that follows a script; see `SCRIPTS`."""

    def __init__(self, name: str) -> None:
        """Choose a script.

        Raises:
            ConfigurationError: There is no such script.
        """
        if name not in SCRIPTS:
            raise ConfigurationError(f"agent {name!r}: choose one of {', '.join(SCRIPTS)}")
        self.name = name

    def describe(self) -> dict[str, Any]:
        """A script is described by its name."""
        return {"agent": self.name}

    def start(self, session: Session, seed: int) -> ScriptedPlayer:
        """A player for the session's episode."""
        task = session.playing
        return ScriptedPlayer(SCRIPTS[self.name](session.codec, task.constraints, seed))
