"""The Gymnasium environment: contract, seeds, options, ends of episodes, copies, specs."""

import copy
import dataclasses
import hashlib
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env

import ticket_gym
from ticket_gym import ENVIRONMENTS, Session, TicketBenchEnv, ToolCall
from ticket_gym.errors import ConfigurationError, UnknownTaskError
from ticket_gym.tasks import get_benchmark
from ticket_gym.types import LANGUAGES, RESPOND, Language, Tool

ROOT = Path(ticket_gym.__file__).parent.parent
FACTS_AT_RESET = {"query", "template", "split", "language", "tool_language", "league"}
FACTS_OF_A_STEP = {"tool", "error", "repairs", "steps"}
FACTS_AT_THE_END = {"success", "stop_reason", "bookings", "diagnosis"}
ANSWER = {"name": RESPOND, "arguments": {"content": "C'est fait."}}

Copier = Callable[[Any], Any]
COPIERS: list[Copier] = [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))]


def bare(env_id: str = "TicketBench-fr-v0", **options: Any) -> TicketBenchEnv:
    """An environment without wrappers."""
    env = gym.make(env_id, **options).unwrapped
    assert isinstance(env, TicketBenchEnv)
    return env


def call(env: TicketBenchEnv, tool: Tool, **arguments: object) -> dict[str, object]:
    """A call in the environment's tool language."""
    codec = env.session.codec
    local = {codec.parameter_name(tool, name): value for name, value in arguments.items()}
    return {"name": codec.tool_names[tool], "arguments": local}


def solve(env: TicketBenchEnv) -> float:
    """Buy what is expected and answer."""
    assert env.session.task is not None
    for game in env.session.task.expected:
        assert env.step(call(env, "buy_game_ticket", game_id=game))[4]["error"] is None
    return env.step(ANSWER)[1]


def play(env: gym.Env[str, Any], seed: int, steps: int = 60) -> list[Any]:
    """What a random agent sees, as JSON data."""
    env.action_space.seed(seed)
    log: list[Any] = [env.reset(seed=seed)]
    for _ in range(steps):
        log.append(env.step(env.action_space.sample()))
        if log[-1][2] or log[-1][3]:
            log.append(env.reset())
    return log


# The contract


@pytest.mark.parametrize("env_id", ENVIRONMENTS)
@pytest.mark.parametrize("split", ["test", "train"])
def test_check_env_has_nothing_to_say(env_id: str, split: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Gymnasium's own checker passes on all ids; its warnings are errors here."""
    check_env(bare(env_id, split=split))


@pytest.mark.parametrize("env_id", ENVIRONMENTS)
def test_default_wrappers_have_nothing_to_say(env_id: str) -> None:
    """The passive checker of `gym.make` is silent, and closing twice is allowed."""
    env = gym.make(env_id)
    play(env, seed=0)
    env.close()
    env.close()


def test_ids_and_their_languages() -> None:
    """Each id speaks its language, and none has a second step limit."""
    for language in LANGUAGES:
        assert bare(f"TicketBench-{language}-v0").session.settings.language == language
    assert bare("TicketBench-v0").session.settings.language == "en"
    assert bare("TicketBench-v0", language="it").session.settings.language == "it"
    for env_id in ENVIRONMENTS:
        assert gym.spec(env_id).max_episode_steps is None


def test_a_name_with_its_module_needs_no_import() -> None:
    """`module:id` works in a fresh interpreter."""
    code = "import gymnasium; e = gymnasium.make('ticket_gym:TicketBench-fr-v0'); print(e.reset(seed=1)[1]['language'])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "fr"


def test_importing_twice_registers_once_and_loads_no_world() -> None:
    """A reload does not warn, and the public names come on demand."""
    code = (
        "import importlib, sys, warnings; warnings.simplefilter('error'); import ticket_gym; "
        "assert 'ticket_gym.session' not in sys.modules; importlib.reload(ticket_gym); "
        "assert set(ticket_gym.__all__) <= set(dir(ticket_gym)); "
        "assert all(getattr(ticket_gym, name) is not None for name in ticket_gym.__all__)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
    assert len(ticket_gym.__all__) <= 16
    with pytest.raises(AttributeError, match="nothing"):
        ticket_gym.nothing  # noqa: B018


# Seeds


@pytest.mark.parametrize("split", ["test", "validation", "train"])
def test_seeds_are_honoured(split: str) -> None:
    """A seed fixes all that is drawn after it."""

    def queries(seed: int) -> list[str]:
        env = bare(split=split)
        return [env.reset(seed=seed)[1]["query"], *(env.reset()[1]["query"] for _ in range(7))]

    assert queries(5) == queries(5) != queries(6)
    assert len(set(queries(5))) > 5


def test_a_seed_alone_does_not_fix_what_follows_an_option() -> None:
    """A named query leaves the generator where it was."""
    env = bare()
    env.reset(seed=3)
    second = env.reset()[1]["query"]
    env.reset(seed=3)
    env.reset(options={"query": "t01-01"})
    assert env.reset()[1]["query"] == second, "a named query draws nothing"


def test_draws_reach_every_query() -> None:
    """Every query of the chosen templates is drawn sooner or later, and no other."""
    env = bare(templates=["t02", "t13"])
    env.reset(seed=0)
    assert {env.reset()[1]["query"] for _ in range(400)} == {
        f"{template}-{number:02d}" for template in ("t02", "t13") for number in range(1, 11)
    }


RERUN = """
import hashlib, json, gymnasium
env = gymnasium.make("ticket_gym:TicketBench-fr-v0", split={split!r})
env.action_space.seed(4)
log = [env.reset(seed=4)]
for _ in range(80):
    log.append(env.step(env.action_space.sample()))
    if log[-1][2] or log[-1][3]:
        log.append(env.reset())
print(hashlib.sha256(json.dumps(log).encode()).hexdigest())
"""


@pytest.mark.parametrize("split", ["test", "train"])
def test_a_rerun_in_another_process_is_identical_to_the_byte(split: str) -> None:
    """Neither process nor hash seed show in what an agent sees."""
    here = json.dumps(play(gym.make("TicketBench-fr-v0", split=split), seed=4, steps=80))
    digests = {
        subprocess.run(
            [sys.executable, "-c", RERUN.format(split=split)],
            cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": hash_seed}, capture_output=True, text=True, check=True,
        ).stdout.strip()
        for hash_seed in ("1", "2")
    }  # fmt: skip
    assert digests == {hashlib.sha256(here.encode()).hexdigest()}


# Options


def test_options_name_a_query() -> None:
    """By id or by position, in the test split and in a stream."""
    env = bare()
    text, info = env.reset(options={"query": "t07-03"})
    assert info["query"] == env.task_id == "t07-03"
    assert text == env.session.messages[1]["content"]
    assert env.reset(options={"index": 62})[1]["query"] == "t07-03"
    assert bare(templates="t07").reset(options={"index": 2})[1]["query"] == "t07-03"
    assert bare(split="train", seed=9).reset(options={"query": "train-9-17"})[1]["query"] == "train-9-17"


@pytest.mark.parametrize(
    "options",
    [
        {"task": "t07-03"},
        {"query": "t07-03", "index": 1},
        {"query": None},
        {"query": 3},
        {"query": "t99-01"},
        {"query": "train-0-1"},
        {"index": "3"},
        {"index": 1.0},
        {"index": -1},
        {"index": 170},
        ["query"],
    ],
)
def test_options_that_cannot_be_used_leave_the_episode_alone(options: Any) -> None:
    """Neither the episode nor the generator has moved."""
    env = bare()
    env.reset(seed=1)
    env.step(call(env, "get_user_info"))
    before, state = env.session.snapshot(), env.np_random.bit_generator.state
    with pytest.raises(ConfigurationError):
        env.reset(seed=2, options=options)
    assert env.session.snapshot() == before
    assert env.np_random.bit_generator.state == state
    assert env.step(ANSWER)[2]


def test_an_unknown_query_has_its_own_error() -> None:
    """It says which ids there are."""
    with pytest.raises(UnknownTaskError, match="t01-01 to t17-10"):
        bare().reset(options={"query": "t18-01"})


@pytest.mark.parametrize(
    "keyword",
    [
        {"language": "xx"},
        {"tool_language": "klingon"},
        {"league": 3},
        {"split": "dev"},
        {"seed": 5},
        {"seed": -1, "split": "train"},
        {"templates": ["t99"]},
        {"templates": []},
        {"templates": 7},
        {"max_steps": 0},
        {"max_steps": 2.5},
        {"render_mode": "rgb_array"},
    ],
)
def test_keywords_that_cannot_be_used_are_refused_by_name(keyword: dict[str, Any]) -> None:
    """The message names the keyword."""
    with pytest.raises(ConfigurationError, match=next(iter(keyword))):
        TicketBenchEnv(**keyword)


# The episode


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_expected_purchases_are_rewarded_once_at_the_end(language: Language) -> None:
    """Reward 1.0 with the final answer."""
    env = bare(f"TicketBench-{language}-v0")
    for query in ("t01-01", "t10-01", "t13-01"):
        env.reset(options={"query": query})
        assert solve(env) == 1.0


def test_info_of_each_step_and_of_the_last() -> None:
    """Facts of the call at every step, the outcome at the end, all of it JSON."""
    env = bare()
    env.reset(options={"query": "t01-01"})
    _, reward, terminated, truncated, info = env.step(call(env, "list_games", page="2"))
    assert (reward, terminated, truncated) == (0.0, False, False)
    assert info == {"tool": "list_games", "error": None, "repairs": ("integer_as_text",), "steps": 1}
    assert env.step(call(env, "buy_game_ticket", game_id=999))[4]["error"] == "unknown_game"
    text, reward, terminated, truncated, info = env.step(ANSWER)
    assert (text, reward, terminated, truncated) == ("", 0.0, True, False)
    assert info.keys() == FACTS_OF_A_STEP | FACTS_AT_THE_END
    assert (info["success"], info["stop_reason"], info["bookings"]) == (False, "responded", [])
    assert info["diagnosis"]["primary"] == "gave_up_at_error"
    assert info["diagnosis"]["missing"] == list(env.session.playing.expected)
    assert json.loads(json.dumps(info))["steps"] == 3


def test_the_diagnosis_names_the_constraint_that_a_wrong_purchase_violates() -> None:
    """A game in another city is explained as such."""
    env = bare()
    env.reset(options={"query": "t08-01"})
    task = env.session.playing
    assert task.constraints.city is not None
    city = env.session.codec.city_name(task.constraints.city)
    page, *_ = env.step(call(env, "list_games", order_by="prix"))
    elsewhere = next(game["id"] for game in json.loads(page)["matchs"] if game["ville"] != city)
    env.step(call(env, "buy_game_ticket", game_id=elsewhere))
    info = env.step(ANSWER)[4]
    assert info["diagnosis"]["primary"] == "wrong_city"
    assert info["diagnosis"]["violations"] == [{"game": elsewhere, "violated": ["city"]}]
    assert info["diagnosis"]["extra"] == info["bookings"] == [elsewhere]


def test_actions_are_read_in_both_forms() -> None:
    """Plain data and `ToolCall` mean the same."""
    env = bare()
    env.reset(options={"query": "t01-01"})
    plain = call(env, "get_user_info")
    assert env.step(plain)[0] == env.step(ToolCall(str(plain["name"]), {}))[0]


@pytest.mark.parametrize("action", [None, 3, "lister_matchs", [], {}, {"name": 4}, {"arguments": {}}, b"", object()])
def test_an_action_that_is_no_call_is_an_error_observation(action: object) -> None:
    """It costs a step and tells the agent so."""
    env = bare()
    env.reset(seed=0)
    text, reward, terminated, truncated, info = env.step(action)
    assert info["error"] == json.loads(text)["erreur"]["code"] == "malformed_call"
    assert (reward, terminated, truncated) == (0.0, False, False)


def test_there_is_no_step_before_the_first_reset() -> None:
    """With the default wrappers and without."""
    for env in (gym.make("TicketBench-fr-v0"), bare()):
        with pytest.raises(ResetNeeded):
            env.step(ANSWER)
    assert bare().task_id is None


@pytest.mark.parametrize("wrapped", [True, False])
def test_there_is_no_step_after_the_end_and_no_silent_reset(wrapped: bool) -> None:
    """However often it is tried."""
    env = gym.make("TicketBench-fr-v0") if wrapped else bare()
    inner = env.unwrapped
    assert isinstance(inner, TicketBenchEnv)
    env.reset(seed=0)
    env.step(ANSWER)
    over = inner.session.snapshot()
    for _ in range(2):
        with pytest.raises(ResetNeeded, match="reset"):
            env.step(ANSWER)
    assert inner.session.snapshot() == over
    env.reset()
    assert env.step(ANSWER)[2]


@pytest.mark.parametrize(("require_response", "reward"), [(False, 1.0), (True, 0.0)])
def test_truncation(require_response: bool, reward: float) -> None:
    """The step limit truncates; the bookings count unless an answer is required."""
    env = bare(max_steps=3, require_response=require_response)
    env.reset(options={"query": "t01-01"})
    env.step(call(env, "buy_game_ticket", game_id=env.session.playing.expected[0]))
    assert env.step(call(env, "get_user_info"))[2:4] == (False, False)
    text, got, terminated, truncated, info = env.step(call(env, "get_user_info"))
    assert (got, terminated, truncated) == (reward, False, True)
    assert text
    assert info["stop_reason"] == "max_steps"
    assert info["success"] is bool(reward)
    assert info["diagnosis"]["primary"] == (None if reward else "ran_out")
    with pytest.raises(ResetNeeded):
        env.step(ANSWER)


def test_an_answer_at_the_last_step_terminates() -> None:
    """It is an answer, not a cut."""
    env = bare(max_steps=1, require_response=True)
    env.reset(seed=0)
    assert env.step(ANSWER)[2:4] == (True, False)


# What an agent must not see


def test_nothing_at_reset_depends_on_the_gold() -> None:
    """Only the known facts, and the same text when nothing is expected."""
    env, session = bare(), Session(language="fr")
    for task in get_benchmark().tasks:
        text, info = env.reset(options={"query": task.id})
        assert info.keys() == FACTS_AT_RESET
        assert info == {**dict.fromkeys(("language", "tool_language", "league"), "fr"), **{
            "query": task.id, "template": task.template, "split": "test",
        }}  # fmt: skip
        assert text == session.reset(dataclasses.replace(task, expected=()))


def test_infos_share_nothing() -> None:
    """Spoiling all that was returned changes no later episode."""

    def spoil(value: Any) -> None:
        if isinstance(value, dict):
            for inner in value.values():
                spoil(inner)
            value.clear()
        elif isinstance(value, list):
            for inner in value:
                spoil(inner)
            value.append("spoiled")

    def episode(env: TicketBenchEnv, each: Callable[[Any], None]) -> list[str]:
        texts = []
        seen: list[Any] = [env.reset(options={"query": "t03-01"})]
        for action in (call(env, "buy_game_ticket", game_id=1), call(env, "get_user_info"), ANSWER):
            seen.append(env.step(action))
        for result in seen:
            texts.append(json.dumps(result))
            each(result[-1])
        return texts

    env = bare()
    assert episode(env, spoil) == episode(env, spoil) == episode(bare(), lambda info: None)


def test_changing_the_tools_changes_only_a_copy() -> None:
    """The schemas of other environments stay whole."""
    env = bare()
    env.tools[0]["function"]["name"] = "spoiled"
    env.tools.clear()
    assert env.tools == bare().tools == env.session.tools
    assert "2025" in env.system_prompt


# The three axes


@pytest.mark.parametrize(
    ("language", "tool_language", "league"), [("pt", "de", "it"), ("en", "fr", "fr"), ("es", "es", "pt")]
)
def test_axes_are_independent(language: Language, tool_language: Language, league: Language) -> None:
    """Prompt, tools and clubs each follow their own language."""
    env = bare("TicketBench-v0", language=language, tool_language=tool_language, league=league)
    _, info = env.reset(options={"query": "t08-02"})
    assert (info["language"], info["tool_language"], info["league"]) == (language, tool_language, league)
    assert env.tools == bare("TicketBench-v0", language=tool_language).tools
    assert env.system_prompt == bare("TicketBench-v0", language=language).system_prompt
    city = env.session.playing.constraints.city
    assert city is not None
    codec = env.session.codec
    assert codec.city_name(city) == bare("TicketBench-v0", language=league).session.codec.city_name(city)
    page, *_ = env.step(call(env, "list_games", city=codec.city_name(city)))
    assert codec.city_name(city) in page
    assert solve(env) == 1.0


@pytest.mark.parametrize("off", ["paraphrases", "other_cities", "unaffordable"])
def test_extras_of_train_can_be_switched_off(off: str) -> None:
    """One by one."""
    options: dict[str, Any] = {"split": "train", off: False}
    session = bare(**options).session
    stream = dataclasses.asdict(session.settings.stream)
    assert stream.pop(off) is False
    assert set(stream.values()) == {True}


# Copies and specs


@pytest.mark.parametrize("copier", COPIERS)
@pytest.mark.parametrize("wrapped", [True, False])
@pytest.mark.parametrize("split", ["test", "train"])
def test_a_copy_made_in_mid_episode_goes_on_alike(copier: Copier, wrapped: bool, split: str) -> None:
    """It plays and draws the same, and does not touch the original."""
    env: gym.Env[str, Any] = gym.make("TicketBench-fr-v0", split=split) if wrapped else bare(split=split)
    play(env, seed=2, steps=25)
    twin = copier(env)

    def go_on(which: gym.Env[str, Any]) -> str:
        log: list[Any] = []
        which.action_space.seed(7)
        for _ in range(25):
            log.append(which.step(which.action_space.sample()))
            if log[-1][2] or log[-1][3]:
                log.append(which.reset())
        return json.dumps(log)

    snapshot = env.unwrapped.session.snapshot()  # type: ignore[attr-defined]
    alike = go_on(twin)
    assert env.unwrapped.session.snapshot() == snapshot  # type: ignore[attr-defined]
    assert go_on(env) == alike


@pytest.mark.parametrize("copier", COPIERS)
def test_a_copy_made_before_the_first_reset_is_usable(copier: Copier) -> None:
    """Nothing needs an episode."""
    assert copier(bare()).reset(seed=1) == bare().reset(seed=1)


def test_a_pickled_environment_is_small() -> None:
    """Worlds and packs are pickled by reference."""
    env = bare()
    play(env, seed=0)
    assert len(pickle.dumps(env)) < 16_000


def test_specs_survive_json() -> None:
    """An environment made from the text plays the same."""
    env = gym.make("TicketBench-fr-v0", templates=["t01", "t02"], max_steps=9, league="it", split="train", seed=3)
    assert env.spec is not None
    spec = EnvSpec.from_json(env.spec.to_json())
    assert spec.kwargs == env.spec.kwargs
    assert json.dumps(play(gym.make(spec), seed=1)) == json.dumps(play(env, seed=1))


# Rendering


def test_the_transcript_can_be_read() -> None:
    """Request, calls, results and outcome of this episode, whatever the agent wrote."""
    env = gym.make("TicketBench-fr-v0", render_mode="ansi")
    inner = env.unwrapped
    assert isinstance(inner, TicketBenchEnv)
    text, _ = env.reset(options={"query": "t01-01"})
    page = env.step(call(inner, "get_user_info"))[0]
    env.step({"name": "\ud800", "arguments": {10**5000: float("nan")}})
    env.step(ANSWER)
    transcript = inner.render()
    assert transcript is not None
    assert transcript.startswith(f"[t01-01] {text}\n> obtenir_infos_utilisateur {{}}\n{page}\n> ?")
    assert transcript.endswith("[responded, reward 0]")
    transcript.encode()
    env.reset(options={"query": "t01-02"})
    assert "t01-01" not in str(inner.render())


def test_a_person_sees_the_transcript_grow(capsys: pytest.CaptureFixture[str]) -> None:
    """Printed piece by piece."""
    env = bare(render_mode="human")
    text, _ = env.reset(options={"query": "t01-01"})
    assert capsys.readouterr().out == f"[t01-01] {text}\n"
    env.step(ANSWER)
    assert env.render() is None
    assert capsys.readouterr().out.endswith("[responded, reward 0]\n")


def test_rendering_needs_a_mode() -> None:
    """Without one there is a warning."""
    env = bare()
    env.reset(seed=0)
    with pytest.warns(UserWarning, match="render_mode"):
        assert env.render() is None
