"""The 17 templates: which constraints each combines. One table that the samplers, the audit and the tests read."""

from collections.abc import Mapping
from dataclasses import dataclass

from ticket_gym.request import Category, OpponentKind, Selector


@dataclass(frozen=True, slots=True)
class Template:
    """One kind of request.

    Attributes:
        categories: Constraint categories that it combines, in the paper's letters.
        favourite: About the user's favourite team; otherwise about whoever plays.
        away: That team is the visitor.
        opponent: Condition on the other team, without `favourite` on the visitors.
        select: Which of the matching games are wanted.
        count: How many are wanted; None for every one.
        unsolvable: How many of the benchmark's ten queries have no matching game.
    """

    categories: tuple[Category, ...]
    favourite: bool = True
    away: bool = False
    opponent: OpponentKind | None = None
    select: Selector = "cheapest"
    count: int | None = 1
    unsolvable: int = 0

    @property
    def city(self) -> bool:
        """Whether the request names a city."""
        return "L" in self.categories

    @property
    def half(self) -> bool:
        """Whether the request names a half of the year."""
        return "S" in self.categories

    @property
    def days(self) -> bool:
        """Whether the request names days of the week."""
        return "W" in self.categories

    @property
    def priced(self) -> bool:
        """Whether the price decides which game is wanted."""
        return "P" in self.categories


TEMPLATES: Mapping[str, Template] = {
    "t01": Template(("P",)),
    "t02": Template(("P",), select="most_expensive_affordable"),
    "t03": Template(("S", "P")),
    "t04": Template(("W", "P"), unsolvable=2),
    "t05": Template(("L",), away=True, select="all", unsolvable=2),
    "t06": Template(("B", "P"), opponent="top"),
    "t07": Template(("S", "L"), away=True, select="all", unsolvable=2),
    "t08": Template(("L", "P"), favourite=False),
    "t09": Template(("W", "L"), away=True, select="all", unsolvable=3),
    "t10": Template(("S", "W", "P"), count=2, unsolvable=2),
    "t11": Template(("S", "B", "P"), opponent="points_over", unsolvable=2),
    "t12": Template(("W", "B", "P"), opponent="goals_over", unsolvable=2),
    "t13": Template(("L", "B"), favourite=False, opponent="top", select="all", count=None, unsolvable=2),
    "t14": Template(("S", "L", "P"), favourite=False, select="most_expensive_affordable"),
    "t15": Template(("S", "W", "L", "P"), favourite=False, unsolvable=3),
    "t16": Template(("S", "W", "B", "P"), opponent="top", unsolvable=3),
    "t17": Template(("S", "W", "P", "L", "B"), favourite=False, opponent="top", unsolvable=3),
}
