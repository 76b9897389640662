"""World: rules of the schedule and the tables, pinned draws, shared instances, the file format."""

import copy
import datetime
import hashlib
import json
import pickle
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ticket_gym import world as world_module
from ticket_gym.errors import AssetError, ConfigurationError
from ticket_gym.types import SEASON_KINDS, SeasonKind, Split
from ticket_gym.world import (
    PAST_YEARS,
    TEAM_COUNT,
    USER_COUNT,
    YEAR,
    Season,
    World,
    dump_world,
    generate_world,
    get_world,
    parse_world,
)

SEEDS = range(6)
MANY = 30
FIRST_TUESDAY = datetime.date(YEAR, 1, 7)


@pytest.fixture(scope="module")
def worlds() -> list[World]:
    """Enough worlds to look at distributions."""
    return [generate_world("train", seed) for seed in range(MANY)]


@pytest.fixture
def frozen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A place for a frozen file of the test's own."""
    path = tmp_path / "world.json"
    monkeypatch.setattr(world_module, "FROZEN_FILE", path)
    world_module._get_frozen.cache_clear()
    yield path
    world_module._get_frozen.cache_clear()


def seasons_of(kind: SeasonKind) -> list[Season]:
    """Some seasons of one kind."""
    return [generate_world("validation", seed).seasons[kind] for seed in SEEDS]


@pytest.mark.parametrize("season", seasons_of("single"))
def test_single_season_has_every_pair_once_with_homes_balanced(season: Season) -> None:
    """190 different pairs; nine or ten home games each."""
    assert Counter(frozenset((game.home, game.away)) for game in season.games) == Counter(
        frozenset((one, other)) for one in range(TEAM_COUNT) for other in range(one)
    )
    assert set(np.bincount(season.home).tolist()) == {9, 10}


@pytest.mark.parametrize("season", seasons_of("double"))
def test_double_season_has_every_pair_at_home_and_away(season: Season) -> None:
    """380 different games; the return match is never soon."""
    assert sorted((game.home, game.away) for game in season.games) == [
        (one, other) for one in range(TEAM_COUNT) for other in range(TEAM_COUNT) if one != other
    ]
    first = {(game.home, game.away): game.date for game in season.games}
    assert min(abs(date - first[away, home]) for (home, away), date in first.items()) >= datetime.timedelta(weeks=8)


@pytest.mark.parametrize("kind", SEASON_KINDS)
def test_a_round_is_one_week_either_midweek_or_around_the_weekend(kind: SeasonKind) -> None:
    """Everyone plays once in each week from Tuesday to Monday that has games."""
    for season in seasons_of(kind):
        weeks: dict[int, list[Any]] = {}
        for game in season.games:
            weeks.setdefault((game.date - FIRST_TUESDAY).days // 7, []).append(game)
        assert len(weeks) == (19 if kind == "single" else 38)
        midweek = 0
        for games in weeks.values():
            assert sorted(team for game in games for team in (game.home, game.away)) == list(range(TEAM_COUNT))
            days = {game.date.weekday() for game in games}
            assert days <= {1, 2, 3} or days <= {4, 5, 6, 0}
            midweek += days <= {1, 2, 3}
        assert midweek / len(weeks) == pytest.approx(1 / 3, abs=0.03)


@pytest.mark.parametrize("kind", SEASON_KINDS)
def test_teams_rest_and_alternate(kind: SeasonKind) -> None:
    """At least two free days between games, never four in a row at home or away."""
    for season in seasons_of(kind):
        for team in range(TEAM_COUNT):
            games = [game for game in season.games if team in (game.home, game.away)]
            assert all(b.date - a.date >= datetime.timedelta(days=3) for a, b in pairwise(games))
            places = "".join("H" if game.home == team else "A" for game in games)
            assert "HHHH" not in places and "AAAA" not in places


@pytest.mark.parametrize("kind", SEASON_KINDS)
def test_games_are_numbered_by_date_then_home_slot(kind: SeasonKind) -> None:
    """Ids follow the documented order, and prices have no ties."""
    for season in seasons_of(kind):
        assert [game.id for game in season.games] == list(range(1, len(season.games) + 1))
        assert list(season.games) == sorted(season.games, key=lambda game: (game.date, game.home))
        assert {game.date.year for game in season.games} == {YEAR}
        assert len({game.price for game in season.games}) == len(season.games)


def test_game_finds_by_id() -> None:
    """Ids outside the season find nothing, also those that Python would count from the end."""
    season = generate_world("train", 0).seasons["single"]
    assert season.game(1) is season.games[0]
    assert season.game(190) is season.games[-1]
    assert season.game(0) is season.game(-1) is season.game(191) is None


def test_columns_match_the_games_and_are_read_only() -> None:
    """The arrays say what the games say."""
    season = generate_world("train", 1).seasons["double"]
    for index, game in enumerate(season.games):
        assert (season.home[index], season.away[index], season.price[index]) == (game.home, game.away, game.price)
        assert season.weekday[index] == game.date.weekday()
        assert season.half[index] == (1 if game.date < datetime.date(YEAR, 7, 1) else 2)
    for column in (season.home, season.away, season.half, season.weekday, season.price):
        with pytest.raises(ValueError, match="read-only"):
            column[0] = 0


@pytest.mark.parametrize("team", [None, 3])
@pytest.mark.parametrize("cities", [None, (), (3,), (5, 8)])
@pytest.mark.parametrize("by_price", [False, True])
def test_listing_filters_and_orders(team: int | None, cities: tuple[int, ...] | None, by_price: bool) -> None:
    """Against a plain filter and sort; the second call sorts nothing."""
    season = generate_world("train", 2).seasons["double"]
    games = [game for game in season.games if team is None or team in (game.home, game.away)]
    games = [game for game in games if cities is None or game.home in cities]
    expected = [game.id for game in sorted(games, key=lambda game: game.price if by_price else game.id)]
    listing = season.listing(team, cities, by_price, False)
    assert list(listing) == expected
    assert season.listing(team, cities, by_price, True) == listing[::-1]
    assert season.listing(team, cities, by_price, False) is listing
    assert all(type(game_id) is int for game_id in listing)


def test_standings_add_up(worlds: list[World]) -> None:
    """Every statistic follows from goals of games that were played."""
    for world in worlds:
        assert tuple(world.standings) == PAST_YEARS
        for rows in world.standings.values():
            assert sorted(row.team for row in rows) == list(range(TEAM_COUNT))
            assert all(row.points == 3 * row.wins + row.draws for row in rows)
            assert all(row.wins + row.draws + row.losses == 38 for row in rows)
            assert sum(row.wins for row in rows) == sum(row.losses for row in rows)
            assert sum(row.goals_scored for row in rows) == sum(row.goals_conceded for row in rows)
            ranks = [
                (-row.points, -row.wins, row.goals_conceded - row.goals_scored, -row.goals_scored, row.team)
                for row in rows
            ]
            assert ranks == sorted(ranks)


def test_standings_look_real(worlds: list[World]) -> None:
    """Champions, last teams and goals a game are in the range of real leagues."""
    tables = [rows for world in worlds for rows in world.standings.values()]
    assert np.mean([75 <= rows[0].points <= 95 for rows in tables]) > 0.9
    assert np.mean([15 <= rows[-1].points <= 35 for rows in tables]) > 0.9
    assert all(2.3 <= sum(row.goals_scored for row in rows) / 380 <= 3.2 for rows in tables)


def test_strength_drifts_but_stays_known(worlds: list[World]) -> None:
    """The years are alike, but not the same."""
    ranks = [[[row.team for row in world.standings[year]] for year in (2022, 2024)] for world in worlds]
    places = [np.corrcoef(np.argsort(early), np.argsort(late))[0, 1] for early, late in ranks]
    assert 0.4 < float(np.mean(places)) < 0.9


def test_calendar_looks_real(worlds: list[World]) -> None:
    """Most games at weekends, some on every day, half of them in each half."""
    for kind in SEASON_KINDS:
        seasons = [world.seasons[kind] for world in worlds]
        weekday = np.concatenate([season.weekday for season in seasons])
        assert 0.45 < np.mean(weekday >= 5) < 0.62
        assert all((weekday == day).mean() > 0.03 for day in range(7))
        assert all(abs(np.mean(season.half == 1) - 0.5) < 0.03 for season in seasons)


def test_prices_look_real(worlds: list[World]) -> None:
    """Right-skewed, in the range of real tickets."""
    seasons = [season for world in worlds for season in world.seasons.values()]
    prices = np.concatenate([season.price for season in seasons])
    assert prices.min() >= 1500 and prices.max() <= 30000
    assert np.median(prices) < prices.mean()
    assert all(season.price.max() > 8000 for season in seasons)
    assert np.all(prices % 10 == 0)


def test_balances_bite_but_buy(worlds: list[World]) -> None:
    """The dearest own game is often too dear, two cheap ones hardly ever."""
    beyond, affordable = [], []
    for world in worlds:
        pool = np.concatenate([season.price for season in world.seasons.values()])
        assert sorted(user.favourite for user in world.users) == list(range(USER_COUNT))
        assert [user.id for user in world.users] == list(range(USER_COUNT))
        for user in world.users:
            assert np.quantile(pool, 0.79) < user.balance < pool.max()
            for season in world.seasons.values():
                own = np.sort(season.price[(season.home == user.favourite) | (season.away == user.favourite)])
                beyond.append(own[-1] > user.balance)
                affordable.append(np.sum(np.cumsum(own) <= user.balance))
    assert 0.25 < np.mean(beyond) < 0.75
    assert np.mean(np.array(affordable) >= 2) > 0.97


@pytest.mark.parametrize(
    ("split", "seed", "digest"),
    [
        ("test", 0, "aebec426bd67a1e7aa6ad5177f867acd0a95d775b48842df404179b371248aba"),
        ("validation", 7, "d754760da240fea6585111c7667c3bea6f4a7a41809cf6859d6b57f2a468e106"),
        ("train", 2**40 + 1, "959dc6ff19a53c878074da9937f39ba999a6329fc0a03d11736690f5ff970dc7"),
    ],
)
def test_worlds_are_pinned(split: Split, seed: int, digest: str) -> None:
    """The same bytes on every platform, Python and NumPy; a change here is a new benchmark."""
    assert hashlib.sha256(dump_world(generate_world(split, seed)).encode()).hexdigest() == digest


def test_splits_and_seeds_give_unrelated_worlds() -> None:
    """Neither the same seed nor the next one shares more than chance does."""
    worlds = [generate_world(split, seed) for split in ("test", "validation", "train") for seed in (0, 1)]
    schedules = [
        frozenset((game.home, game.away, game.date) for game in season.games)
        for world in worlds
        for season in world.seasons.values()
    ]
    shared = [len(one & other) for index, one in enumerate(schedules) for other in schedules[:index]]
    assert max(shared) < 40
    assert len({world.standings[year] for world in worlds for year in PAST_YEARS}) == 3 * len(worlds)
    assert len({tuple(user.balance for user in world.users) for world in worlds}) == len(worlds)


def test_worlds_are_shared_and_referenced() -> None:
    """One object a key, however it is asked for; a pickle holds the key only."""
    world = get_world("train", 11)
    assert get_world("train", seed=11) is get_world("train", int(np.int64(11))) is world
    assert dump_world(world) == dump_world(generate_world("train", 11)) != dump_world(generate_world("train", 12))
    text = pickle.dumps(world)
    assert len(text) < 100 and pickle.loads(text) is world
    assert copy.copy(world) is copy.deepcopy(world) is world
    season = world.seasons["single"]
    assert copy.deepcopy(season) is season
    assert not pickle.loads(pickle.dumps(season)).price.flags.writeable
    assert repr(world) == "World('train', 11)"


def test_worlds_cannot_be_changed() -> None:
    """All episodes share them."""
    world: Any = get_world("train", 11)
    with pytest.raises(AttributeError):
        world.seed = 3
    with pytest.raises(AttributeError):
        world.seasons["single"].games = ()
    with pytest.raises(TypeError):
        world.seasons["single"] = None
    with pytest.raises(TypeError):
        world.standings[2022] = ()


def test_test_split_is_the_frozen_file(frozen: Path) -> None:
    """The test split is read, never drawn."""
    world = generate_world("test", 5)
    frozen.write_text(dump_world(world), encoding="utf-8")
    assert dump_world(get_world("test", 5)) == dump_world(world)
    assert pickle.loads(pickle.dumps(world)) is get_world("test", 5)
    with pytest.raises(ConfigurationError, match="one world, 5, not 6"):
        get_world("test", 6)


def test_frozen_file_errors_name_the_file(frozen: Path) -> None:
    """Missing, or of another split."""
    with pytest.raises(AssetError, match=r"world\.json"):
        get_world("test", 0)
    frozen.write_text(dump_world(generate_world("train", 0)), encoding="utf-8")
    with pytest.raises(AssetError, match="expected test, found train"):
        get_world("test", 0)


def test_bad_keys_are_configuration_errors() -> None:
    """The message says what would be right."""
    bad: Any = "dev"
    for call in (get_world, generate_world):
        with pytest.raises(ConfigurationError, match="split: expected one of test, validation, train, not 'dev'"):
            call(bad, 0)
        with pytest.raises(ConfigurationError, match="seed"):
            call("train", -1)


@pytest.mark.parametrize("split", ["test", "validation", "train"])
def test_file_round_trip(split: Split) -> None:
    """Nothing is lost, and the bytes stay."""
    world = generate_world(split, 3)
    text = dump_world(world)
    again = parse_world(text)
    assert dump_world(again) == text
    assert again.seasons["double"].games == world.seasons["double"].games
    assert text.isascii() and len(text.splitlines()) > 190 + 380 + 60 + 20


def _set(*path: str | int, value: object) -> Callable[[Any], None]:
    def change(data: Any) -> None:
        for step in path[:-1]:
            data = data[step]
        data[path[-1]] = value

    return change


def _swap_games(data: Any) -> None:
    games = data["seasons"]["single"]
    games[3]["price"] = games[4]["price"]


def _drop_game(data: Any) -> None:
    data["seasons"]["double"].pop()


def _turn_game(data: Any) -> None:
    games = data["seasons"]["double"]
    # The last home slot of a day can give way to any larger slot without disturbing the order.
    game = next(a for a, b in pairwise(games) if a["date"] < b["date"] and a["away"] > a["home"])
    game["home"], game["away"] = game["away"], game["home"]


def _swap_rows(data: Any) -> None:
    rows = data["standings"]["2023"]
    rows[0], rows[-1] = rows[-1], rows[0]


def _move_game(data: Any) -> None:
    games = data["seasons"]["single"]
    last = games[-1]
    # The host of the last game, moved there from its last trip.
    next(game for game in games[::-1] if game["away"] == last["home"])["date"] = last["date"]
    games.sort(key=lambda game: (game["date"], game["home"]))
    for number, game in enumerate(games, start=1):
        game["id"] = number


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (_set("format", value="ticket_gym.world/0"), "format: expected ticket_gym.world/1"),
        (_set("extra", value=1), "world: expected the keys"),
        (_set("split", value="dev"), "split: expected one of"),
        (_set("split", value=[]), "split: expected one of"),
        (_set("seed", value=-1), "seed: expected an integer"),
        (_set("users", value={}), "users: expected a list"),
        (_set("users", 3, value=[]), r"users\[3\]: expected the keys"),
        (_set("users", 3, "favourite", value=20), r"users\[3\]\.favourite: no such team slot"),
        (_set("users", 3, "balance", value=12.5), r"users\[3\]\.balance: expected an integer"),
        (_set("users", 3, "balance", value=True), r"users\[3\]\.balance: expected an integer"),
        (_set("users", 3, "id", value=4), "users: expected the ids 0 to 19"),
        (_set("users", value=[{"id": i, "favourite": 0, "balance": 1} for i in range(20)]), "share a favourite"),
        (_set("standings", value={}), "standings: expected the keys 2022, 2023, 2024"),
        (_set("standings", "2022", 0, "points", value=0), r"standings\.2022: team \d+: points are not"),
        (_set("standings", "2022", 0, "losses", value=38), r"standings\.2022: team \d+: games do not add up"),
        (_set("standings", "2022", 0, "goals_scored", value=200), r"standings\.2022: goals do not add up"),
        (_swap_rows, r"standings\.2023: rows are out of order"),
        (_set("seasons", "single", 3, "date", value="2025-02-30"), r"seasons\.single\[3\]\.date: "),
        (_set("seasons", "single", 3, "date", value="20250203"), r"seasons\.single\[3\]\.date: expected YYYY-MM-DD"),
        (_set("seasons", "single", 3, "date", value=7), r"seasons\.single\[3\]\.date: "),
        (_set("seasons", "single", 3, "date", value="2024-02-03"), r"seasons\.single\[3\]\.date: .*2025"),
        (_set("seasons", "single", 3, "date", value="2025-12-31"), r"seasons\.single: games are out of order"),
        (_set("seasons", "single", 3, "id", value=9), r"seasons\.single: ids do not count up"),
        (_swap_games, r"seasons\.single: two games have the same price"),
        (_move_game, r"seasons\.single: a team plays twice a day"),
        (_drop_game, r"seasons\.double: expected 380 different games"),
        (_turn_game, r"seasons\.double: expected 380 different games"),
    ],
)
def test_parse_names_what_is_wrong(change: Callable[[Any], None], problem: str) -> None:
    """Each broken rule is found and its place named."""
    data = json.loads(dump_world(generate_world("train", 4)))
    change(data)
    with pytest.raises(AssetError, match=problem):
        parse_world(json.dumps(data))


@pytest.mark.parametrize("text", ["", "{", "[]", "null"])
def test_parse_rejects_what_is_no_world(text: str) -> None:
    """No other JSON gets through."""
    with pytest.raises(AssetError, match="world: "):
        parse_world(text)
