"""Where tasks come from: the frozen benchmark, or a stream without end."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from random import Random
from typing import Protocol

from ticket_gym.errors import AssetError, ConfigurationError, UnknownTaskError
from ticket_gym.request import Task
from ticket_gym.tasks.benchmark import BENCHMARK_CITIES, QUERIES_PER_TEMPLATE, Benchmark, get_benchmark
from ticket_gym.tasks.sampler import Kind, draw_request
from ticket_gym.tasks.templates import TEMPLATES
from ticket_gym.types import SEASON_KINDS, Split
from ticket_gym.world import USER_COUNT, get_world

TASKS_PER_WORLD = len(TEMPLATES) * USER_COUNT
"""Each template once for each user: no request can come twice."""

UNAFFORDABLE_SHARE = 0.05
WORDINGS = 4
"""Wordings that every pack has at least."""

TRIES = 250
"""Requests that are looked at in one season before the other season, then another world, is taken."""

BLOCKS = 10**9
"""Worlds of one stream; streams and spare worlds follow each other at this distance."""
SPARES = 1000
LARGEST_SEED = 10**6


@dataclass(frozen=True, slots=True)
class Stream:
    """Extras of the `train` split, each of which can be switched off; `validation` has none.

    Attributes:
        paraphrases: Requests come in all wordings of a template, not only in the benchmark's.
        other_cities: Any city of the league may be named, also one with several clubs. Expected games then depend on
            the league; without it they are the same in every language.
        unaffordable: Some requests ask for a game that exists but costs more than the balance.
    """

    paraphrases: bool = True
    other_cities: bool = True
    unaffordable: bool = True


PLAIN = Stream(paraphrases=False, other_cities=False, unaffordable=False)


class TaskSource(Protocol):
    """A set of tasks that an environment draws from."""

    @property
    def size(self) -> int | None:
        """How many tasks there are; None for a stream without end."""

    @property
    def block(self) -> int:
        """How many consecutive positions, counted from 0, share a world (a few tasks of a stream use spare ones)."""

    def get(self, task_id: str) -> Task:
        """The task with this id."""

    def at(self, index: int) -> Task:
        """The task at a position among the chosen templates."""


@dataclass(frozen=True)
class FrozenTasks:
    """The frozen benchmark, or a selection of its templates."""

    benchmark: Benchmark
    templates: tuple[str, ...]

    @property
    def size(self) -> int:
        """How many tasks there are."""
        return len(self._chosen())

    @property
    def block(self) -> int:
        """All of them: they share one world."""
        return self.size

    def get(self, task_id: str) -> Task:
        """The task with this id.

        Raises:
            UnknownTaskError: There is no such task.
        """
        task = self.benchmark.by_id.get(task_id)
        if task is None:
            raise UnknownTaskError(f"query {task_id!r}: the benchmark's ids go from t01-01 to t17-10")
        if task.template not in self.templates:
            raise UnknownTaskError(f"query {task_id!r}: only the templates {', '.join(self.templates)} were chosen")
        return task

    def at(self, index: int) -> Task:
        """The task at a position among the chosen templates.

        Raises:
            UnknownTaskError: There are fewer tasks.
        """
        chosen = self._chosen()
        if not 0 <= index < len(chosen):
            raise UnknownTaskError(f"index {index}: must be from 0 to {len(chosen) - 1}")
        return chosen[index]

    def _chosen(self) -> tuple[Task, ...]:
        return _chosen_tasks(self.benchmark, self.templates)


@lru_cache(maxsize=32)
def _chosen_tasks(benchmark: Benchmark, templates: tuple[str, ...]) -> tuple[Task, ...]:
    return tuple(task for task in benchmark.tasks if task.template in templates)


@dataclass(frozen=True)
class StreamedTasks:
    """Tasks without end: task `index` is a pure function of the fields and the index.

    Attributes:
        split: `train` or `validation`.
        seed: Which stream.
        templates: The templates to draw from.
        stream: Extras.
        cities: The cities of the league, each as the slots of its clubs.
    """

    split: Split
    seed: int
    templates: tuple[str, ...]
    stream: Stream
    cities: tuple[tuple[int, ...], ...]

    @property
    def size(self) -> None:
        """There is no end."""
        return None

    @property
    def block(self) -> int:
        """How many consecutive positions share a world: each chosen template once for each user."""
        return USER_COUNT * len(self.templates)

    def get(self, task_id: str) -> Task:
        """The task with this id, of whatever template.

        Raises:
            UnknownTaskError: The id belongs to another stream or is none.
        """
        split, _, rest = task_id.partition("-")
        seed, _, index = rest.partition("-")
        if split != self.split or seed != str(self.seed) or not (index.isascii() and index.isdigit()):
            raise UnknownTaskError(f"task {task_id!r}: ids of this stream look like {self.split}-{self.seed}-1234")
        return make_task(self, int(index))

    def at(self, index: int) -> Task:
        """The task at a position among the chosen templates.

        Raises:
            UnknownTaskError: The index is negative.
        """
        if index < 0:
            raise UnknownTaskError(f"index {index}: must be 0 or more")
        turn, place = divmod(index, len(self.templates))
        number = tuple(TEMPLATES).index(self.templates[place])
        return make_task(self, turn * len(TEMPLATES) + number)


def make_task(source: StreamedTasks, index: int) -> Task:
    """Make task `index` of a stream. Where its world holds no sound request, a spare world is taken."""
    block, rest = divmod(index, TASKS_PER_WORLD)
    turn, number = divmod(rest, len(TEMPLATES))
    wish = _Wish(source, block, turn, number)
    return wish.fill(0, wish.user) or _place_elsewhere(source, block, number)[turn]


class _Wish:
    """A task before its world is known.

    Attributes:
        id: The task's id.
        name: Its template.
        user: Whose turn it is in the block's own world.
    """

    def __init__(self, source: StreamedTasks, block: int, turn: int, number: int) -> None:
        self.id = f"{source.split}-{source.seed}-{block * TASKS_PER_WORLD + turn * len(TEMPLATES) + number}"
        self.name = tuple(TEMPLATES)[number]
        self.user = (turn + number * 7 + block) % USER_COUNT
        self._source, self._block = source, block
        # Python keeps `random()` and this seeding stable; a NumPy generator takes twice as long to seed.
        self._rng = Random(self.id)
        kind = _draw_kind(self.name, source.stream, self._rng)
        self._kinds: tuple[Kind, ...] = (kind,) if kind == "solvable" else (kind, "solvable")
        self._wording = int(self._rng.random() * WORDINGS) if source.stream.paraphrases else 0

    def fill(self, spare: int, user: int) -> Task | None:
        """The task in the block's own world (0) or a spare one, for a user there; None if no request is sound."""
        source, rng = self._source, self._rng
        seed = (source.seed * SPARES + spare) * BLOCKS + self._block
        world = get_world(source.split, seed)
        cities = source.cities if source.stream.other_cities else BENCHMARK_CITIES
        for kind in self._kinds:
            first = int(rng.random() * 2)
            for season in (SEASON_KINDS[first], SEASON_KINDS[1 - first]):
                schedule, person = world.seasons[season], world.users[user]
                draw = draw_request(self.name, kind, world, schedule, person, cities, rng, TRIES)
                if draw is not None:
                    wanted, expected = draw.constraints, draw.expected
                    return Task(self.id, self.name, source.split, seed, season, user, wanted, expected, self._wording)
        return None


@lru_cache(maxsize=64)
def _place_elsewhere(source: StreamedTasks, block: int, number: int) -> Mapping[int, Task]:
    """The tasks of a template, by turn, that a block's own world has no sound request for, in spare worlds.

    They are placed together, each with a user of a spare world whom no other has: one spare world is then nearly
    always enough, where bound to its own user each task would need several, and still no request comes twice.
    """
    placed: dict[int, Task] = {}
    taken: set[tuple[int, int]] = set()
    for turn in range(USER_COUNT):
        wish = _Wish(source, block, turn, number)
        if wish.fill(0, wish.user) is not None:
            continue
        for spare, shift in product(range(1, SPARES), range(USER_COUNT)):
            place = spare, (wish.user + shift) % USER_COUNT
            if place not in taken and (task := wish.fill(*place)) is not None:
                placed[turn] = task
                taken.add(place)
                break
        else:
            raise AssetError(f"{wish.id}: no sound request of {wish.name} in {SPARES} worlds")
    return placed


def _draw_kind(name: str, stream: Stream, rng: Random) -> Kind:
    """Unsolvable requests come in the benchmark's shares; a few more, about single games, are beyond the balance."""
    draw, template = rng.random(), TEMPLATES[name]
    share = template.unsolvable / QUERIES_PER_TEMPLATE
    if draw < share:
        return "near_miss"
    beyond = stream.unaffordable and template.count == 1
    return "unaffordable" if beyond and draw < share + UNAFFORDABLE_SHARE else "solvable"


@lru_cache(maxsize=256)
def get_source(
    split: Split, seed: int, templates: tuple[str, ...] | None, stream: Stream, cities: tuple[tuple[int, ...], ...]
) -> TaskSource:
    """The shared task source of a setting.

    Args:
        split: `test`, `validation` or `train`.
        seed: Which stream of an unlimited split; 0 for `test`, which has only one.
        templates: The templates to draw from, all by default.
        stream: Extras of `train`; the other splits have none.
        cities: The cities of the league, each as the slots of its clubs.

    Raises:
        ConfigurationError: An option cannot be used; the message says which and what would be right.
    """
    chosen = tuple(TEMPLATES) if templates is None else templates
    if unknown := [name for name in chosen if name not in TEMPLATES]:
        raise ConfigurationError(f"templates: unknown {', '.join(map(str, unknown))}; there are t01 to t17")
    if not chosen or len(set(chosen)) < len(chosen):
        raise ConfigurationError("templates: name at least one, and none twice")
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < LARGEST_SEED:
        raise ConfigurationError(f"seed={seed!r}: must be an integer from 0 to {LARGEST_SEED - 1}")
    if split == "test":
        if seed:
            raise ConfigurationError("seed: the test split is frozen; seeds choose among the streams of the others")
        return FrozenTasks(get_benchmark(), chosen)
    return StreamedTasks(split, seed, chosen, stream if split == "train" else PLAIN, cities)
