"""The five tools: orders, pages, purchases."""

import datetime

import pytest

from ticket_gym.errors import ToolError
from ticket_gym.state import State
from ticket_gym.tools import (
    PAGE_SIZE,
    Scene,
    buy_game_ticket,
    call_tool,
    get_leaderboard,
    get_user_info,
    get_weekday_from_date,
    list_games,
)
from ticket_gym.types import SEASON_KINDS, SeasonKind
from ticket_gym.world import get_world


def scene(kind: SeasonKind = "single") -> Scene:
    world = get_world("train", 7)
    return Scene(world, world.seasons[kind], world.users[3])


@pytest.mark.parametrize("kind", SEASON_KINDS)
@pytest.mark.parametrize("order", ["date", "price"])
@pytest.mark.parametrize("descending", [False, True])
def test_pages_hold_every_game_once_in_a_total_order(kind: SeasonKind, order: str, descending: bool) -> None:
    here = scene(kind)
    games: list[int] = []
    first = list_games(here, State(0), order_by=order, descending=descending)
    for page in range(1, first.total_pages + 1):
        games += list_games(here, State(0), page=page, order_by=order, descending=descending).games
    assert len(games) == first.total_games == len(here.season.games)
    found = [here.season.games[game - 1] for game in games]
    wanted = sorted(found, key=lambda game: game.price if order == "price" else game.id, reverse=descending)
    assert found == wanted


def test_filters_combine() -> None:
    here = scene("double")
    page = list_games(here, State(0), team=4, city=(2,))
    games = [here.season.games[game - 1] for game in page.games]
    assert [(game.home, game.away) for game in games] == [(2, 4)]


def test_a_page_past_the_end_is_empty_with_true_totals() -> None:
    page = list_games(scene(), State(0), page=20)
    assert (page.games, page.page, page.total_pages, page.total_games) == ((), 20, 19, 190)
    assert len(list_games(scene(), State(0), page=19).games) == PAGE_SIZE


def test_a_purchase_is_paid_and_remembered() -> None:
    here, state = scene(), State(100_000)
    price = here.season.games[4].price
    purchase = buy_game_ticket(here, state, game_id=5)
    assert (purchase.game, purchase.price, purchase.balance) == (5, price, 100_000 - price)
    assert state == State(100_000 - price, [5])
    assert get_user_info(here, state).bookings == (5,)


def test_the_last_cent_can_be_spent() -> None:
    here = scene()
    state = State(here.season.games[0].price)
    buy_game_ticket(here, state, game_id=1)
    assert state.balance == 0


@pytest.mark.parametrize(
    ("game", "balance", "code"),
    [(191, 10**6, "unknown_game"), (5, 10**6, "already_booked"), (6, 1, "insufficient_balance")],
)
def test_a_purchase_that_fails_changes_nothing(game: int, balance: int, code: str) -> None:
    state = State(balance, [5])
    with pytest.raises(ToolError) as error:
        buy_game_ticket(scene(), state, game_id=game)
    assert error.value.code == code
    assert state == State(balance, [5])


def test_reads_never_touch_the_state() -> None:
    state = State(5000, [1])
    call_tool("get_user_info", scene(), state, {})
    call_tool("list_games", scene(), state, {"page": 3})
    call_tool("get_leaderboard", scene(), state, {"year": 2023})
    call_tool("get_weekday_from_date", scene(), state, {"date": datetime.date(2025, 1, 1)})
    assert state == State(5000, [1])


def test_leaderboards_exist_for_three_years() -> None:
    assert get_leaderboard(scene(), State(0), year=2024).year == 2024
    with pytest.raises(ToolError, match="unknown_year"):
        get_leaderboard(scene(), State(0), year=2025)


def test_weekdays_are_the_calendars() -> None:
    assert get_weekday_from_date(scene(), State(0), date=datetime.date(2025, 3, 1)).day == 5
    assert get_weekday_from_date(scene(), State(0), date=datetime.date(2024, 2, 29)).day == 3
