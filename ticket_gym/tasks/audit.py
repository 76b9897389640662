"""Proof that the splits have nothing in common, and that a stream never repeats itself."""

import hashlib
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import combinations

from ticket_gym.request import Task
from ticket_gym.tasks.filters import solve
from ticket_gym.tasks.plain import solve_plainly
from ticket_gym.types import Split
from ticket_gym.world import Season, Standing, World, get_world

Fingerprint = bytes


@dataclass(slots=True)
class SplitAudit:
    """What was found in one split.

    Attributes:
        tasks: How many tasks were looked at.
        repeated: Tasks whose request (schedule, user, constraints) had come before.
        disagreements: Ids of tasks whose expected games one of the two solvers does not find.
        seconds: Time it took.
        queries: Fingerprints of the requests.
        schedules: Fingerprints of the seasons' games.
        standings: Fingerprints of the years' tables.
    """

    split: Split
    tasks: int = 0
    repeated: int = 0
    disagreements: list[str] = field(default_factory=list)
    seconds: float = 0.0
    queries: set[Fingerprint] = field(default_factory=set)
    schedules: set[Fingerprint] = field(default_factory=set)
    standings: set[Fingerprint] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Overlap:
    """How many schedules, standings and queries two splits share; all must be 0."""

    first: Split
    second: Split
    schedules: int
    standings: int
    queries: int


def audit_split(split: Split, tasks: Iterable[Task], *, solvers: bool) -> SplitAudit:
    """Look at the tasks of a split.

    Args:
        split: Their split.
        tasks: What to look at.
        solvers: Whether both solvers are asked again for every task, which takes most of the time.
    """
    audit = SplitAudit(split)
    start = time.perf_counter()
    schedules: dict[tuple[int, str], Fingerprint] = {}
    for task in tasks:
        audit.tasks += 1
        world = get_world(task.split, task.world)
        season = world.seasons[task.season]
        if (task.world, task.season) not in schedules:
            schedules[task.world, task.season] = _schedule(season)
            audit.standings.update(map(_standings, world.standings.values()))
        query = _query(task, schedules[task.world, task.season])
        audit.repeated += query in audit.queries
        audit.queries.add(query)
        if solvers and not _solvers_agree(task, world, season):
            audit.disagreements.append(task.id)
    audit.schedules.update(schedules.values())
    audit.seconds = time.perf_counter() - start
    return audit


def find_overlaps(audits: Iterable[SplitAudit]) -> Iterator[Overlap]:
    """What each pair of splits has in common."""
    for first, second in combinations(audits, 2):
        yield Overlap(
            first.split,
            second.split,
            len(first.schedules & second.schedules),
            len(first.standings & second.standings),
            len(first.queries & second.queries),
        )


def _solvers_agree(task: Task, world: World, season: Season) -> bool:
    user = world.users[task.user]
    plain = solve_plainly(world, season, user, task.constraints)
    return solve(world, season, user, task.constraints) == plain == task.expected


def _query(task: Task, schedule: Fingerprint) -> Fingerprint:
    user = get_world(task.split, task.world).users[task.user]
    return _fingerprint((schedule, user, task.template, task.constraints))


def _schedule(season: Season) -> Fingerprint:
    return _fingerprint([(game.home, game.away, game.date, game.price) for game in season.games])


def _standings(rows: tuple[Standing, ...]) -> Fingerprint:
    return _fingerprint(rows)


def _fingerprint(facts: object) -> Fingerprint:
    return hashlib.blake2b(repr(facts).encode(), digest_size=16).digest()
