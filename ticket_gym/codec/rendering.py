"""Results and errors as an agent reads them; what never changes is rendered once."""

import json
from collections.abc import Mapping
from functools import lru_cache

from ticket_gym.errors import ToolError
from ticket_gym.locale import League, ToolTexts
from ticket_gym.request import WEEKDAYS
from ticket_gym.tools import ORDERS, GamePage, Leaderboard, Result, Scene, UserInfo, Weekday
from ticket_gym.types import Tool
from ticket_gym.world import PAST_YEARS, Season, World

LEADERBOARD_FIELDS = ("points", "wins", "draws", "losses", "goals_scored", "goals_conceded")
LONGEST_QUOTE = 200
"""Characters of an agent's own value that a message quotes."""


def dump(value: object) -> str:
    """JSON as agents read it: literal UTF-8."""
    return json.dumps(value, ensure_ascii=False)


def amount(cents: int, currency: str) -> str:
    """An amount in minor units as text: `4550` is `45.50 EUR`."""
    return f"{cents // 100}.{cents % 100:02d} {currency}"


def quote(value: object) -> str:
    """A value as a message quotes it: short, and free of lone surrogates, which no UTF-8 file could hold."""
    try:
        text = str(value).encode("utf-8", "replace").decode("utf-8")
    except (ValueError, RecursionError):  # an integer of thousands of digits, a value nested too deeply
        return "…"
    return text if len(text) <= LONGEST_QUOTE else text[:LONGEST_QUOTE] + "…"


class Renderer:
    """Words results and errors with one language's texts and one league's names."""

    def __init__(self, texts: ToolTexts, league: League) -> None:
        self._texts = texts
        self._league = league
        self._key = texts.keys

    def render(self, result: Result, scene: Scene) -> str:
        """A tool result."""
        key = self._key
        if isinstance(result, GamePage):
            fragments = _game_texts(self, scene.world, scene.season)
            games = ", ".join([fragments[game - 1] for game in result.games])
            return (
                f'{{"{key["games"]}": [{games}], "{key["page"]}": {result.page}, '
                f'"{key["total_pages"]}": {result.total_pages}, "{key["total_games"]}": {result.total_games}}}'
            )
        if isinstance(result, Leaderboard):
            return _leaderboard_text(self, scene.world, result.year)
        if isinstance(result, Weekday):
            return dump({key["weekday"]: self._texts.weekdays[WEEKDAYS[result.day]]})
        if isinstance(result, UserInfo):
            return self._render_user(result)
        price, balance = self._amount(result.price), self._amount(result.balance)
        return dump({key["game_id"]: result.game, key["price"]: price, key["balance"]: balance})

    def render_error(self, error: ToolError, tool: Tool | None) -> str:
        """An error observation: a stable code, and a message that names the parameter."""
        details = dict(error.details)
        if tool is not None and error.code != "unexpected_argument" and "parameter" in details:
            details["parameter"] = self._texts.tools[tool].parameters[str(details["parameter"])].name
        for name in ("price", "balance"):
            if isinstance(cents := details.get(name), int):
                details[name] = self._amount(cents)
        if "expected" in details:
            details["expected"] = self._texts.expected[str(details["expected"])].format(choices=self._choices())
        details["years"] = ", ".join(map(str, PAST_YEARS))
        details["tools"] = ", ".join(text.name for text in self._texts.tools.values())
        message = self._texts.errors[error.code].format(**{name: quote(value) for name, value in details.items()})
        key = self._key
        return dump({key["error"]: {key["code"]: error.code, key["message"]: message}})

    def game_text(self, season: Season, number: int) -> str:
        """The JSON text of the game at a place of a season."""
        key, teams = self._key, self._league.teams
        game = season.games[number]
        home = teams[game.home]
        fields = {
            "id": game.id,
            "home_team": home.name,
            "away_team": teams[game.away].name,
            "city": home.city,
            "stadium": home.stadium,
            "date": game.date.isoformat(),
            "price": self._amount(game.price),
        }
        return dump({key[name]: value for name, value in fields.items()})

    def leaderboard_text(self, world: World, year: int) -> str:
        """The JSON text of a year's standings."""
        key, teams = self._key, self._league.teams
        rows = [
            {key["team"]: teams[row.team].name, **{key[name]: getattr(row, name) for name in LEADERBOARD_FIELDS}}
            for row in world.standings[year]
        ]
        return dump({key["rows"]: rows})

    def _render_user(self, result: UserInfo) -> str:
        fields: Mapping[str, object] = {
            "name": self._league.users[result.user],
            "favourite_team": self._league.teams[result.favourite].name,
            "balance": self._amount(result.balance),
            "bookings": list(result.bookings),
        }
        return dump({self._key[name]: value for name, value in fields.items()})

    def _amount(self, cents: int) -> str:
        return amount(cents, self._league.currency)

    def _choices(self) -> str:
        values = self._texts.tools["list_games"].parameters["order_by"].values
        return ", ".join(values[order] for order in ORDERS)


@lru_cache(maxsize=128)
def _game_texts(renderer: Renderer, world: World, season: Season) -> list[str]:
    return [renderer.game_text(season, number) for number in range(len(season.games))]


@lru_cache(maxsize=128)
def _leaderboard_text(renderer: Renderer, world: World, year: int) -> str:
    return renderer.leaderboard_text(world, year)
