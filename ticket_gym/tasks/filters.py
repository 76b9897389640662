"""The vectorised solver: a request as one boolean mask a constraint over a season's games.

Its twin, `ticket_gym.tasks.plain`, reads the request game by game and shares no code with it.
"""

from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt

from ticket_gym.request import DAY_GROUPS, Constraints, Opponent
from ticket_gym.world import TEAM_COUNT, Season, User, World

Mask = npt.NDArray[np.bool_]
Filter = Literal["favourite", "away", "city", "half", "days", "opponent"]
"""The constraints that a game satisfies or not; the selector then chooses among the matching games."""


def build_masks(world: World, season: Season, user: User, wanted: Constraints) -> dict[Filter, Mask]:
    """One mask of shape (games,) for each constraint of a request."""
    masks: dict[Filter, Mask] = {}
    if wanted.favourite:
        masks["favourite"] = (season.home == user.favourite) | (season.away == user.favourite)
    if wanted.away:
        masks["away"] = season.away == user.favourite
    if wanted.city is not None:
        masks["city"] = _member(wanted.city)[season.home]
    if wanted.half is not None:
        masks["half"] = season.half == wanted.half
    if wanted.days is not None:
        masks["days"] = _member(DAY_GROUPS[wanted.days])[season.weekday]
    if wanted.opponent is not None:
        teams = opponents(world, wanted.opponent)
        masks["opponent"] = teams[season.away]
        if wanted.favourite:
            masks["opponent"] = np.where(season.away == user.favourite, teams[season.home], teams[season.away])
    return masks


@lru_cache(maxsize=4096)
def opponents(world: World, opponent: Opponent) -> Mask:
    """Which teams a leaderboard condition names; shape (teams,)."""
    rows = world.standings[opponent.year]
    teams = np.zeros(TEAM_COUNT, dtype=np.bool_)
    if opponent.kind == "top":
        named = [row.team for row in rows[: opponent.value]]
    elif opponent.kind == "points_over":
        named = [row.team for row in rows if row.points > opponent.value]
    else:
        named = [row.team for row in rows if row.goals_scored > opponent.value]
    teams[named] = True
    return teams


def combine(season: Season, masks: Mapping[Filter, Mask], without: Filter | None = None) -> npt.NDArray[np.intp]:
    """Indices of the games that pass every mask (but one)."""
    passed = np.ones(len(season.games), dtype=np.bool_)
    for name, mask in masks.items():
        if name != without:
            passed &= mask
    return np.flatnonzero(passed)


def choose(season: Season, matching: npt.NDArray[np.intp], balance: int, wanted: Constraints) -> tuple[int, ...]:
    """The bookings of someone who follows the selector with this balance: sorted game ids.

    What cannot be paid when its turn comes is left out; for a sound request everything can be paid.
    """
    prices = season.price[matching]
    if wanted.select == "all":
        return purchases(season, matching, balance)
    if wanted.select == "cheapest":
        return purchases(season, matching[np.argsort(prices, kind="stable")][: wanted.count], balance)
    affordable = matching[prices <= balance]
    best = affordable[np.argsort(-season.price[affordable], kind="stable")][: wanted.count]
    return purchases(season, best, balance)


def purchases(season: Season, games: Iterable[int], balance: int) -> tuple[int, ...]:
    """Buy game after game as long as each can be paid; sorted ids of what was bought."""
    bought = []
    for index in games:
        price = int(season.price[index])
        if price <= balance:
            balance -= price
            bought.append(int(index) + 1)
    return tuple(sorted(bought))


def solve(world: World, season: Season, user: User, wanted: Constraints) -> tuple[int, ...]:
    """The expected bookings of a request."""
    matching = combine(season, build_masks(world, season, user, wanted))
    return choose(season, matching, user.balance, wanted)


@cache
def _member(values: tuple[int, ...]) -> Mask:
    mask = np.zeros(TEAM_COUNT, dtype=np.bool_)
    mask[list(values)] = True
    return mask
