"""A session: one episode after another, frozen at the end, plain data in and out."""

import copy
import json
import pickle
from typing import Any

import pytest

from ticket_gym.errors import ConfigurationError, UnknownTaskError
from ticket_gym.session import Session, Settings
from ticket_gym.tasks import get_benchmark
from ticket_gym.types import StopReason


def solved(session: Session, query: str) -> Session:
    """Book what is expected, in whatever order."""
    session.reset(query)
    for game in get_benchmark().by_id[query].expected:
        assert session.call("buy_game_ticket", {"game_id": game}).error is None
    return session


def test_reward_comes_at_the_end_only() -> None:
    session = solved(Session(), "t10-01")
    assert (session.reward, session.done) == (0.0, False)
    assert session.call("respond", {"content": "Done."}).terminated
    assert (session.reward, session.success, session.stop_reason) == (1.0, True, StopReason.RESPONDED)


def test_the_order_of_purchases_does_not_matter() -> None:
    session = Session()
    session.reset("t10-01")
    for game in reversed(get_benchmark().by_id["t10-01"].expected):
        session.call("buy_game_ticket", {"game_id": game})
    session.call("respond", {"content": ""})
    assert session.reward == 1.0


def test_one_ticket_too_many_is_wrong() -> None:
    session = solved(Session(), "t01-01")
    for game in range(1, 191):
        if session.call("buy_game_ticket", {"game_id": game}).error is None:
            break
    session.call("respond", {"content": ""})
    assert session.reward == 0.0


def test_after_the_end_every_call_is_answered_with_an_error_and_changes_nothing() -> None:
    session = solved(Session(), "t01-01")
    session.call("respond", {"content": ""})
    before = session.snapshot()
    for name, arguments in (("buy_game_ticket", {"game_id": 2}), ("respond", {"content": "again"}), ("nonsense", 3)):
        observation = session.call(name, arguments)
        assert observation.error == "episode_over"
        assert not observation.terminated and not observation.truncated
    assert session.snapshot() == before
    assert session.reward == 1.0


def test_the_step_limit_truncates_and_the_bookings_still_count() -> None:
    session = Session(max_steps=2)
    [game] = get_benchmark().by_id["t01-01"].expected
    session.reset("t01-01")
    assert not session.call("get_user_info", {}).truncated
    assert session.call("buy_game_ticket", {"game_id": game}).truncated
    assert (session.stop_reason, session.reward) == (StopReason.MAX_STEPS, 1.0)


def test_an_answer_at_the_limit_is_an_answer() -> None:
    session = Session(max_steps=1)
    session.reset("t01-01")
    observation = session.call("respond", {"content": ""})
    assert (observation.terminated, observation.truncated) == (True, False)


@pytest.mark.parametrize("reason", [StopReason.MAX_STEPS, StopReason.CONTEXT_OVERFLOW, StopReason.LENGTH])
def test_with_require_response_being_cut_off_is_a_failure(reason: StopReason) -> None:
    for required, reward in ((False, 1.0), (True, 0.0)):
        session = solved(Session(require_response=required), "t01-01")
        session.finish(reason)
        assert session.reward == reward


def test_the_first_reason_for_the_end_stands() -> None:
    session = solved(Session(), "t01-01")
    session.finish(StopReason.LENGTH)
    session.finish(StopReason.RESPONDED)
    assert session.stop_reason is StopReason.LENGTH


def test_a_snapshot_is_json_and_restores_anywhere() -> None:
    session = solved(Session(), "t10-02")
    other = Session()
    other.restore(json.loads(json.dumps(session.snapshot())))
    assert other.snapshot() == session.snapshot()
    for one in (session, other):
        one.call("respond", {"content": ""})
    assert session.reward == other.reward == 1.0


@pytest.mark.parametrize(
    "snapshot",
    [
        {"task": "t01-02"},
        {"task": "t99-01", "balance": 1, "bookings": [], "steps": 0, "stop_reason": None},
        {"task": "t01-02", "balance": 1, "bookings": None, "steps": 0, "stop_reason": None},
        {"task": "t01-02", "balance": 1, "bookings": [], "steps": 0, "stop_reason": "bored"},
        {"task": 7, "balance": 1, "bookings": [], "steps": 0, "stop_reason": None},
        "nothing",
    ],
)
def test_what_is_no_snapshot_is_refused_and_the_episode_goes_on(snapshot: Any) -> None:
    session = solved(Session(), "t01-01")
    before = session.snapshot()
    with pytest.raises(ConfigurationError):
        session.restore(snapshot)
    assert session.snapshot() == before


def test_copies_and_pickles_part_ways_and_are_small() -> None:
    session = solved(Session(), "t01-01")
    for twin in (copy.deepcopy(session), pickle.loads(pickle.dumps(session))):
        twin.call("respond", {"content": ""})
        assert twin.done and not session.done
        assert twin.reward == 1.0
    assert len(pickle.dumps(session)) < 1500


def test_a_session_without_an_episode_can_be_pickled_but_not_played() -> None:
    session = pickle.loads(pickle.dumps(Session(language="de")))
    assert session.settings.language == "de"
    with pytest.raises(ConfigurationError, match="reset"):
        session.call("respond", {})
    with pytest.raises(ConfigurationError, match="reset"):
        _ = session.success


def test_the_first_messages_hold_rules_and_request_and_nothing_of_the_answer() -> None:
    session = Session(language="it")
    request = session.reset("t07-03")
    system, user = session.messages
    assert user == {"role": "user", "content": request}
    assert system["role"] == "system" and "2025" in str(system["content"])
    assert "expected" not in json.dumps(session.messages)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"language": "nl"}, "language='nl': choose one of pt, fr"),
        ({"tool_language": "xx"}, "tool_language"),
        ({"league": ""}, "league"),
        ({"split": "dev"}, "split='dev'"),
        ({"max_steps": 0}, "max_steps"),
        ({"max_steps": True}, "max_steps"),
        ({"require_response": "no"}, "require_response"),
        ({"split": "train", "stream": 5}, "stream=5"),
        ({"colour": "red"}, "unknown options colour; there are language"),
        ({"templates": ["t18"]}, "unknown t18"),
        ({"templates": []}, "at least one"),
        ({"templates": ["t01", "t01"]}, "none twice"),
        ({"templates": 7}, "must be a list"),
        ({"seed": 3}, "frozen"),
        ({"split": "train", "seed": -1}, "seed=-1"),
        ({"split": "train", "seed": 1.5}, "seed=1.5"),
    ],
)
def test_an_option_that_cannot_be_used_is_named(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        Session(**options)


def test_settings_and_options_are_not_mixed() -> None:
    with pytest.raises(ConfigurationError, match="not both"):
        Session(Settings(), language="fr")


@pytest.mark.parametrize("task", ["t18-01", "", "t01", "t01-11", "train-0-3"])
def test_an_unknown_query_is_named(task: str) -> None:
    with pytest.raises(UnknownTaskError, match="query"):
        Session().reset(task)


@pytest.mark.parametrize("task", ["t01-01", "train-1-3", "validation-0-3", "train-0-", "train-0--3", "train-0-٣"])
def test_a_task_of_another_stream_is_named(task: str) -> None:
    with pytest.raises(UnknownTaskError, match="train-0-1234"):
        Session(split="train").reset(task)


def test_only_chosen_templates_can_be_played() -> None:
    session = Session(templates="t07")
    assert session.source.size == 10
    with pytest.raises(UnknownTaskError, match="t07"):
        session.reset("t01-01")
