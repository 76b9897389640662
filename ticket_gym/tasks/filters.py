"""The vectorised solver: a set of a season's games is one integer, so that a constraint is one `&` over all of them.

Its twin, `ticket_gym.tasks.plain`, reads the request game by game and shares no code with it.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt

from ticket_gym.request import DAY_GROUPS, Constraints, Opponent, Selector
from ticket_gym.tasks.templates import Template
from ticket_gym.world import TEAM_COUNT, Season, User, World

Games = int
"""A set of games of one season: bit i stands for the i-th cheapest, so the lowest set bit is the cheapest game."""

Filter = Literal["favourite", "away", "city", "half", "days", "opponent"]
"""The constraints that a game satisfies or not; the selector then chooses among the matching games."""


@dataclass(frozen=True, slots=True, eq=False)
class Index:
    """A season as sets of games.

    Attributes:
        ids: Game ids, the cheapest game's first.
        prices: Minor units, ascending; like `ids` by the place of the game's bit.
        everything: All games.
        home: Home games of each team.
        away: Away games of each team.
        halves: Games of each half of the year, 1 and 2.
        days: Games of each group of days.
        earlier: For each game, by the place of its bit, the games that come before it by date.
    """

    ids: tuple[int, ...]
    prices: tuple[int, ...]
    everything: Games
    home: tuple[Games, ...]
    away: tuple[Games, ...]
    halves: Mapping[int, Games]
    days: Mapping[str, Games]
    earlier: tuple[Games, ...]

    def affordable(self, balance: int) -> Games:
        """The games that this balance covers, each by itself."""
        return (1 << bisect_right(self.prices, balance)) - 1

    def earliest(self, games: Games) -> int:
        """The place of the first game by date; there must be one."""
        place = _lowest(games)
        while sooner := games & self.earlier[place]:
            place = _lowest(sooner)
        return place

    def are_first(self, some: Games, games: Games) -> bool:
        """Whether some of the games come before all others of them by date."""
        rest = games & ~some
        return not rest or not some & ~self.earlier[self.earliest(rest)]

    def list_ids(self, games: Games) -> tuple[int, ...]:
        """Sorted ids."""
        found = []
        while games:
            place = _lowest(games)
            found.append(self.ids[place])
            games ^= 1 << place
        return tuple(sorted(found))


@lru_cache(maxsize=128)
def index_season(season: Season) -> Index:
    """The season's sets, kept for both seasons of as many worlds as are kept themselves."""
    by_price = np.argsort(season.price)
    teams = np.arange(TEAM_COUNT)[:, None]
    weekdays = _pack(season.weekday[by_price] == np.arange(7)[:, None])
    places = np.empty_like(by_price)
    places[by_price] = np.arange(len(by_price))
    earlier, before = [0] * len(by_price), 0
    for place in places.tolist():
        earlier[place] = before
        before |= 1 << place
    return Index(
        ids=tuple((by_price + 1).tolist()),
        prices=tuple(season.price[by_price].tolist()),
        everything=before,
        home=_pack(season.home[by_price] == teams),
        away=_pack(season.away[by_price] == teams),
        halves=dict(enumerate(_pack(season.half[by_price] == np.array([[1], [2]])), start=1)),
        days={name: union(weekdays, days) for name, days in DAY_GROUPS.items()},
        earlier=tuple(earlier),
    )


def union(sets: Sequence[Games], members: Iterable[int]) -> Games:
    """The games of any of these members (teams, weekdays) of a table of sets."""
    games = 0
    for member in members:
        games |= sets[member]
    return games


def build_masks(world: World, season: Season, user: User, wanted: Constraints) -> dict[Filter, Games]:
    """The games that satisfy it, for each constraint of a request."""
    index = index_season(season)
    masks = build_team_masks(index, user, wanted)
    if wanted.city is not None:
        masks["city"] = union(index.home, wanted.city)
    if wanted.half is not None:
        masks["half"] = index.halves[wanted.half]
    if wanted.days is not None:
        masks["days"] = index.days[wanted.days]
    if wanted.opponent is not None:
        teams = opponents(world, wanted.opponent)
        masks["opponent"] = union(index.away, teams)
        if wanted.favourite:
            masks["opponent"] = face(index.away[user.favourite], masks["opponent"], union(index.home, teams))
    return masks


def build_team_masks(index: Index, user: User, wanted: Constraints | Template) -> dict[Filter, Games]:
    """The games of the favourite team, as far as a request is about it."""
    masks: dict[Filter, Games] = {}
    if wanted.favourite:
        masks["favourite"] = index.home[user.favourite] | index.away[user.favourite]
    if wanted.away:
        masks["away"] = index.away[user.favourite]
    return masks


def face(trips: Games, visitors: Games, hosts: Games) -> Games:
    """The games where a team's opponent is one of some: they host the team's trips, and are visitors elsewhere."""
    return (hosts & trips) | (visitors & ~trips)


@lru_cache(maxsize=1024)
def opponents(world: World, opponent: Opponent) -> tuple[int, ...]:
    """The teams that a leaderboard condition names."""
    rows = world.standings[opponent.year]
    if opponent.kind == "top":
        return tuple(row.team for row in rows[: opponent.value])
    if opponent.kind == "points_over":
        return tuple(row.team for row in rows if row.points > opponent.value)
    return tuple(row.team for row in rows if row.goals_scored > opponent.value)


def combine(index: Index, masks: Mapping[Filter, Games], without: Filter | None = None) -> Games:
    """The games that pass every mask (but one)."""
    games = index.everything
    for name, mask in masks.items():
        if name != without:
            games &= mask
    return games


def choose(index: Index, matching: Games, balance: int, select: Selector, count: int | None) -> Games:
    """The bookings of someone who follows the selector with this balance.

    In each turn the next game by price (or by date where every match is wanted) is taken of those that can still be
    paid; for a sound request everything can be paid.
    """
    bought = 0
    most = len(index.ids) if select == "all" or count is None else count
    while (matching := matching & index.affordable(balance)) and bought.bit_count() < most:
        if select == "cheapest":
            place = _lowest(matching)
        elif select == "most_expensive_affordable":
            place = matching.bit_length() - 1
        else:
            place = index.earliest(matching)
        matching ^= 1 << place
        bought |= 1 << place
        balance -= index.prices[place]
    return bought


def solve(world: World, season: Season, user: User, wanted: Constraints) -> tuple[int, ...]:
    """The expected bookings of a request: sorted game ids."""
    index = index_season(season)
    matching = combine(index, build_masks(world, season, user, wanted))
    return index.list_ids(choose(index, matching, user.balance, wanted.select, wanted.count))


def _lowest(games: Games) -> int:
    """The place of the lowest set bit."""
    return (games & -games).bit_length() - 1


def _pack(rows: npt.NDArray[np.bool_]) -> tuple[Games, ...]:
    """Rows of truth values, shape (sets, games), as sets."""
    return tuple(int.from_bytes(row.tobytes(), "little") for row in np.packbits(rows, axis=1, bitorder="little"))
