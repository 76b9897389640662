"""The frozen benchmark `v0`: how it is built, and how it is read back.

Its two files, `world.json` and `queries.jsonl`, are data that scores are published on: they are rebuilt byte for byte
by `ticket-gym build --check`, and read, never rebuilt, by everything else.
"""

import hashlib
import json
from collections import Counter
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from ticket_gym.errors import AssetError
from ticket_gym.locale import ASSETS
from ticket_gym.request import Constraints, Opponent, Task
from ticket_gym.tasks.filters import build_masks, index_season
from ticket_gym.tasks.sampler import Kind, enumerate_requests, find_expected, shuffled
from ticket_gym.tasks.templates import TEMPLATES
from ticket_gym.types import SEASON_KINDS, SeasonKind
from ticket_gym.world import USER_COUNT, World, dump_world, generate_world, get_world

VERSION = "v0"
FOLDER = ASSETS / "benchmark" / VERSION
LOCALES = ASSETS / "locales"
QUERIES_PER_TEMPLATE = 10
BENCHMARK_CITIES: tuple[tuple[int, ...], ...] = ((0,), (1,), (2,), (3,), (4,))
"""The five aligned slots: clubs that are the only one of their city in every league."""

UNSOLVABLE_ON_DOUBLE: dict[str, int] = {"t04": 1, "t10": 1, "t11": 1, "t12": 1, "t15": 1, "t16": 1}
"""Unsolvable queries of a template that play on `double`; the others play on `single`, where every visit is unique."""

SEED = 1060
"""The world of the benchmark: one in which every cell of template, season and kind can be filled, which few can."""

_STREAM = 51


@dataclass(frozen=True, eq=False)
class Benchmark:
    """The frozen benchmark.

    Attributes:
        version: `v0`.
        digest: SHA-256 of its files and of all locale packs, whose wordings are as much a part of it; every run's
            configuration holds it.
        world: The world of all its tasks.
        tasks: In the order of their ids.
        by_id: The same, by id.
    """

    version: str
    digest: str
    world: World
    tasks: tuple[Task, ...]
    by_id: dict[str, Task]


@lru_cache(maxsize=1)
def get_benchmark() -> Benchmark:
    """Read the frozen benchmark.

    Raises:
        AssetError: A file is missing or damaged.
    """
    try:
        texts = {name: (FOLDER / name).read_text(encoding="utf-8") for name in ("world.json", "queries.jsonl")}
        seed = int(json.loads(texts["world.json"])["seed"])
        tasks = tuple(_parse_task(json.loads(line), seed) for line in texts["queries.jsonl"].splitlines())
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise AssetError(f"{FOLDER}: the frozen benchmark cannot be read: {error!r}") from error
    texts |= {str(file.relative_to(LOCALES)): file.read_text(encoding="utf-8") for file in sorted(LOCALES.glob("*/*"))}
    digest = hashlib.sha256("\0".join(f"{name}\0{text}" for name, text in texts.items()).encode()).hexdigest()
    return Benchmark(VERSION, digest, get_world("test", seed), tasks, {task.id: task for task in tasks})


def _parse_task(row: dict[str, Any], world: int) -> Task:
    wanted = row["constraints"]
    opponent = wanted["opponent"]
    return Task(
        id=row["id"],
        template=row["template"],
        split="test",
        world=world,
        season=row["season"],
        user=row["user"],
        constraints=Constraints(
            **{
                **wanted,
                "city": None if wanted["city"] is None else tuple(wanted["city"]),
                "opponent": None if opponent is None else Opponent(**opponent),
            }
        ),
        expected=tuple(row["expected"]),
    )


def _dump_task(task: Task) -> str:
    return json.dumps(
        {
            "id": task.id,
            "template": task.template,
            "season": task.season,
            "user": task.user,
            "constraints": asdict(task.constraints),
            "expected": task.expected,
        }
    )


def build_files(seed: int) -> dict[str, str]:
    """Build the benchmark's files from the world of a seed.

    Raises:
        LookupError: The world cannot fill some cell of template, season and kind; the message names it.
    """
    world = generate_world("test", seed)
    tasks = build_tasks(world)
    return {
        "world.json": dump_world(world),
        "queries.jsonl": "".join(_dump_task(task) + "\n" for task in tasks),
    }


def build_tasks(world: World) -> tuple[Task, ...]:
    """Draw ten queries a template: five on each season, the unsolvable ones as the table says, no user overworked.

    The templates with the most constraints choose their users first, since they have the fewest to choose from.

    Raises:
        LookupError: Some cell cannot be filled.
    """
    rng = np.random.default_rng([_STREAM, world.seed])
    turns: Counter[int] = Counter()
    tasks: list[Task] = []
    for name in sorted(TEMPLATES, key=lambda name: -len(TEMPLATES[name].categories)):
        drawn: list[Task] = []
        for season, kind in _cells(name):
            drawn.append(_fill(name, season, kind, world, turns, drawn, rng))
        for number, task in enumerate(shuffled(drawn, rng), start=1):
            tasks.append(replace(task, id=f"{name}-{number:02d}"))
    return tuple(sorted(tasks, key=lambda task: task.id))


def _cells(name: str) -> list[tuple[SeasonKind, Kind]]:
    on_double = UNSOLVABLE_ON_DOUBLE.get(name, 0)
    unsolvable = {"single": TEMPLATES[name].unsolvable - on_double, "double": on_double}
    half = QUERIES_PER_TEMPLATE // 2
    return [
        (season, "near_miss" if place >= half - unsolvable[season] else "solvable")
        for season in SEASON_KINDS
        for place in range(half)
    ]


def _fill(
    name: str,
    season: SeasonKind,
    kind: Kind,
    world: World,
    turns: Counter[int],
    drawn: list[Task],
    rng: np.random.Generator,
) -> Task:
    """Find a user with few turns so far for whom a sound request of this cell exists that is new.

    New means: nobody has made it (a request about a city is the same whoever makes it), and for requests about a city
    also that no other of them is answered by the same games. Cities that the template has named less come first.
    """
    template = TEMPLATES[name]
    schedule = world.seasons[season]
    index = index_season(schedule)
    named = Counter(task.constraints.city for task in drawn)
    siblings = [task for task in drawn if task.template == name and task.season == season]
    answers = {task.expected for task in siblings if task.solvable and not template.favourite}
    most = -(-len(TEMPLATES) * QUERIES_PER_TEMPLATE // USER_COUNT)
    users = [user for user in shuffled(range(USER_COUNT), rng) if turns[user] < most]
    for user in sorted(users, key=lambda user: turns[user])[: None if template.favourite else 4]:
        asked = {task.constraints for task in siblings if task.user == user or not template.favourite}
        requests = shuffled(enumerate_requests(name, world, BENCHMARK_CITIES), rng)
        for wanted in sorted(requests, key=lambda request: named[request.city]):
            if wanted in asked:
                continue
            masks = build_masks(world, schedule, world.users[user], wanted)
            expected = find_expected(template, kind, index, world.users[user], masks)
            if expected is not None and expected not in answers:
                turns[user] += 1
                return Task("", name, "test", world.seed, season, user, wanted, expected)
    raise LookupError(f"world {world.seed}: no {kind} request of {name} on the {season} season")
