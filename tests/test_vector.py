"""Vector environments: native, sync and async, in all autoreset modes."""

import copy
import json
import pickle
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode, VectorEnv

from ticket_gym import TicketBenchVectorEnv
from ticket_gym.errors import ConfigurationError
from ticket_gym.types import RESPOND

COUNT = 4
STEPS = 40
MODES = list(AutoresetMode)
ANSWER = {"name": RESPOND, "arguments": {"content": "ok"}}
LOOK = {"name": "obtenir_infos_utilisateur", "arguments": {}}
FORMS: dict[str, dict[str, Any]] = {"vector_entry_point": {}, "sync": {}, "async": {}}


def make(form: str, mode: AutoresetMode = AutoresetMode.NEXT_STEP, **options: Any) -> VectorEnv[Any, Any, Any]:
    """A vector environment in one of three forms."""
    if form == "vector_entry_point":
        options["autoreset_mode"] = mode
    else:
        options["vector_kwargs"] = {"autoreset_mode": mode, **FORMS[form]}
    return gym.make_vec("TicketBench-fr-v0", num_envs=COUNT, vectorization_mode=form, **options)


def native(mode: AutoresetMode = AutoresetMode.NEXT_STEP, **options: Any) -> TicketBenchVectorEnv:
    """The native form."""
    envs = make("vector_entry_point", mode, **options)
    assert isinstance(envs, TicketBenchVectorEnv)
    return envs


def play(envs: VectorEnv[Any, Any, Any], seed: int | list[int]) -> list[Any]:
    """Everything that a random agent sees; ended environments are reset by mask where nothing else does it."""
    log: list[Any] = [envs.reset(seed=seed)]  # type: ignore[arg-type]
    envs.action_space.seed(11)
    for _ in range(STEPS):
        log.append(envs.step(envs.action_space.sample()))
        ended = log[-1][2] | log[-1][3]
        if envs.metadata["autoreset_mode"] is AutoresetMode.DISABLED and ended.any():
            log.append(envs.reset(options={"reset_mask": ended}))
    envs.close()
    return log


@pytest.mark.parametrize("options", [{}, {"max_steps": 3}, {"split": "train", "seed": 2}, {"render_mode": "ansi"}])
@pytest.mark.parametrize("mode", MODES)
def test_native_plays_exactly_as_sync(mode: AutoresetMode, options: dict[str, Any]) -> None:
    """Texts, rewards, flags and infos, in each autoreset mode."""
    seen = play(make("vector_entry_point", mode, **options), seed=3)
    assert data_equivalence(seen, play(make("sync", mode, **options), seed=3), exact=True)
    assert any(step[2].any() for step in seen if len(step) == 5)
    assert not data_equivalence(seen, play(native(mode, **options), seed=300))


@pytest.mark.parametrize("mode", MODES)
def test_async_plays_exactly_as_sync(mode: AutoresetMode) -> None:
    """And as the native form."""
    seeds = [5, 4, 3, 2]
    seen = play(make("async", mode), seed=seeds)
    assert data_equivalence(seen, play(make("sync", mode), seed=seeds), exact=True)
    assert data_equivalence(seen, play(native(mode), seed=seeds), exact=True)


def test_make_vec_takes_the_native_form_and_plain_words_for_modes() -> None:
    """So that its spec can be written as JSON."""
    envs = gym.make_vec("TicketBench-de-v0", num_envs=2, autoreset_mode="SameStep", league="it")
    assert isinstance(envs, TicketBenchVectorEnv)
    assert envs.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert envs.spec is not None
    assert json.loads(envs.spec.to_json())["kwargs"]["autoreset_mode"] == "SameStep"
    assert envs.reset(seed=0)[1]["league"].tolist() == ["it", "it"]
    assert envs.tools == envs.envs[0].tools
    assert envs.system_prompt == envs.envs[0].system_prompt


@pytest.mark.parametrize("form", FORMS)
def test_what_comes_back_has_gymnasiums_form(form: str) -> None:
    """Tuples of texts, arrays, infos with masks."""
    envs = make(form)
    texts, infos = envs.reset(seed=0)
    assert texts in envs.observation_space
    assert isinstance(texts, tuple)
    assert infos["_query"].all()
    texts, rewards, terminations, truncations, infos = envs.step([ANSWER, LOOK, LOOK, {"name": "?"}])
    assert texts in envs.observation_space
    assert rewards.dtype == np.float64
    assert terminations.dtype == truncations.dtype == np.bool_
    assert terminations.tolist() == [True, False, False, False]
    assert infos["_success"].tolist() == [True, False, False, False]
    assert infos["stop_reason"].tolist() == ["responded", None, None, None]
    assert infos["error"].tolist() == [None, None, None, "unknown_tool"]
    envs.close()


def test_next_step_ignores_the_action_and_begins_anew() -> None:
    """The step after the end is the reset."""
    envs = native()
    envs.reset(seed=0)
    envs.step([ANSWER] * COUNT)
    texts, rewards, terminations, _, infos = envs.step([ANSWER] * COUNT)
    assert infos["_query"].all()
    assert all(texts)
    assert not terminations.any() and not rewards.any()
    assert envs.step([ANSWER] * COUNT)[2].all()


def test_an_explicit_reset_ends_the_wait_for_autoreset() -> None:
    """The next action is played."""
    envs = native()
    envs.reset(seed=0)
    envs.step([ANSWER] * COUNT)
    envs.reset()
    assert envs.step([LOOK] * COUNT)[4]["tool"].tolist() == ["get_user_info"] * COUNT


def test_same_step_tells_how_the_last_episode_ended() -> None:
    """The new request comes at once, the old end beside it."""
    envs = native(AutoresetMode.SAME_STEP)
    envs.reset(seed=0)
    texts, _, terminations, _, infos = envs.step([ANSWER, LOOK, ANSWER, LOOK])
    assert terminations.tolist() == infos["_final_info"].tolist() == [True, False, True, False]
    assert infos["final_obs"].tolist() == ["", None, "", None]
    assert infos["final_info"]["stop_reason"].tolist() == ["responded", None, "responded", None]
    assert infos["_query"].tolist() == [True, False, True, False]
    assert all(texts)
    assert envs.step([LOOK] * COUNT)[4]["steps"].tolist() == [1, 2, 1, 2]


def test_without_autoreset_nothing_moves_until_the_ended_are_reset() -> None:
    """Then only the masked ones begin anew."""
    envs = native(AutoresetMode.DISABLED)
    texts, _ = envs.reset(seed=0)
    envs.step([LOOK, ANSWER, LOOK, LOOK])
    with pytest.raises(ResetNeeded, match=r"\[1\]"):
        envs.step([LOOK] * COUNT)
    assert [env.session.steps for env in envs.envs] == [1] * COUNT
    options = {"reset_mask": np.array([False, True, False, False]), "queries": [None, "t07-03", None, None]}
    again, infos = envs.reset(options=options)
    assert set(options) == {"reset_mask", "queries"}, "the caller's options stay as they were"
    assert infos["query"].tolist() == [None, "t07-03", None, None]
    assert again[1] != texts[1]
    assert envs.step([LOOK] * COUNT)[4]["steps"].tolist() == [2, 1, 2, 2]


def test_each_environment_can_have_its_own_query() -> None:
    """None means drawn."""
    envs = native()
    _, infos = envs.reset(seed=1, options={"queries": ["t01-01", None, "t17-10", "t01-01"]})
    queries = infos["query"].tolist()
    assert [queries[0], *queries[2:]] == ["t01-01", "t17-10", "t01-01"]
    assert queries[1] == native().reset(seed=1)[1]["query"][1]
    assert native().reset(options={"query": "t02-02"})[1]["query"].tolist() == ["t02-02"] * COUNT


@pytest.mark.parametrize(
    "options",
    [
        {"queries": ["t01-01"]},
        {"queries": "t01-01"},
        {"queries": {"a": 1, "b": 2, "c": 3, "d": 4}},
        {"queries": ["t01-01"] * COUNT, "index": 1},
        {"task": "t01-01"},
        {"reset_mask": np.zeros(COUNT, dtype=np.bool_)},
        {"reset_mask": np.ones(COUNT - 1, dtype=np.bool_)},
        {"reset_mask": np.ones(COUNT, dtype=np.int8)},
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any]) -> None:
    """Of the vector environment's own and of the others."""
    with pytest.raises(ConfigurationError):
        native().reset(seed=0, options=options)


@pytest.mark.parametrize("keywords", [{"num_envs": 0}, {"num_envs": True}, {"autoreset_mode": "Never"}, {"split": "x"}])
def test_keywords_that_cannot_be_used_are_refused(keywords: dict[str, Any]) -> None:
    """Before anything is made."""
    with pytest.raises(ConfigurationError):
        TicketBenchVectorEnv(**keywords)


@pytest.mark.parametrize("actions", [[ANSWER], [ANSWER] * (COUNT + 1), ANSWER, "abcd", 3])
def test_there_must_be_one_action_for_each(actions: Any) -> None:
    """Otherwise none has moved."""
    envs = native()
    envs.reset(seed=0)
    with pytest.raises(ConfigurationError, match="actions"):
        envs.step(actions)
    assert [env.session.steps for env in envs.envs] == [0] * COUNT


def test_seeds_of_another_number_are_refused() -> None:
    """One for each environment."""
    with pytest.raises(ConfigurationError, match="seed"):
        native().reset(seed=[1, 2])


def test_there_is_no_step_before_the_first_reset() -> None:
    """As in a single environment."""
    with pytest.raises(ResetNeeded):
        native().step([LOOK] * COUNT)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("copier", [copy.deepcopy, lambda envs: pickle.loads(pickle.dumps(envs))])
def test_copies_go_on_alike(copier: Callable[[Any], Any], mode: AutoresetMode) -> None:
    """Pending resets among what is copied."""
    envs = native(mode)
    envs.reset(seed=0)
    envs.step([LOOK, LOOK, ANSWER, LOOK] if mode is not AutoresetMode.DISABLED else [LOOK] * COUNT)
    twin = copier(envs)
    for _ in range(3):
        actions = envs.action_space.sample(mask=(np.array([1, 1, 1, 1, 1, 0], dtype=np.int8),) * COUNT)
        assert data_equivalence(envs.step(actions), twin.step(actions), exact=True)
    assert data_equivalence(envs.reset(), twin.reset(), exact=True)


def test_transcripts_come_in_a_tuple() -> None:
    """One for each environment."""
    envs = native(render_mode="ansi")
    texts, infos = envs.reset(seed=0)
    assert envs.render() == tuple(f"[{query}] {text}" for query, text in zip(infos["query"], texts, strict=True))


def test_async_shows_texts_with_and_without_shared_memory() -> None:
    """Gymnasium shares memory by default, and its own text space reads nothing but zeros from it."""
    seen = []
    for shared in (True, False):
        envs: Any = gym.make_vec(
            "TicketBench-fr-v0", num_envs=2, vectorization_mode="async", vector_kwargs={"shared_memory": shared}
        )
        requests, _ = envs.reset(seed=[4, 5])
        pages = envs.step([{"name": "lister_matchs", "arguments": {"ville": "Le Havre"}}] * 2)[0]
        seen.append((tuple(requests), tuple(pages)))
        envs.close()
    assert seen[0] == seen[1]
    assert all("Stade Océane" in page for page in seen[0][1])
    assert seen[0][0][0] != seen[0][1][0]
