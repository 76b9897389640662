"""Streams of tasks, the audit and the two solvers."""

import hashlib
from dataclasses import replace
from itertools import islice
from random import Random
from typing import Any

import pytest

from ticket_gym.errors import UnknownTaskError
from ticket_gym.request import DAY_GROUPS, Constraints, Opponent, OpponentKind, Task
from ticket_gym.session import Session
from ticket_gym.tasks import TEMPLATES, Stream, get_benchmark
from ticket_gym.tasks.audit import SplitAudit, audit_split, find_overlaps
from ticket_gym.tasks.filters import build_masks, choose, combine, index_season
from ticket_gym.tasks.plain import satisfies
from ticket_gym.tasks.sampler import enumerate_requests, list_candidates
from ticket_gym.tasks.source import _place_elsewhere
from ticket_gym.types import LANGUAGES, SEASON_KINDS, Language, SeasonKind, Split
from ticket_gym.world import PAST_YEARS, Game, get_world

PLAIN = Stream(paraphrases=False, other_cities=False, unaffordable=False)


def tasks(split: Split, count: int, **options: Any) -> list[Task]:
    source = Session(split=split, **options).source
    return [source.at(index) for index in range(count)]


def audits(count: int, *, solvers: bool) -> list[SplitAudit]:
    streams = [audit_split(split, tasks(split, count), solvers=solvers) for split in ("train", "validation")]
    return [audit_split("test", get_benchmark().tasks, solvers=solvers), *streams]


def check(found: list[SplitAudit]) -> None:
    for audit in found:
        assert audit.repeated == 0
        assert audit.disagreements == []
    for overlap in find_overlaps(found):
        assert (overlap.schedules, overlap.standings, overlap.queries) == (0, 0, 0)


def test_splits_share_nothing_streams_never_repeat_and_solvers_agree() -> None:
    found = audits(17 * 100, solvers=True)
    check(found)
    assert len(found[1].queries) == 17 * 100


@pytest.mark.slow
def test_the_same_for_twenty_thousand_tasks_of_each_stream() -> None:
    check(audits(20_000, solvers=True))


def test_the_audit_sees_what_is_wrong() -> None:
    some = tasks("train", 30)
    wrong = replace(some[0], expected=(1, 2, 3))
    audit = audit_split("train", [*some, some[5], wrong], solvers=True)
    assert audit.repeated == 2
    assert audit.disagreements == [wrong.id]
    [overlap] = find_overlaps([audit, audit_split("validation", some[:3], solvers=False)])
    assert overlap.queries == 3 and overlap.schedules > 0


def test_a_task_is_a_function_of_split_seed_and_index() -> None:
    first, again = tasks("train", 100, seed=4), tasks("train", 100, seed=4)
    assert first == again
    assert tasks("train", 100, seed=5) != first
    source = Session(split="train", seed=4).source
    assert [source.get(task.id) for task in reversed(first)] == first[::-1]


@pytest.mark.parametrize(
    ("split", "digest"),
    [
        ("train", "fe02121f71230be21fbfb511f2bfe9e9f4d4c22dde033f9bbcb47cc226d25643"),
        ("validation", "8c6da21bd5fe15271c5db9be164818976f56d1227b07fa1f5a9a84139ac623db"),
    ],
)
def test_tasks_are_pinned(split: Split, digest: str) -> None:
    """The same on every platform, Python and NumPy."""
    found = repr(tasks(split, 17 * 40)).encode()
    assert hashlib.sha256(found).hexdigest() == digest


def test_a_selection_of_templates_draws_the_same_tasks() -> None:
    everything = {task.id: task for task in tasks("train", 340)}
    chosen = tasks("train", 40, templates=("t16", "t03"))
    assert {task.template for task in chosen} == {"t16", "t03"}
    assert all(everything[task.id] == task for task in chosen)
    assert len({task.id for task in chosen}) == 40


@pytest.mark.parametrize("split", ["train", "validation"])
def test_every_template_kind_and_season_comes(split: Split) -> None:
    found = tasks(split, 17 * 300)
    for name, template in TEMPLATES.items():
        mine = [task for task in found if task.template == name]
        assert {task.season for task in mine} == set(SEASON_KINDS)
        assert any(task.solvable for task in mine)
        if template.unsolvable:
            assert any(not task.solvable for task in mine)
    share = sum(not task.solvable for task in found) / len(found)
    assert 0.1 < share < 0.22


def test_validation_is_as_plain_as_the_benchmark_and_the_same_in_every_language() -> None:
    found = {language: tasks("validation", 170, language=language) for language in LANGUAGES}
    assert all(found[language] == found["en"] for language in LANGUAGES)
    assert all(task.wording == 0 for task in found["en"])
    assert {city for task in found["en"] for city in task.constraints.city or ()} <= set(range(5))


def test_extras_of_train_can_be_switched_off() -> None:
    extras = tasks("train", 17 * 100)
    plain = tasks("train", 17 * 100, stream=PLAIN)
    assert {task.wording for task in extras} == {0, 1, 2, 3}
    assert {task.wording for task in plain} == {0}
    assert any(set(task.constraints.city or ()) - set(range(5)) for task in extras)
    assert not any(set(task.constraints.city or ()) - set(range(5)) for task in plain)


@pytest.mark.parametrize("language", ["pt", "en"])
def test_a_city_of_several_clubs_is_named_with_all_of_them(language: Language) -> None:
    found = tasks("train", 17 * 100, language=language)
    groups = Session(language=language).codec.city_groups
    cities = {task.constraints.city for task in found if task.constraints.city is not None}
    assert cities <= set(groups)
    assert any(len(city) > 1 for city in cities)


def test_some_requests_are_beyond_the_balance() -> None:
    beyond = 0
    for task in tasks("train", 17 * 200):
        if task.solvable:
            continue
        world = get_world(task.split, task.world)
        user = world.users[task.user]
        games = [g for g in world.seasons[task.season].games if satisfies(g, world, user, task.constraints)]
        if games:
            assert min(game.price for game in games) > user.balance
            beyond += 1
    assert beyond > 5


def test_indices_and_ids_out_of_range_are_named() -> None:
    with pytest.raises(UnknownTaskError, match="0 or more"):
        Session(split="train").source.at(-1)
    with pytest.raises(UnknownTaskError, match="from 0 to 169"):
        Session().source.at(170)


def test_every_setting_of_the_stream_agrees_across_pages_of_indices() -> None:
    source = Session(split="validation", templates=("t17",)).source
    found = list(islice((source.at(index) for index in range(10_000)), 50))
    assert len({(task.world, task.user) for task in found}) == 50


@pytest.mark.parametrize("split", ["train", "validation"])
@pytest.mark.parametrize("templates", [None, ("t02",), ("t06", "t17", "t01")])
def test_a_block_of_positions_shares_a_world(split: Split, templates: tuple[str, ...] | None) -> None:
    source = Session(split=split, templates=templates).source
    worlds = [
        {source.at(index).world for index in range(block * source.block, (block + 1) * source.block)}
        for block in range(3)
    ]
    assert [min(seeds) for seeds in worlds] == [0, 1, 2]  # the seeds of spare worlds are larger than all others
    assert all(len(seeds) <= 4 for seeds in worlds)
    assert worlds[0].isdisjoint(worlds[1]) and worlds[1].isdisjoint(worlds[2])


def test_the_benchmark_is_one_block() -> None:
    assert Session().source.block == 170
    assert Session(templates=("t03", "t04")).source.block == 20


def test_tasks_in_spare_worlds_do_not_depend_on_what_was_asked_before() -> None:
    source = Session(split="validation", seed=6, templates=("t02",)).source
    spare = [index for index in range(source.block) if source.at(index).world != source.at(0).world][::-1]
    backwards = [source.at(index) for index in spare]
    _place_elsewhere.cache_clear()
    assert spare and [source.at(index) for index in spare] == backwards
    assert len({(task.world, task.user) for task in backwards}) == len(backwards)


def draw_any(rng: Random) -> Constraints:
    """Any constraints together, also ones that no template combines."""
    kinds: list[tuple[OpponentKind, int]] = [("top", 10), ("points_over", 60), ("goals_over", 60)]
    kind, most = rng.choice(kinds)
    return Constraints(
        favourite=rng.random() < 0.5,
        away=rng.random() < 0.3,
        city=rng.choice([None, (rng.randrange(20),), (3, 8, 17)]),
        half=rng.choice([None, 1, 2]),
        days=rng.choice([None, *DAY_GROUPS]),
        opponent=rng.choice([None, Opponent(kind, rng.randint(1, most), rng.choice(PAST_YEARS))]),
    )


def test_sets_of_games_hold_what_a_plain_reading_finds() -> None:
    rng = Random(1)
    found = 0
    for number in range(300):
        world = get_world("train", number % 3)
        season, user = rng.choice(list(world.seasons.values())), rng.choice(world.users)
        wanted = draw_any(rng)
        index = index_season(season)
        games = index.list_ids(combine(index, build_masks(world, season, user, wanted)))
        assert games == tuple(game.id for game in season.games if satisfies(game, world, user, wanted))
        found += bool(games)
    assert 50 < found < 290


@pytest.mark.parametrize("kind", SEASON_KINDS)
def test_the_order_of_sets_is_the_order_of_prices_and_dates(kind: SeasonKind) -> None:
    season = get_world("train", 1).seasons[kind]
    index, rng = index_season(season), Random(2)

    def ids(games: int) -> list[int]:
        return list(index.list_ids(games))

    for _ in range(50):
        some = rng.getrandbits(len(season.games)) & rng.getrandbits(len(season.games))
        games = [season.games[game - 1] for game in ids(some)]
        cheap = sorted(games, key=lambda game: game.price)
        total = sum(game.price for game in cheap[:3])
        assert ids(choose(index, some, total, "cheapest", 3)) == sorted(game.id for game in cheap[:3])
        assert ids(choose(index, some, total, "all", 1)) == buy(games, total)
        assert ids(choose(index, some, cheap[9].price, "most_expensive_affordable", 1)) == [cheap[9].id]
        assert ids(1 << index.earliest(some)) == [games[0].id]
        assert ids(some & index.affordable(cheap[4].price)) == sorted(game.id for game in cheap[:5])


def buy(games: list[Game], balance: int) -> list[int]:
    """Ids of the games, one after the other, that can be paid from what is left."""
    found = []
    for game in games:
        if game.price <= balance:
            balance -= game.price
            found.append(game.id)
    return found


@pytest.mark.parametrize("name", TEMPLATES)
def test_candidates_are_the_masks_of_the_requests(name: str) -> None:
    world, rng = get_world("train", 2), Random(name)
    requests = enumerate_requests(name, world, ((0,), (4,), (5, 6)))
    for season in world.seasons.values():
        user = rng.choice(world.users)
        candidates = list_candidates(requests, world, season, user)
        for place in {0, len(requests) - 1, *(rng.randrange(len(requests)) for _ in range(20))}:
            masks = build_masks(world, season, user, requests[place])
            assert candidates.masks(place) == masks
            assert candidates.match(place) == combine(index_season(season), masks)
