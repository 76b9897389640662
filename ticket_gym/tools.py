"""The five tools, without any language: canonical arguments in, a result with ids, dates and minor units out."""

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from ticket_gym.errors import ToolError
from ticket_gym.state import State
from ticket_gym.types import Tool
from ticket_gym.world import Season, User, World

PAGE_SIZE = 10

ValueKind = Literal["page", "team", "city", "order", "boolean", "game", "year", "date"]


@dataclass(frozen=True, slots=True)
class Parameter:
    """What a parameter takes; the locale gives its name and description, the codec reads its values."""

    kind: ValueKind
    required: bool = False


PARAMETERS: Mapping[Tool, Mapping[str, Parameter]] = {
    "get_user_info": {},
    "list_games": {
        "page": Parameter("page"),
        "team": Parameter("team"),
        "city": Parameter("city"),
        "order_by": Parameter("order"),
        "descending": Parameter("boolean"),
    },
    "buy_game_ticket": {"game_id": Parameter("game", required=True)},
    "get_leaderboard": {"year": Parameter("year", required=True)},
    "get_weekday_from_date": {"date": Parameter("date", required=True)},
}
"""The one table from which every schema, parser and adapter is made."""

ORDERS: tuple[str, ...] = ("date", "price")

RESULT_KEYS: Mapping[Tool, tuple[str, ...]] = {
    "get_user_info": ("name", "favourite_team", "balance", "bookings"),
    "list_games": (
        *("games", "page", "total_pages", "total_games"),
        *("id", "home_team", "away_team", "city", "stadium", "date", "price"),
    ),
    "buy_game_ticket": ("game_id", "price", "balance"),
    "get_leaderboard": (
        "rows",
        *("team", "points", "wins", "draws", "losses", "goals_scored", "goals_conceded"),
    ),
    "get_weekday_from_date": ("weekday",),
}
"""Canonical keys of each result, at every depth; the locale names them."""


@dataclass(frozen=True, slots=True)
class Scene:
    """Where an episode plays: shared, immutable facts."""

    world: World
    season: Season
    user: User


class UserInfo(NamedTuple):
    """Who the user is, what is left (minor units) and what is booked."""

    user: int
    favourite: int
    balance: int
    bookings: tuple[int, ...]


class GamePage(NamedTuple):
    """One page of a list of games; empty past the end, with the true totals."""

    games: tuple[int, ...]
    page: int
    total_pages: int
    total_games: int


class Purchase(NamedTuple):
    """A ticket bought: its price and what is left, in minor units."""

    game: int
    price: int
    balance: int


class Leaderboard(NamedTuple):
    """The standings of a past year, first team first."""

    year: int


class Weekday(NamedTuple):
    """A day of the week, Monday is 0."""

    day: int


Result = UserInfo | GamePage | Purchase | Leaderboard | Weekday


def get_user_info(scene: Scene, state: State) -> UserInfo:
    """The session's user."""
    user = scene.user
    return UserInfo(user.id, user.favourite, state.balance, tuple(state.bookings))


def list_games(
    scene: Scene,
    state: State,
    *,
    page: int = 1,
    team: int | None = None,
    city: tuple[int, ...] | None = None,
    order_by: str = "date",
    descending: bool = False,
) -> GamePage:
    """The games of a team, of a city, of both or all, in a total order (date then id; prices are unique)."""
    games = scene.season.listing(team, city, order_by == "price", descending)
    start = (page - 1) * PAGE_SIZE
    return GamePage(games[start : start + PAGE_SIZE], page, -(-len(games) // PAGE_SIZE), len(games))


def buy_game_ticket(scene: Scene, state: State, *, game_id: int) -> Purchase:
    """Book a game and pay it.

    Raises:
        ToolError: `unknown_game`, `already_booked` or `insufficient_balance`; nothing is changed.
    """
    game = scene.season.game(game_id)
    if game is None:
        raise ToolError("unknown_game", parameter="game_id", value=game_id)
    if game_id in state.bookings:
        raise ToolError("already_booked", parameter="game_id", value=game_id)
    if game.price > state.balance:
        raise ToolError("insufficient_balance", price=game.price, balance=state.balance)
    state.balance -= game.price
    state.bookings.append(game_id)
    return Purchase(game_id, game.price, state.balance)


def get_leaderboard(scene: Scene, state: State, *, year: int) -> Leaderboard:
    """The standings of a past year.

    Raises:
        ToolError: `unknown_year`.
    """
    if year not in scene.world.standings:
        raise ToolError("unknown_year", parameter="year", value=year, years=tuple(scene.world.standings))
    return Leaderboard(year)


def get_weekday_from_date(scene: Scene, state: State, *, date: datetime.date) -> Weekday:
    """The day of the week of any date."""
    return Weekday(date.weekday())


FUNCTIONS: Mapping[Tool, Callable[..., Result]] = {
    "get_user_info": get_user_info,
    "list_games": list_games,
    "buy_game_ticket": buy_game_ticket,
    "get_leaderboard": get_leaderboard,
    "get_weekday_from_date": get_weekday_from_date,
}


def call_tool(tool: Tool, scene: Scene, state: State, arguments: Mapping[str, Any]) -> Result:
    """Run a tool on canonical arguments, as the codec has read them.

    Raises:
        ToolError: The call cannot be carried out; the state is as before.
    """
    return FUNCTIONS[tool](scene, state, **arguments)
