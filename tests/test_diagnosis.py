"""Why an episode failed: hand-made endings of real queries."""

import pytest

from ticket_gym.records import CallRecord
from ticket_gym.request import Task
from ticket_gym.tasks import Cause, diagnose, get_benchmark
from ticket_gym.tasks.plain import violated
from ticket_gym.types import StopReason

BENCHMARK = get_benchmark()
DONE = StopReason.RESPONDED


def game_that_violates(task: Task, names: tuple[str, ...]) -> int:
    world = BENCHMARK.world
    user = world.users[task.user]
    for game in world.seasons[task.season].games:
        if violated(game, world, user, task.constraints) == names and game.id not in task.expected:
            return game.id
    raise LookupError(names)


def call(error: str | None = None, name: str = "lister_matchs") -> CallRecord:
    return CallRecord(id="1", name=name, tool="list_games", error=error)


@pytest.mark.parametrize(
    ("query", "names", "cause"),
    [
        ("t16-01", ("half",), Cause.WRONG_HALF),
        ("t04-01", ("days",), Cause.WRONG_DAYS),
        ("t08-01", ("city",), Cause.WRONG_CITY),
        ("t06-01", ("opponent",), Cause.WRONG_OPPONENT),
        ("t01-01", ("favourite",), Cause.WRONG_TEAM),
        ("t01-01", (), Cause.WRONG_PRICE),
    ],
)
def test_a_wrong_purchase_names_the_constraint(query: str, names: tuple[str, ...], cause: Cause) -> None:
    task = BENCHMARK.by_id[query]
    game = game_that_violates(task, names)
    diagnosis = diagnose(task, [game], DONE)
    assert (diagnosis.success, diagnosis.primary) == (False, cause)
    assert diagnosis.violations == ((game, names),)
    assert diagnosis.extra == (game,)
    assert diagnosis.missing == task.expected


def unsolvable(template: str) -> Task:
    return next(task for task in BENCHMARK.tasks if task.template == template and not task.solvable)


def test_a_purchase_where_none_was_due_has_both_causes_the_violated_constraint_first() -> None:
    task = unsolvable("t04")
    diagnosis = diagnose(task, [game_that_violates(task, ("days",))], DONE)
    assert diagnosis.causes == (Cause.WRONG_DAYS, Cause.BOUGHT_UNSOLVABLE)


def test_extra_and_missing() -> None:
    task = BENCHMARK.by_id["t10-01"] if BENCHMARK.by_id["t10-01"].solvable else BENCHMARK.by_id["t10-02"]
    first, second = task.expected
    assert diagnose(task, [first], DONE).primary is Cause.MISSING
    more = game_that_violates(task, ())
    assert diagnose(task, [first, second, more], DONE).primary is Cause.EXTRA
    assert diagnose(task, [first, more], DONE).primary is Cause.WRONG_PRICE


@pytest.mark.parametrize(
    ("reason", "calls", "cause"),
    [
        (DONE, [], Cause.NONE_BOUGHT),
        (DONE, [call("insufficient_balance"), call()], Cause.NOT_AFFORDABLE),
        (DONE, [call("unknown_team"), call(name="respond")], Cause.GAVE_UP_AT_ERROR),
        (DONE, [call("malformed_call")], Cause.MALFORMED),
        (DONE, [call("unknown_team"), call()], Cause.NONE_BOUGHT),
        (StopReason.MAX_STEPS, [call()], Cause.RAN_OUT),
        (StopReason.CONTEXT_OVERFLOW, [], Cause.RAN_OUT),
        (StopReason.LENGTH, [call("unknown_team")], Cause.RAN_OUT),
        (StopReason.REFUSED, [], Cause.REFUSED),
        (StopReason.ENGINE_ERROR, [call("unknown_team")], Cause.ENGINE_ERROR),
    ],
)
def test_nothing_bought_is_explained_by_the_ending(reason: StopReason, calls: list[CallRecord], cause: Cause) -> None:
    diagnosis = diagnose(BENCHMARK.by_id["t01-01"], [], reason, calls)
    assert diagnosis.primary is cause
    assert Cause.NONE_BOUGHT in diagnosis.causes


def test_right_bookings_without_the_required_answer() -> None:
    task = BENCHMARK.by_id["t01-01"]
    assert diagnose(task, task.expected, StopReason.MAX_STEPS).success
    diagnosis = diagnose(task, task.expected, StopReason.MAX_STEPS, success=False)
    assert (diagnosis.primary, diagnosis.extra, diagnosis.missing) == (Cause.RAN_OUT, (), ())


def test_a_success_needs_no_cause() -> None:
    task = unsolvable("t17")
    assert diagnose(task, [], DONE).causes == ()


def test_every_failure_has_exactly_one_primary_cause_whatever_was_booked() -> None:
    for task in BENCHMARK.tasks:
        for bookings in ([], [1], [1, 2, 3], [190, 5], list(task.expected[1:]), [*task.expected, 7]):
            for reason in StopReason:
                diagnosis = diagnose(task, bookings, reason)
                assert diagnosis.success == (tuple(sorted(bookings)) == task.expected)
                assert (diagnosis.primary is None) == diagnosis.success
                assert diagnosis.causes[:1] == (() if diagnosis.success else (diagnosis.primary,))
