"""One episode's facts: all that a tool call can change."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class State:
    """What has happened in an episode; two states are equal when their facts are.

    Attributes:
        balance: What the user has left, in minor units.
        bookings: Ids of the booked games in the order of purchase.
    """

    balance: int
    bookings: list[int] = field(default_factory=list)
