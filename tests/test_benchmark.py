"""The frozen benchmark: its table, its rules, and its files rebuilt byte for byte."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ticket_gym.errors import AssetError
from ticket_gym.request import Constraints, Task
from ticket_gym.tasks import TEMPLATES, benchmark, get_benchmark
from ticket_gym.tasks.benchmark import FOLDER, SEED, build_files
from ticket_gym.tasks.plain import satisfies, solve_plainly
from ticket_gym.world import Game, dump_world, get_world

TASKS = get_benchmark().tasks
PRICED = [name for name, template in TEMPLATES.items() if template.priced]
DROPPED: dict[str, Any] = {
    "favourite": False,
    "away": False,
    "city": None,
    "half": None,
    "days": None,
    "opponent": None,
}


def matching(task: Task, wanted: Constraints) -> list[Game]:
    world = get_benchmark().world
    user = world.users[task.user]
    return [game for game in world.seasons[task.season].games if satisfies(game, world, user, wanted)]


def drops(task: Task) -> list[Constraints]:
    """The request with one constraint left out, for each that it has."""
    wanted = task.constraints
    return [replace(wanted, **{name: none}) for name, none in DROPPED.items() if getattr(wanted, name) != none]


def test_the_files_are_rebuilt_byte_for_byte() -> None:
    for name, text in build_files(SEED).items():
        assert (FOLDER / name).read_bytes() == text.encode("utf-8"), name


def test_the_table_is_full() -> None:
    assert len(TASKS) == 170
    for name, template in TEMPLATES.items():
        mine = [task for task in TASKS if task.template == name]
        assert [task.id for task in mine] == [f"{name}-{number:02d}" for number in range(1, 11)]
        assert Counter(task.season for task in mine) == {"single": 5, "double": 5}
        assert sum(not task.solvable for task in mine) == template.unsolvable
    assert sum(not task.solvable for task in TASKS) == 26


def test_every_user_asks_eight_or_nine_times() -> None:
    assert set(Counter(task.user for task in TASKS).values()) == {8, 9}


def test_no_request_comes_twice() -> None:
    assert len({(task.template, task.user, task.season, task.constraints) for task in TASKS}) == 170


def test_what_is_asked_for_is_what_the_template_says() -> None:
    for task in TASKS:
        template, wanted = TEMPLATES[task.template], task.constraints
        assert (wanted.city is not None, wanted.half is not None, wanted.days is not None) == (
            template.city,
            template.half,
            template.days,
        )
        assert (wanted.opponent.kind if wanted.opponent else None) == template.opponent
        assert (wanted.select, wanted.count) == (template.select, template.count)


@pytest.mark.parametrize("task", [task for task in TASKS if task.solvable], ids=lambda task: task.id)
def test_overlooking_a_constraint_changes_the_bookings(task: Task) -> None:
    """Half and days of a request for one away match aside: only unsolvable requests put those to the test."""
    template, world = TEMPLATES[task.template], get_benchmark().world
    season, user = world.seasons[task.season], world.users[task.user]
    assert solve_plainly(world, season, user, task.constraints) == task.expected
    assert sum(season.games[game - 1].price for game in task.expected) <= user.balance
    if template.priced or task.template == "t13":
        for wanted in drops(task):
            assert solve_plainly(world, season, user, wanted) != task.expected
    if template.city:
        assert solve_plainly(world, season, user, replace(task.constraints, city=None)) != task.expected


@pytest.mark.parametrize("task", [task for task in TASKS if not task.solvable], ids=lambda task: task.id)
def test_every_unsolvable_request_is_a_near_miss(task: Task) -> None:
    assert matching(task, task.constraints) == []
    assert any(matching(task, wanted) for wanted in drops(task))


@pytest.mark.parametrize("task", [t for t in TASKS if t.solvable and t.template in PRICED], ids=lambda task: task.id)
def test_the_price_bites(task: Task) -> None:
    games = matching(task, task.constraints)
    count = task.constraints.count or 0
    assert len(games) > count
    assert {game.id for game in games[:count]} != set(task.expected)
    if task.constraints.select == "most_expensive_affordable":
        assert max(game.price for game in games) > get_benchmark().world.users[task.user].balance


def test_requests_for_every_match_are_about_two_to_four() -> None:
    assert {len(task.expected) for task in TASKS if task.template == "t13" and task.solvable} <= {2, 3, 4}


def test_top_groups_are_clear_cut() -> None:
    for task in TASKS:
        opponent = task.constraints.opponent
        if opponent is not None and opponent.kind == "top":
            rows = get_benchmark().world.standings[opponent.year]
            assert rows[opponent.value - 1].points > rows[opponent.value].points


def test_the_world_is_the_frozen_file() -> None:
    assert dump_world(get_world("test", SEED)) == dump_world(get_benchmark().world)


def test_a_damaged_file_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "world.json").write_bytes((FOLDER / "world.json").read_bytes())
    (tmp_path / "queries.jsonl").write_text('{"id": "t01-01"\n', encoding="utf-8")
    monkeypatch.setattr(benchmark, "FOLDER", tmp_path)
    with pytest.raises(AssetError, match="cannot be read"):
        get_benchmark.__wrapped__()
