"""The environment in numbers: spaces, masks, what the features say, and that it can be solved."""

import datetime
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import ticket_gym  # noqa: F401 (registers the environments)
from ticket_gym.adapters.numeric import (
    ACTIONS,
    ANSWER,
    ASK_LEADERBOARD,
    ASK_USER,
    CONTEXT_SIZE,
    FIRST_LISTING,
    FIRST_PURCHASE,
    LISTINGS,
    NEXT_PAGE,
    OBSERVATION_SIZE,
    REQUEST_FEATURES,
    ROW_FEATURES,
    Listing,
    NumericTickets,
)
from ticket_gym.errors import ConfigurationError
from ticket_gym.request import DAY_GROUPS
from ticket_gym.world import get_world
from ticket_gym.wrappers import CallCost, PotentialShaping

CHECKS = slice(ROW_FEATURES.index("favourite"), None)
"""The features of a row that say whether it satisfies a constraint."""


def make_env(language: str = "en", **keywords: Any) -> NumericTickets:
    return NumericTickets(gym.make(f"TicketBench-{language}-v0", **keywords))


def listing_action(**filters: bool) -> int:
    chosen = {"mine": False, "here": False, "by_price": False, "descending": False} | filters
    return FIRST_LISTING + LISTINGS.index(Listing(**chosen))


def rows_of(observation: Any) -> Any:
    return observation[CONTEXT_SIZE:].reshape(10, len(ROW_FEATURES))


def play_by_features(env: NumericTickets, query: str) -> bool:
    """A plain policy that reads nothing but features: list by price what is asked for, buy what satisfies all.

    Returns:
        Whether it succeeded.
    """
    observation, _ = env.reset(options={"query": query})
    wanted = dict(zip(REQUEST_FEATURES, observation, strict=False))
    ended = False
    outcome: dict[str, Any] = {}

    def act(action: int) -> None:
        nonlocal observation, ended, outcome
        assert env.action_masks()[action]
        observation, _, terminated, truncated, outcome = env.step(action)
        ended = terminated or truncated

    act(ASK_USER)
    if wanted["opponent"]:
        act(ASK_LEADERBOARD)
    dearest = bool(wanted["most_expensive"])
    act(listing_action(mine=bool(wanted["favourite"]), here=bool(wanted["city"]), by_price=True, descending=dearest))
    left = 10 if wanted["all"] else 2 if wanted["two"] else 1
    while True:
        for place, row in enumerate(rows_of(observation)):
            present, _, affordable, *_ = row
            if present and affordable > 0 and (row[CHECKS] == 1.0).all() and left:
                act(FIRST_PURCHASE + place)
                left -= 1
        if not left or not env.action_masks()[NEXT_PAGE]:
            break
        act(NEXT_PAGE)
    act(ANSWER)
    assert ended
    return bool(outcome["success"])


# Gymnasium's contract


@pytest.mark.filterwarnings("ignore:.*different from the unwrapped version.*")
@pytest.mark.parametrize(
    "wrap", [lambda env: env, lambda env: PotentialShaping(CallCost(env))], ids=["bare", "with reward choices"]
)
def test_gymnasium_finds_no_fault(wrap: Callable[[Any], Any]) -> None:
    check_env(wrap(make_env(max_steps=8)), skip_render_check=True)


def test_observations_stay_in_their_space_under_any_action() -> None:
    env = make_env("fr", split="train", seed=1)
    rng = np.random.default_rng(0)
    for index in range(17):
        observation, _ = env.reset(options={"index": index})
        for _ in range(25):
            assert env.observation_space.contains(observation)
            assert env.action_masks().shape == (len(ACTIONS),)
            observation, reward, terminated, truncated, _ = env.step(rng.integers(len(ACTIONS)))
            assert reward in (0.0, 1.0)
            if terminated or truncated:
                break


def test_an_allowed_action_never_fails_but_for_the_price() -> None:
    env = make_env("de", max_steps=30)
    rng = np.random.default_rng(1)
    errors = set()
    for index in range(0, 170, 5):
        env.reset(options={"index": index})
        ended = False
        while not ended:
            allowed = np.flatnonzero(env.action_masks())
            _, _, terminated, truncated, info = env.step(rng.choice(allowed))
            errors.add(info["error"])
            ended = terminated or truncated
    assert errors <= {None, "insufficient_balance"}


def test_a_masked_action_is_a_harmless_question() -> None:
    env = make_env()
    observation, _ = env.reset(options={"query": "t01-01"})
    assert not env.action_masks()[FIRST_PURCHASE]
    _, _, _, _, info = env.step(FIRST_PURCHASE)
    assert (info["tool"], info["error"], info["steps"]) == ("get_user_info", None, 1)
    assert observation.sum() < OBSERVATION_SIZE
    with pytest.raises(ConfigurationError, match="from 0 to 25"):
        env.step(len(ACTIONS))


def test_an_environment_of_another_package_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="environment of ticket_gym"):
        NumericTickets(gym.make("CartPole-v1"))


# What is known when


def test_what_needs_the_favourite_team_waits_until_it_is_asked_for() -> None:
    env = make_env()
    env.reset(options={"query": "t01-01"})
    mine = listing_action(mine=True, by_price=True)
    assert not env.action_masks()[mine]
    observation, *_ = env.step(listing_action())
    favourite = ROW_FEATURES.index("favourite")
    assert set(rows_of(observation)[:, favourite]) == {0.0}
    env.step(ASK_USER)
    assert env.action_masks()[mine]
    observation, *_ = env.step(mine)
    assert set(rows_of(observation)[:, favourite]) == {1.0}


def test_features_agree_with_the_schedule() -> None:
    env = make_env("it")
    session = env.session
    for query in ("t16-01", "t17-02", "t09-03", "t12-04"):
        env.reset(options={"query": query})
        task = session.playing
        for action in (ASK_USER, listing_action(by_price=True)):
            observation, *_ = env.step(action)
        season = get_world(task.split, task.world).seasons[task.season]
        cheapest = sorted(season.games, key=lambda game: game.price)[:10]
        wanted = task.constraints
        for row, game in zip(rows_of(observation), cheapest, strict=True):
            named = dict(zip(ROW_FEATURES, row, strict=True))
            assert named["present"] == 1.0
            if wanted.half is not None:
                assert (named["half"] == 1.0) == ((1 if game.date < datetime.date(2025, 7, 1) else 2) == wanted.half)
            if wanted.days is not None:
                assert (named["days"] == 1.0) == (game.date.weekday() in DAY_GROUPS[wanted.days])
            if wanted.city is not None:
                assert (named["city"] == 1.0) == (game.home in wanted.city)
            assert named["opponent"] == (0.0 if wanted.opponent else 1.0)


def test_observations_do_not_depend_on_the_expected_games() -> None:
    """The same request with other expected games looks the same, whatever is done."""
    env = make_env()
    session = env.session
    for index in (0, 85, 169):
        env.reset(options={"index": index})
        task = session.playing
        seen = []
        for expected in (task.expected, (1, 2)):
            observation, _ = env.reset(options={"index": index})
            session.task = replace(task, expected=expected)
            rng = np.random.default_rng(index)
            seen.append([observation])
            for _ in range(12):
                allowed = np.flatnonzero(env.action_masks())
                observation, *_ = env.step(rng.choice(allowed[allowed != ANSWER]))
                seen[-1].append(observation)
        assert np.array_equal(seen[0], seen[1])


# Whether it can be solved


@pytest.mark.parametrize("language", ["en", "pt"])
def test_features_are_enough_to_solve_the_benchmark(language: str) -> None:
    """A policy of a dozen lines that reads nothing else reaches what the oracle reaches."""
    env = make_env(language)
    queries = [f"t{template:02d}-{number:02d}" for template in range(1, 18) for number in range(1, 11)]
    assert [query for query in queries if not play_by_features(env, query)] == []


# The baseline that is trained on it


@pytest.mark.filterwarnings("default")
def test_masked_ppo_trains_and_old_results_outlast_a_wrong_option(tmp_path: Path) -> None:
    for name in ("sb3_contrib", "matplotlib"):
        pytest.importorskip(name, reason="needs the extra `ppo`: pip install ticket-gym[ppo]")
    from baselines.train_ppo import main

    results = tmp_path / "ppo.jsonl"
    small = ["--steps", "256", "--score-every", "128", "--seeds", "3", "--tasks", "4", "--envs", "1"]
    command = [*small, "--templates", "t02", "t05", "--shaping", "--results", str(results)]
    main(command)
    lines = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    whole = [line for line in lines if len(line["templates"]) == 2]
    stages = [(line["stage"], line["step"]) for line in whole]
    assert stages == [("do_nothing", 0), ("oracle", 0), ("start", 0), ("ppo", 128), ("ppo", 256), ("ppo", 256)]
    assert whole[1]["pass_hat_1"] == 1.0
    assert [line["templates"] for line in lines[6:]] == [["t02"], ["t05"]]
    assert results.with_suffix(".svg").exists()

    before = results.read_bytes()
    with pytest.raises(SystemExit, match="unknown t99"):
        main(["--templates", "t99", "--results", str(results)])
    assert results.read_bytes() == before
