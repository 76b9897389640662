"""The structured request: what the user wants, without any language."""

from dataclasses import dataclass
from typing import Literal

from ticket_gym.types import SeasonKind, Split

OpponentKind = Literal["top", "points_over", "goals_over"]
Selector = Literal["cheapest", "most_expensive_affordable", "all"]
Category = Literal["S", "W", "P", "L", "B"]
"""Semester, weekday, price, location, leaderboard."""

DAY_GROUPS: dict[str, tuple[int, ...]] = {
    "monday": (0,),
    "tuesday": (1,),
    "wednesday": (2,),
    "thursday": (3,),
    "friday": (4,),
    "saturday": (5,),
    "sunday": (6,),
    "weekend": (5, 6),
    "weekdays": (0, 1, 2, 3, 4),
    "midweek": (1, 2, 3),
}
"""The groups of days that a request can name, as `datetime.date.weekday()` numbers."""

WEEKDAYS: tuple[str, ...] = tuple(DAY_GROUPS)[:7]


@dataclass(frozen=True, slots=True)
class Opponent:
    """What the other team did in a past year.

    Attributes:
        kind: `top`: among the first `value` of that year's standings; `points_over`, `goals_over`: strictly more
            than `value` points, goals scored.
        value: The n or x of the request.
        year: The year of the standings.
    """

    kind: OpponentKind
    value: int
    year: int


@dataclass(frozen=True, slots=True)
class Constraints:
    """Which games a request is about and which of them it wants.

    Attributes:
        favourite: Only games of the user's favourite team.
        away: Only games where that team is the visitor.
        city: Only games at home to one of these team slots: the clubs of one city.
        half: 1: January to June, 2: July to December.
        days: Name of a group in `DAY_GROUPS`.
        opponent: A condition on the favourite team's opponent or, without `favourite`, on the visitors.
        select: Which of the matching games are wanted.
        count: How many are wanted; None where the request says every one.
    """

    favourite: bool = False
    away: bool = False
    city: tuple[int, ...] | None = None
    half: int | None = None
    days: str | None = None
    opponent: Opponent | None = None
    select: Selector = "cheapest"
    count: int | None = 1


@dataclass(frozen=True, slots=True)
class Task:
    """One annotated request.

    Attributes:
        id: `t07-03` in the test split, `train-0-1234` (split, seed, index) elsewhere.
        template: `t01` to `t17`.
        split: The split that it belongs to.
        world: Seed of its world within the split.
        season: Which of the world's two schedules is played.
        user: User index, 0 to 19.
        constraints: The request.
        expected: Sorted ids of the games to be booked; empty where nothing satisfies the request.
        wording: Which of the template's wordings is used; 0 is the benchmark's.
    """

    id: str
    template: str
    split: Split
    world: int
    season: SeasonKind
    user: int
    constraints: Constraints
    expected: tuple[int, ...]
    wording: int = 0

    @property
    def solvable(self) -> bool:
        """Whether any game satisfies the request."""
        return bool(self.expected)
