"""Reward choices: what shaping adds, and that it changes no best policy."""

import itertools
import math
import pickle
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import pytest

import ticket_gym  # noqa: F401 (registers the environments)
from ticket_gym.agents import SCRIPTS
from ticket_gym.errors import ConfigurationError
from ticket_gym.session import Session
from ticket_gym.types import RESPOND
from ticket_gym.world import get_world
from ticket_gym.wrappers import (
    CallCost,
    PotentialShaping,
    RewardMeter,
    RewardOptions,
    booking_potential,
    shaping_term,
)

GAMMA = 0.9


def make_env(**keywords: Any) -> gym.Env[str, Any]:
    return gym.make("TicketBench-en-v0", **keywords)


def buy(game: int) -> dict[str, Any]:
    return {"name": "buy_game_ticket", "arguments": {"game_id": game}}


ANSWER = {"name": RESPOND, "arguments": {"content": "Done."}}


def returns(env: gym.Env[str, Any], query: str, actions: list[dict[str, Any]], gamma: float) -> float:
    """Discounted return of a sequence of actions that ends the episode."""
    env.reset(options={"query": query})
    total, ended = 0.0, False
    for step, action in enumerate(actions):
        _, reward, terminated, truncated, _ = env.step(action)
        total += gamma**step * float(reward)
        ended = terminated or truncated
    assert ended
    return total


def find_task(*, solvable: bool, expected: int = 1) -> Any:
    tasks = Session().source
    return next(
        task
        for task in map(tasks.at, range(170))
        if task.solvable is solvable and (not solvable or len(task.expected) == expected)
    )


# The potential


def test_potential_goes_from_nothing_to_a_met_request() -> None:
    task = find_task(solvable=True, expected=2)
    session = Session()
    session.reset(task)
    seen = [booking_potential(session)]
    for game in task.expected:
        session.call("buy_game_ticket", {"game_id": game})
        seen.append(booking_potential(session))
    assert seen == [0.0, 0.5, 1.0]


def test_a_wrong_game_costs_more_the_more_constraints_it_violates() -> None:
    session = Session(templates=("t16",))
    task = next(task for task in map(session.source.at, range(10)) if task.solvable)
    worth = {}
    for game in range(1, 191):
        session.reset(task)
        if not session.call("buy_game_ticket", {"game_id": game}).error:
            causes = session.diagnose().violations
            worth[game] = (booking_potential(session), len(causes[0][1]) if causes else 0)
    expected = set(task.expected)
    assert all(value == 1.0 for game, (value, _) in worth.items() if game in expected)
    wrong = [pair for game, pair in worth.items() if game not in expected]
    assert all(-1 <= value < 0 for value, _ in wrong)
    # The diagnosis counts on its own; more violations, less worth.
    by_count = sorted((count, -value) for value, count in wrong)
    assert [cost for _, cost in by_count] == sorted(cost for _, cost in by_count)
    assert len({cost for _, cost in by_count}) > 2


def test_buying_where_nothing_matches_is_worth_less_than_nothing() -> None:
    session = Session()
    session.reset(find_task(solvable=False))
    assert booking_potential(session) == 0.0
    bought = next(game for game in range(1, 191) if not session.call("buy_game_ticket", {"game_id": game}).error)
    assert session.bookings == (bought,)
    assert booking_potential(session) < 0.0


# The wrappers


def test_shaping_moves_every_return_of_a_task_by_the_same() -> None:
    task = find_task(solvable=True)
    [right] = task.expected
    sequences = [[ANSWER], [buy(right), ANSWER], [buy(right), buy(right), ANSWER]]
    sequences += [[buy(1), buy(2), buy(right), ANSWER]]
    plain, shaped = make_env(), PotentialShaping(make_env(), gamma=GAMMA)
    differences = [
        returns(shaped, task.id, actions, GAMMA) - returns(plain, task.id, actions, GAMMA) for actions in sequences
    ]
    session = Session()
    session.reset(task)
    assert differences == pytest.approx([-booking_potential(session)] * len(sequences))


def test_shaping_tells_at_once_and_ends_at_zero_also_when_cut_off() -> None:
    task = find_task(solvable=True)
    env = PotentialShaping(make_env(max_steps=2), gamma=1.0)
    env.reset(options={"query": task.id})
    _, reward, _, _, info = env.step(buy(task.expected[0]))
    assert reward == info["shaping"] == 1.0
    _, reward, _, truncated, info = env.step({"name": "get_user_info", "arguments": {}})
    assert truncated
    assert (reward, info["shaping"]) == (0.0, -1.0)


def test_shaping_begins_anew_when_an_episode_is_left_in_the_middle() -> None:
    task = find_task(solvable=True)
    env = PotentialShaping(make_env(), gamma=1.0)
    env.reset(options={"query": task.id})
    env.step(buy(task.expected[0]))
    env.reset(options={"query": task.id})
    assert env.step({"name": "get_user_info", "arguments": {}})[1] == 0.0


def test_another_potential_can_be_given() -> None:
    env = PotentialShaping(make_env(), gamma=1.0, potential=lambda session: float(session.steps))
    env.reset(options={"index": 0})
    assert [env.step({"name": "get_user_info"})[1] for _ in range(3)] == [1.0, 1.0, 1.0]


def test_a_cost_is_taken_for_each_call() -> None:
    task = find_task(solvable=True)
    env = CallCost(make_env(), cost=0.125)
    assert returns(env, task.id, [buy(task.expected[0]), ANSWER], 1.0) == 1 - 2 * 0.125


def test_wrappers_can_be_made_again_from_their_spec() -> None:
    env = CallCost(PotentialShaping(make_env(templates=("t03",)), gamma=GAMMA), cost=0.25)
    again = pickle.loads(pickle.dumps(env.spec)).make()
    task = again.unwrapped.session.source.at(0)
    assert returns(again, task.id, [ANSWER], 1.0) == returns(env, task.id, [ANSWER], 1.0) == -0.25


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PotentialShaping(gym.make("CartPole-v1")), "needs an environment of ticket_gym"),
        (lambda: PotentialShaping(make_env(), gamma=1.5), "from 0 to 1"),
        (lambda: CallCost(make_env(), cost=-1), "number from 0"),
        (lambda: RewardOptions(call_cost=math.nan), "number from 0"),
        (lambda: RewardOptions(partial_credit=-1), "number from 0"),
    ],
)
def test_what_cannot_be_used_is_refused(make: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make()


# Whole episodes


def test_a_session_is_paid_as_the_wrapped_environment_pays() -> None:
    options = RewardOptions(shaping=True, call_cost=0.05)
    task = find_task(solvable=True)
    session = Session()
    session.reset(task)
    meter = RewardMeter(session, options)
    env = CallCost(PotentialShaping(make_env(), gamma=1.0), cost=0.05)
    actions = []
    play = SCRIPTS["oracle"](session.codec, task.constraints, 0)
    try:
        call = next(play)
        while True:
            actions.append(call.to_action())
            text = session.call(call.name, call.arguments).text
            meter.count_call()
            call = play.send(text)
    except StopIteration:
        pass
    # A session in training gets no answer call; the environment does.
    assert meter.total() - 0.05 == pytest.approx(returns(env, task.id, [*actions, ANSWER], 1.0))


def test_partial_credit_pays_for_half_of_a_request() -> None:
    task = find_task(solvable=True, expected=2)
    session = Session()
    session.reset(task)
    meter = RewardMeter(session, RewardOptions(partial_credit=0.5))
    session.call("buy_game_ticket", {"game_id": task.expected[0]})
    assert meter.total() == 0.25
    session.call("buy_game_ticket", {"game_id": task.expected[1]})
    assert meter.total() == 1.5


# Invariance, on the smallest true case: three games that can be booked, in any order, and the answer

State = frozenset[int]
Rewards = Mapping[tuple[State, int], tuple[float, State | None]]
ANSWERED = 0


def tabulate(games: list[int], task: Any, *, shaped: bool) -> Rewards:
    """Reward and next state of every action in every state, played by the real session; None is the end."""
    table: dict[tuple[State, int], tuple[float, State | None]] = {}
    session = Session()
    for bookings in (frozenset(some) for size in range(4) for some in itertools.combinations(games, size)):
        for action in [ANSWERED, *(game for game in games if game not in bookings)]:
            session.reset(task)
            for game in sorted(bookings):
                assert session.call("buy_game_ticket", {"game_id": game}).error is None
            before = booking_potential(session)
            if action == ANSWERED:
                session.call(RESPOND, {"content": ""})
                after, following = 0.0, None
            else:
                assert session.call("buy_game_ticket", {"game_id": action}).error is None
                after, following = booking_potential(session), bookings | {action}
            extra = shaping_term(before, after, GAMMA) if shaped else 0.0
            table[bookings, action] = (session.reward + extra, following)
    return table


def best_actions(table: Rewards) -> tuple[dict[State, set[int]], dict[State, float]]:
    """Every best action in each state, and the states' values, by value iteration."""
    values = {state: 0.0 for state, _ in table}

    def worth(state: State, action: int) -> float:
        reward, following = table[state, action]
        return reward + (0.0 if following is None else GAMMA * values[following])

    for _ in range(100):
        values = {state: max(worth(state, action) for at, action in table if at == state) for state in values}
    best = {
        state: {action for at, action in table if at == state and worth(state, action) > values[state] - 1e-9}
        for state in values
    }
    return best, values


@pytest.mark.parametrize("solvable", [True, False])
def test_shaping_leaves_the_best_policy_as_it_is(solvable: bool) -> None:
    session = Session()
    task = find_task(solvable=solvable)
    session.reset(task)
    world_games = get_world("test", task.world).seasons[task.season].games
    cheap = sorted(world_games, key=lambda game: game.price)
    games = [*task.expected, *(game.id for game in cheap if game.id not in task.expected)][:3]

    plain_best, plain_values = best_actions(tabulate(games, task, shaped=False))
    shaped_best, shaped_values = best_actions(tabulate(games, task, shaped=True))

    assert shaped_best == plain_best
    first = task.expected[0] if solvable else ANSWERED
    assert plain_best[frozenset()] == {first}
    # V'(s) = V(s) - Phi(s), the theorem's second half.
    for state in plain_values:
        session.reset(task)
        for game in sorted(state):
            session.call("buy_game_ticket", {"game_id": game})
        assert shaped_values[state] == pytest.approx(plain_values[state] - booking_potential(session))
    assert tabulate(games, task, shaped=True) != tabulate(games, task, shaped=False)
