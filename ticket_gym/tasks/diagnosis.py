"""Why an episode failed, exactly: requests are structured, so no judge is needed."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from ticket_gym.records import CallRecord
from ticket_gym.request import Category, Task
from ticket_gym.tasks.plain import violated
from ticket_gym.types import RESPOND, StopReason
from ticket_gym.world import get_world


class Cause(StrEnum):
    """What went wrong; of several causes the primary one is the first in this order."""

    ENGINE_ERROR = "engine_error"
    """The engine failed: ours, not the agent's."""
    WRONG_TEAM = "wrong_team"
    """A booked game is not one of the user's team, or the team is not the visitor."""
    WRONG_CITY = "wrong_city"
    """A booked game is played elsewhere."""
    WRONG_OPPONENT = "wrong_opponent"
    """A booked game's opponent (or visitors) does not satisfy the leaderboard condition."""
    WRONG_DAYS = "wrong_days"
    """A booked game is played on another day of the week."""
    WRONG_HALF = "wrong_half"
    """A booked game is played in the other half of the year."""
    WRONG_PRICE = "wrong_price"
    """A booked game satisfies every constraint, but the price decides for another one."""
    BOUGHT_UNSOLVABLE = "bought_unsolvable"
    """Something was bought although nothing should have been."""
    EXTRA = "extra"
    """All that was expected was bought, and something more."""
    RAN_OUT = "ran_out"
    """Steps, context window or token limit ran out before the answer."""
    REFUSED = "refused"
    """The model refused."""
    MALFORMED = "malformed"
    """The last call before the end could not be read at all."""
    NOT_AFFORDABLE = "not_affordable"
    """Something expected was not bought, and a purchase that was tried cost more than the balance."""
    GAVE_UP_AT_ERROR = "gave_up_at_error"
    """The agent stopped right after a call that failed."""
    MISSING = "missing"
    """Only a part of what was expected was bought, and nothing wrong."""
    NONE_BOUGHT = "none_bought"
    """Nothing was bought although something should have been."""


CATEGORY_OF: dict[Cause, Category] = {
    Cause.WRONG_HALF: "S",
    Cause.WRONG_DAYS: "W",
    Cause.WRONG_PRICE: "P",
    Cause.NOT_AFFORDABLE: "P",
    Cause.WRONG_CITY: "L",
    Cause.WRONG_OPPONENT: "B",
}
"""The constraint category that a cause belongs to."""

CAUSE_OF_CONSTRAINT: dict[str, Cause] = {
    "favourite": Cause.WRONG_TEAM,
    "away": Cause.WRONG_TEAM,
    "city": Cause.WRONG_CITY,
    "half": Cause.WRONG_HALF,
    "days": Cause.WRONG_DAYS,
    "opponent": Cause.WRONG_OPPONENT,
}

UNREADABLE = frozenset({"unknown_tool", "malformed_call"})


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Why an episode failed.

    Attributes:
        success: Whether there is nothing to explain.
        primary: The one cause that it is counted under; None for a success.
        causes: All causes that contributed, the primary one first.
        violations: For each wrongly booked game, the constraints that it does not satisfy.
        extra: Booked but not expected.
        missing: Expected but not booked.
    """

    success: bool
    primary: Cause | None = None
    causes: tuple[Cause, ...] = ()
    violations: tuple[tuple[int, tuple[str, ...]], ...] = ()
    extra: tuple[int, ...] = ()
    missing: tuple[int, ...] = ()


def diagnose(
    task: Task,
    bookings: Sequence[int],
    stop_reason: StopReason | None,
    calls: Sequence[CallRecord] = (),
    *,
    success: bool | None = None,
) -> Diagnosis:
    """Explain an episode from its task and what was recorded of it.

    Args:
        task: What was asked.
        bookings: Booked game ids.
        stop_reason: Why it ended.
        calls: The calls that were played, where they are known.
        success: Whether it counted as a success; by default whether the bookings are the expected ones.
    """
    right = tuple(sorted(bookings)) == task.expected
    if right if success is None else success:
        return Diagnosis(success=True)
    extra = tuple(game for game in bookings if game not in task.expected)
    missing = tuple(game for game in task.expected if game not in bookings)
    violations = _violations(task, extra)
    causes = {CAUSE_OF_CONSTRAINT[name] for _, names in violations for name in names}
    causes |= _purchase_causes(task, bookings, extra, missing, any(not names for _, names in violations))
    causes |= _ending_causes(stop_reason, calls, bought=not missing)
    ordered = tuple(cause for cause in Cause if cause in causes)
    return Diagnosis(False, ordered[0], ordered, violations, extra, missing)


def _violations(task: Task, games: Sequence[int]) -> tuple[tuple[int, tuple[str, ...]], ...]:
    world = get_world(task.split, task.world)
    season = world.seasons[task.season]
    found = (season.game(game) for game in games)
    user = world.users[task.user]
    return tuple((game.id, violated(game, world, user, task.constraints)) for game in found if game is not None)


def _purchase_causes(
    task: Task, bookings: Sequence[int], extra: Sequence[int], missing: Sequence[int], fitting_extra: bool
) -> set[Cause]:
    causes = set()
    if extra and not task.solvable:
        causes.add(Cause.BOUGHT_UNSOLVABLE)
    elif extra and not missing:
        causes.add(Cause.EXTRA)
    elif fitting_extra:
        causes.add(Cause.WRONG_PRICE)
    if missing and not bookings:
        causes.add(Cause.NONE_BOUGHT)
    elif missing and not extra:
        causes.add(Cause.MISSING)
    return causes


def _ending_causes(stop_reason: StopReason | None, calls: Sequence[CallRecord], *, bought: bool) -> set[Cause]:
    causes = set()
    if stop_reason is StopReason.ENGINE_ERROR:
        causes.add(Cause.ENGINE_ERROR)
    elif stop_reason is StopReason.REFUSED:
        causes.add(Cause.REFUSED)
    elif stop_reason is not StopReason.RESPONDED:
        causes.add(Cause.RAN_OUT)
    if bought:
        return causes
    tools = [call for call in calls if call.name != RESPOND]
    if any(call.error == "insufficient_balance" for call in tools):
        causes.add(Cause.NOT_AFFORDABLE)
    if tools and tools[-1].error in UNREADABLE:
        causes.add(Cause.MALFORMED)
    elif tools and tools[-1].error is not None and stop_reason is StopReason.RESPONDED:
        causes.add(Cause.GAVE_UP_AT_ERROR)
    return causes
