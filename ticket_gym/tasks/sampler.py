"""Draws requests that hold the house rules: no idle constraint, near misses, prices that bite.

The rules (see `find_expected`) make every careless reading wrong, with one exception: where a request is about one away
match of a team in a city, half and days cannot change which match that is, only whether there is one, so that they are
put to the test by the unsolvable requests alone. They are checked on each candidate with the
vectorised solver, and candidates are drawn until one holds them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import gcd
from random import Random
from typing import Literal, TypeVar, overload

import numpy as np

from ticket_gym.request import DAY_GROUPS, Constraints, Opponent, OpponentKind
from ticket_gym.tasks.filters import (
    Filter,
    Games,
    Index,
    build_team_masks,
    choose,
    combine,
    face,
    index_season,
    opponents,
    union,
)
from ticket_gym.tasks.templates import TEMPLATES, Template
from ticket_gym.world import Season, User, World

T = TypeVar("T")
Kind = Literal["solvable", "near_miss", "unaffordable"]
"""What a request should be: satisfiable, missed by one constraint, or satisfiable but beyond the balance."""

TOP_SIZES = range(2, 11)
EVERY_COUNT = (2, 4)
"""How many games a request for every match may be about."""

DAY_CHOICES = (*DAY_GROUPS, "weekend", "weekdays", "midweek")
"""Groups of days as they are drawn: the larger groups twice as often as a single day."""


@dataclass(frozen=True, slots=True)
class Draw:
    """A sound request and its expected bookings."""

    constraints: Constraints
    expected: tuple[int, ...]


def draw_request(
    name: str,
    kind: Kind,
    world: World,
    season: Season,
    user: User,
    cities: tuple[tuple[int, ...], ...],
    rng: Random,
    tries: int,
) -> Draw | None:
    """Draw a sound request of a template for a user.

    Args:
        name: Template, `t01` to `t17`.
        kind: What it should be.
        world: Where.
        season: Which of the world's schedules.
        user: For whom.
        cities: The cities that may be named, each as the slots of its clubs.
        rng: Source of all draws.
        tries: Candidates to look at before giving up.

    Returns:
        The request, or None when no candidate was sound.
    """
    template = TEMPLATES[name]
    index = index_season(season)
    affordable = index.affordable(user.balance)
    requests = enumerate_requests(name, world, cities)
    candidates = list_candidates(requests, world, season, user)
    for place in walk(len(requests), rng, tries):
        if not could_be_sound(template, kind, candidates.match(place), affordable):
            continue
        expected = find_expected(template, kind, index, user, candidates.masks(place))
        if expected is not None:
            return Draw(requests[place], expected)
    return None


def find_expected(
    template: Template, kind: Kind, index: Index, user: User, masks: Mapping[Filter, Games]
) -> tuple[int, ...] | None:
    """The expected bookings of a candidate, given as its masks, if it holds every rule for its kind, else None.

    - solvable: everything expected can be paid; overlooking any one constraint leads to other bookings (half and days
      of a request for one away match aside, which only unsolvable requests put to the test); where the price
      decides, at least two games match, one more than are wanted, and the first by date are not the expected ones;
      where the balance decides, the most expensive match is beyond it.
    - near_miss: nothing matches, and without some one constraint something would.
    - unaffordable: a single game is wanted, exists, and costs more than the balance.
    """
    matching = combine(index, masks)
    if not could_be_sound(template, kind, matching, index.affordable(user.balance)):
        return None
    if kind == "near_miss":
        return () if any(combine(index, masks, name) for name in masks) else None
    if kind == "unaffordable":
        return ()
    select, count = template.select, template.count
    bought = choose(index, matching, user.balance, select, count)
    if bought.bit_count() != (matching.bit_count() if count is None else count):
        return None
    if template.priced and index.are_first(bought, matching):
        return None
    strict = template.priced or count is None
    for name in masks:
        tested = strict or name == "city"
        if tested and choose(index, combine(index, masks, name), user.balance, select, count) == bought:
            return None
    return index.list_ids(bought)


def could_be_sound(template: Template, kind: Kind, matching: Games, affordable: Games) -> bool:
    """The part of the rules that the matching games alone decide: most candidates fail here, at little cost."""
    if kind == "near_miss":
        return not matching
    if kind == "unaffordable":
        single = template.select != "all" or matching.bit_count() == 1
        return template.count == 1 and single and matching != 0 and not matching & affordable
    number = matching.bit_count()
    if template.priced:
        bites = template.select != "most_expensive_affordable" or matching & ~affordable != 0
        return bites and number > (template.count or 1)
    return EVERY_COUNT[0] <= number <= EVERY_COUNT[1] if template.count is None else number == template.count


@dataclass(frozen=True, slots=True)
class Requests(Sequence[Constraints]):
    """All combinations of what a template's constraints can be; one that it lacks has the one choice None."""

    template: Template
    cities: tuple[tuple[int, ...] | None, ...]
    halves: tuple[int | None, ...]
    days: tuple[str | None, ...]
    opponents: tuple[Opponent | None, ...]

    def __len__(self) -> int:
        return len(self.cities) * len(self.halves) * len(self.days) * len(self.opponents)

    @overload
    def __getitem__(self, place: int) -> Constraints: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Constraints]: ...
    def __getitem__(self, place: int | slice) -> Constraints | Sequence[Constraints]:
        if isinstance(place, slice):
            return [self[number] for number in range(*place.indices(len(self)))]
        rest, city = divmod(place, len(self.cities))
        rest, half = divmod(rest, len(self.halves))
        opponent, day = divmod(rest, len(self.days))
        template = self.template
        return Constraints(
            favourite=template.favourite,
            away=template.away,
            city=self.cities[city],
            half=self.halves[half],
            days=self.days[day],
            opponent=self.opponents[opponent],
            select=template.select,
            count=template.count,
        )


def enumerate_requests(name: str, world: World, cities: tuple[tuple[int, ...], ...]) -> Requests:
    """Every request of a template, sound or not."""
    template = TEMPLATES[name]
    return Requests(
        template,
        cities if template.city else (None,),
        (1, 2) if template.half else (None,),
        DAY_CHOICES if template.days else (None,),
        (None,) if template.opponent is None else list_opponents(template.opponent, world),
    )


@dataclass(frozen=True, slots=True)
class Candidates:
    """The masks of every request of a template, in the order of its `Requests`."""

    fixed: dict[Filter, Games]
    choices: dict[Filter, tuple[Games, ...]]
    everything: Games

    def match(self, place: int) -> Games:
        """The games that match the request at this place."""
        games = self.everything
        for choices in self.choices.values():
            place, number = divmod(place, len(choices))
            games &= choices[number]
        return games

    def masks(self, place: int) -> dict[Filter, Games]:
        """The masks of the request at this place, as `build_masks` makes them."""
        masks = self.fixed.copy()
        for name, choices in self.choices.items():
            place, number = divmod(place, len(choices))
            masks[name] = choices[number]
        return masks


def list_candidates(requests: Requests, world: World, season: Season, user: User) -> Candidates:
    """The masks of every request for a user in a season."""
    index, template = index_season(season), requests.template
    fixed = build_team_masks(index, user, template)
    choices: dict[Filter, tuple[Games, ...]] = {}
    if template.city:
        choices["city"] = tuple(union(index.home, city) for city in requests.cities if city is not None)
    if template.half:
        choices["half"] = tuple(index.halves[half] for half in requests.halves if half is not None)
    if template.days:
        choices["days"] = tuple(index.days[days] for days in requests.days if days is not None)
    if template.opponent is not None:
        sides = list_sides(template.opponent, world, season)
        if template.favourite:
            trips = index.away[user.favourite]
            choices["opponent"] = tuple(face(trips, visitors, hosts) for visitors, hosts in sides)
        else:
            choices["opponent"] = tuple(visitors for visitors, _ in sides)
    return Candidates(fixed, choices, combine(index, fixed))


@lru_cache(maxsize=128)
def list_opponents(kind: OpponentKind, world: World) -> tuple[Opponent, ...]:
    """The leaderboard conditions that can be drawn: clear-cut top groups, or figures from the upper half's up."""
    conditions = []
    for year, rows in world.standings.items():
        if kind == "top":
            sizes = [n for n in TOP_SIZES if rows[n - 1].points > rows[n].points]
            conditions += [Opponent("top", n, year) for n in sizes]
            continue
        figures = sorted((row.points if kind == "points_over" else row.goals_scored for row in rows), reverse=True)
        conditions += [Opponent(kind, x, year) for x in range(figures[len(figures) // 2], figures[0] + 1)]
    return tuple(conditions)


@lru_cache(maxsize=256)
def list_sides(kind: OpponentKind, world: World, season: Season) -> tuple[tuple[Games, Games], ...]:
    """For each condition of `list_opponents`: the games whose visitors, and whose hosts, it names."""
    index = index_season(season)
    named = [opponents(world, opponent) for opponent in list_opponents(kind, world)]
    return tuple((union(index.away, teams), union(index.home, teams)) for teams in named)


def shuffled(items: Sequence[T], rng: np.random.Generator) -> list[T]:
    """The items in a random order, from one uniform draw each: that stream is the same in every NumPy."""
    return [items[place] for place in np.argsort(rng.random(len(items)), kind="stable")]


def walk(size: int, rng: Random, most: int) -> Iterator[int]:
    """Numbers below a size in a random order, none twice, from two draws: equal steps around a circle."""
    place = int(rng.random() * size)
    step = 1 + int(rng.random() * size)
    while gcd(step, size) > 1:
        step += 1
    for _ in range(min(size, most)):
        yield place
        place = (place + step) % size
