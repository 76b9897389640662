"""The world of one or more episodes: two seasons, three years of standings, twenty users; ids and integers, no text.

A world is immutable and shared by all episodes of a process; copies and pickles are references to it.
"""

import datetime
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self, TypeVar

import numpy as np

from ticket_gym import generation
from ticket_gym.errors import AssetError, ConfigurationError
from ticket_gym.generation import PAST_YEARS as PAST_YEARS
from ticket_gym.generation import TEAM_COUNT as TEAM_COUNT
from ticket_gym.generation import USER_COUNT as USER_COUNT
from ticket_gym.generation import YEAR as YEAR
from ticket_gym.types import SEASON_KINDS, SPLITS, SeasonKind, Split

FROZEN_FILE = Path(__file__).parent / "assets" / "benchmark" / "v0" / "world.json"
"""The world of the `test` split."""

# Leads every seed, so that no other consumer of (split, seed, ...) ever shares a world's random stream.
_STREAM = 1_930_713
_SPLIT_KEYS: Mapping[Split, int] = {"test": 1, "validation": 2, "train": 3}
_CACHED_WORLDS = 64
_FORMAT = "ticket_gym.world/1"

Row = TypeVar("Row", "Game", "Standing", "User")


@dataclass(frozen=True, slots=True)
class Game:
    """One game of a season; city and stadium are the home club's.

    Attributes:
        id: From 1, by date, then home slot.
        home: Home team slot.
        away: Away team slot.
        date: Day of the game.
        price: Ticket price in minor units, unique within the season.
    """

    id: int
    home: int
    away: int
    date: datetime.date
    price: int


@dataclass(frozen=True, slots=True)
class Standing:
    """One row of a past year's standings."""

    team: int
    points: int
    wins: int
    draws: int
    losses: int
    goals_scored: int
    goals_conceded: int


@dataclass(frozen=True, slots=True)
class User:
    """One user: index, favourite team slot, balance in minor units."""

    id: int
    favourite: int
    balance: int


class _Shared:
    """What never changes need not be copied."""

    def __copy__(self) -> Self:
        """Itself."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Itself."""
        return self


@dataclass(frozen=True, eq=False)
class Season(_Shared):
    """One schedule of the year 2025.

    Attributes:
        kind: `single`: every pair once, 190 games; `double`: home and away, 380 games.
        games: By id, from 1.
        home: Home team slots; this and the other columns are read-only arrays of shape `(n,)` in the order of `games`.
        away: Away team slots.
        half: 1 (January to June) or 2.
        weekday: Monday is 0.
        price: Minor units.
    """

    kind: SeasonKind
    games: tuple[Game, ...]
    home: generation.Ints = field(init=False, repr=False)
    away: generation.Ints = field(init=False, repr=False)
    half: generation.Ints = field(init=False, repr=False)
    weekday: generation.Ints = field(init=False, repr=False)
    price: generation.Ints = field(init=False, repr=False)
    _listings: dict[tuple[object, ...], tuple[int, ...]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        """Lay the games out as columns."""
        self._set_column("home", (game.home for game in self.games))
        self._set_column("away", (game.away for game in self.games))
        self._set_column("half", (1 if game.date.month <= 6 else 2 for game in self.games))
        self._set_column("weekday", (game.date.weekday() for game in self.games))
        self._set_column("price", (game.price for game in self.games))

    def _set_column(self, name: str, values: Iterable[int]) -> None:
        column = np.fromiter(values, dtype=np.int64, count=len(self.games))
        column.flags.writeable = False
        object.__setattr__(self, name, column)

    def __reduce__(self) -> tuple[type[Self], tuple[SeasonKind, tuple[Game, ...]]]:
        """Pickle the games only: unpickled arrays would be writeable."""
        return type(self), (self.kind, self.games)

    def game(self, game_id: int) -> Game | None:
        """The game with this id, if there is one."""
        return self.games[game_id - 1] if 1 <= game_id <= len(self.games) else None

    def listing(
        self, team: int | None, cities: tuple[int, ...] | None, by_price: bool, descending: bool
    ) -> tuple[int, ...]:
        """Ids of the games of a team, in a city, in order.

        Args:
            team: Only games of this team, at home or away.
            cities: Only games at home to one of these teams, the clubs of a city.
            by_price: Order by price; otherwise by date, then id.
            descending: Turn the order round, exactly.
        """
        key = (team, cities, by_price, descending)
        listing = self._listings.get(key)
        if listing is None:
            listing = self._listings[key] = self._list(*key)
        return listing

    def _list(
        self, team: int | None, cities: tuple[int, ...] | None, by_price: bool, descending: bool
    ) -> tuple[int, ...]:
        if descending:
            return self.listing(team, cities, by_price, False)[::-1]
        chosen = np.ones(len(self.games), dtype=np.bool_)
        if team is not None:
            chosen &= (self.home == team) | (self.away == team)
        if cities is not None:
            chosen &= np.isin(self.home, cities)
        places = np.flatnonzero(chosen)
        if by_price:
            places = places[np.argsort(self.price[places])]
        return tuple((places + 1).tolist())


@dataclass(frozen=True, eq=False)
class World(_Shared):
    """Everything that the tools can tell, apart from an episode's own bookings.

    Attributes:
        split: The split that it belongs to.
        seed: Its seed within the split.
        seasons: The two schedules.
        standings: Rows in table order by year.
        users: By id, each with a different favourite team.
    """

    split: Split
    seed: int
    seasons: Mapping[SeasonKind, Season]
    standings: Mapping[int, tuple[Standing, ...]]
    users: tuple[User, ...]

    def __post_init__(self) -> None:
        """Close the mappings."""
        object.__setattr__(self, "seasons", MappingProxyType(dict(self.seasons)))
        object.__setattr__(self, "standings", MappingProxyType(dict(self.standings)))

    def __repr__(self) -> str:
        """Its key; the whole would fill pages."""
        return f"World({self.split!r}, {self.seed})"

    def __reduce__(self) -> tuple[object, tuple[Split, int]]:
        """Pickle the key only."""
        return get_world, (self.split, self.seed)


def get_world(split: Split, seed: int) -> World:
    """The world of this seed, made at the first call and then shared.

    Raises:
        ConfigurationError: No such split or seed; `test` has the one world of the frozen benchmark.
        AssetError: The frozen world cannot be read.
    """
    if split != "test":
        return _get_generated(split, _checked_seed(split, seed))
    world = _get_frozen()
    if seed != world.seed:
        raise ConfigurationError(f"seed: the test split has one world, {world.seed}, not {seed!r}")
    return world


@lru_cache(maxsize=_CACHED_WORLDS)
def _get_generated(split: Split, seed: int) -> World:
    return generate_world(split, seed)


@lru_cache(maxsize=1)
def _get_frozen() -> World:
    try:
        text = FROZEN_FILE.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise AssetError(f"{FROZEN_FILE}: {error}") from error
    world = parse_world(text)
    if world.split != "test":
        raise AssetError(f"{FROZEN_FILE}: split: expected test, found {world.split}")
    return world


def generate_world(split: Split, seed: int) -> World:
    """Draw a world: a pure function of split and seed, the same on every platform.

    Raises:
        ConfigurationError: No such split, or a negative seed.
    """
    seed = _checked_seed(split, seed)
    rng = np.random.default_rng([_STREAM, _SPLIT_KEYS[split], seed])
    clubs = generation.draw_clubs(rng)
    tables = generation.draw_tables(rng, clubs)
    seasons, prices = {}, []
    for kind in SEASON_KINDS:
        calendar = generation.draw_calendar(rng, kind)
        price = generation.draw_prices(rng, clubs, calendar)
        seasons[kind] = Season(kind, _make_games(calendar, price))
        prices.append(price)
    favourites = generation.draw_permutation(rng, USER_COUNT)
    balances = generation.draw_balances(rng, clubs, favourites, prices)
    standings = {
        year: tuple(Standing(*row) for row in zip(*(column.tolist() for column in table), strict=True))
        for year, table in zip(PAST_YEARS, tables, strict=True)
    }
    users = tuple(User(*row) for row in zip(range(USER_COUNT), favourites.tolist(), balances.tolist(), strict=True))
    return World(split, seed, seasons, standings, users)


def _checked_seed(split: Split, seed: int) -> int:
    if split not in SPLITS:
        raise ConfigurationError(f"split: expected one of {', '.join(SPLITS)}, not {split!r}")
    if seed < 0:
        raise ConfigurationError(f"seed: expected 0 or more, not {seed!r}")
    return int(seed)


def _make_games(calendar: generation.Calendar, price: generation.Ints) -> tuple[Game, ...]:
    dates = map(datetime.date.fromordinal, calendar.day.tolist())
    columns = (calendar.home.tolist(), calendar.away.tolist(), dates, price.tolist())
    return tuple(Game(number, *row) for number, row in enumerate(zip(*columns, strict=True), start=1))


def dump_world(world: World) -> str:
    """The world as JSON, one line per game, row and user; the same world always gives the same bytes."""
    standings = {str(year): rows for year, rows in sorted(world.standings.items())}
    seasons = {kind: world.seasons[kind].games for kind in SEASON_KINDS}
    head = {"format": _FORMAT, "split": world.split, "seed": world.seed}
    parts = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
    parts.append(f'"users": {_dump_rows(world.users)}')
    for name, tables in (("standings", standings), ("seasons", seasons)):
        blocks = ",\n".join(f"{json.dumps(key)}: {_dump_rows(rows)}" for key, rows in tables.items())
        parts.append(f'"{name}": {{\n{blocks}\n}}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _dump_rows(rows: Iterable[Game | Standing | User]) -> str:
    return "[\n" + ",\n".join(json.dumps(asdict(row), default=datetime.date.isoformat) for row in rows) + "\n]"


def parse_world(text: str) -> World:
    """Read what `dump_world` wrote.

    Raises:
        AssetError: The text is no world, or one that breaks a rule; the message names the place and the rule.
    """
    try:
        data = json.loads(text)
    except ValueError as error:
        raise AssetError(f"world: not JSON: {error}") from error
    _require_keys(data, ("format", "split", "seed", "users", "standings", "seasons"), "world")
    _require(data["format"] == _FORMAT, "format", f"expected {_FORMAT}")
    _require(data["split"] in SPLITS, "split", f"expected one of {', '.join(SPLITS)}")
    _require(_is_count(data["seed"]), "seed", "expected an integer from 0")
    _require_keys(data["standings"], tuple(map(str, PAST_YEARS)), "standings")
    _require_keys(data["seasons"], SEASON_KINDS, "seasons")
    users = _parse_rows(User, data["users"], "users")
    _check_users(users)
    standings, seasons = {}, {}
    for year in PAST_YEARS:
        standings[year] = _parse_rows(Standing, data["standings"][str(year)], f"standings.{year}")
        _check_standings(standings[year], f"standings.{year}")
    for kind in SEASON_KINDS:
        games = _parse_rows(Game, data["seasons"][kind], f"seasons.{kind}")
        _check_season(kind, games, f"seasons.{kind}")
        seasons[kind] = Season(kind, games)
    return World(data["split"], data["seed"], seasons, standings, users)


def _require(condition: bool, where: str, problem: str) -> None:
    if not condition:
        raise AssetError(f"{where}: {problem}")


def _require_keys(data: object, keys: tuple[str, ...], where: str) -> None:
    found = tuple(data) if isinstance(data, dict) else None
    _require(found is not None and set(found) == set(keys), where, f"expected the keys {', '.join(keys)}")


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0


def _parse_rows(row_type: type[Row], data: object, where: str) -> tuple[Row, ...]:
    names = tuple(column.name for column in fields(row_type))
    rows = []
    if not isinstance(data, list):
        raise AssetError(f"{where}: expected a list")
    for number, values in enumerate(data):
        place = f"{where}[{number}]"
        _require_keys(values, names, place)
        rows.append(row_type(**{name: _parse_value(name, values[name], f"{place}.{name}") for name in names}))
    return tuple(rows)


def _parse_value(name: str, value: Any, where: str) -> Any:
    if name == "date":
        try:
            date = datetime.date.fromisoformat(value)
        except (TypeError, ValueError) as error:
            raise AssetError(f"{where}: {error}") from error
        _require(date.isoformat() == value and date.year == YEAR, where, f"expected YYYY-MM-DD in {YEAR}")
        return date
    _require(_is_count(value), where, "expected an integer from 0")
    _require(name not in ("team", "home", "away", "favourite") or value < TEAM_COUNT, where, "no such team slot")
    return value


def _check_users(users: tuple[User, ...]) -> None:
    _require([user.id for user in users] == list(range(USER_COUNT)), "users", f"expected the ids 0 to {USER_COUNT - 1}")
    _require(len({user.favourite for user in users}) == USER_COUNT, "users", "two users share a favourite")


def _check_standings(rows: tuple[Standing, ...], where: str) -> None:
    _require(len(rows) == TEAM_COUNT == len({row.team for row in rows}), where, "expected each team once")
    for row in rows:
        place = f"{where}: team {row.team}"
        _require(row.points == 3 * row.wins + row.draws, place, "points are not 3 wins + draws")
        _require(row.wins + row.draws + row.losses == 2 * (TEAM_COUNT - 1), place, "games do not add up")
    _require(sum(row.wins - row.losses for row in rows) == 0, where, "wins and losses differ")
    _require(sum(row.goals_scored - row.goals_conceded for row in rows) == 0, where, "goals do not add up")
    ranks = [(row.points, row.wins, row.goals_scored - row.goals_conceded, row.goals_scored, -row.team) for row in rows]
    _require(all(above > below for above, below in pairwise(ranks)), where, "rows are out of order")


def _check_season(kind: SeasonKind, games: tuple[Game, ...], where: str) -> None:
    _require([game.id for game in games] == list(range(1, len(games) + 1)), where, "ids do not count up from 1")
    _require(all((a.date, a.home) < (b.date, b.home) for a, b in pairwise(games)), where, "games are out of order")
    ways = {(game.home, game.away) for game in games}
    pairs = {frozenset(way) for way in ways}
    pair_count = TEAM_COUNT * (TEAM_COUNT - 1) // 2
    expected = pair_count if kind == "single" else 2 * pair_count
    _require(len(games) == len(ways) == expected, where, f"expected {expected} different games")
    _require(len(pairs) == pair_count and {len(pair) for pair in pairs} == {2}, where, "some pair does not meet")
    at_home = Counter(game.home for game in games).values()
    _require(max(at_home) - min(at_home) <= 1, where, "home games are not balanced")
    days = Counter((game.date, team) for game in games for team in (game.home, game.away))
    _require(max(days.values()) == 1, where, "a team plays twice a day")
    _require(len({game.price for game in games}) == len(games), where, "two games have the same price")
