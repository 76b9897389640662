"""Draws requests that hold the house rules: no idle constraint, near misses, prices that bite.

The rules (see `is_sound`) make every careless reading wrong. They are checked on each candidate with the vectorised
solver, and candidates are drawn until one holds them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeVar, overload

import numpy as np

from ticket_gym.request import DAY_GROUPS, Constraints, Opponent, OpponentKind
from ticket_gym.tasks.filters import build_masks, choose, combine, purchases
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
    rng: np.random.Generator,
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
    for wanted in _draws(enumerate_requests(name, world, cities), rng, tries):
        expected = is_sound(template, kind, world, season, user, wanted)
        if expected is not None:
            return Draw(wanted, expected)
    return None


def is_sound(
    template: Template, kind: Kind, world: World, season: Season, user: User, wanted: Constraints
) -> tuple[int, ...] | None:
    """The expected bookings of a candidate if it holds every rule for its kind, else None.

    - solvable: everything expected can be paid; overlooking any one constraint leads to other bookings (half and days
      of a request for one away match aside, which only unsolvable requests put to the test); where the price
      decides, at least two games match, one more than are wanted, and the first by date are not the expected ones;
      where the balance decides, the most expensive match is beyond it.
    - near_miss: nothing matches, and without some one constraint something would.
    - unaffordable: a single game is wanted, exists, and costs more than the balance.
    """
    masks = build_masks(world, season, user, wanted)
    matching = combine(season, masks)
    if kind == "near_miss":
        missed = len(matching) == 0 and any(len(combine(season, masks, name)) for name in masks)
        return () if missed else None
    if kind == "unaffordable":
        beyond = wanted.count == 1 and len(matching) > 0 and int(season.price[matching].min()) > user.balance
        return () if beyond and (wanted.select != "all" or len(matching) == 1) else None
    count = wanted.count
    if template.priced:
        if len(matching) <= (count or 1):
            return None
        if wanted.select == "most_expensive_affordable" and season.price[matching].max() <= user.balance:
            return None
    elif count is None:
        if not EVERY_COUNT[0] <= len(matching) <= EVERY_COUNT[1]:
            return None
    elif len(matching) != count:
        return None
    expected = choose(season, matching, user.balance, wanted)
    if len(expected) != (len(matching) if count is None else count):
        return None
    if template.priced and purchases(season, matching[:count], user.balance) == expected:
        return None
    strict = template.priced or count is None
    for name in masks:
        if not strict and name != "city":
            continue
        if choose(season, combine(season, masks, name), user.balance, wanted) == expected:
            return None
    return expected


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


@lru_cache(maxsize=256)
def list_opponents(kind: OpponentKind, world: World) -> tuple[Opponent, ...]:
    """The leaderboard conditions that can be drawn: clear-cut top groups, or figures from the upper half's up."""
    opponents = []
    for year, rows in world.standings.items():
        if kind == "top":
            sizes = [n for n in TOP_SIZES if rows[n - 1].points > rows[n].points]
            opponents += [Opponent("top", n, year) for n in sizes]
            continue
        figures = sorted((row.points if kind == "points_over" else row.goals_scored for row in rows), reverse=True)
        opponents += [Opponent(kind, x, year) for x in range(figures[len(figures) // 2], figures[0] + 1)]
    return tuple(opponents)


def shuffled(items: Sequence[T], rng: np.random.Generator) -> list[T]:
    """The items in a random order, from one uniform draw each: that stream is the same in every NumPy."""
    return [items[place] for place in np.argsort(rng.random(len(items)), kind="stable")]


def _draws(requests: Requests, rng: np.random.Generator, most: int) -> Iterator[Constraints]:
    """Some requests at random; each once where there are few."""
    if len(requests) <= most:
        yield from shuffled(requests, rng)
    else:
        for _ in range(most):
            yield requests[int(rng.random() * len(requests))]
