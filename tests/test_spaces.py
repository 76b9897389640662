"""The action and observation spaces: samples, membership, seeds, masks, JSON, batches."""

import copy
import json
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate

from ticket_gym.codec import get_codec
from ticket_gym.errors import ConfigurationError
from ticket_gym.session import Session
from ticket_gym.spaces import ToolCallSpace, UnicodeText
from ticket_gym.types import LANGUAGES, RESPOND, TOOLS, Argument, Language, ToolCall

SAMPLES = 300
STATE_ERRORS = {None, "unknown_game", "already_booked", "insufficient_balance"}
"""What may become of a call that is well formed."""


def call_space(language: Language = "fr", seed: int = 0) -> ToolCallSpace:
    """The action space of a language."""
    return ToolCallSpace(get_codec(language).arguments(), seed=seed)


@pytest.mark.parametrize("language", LANGUAGES)
def test_samples_are_members_and_are_played_without_mending(language: Language) -> None:
    """In every language, for every tool."""
    space = call_space(language)
    session = Session(language=language, max_steps=10**6)
    session.reset("t01-01")
    seen = set()
    for _ in range(SAMPLES):
        call = space.sample()
        assert call in space
        assert ToolCall(call["name"], call["arguments"]) in space
        seen.add((call["name"], *sorted(call["arguments"])))
        if call["name"] != RESPOND:
            observation = session.call(call["name"], call["arguments"])
            assert observation.error in STATE_ERRORS
            assert observation.repairs == ()
    assert {name for name, *_ in seen} == {*get_codec(language).tool_names.values(), RESPOND}
    assert len(seen) > len(TOOLS) + 1 + 10, "optional arguments are left out at random"


def test_equal_seeds_draw_equal_calls_and_others_do_not() -> None:
    """Whether given at construction or later."""

    def draws(seed: int) -> list[Any]:
        space = call_space(seed=seed)
        return [space.sample() for _ in range(20)]

    assert draws(1) == draws(1) != draws(2)
    space = call_space(seed=2)
    space.seed(1)
    assert [space.sample() for _ in range(20)] == draws(1)


def test_a_mask_allows_only_what_it_marks() -> None:
    """Masks follow the order of `names`."""
    space = call_space()
    mask = np.zeros(len(space.names), dtype=np.int8)
    mask[[1, 5]] = 1
    assert {space.sample(mask=mask)["name"] for _ in range(100)} == {space.names[1], space.names[5]}


def test_probabilities_are_followed() -> None:
    """What has probability 0 never comes."""
    space = call_space()
    names = [space.sample(probability=np.array([0, 0.9, 0, 0.1, 0, 0]))["name"] for _ in range(500)]
    assert set(names) == {space.names[1], space.names[3]}
    assert 400 < names.count(space.names[1]) < 490


@pytest.mark.parametrize(
    "options",
    [
        {"mask": np.zeros(6, dtype=np.int8)},
        {"mask": np.ones(5, dtype=np.int8)},
        {"mask": ["yes"] * 6},
        {"probability": np.ones(6)},
        {"probability": np.array([2.0, -1, 0, 0, 0, 0])},
        {"mask": np.ones(6, dtype=np.int8), "probability": np.full(6, 1 / 6)},
    ],
)
def test_masks_that_do_not_fit_are_refused(options: dict[str, Any]) -> None:
    """Wrong length, wrong sum, nothing allowed, both at once."""
    with pytest.raises(ConfigurationError):
        call_space().sample(**options)


@pytest.mark.parametrize(
    "action",
    [
        None,
        "lister_matchs",
        {},
        {"name": "lister_matchs"},
        {"name": "lister_matchs", "arguments": None},
        {"name": "lister_matchs", "arguments": "{}"},
        {"name": "lister_matchs", "arguments": {}, "more": 1},
        {"name": "list_games", "arguments": {}},
        {"name": ["lister_matchs"], "arguments": {}},
        {"name": "lister_matchs", "arguments": {"page": "1"}},
        {"name": "lister_matchs", "arguments": {"page": 1.0}},
        {"name": "lister_matchs", "arguments": {"page": True}},
        {"name": "lister_matchs", "arguments": {"page": 0}},
        {"name": "lister_matchs", "arguments": {"equipe": "losc lille"}},
        {"name": "lister_matchs", "arguments": {"ordre_decroissant": 1}},
        {"name": "lister_matchs", "arguments": {"team": "LOSC Lille"}},
        {"name": "acheter_billet", "arguments": {}},
        {"name": "obtenir_jour_de_la_semaine", "arguments": {"date": "2025-02-30"}},
        {"name": "obtenir_jour_de_la_semaine", "arguments": {"date": "20250203"}},
        {"name": RESPOND, "arguments": {"content": 1}},
    ],
)
def test_what_would_need_mending_is_no_member(action: object) -> None:
    """Membership is stricter than the session."""
    assert action not in call_space()


def test_a_day_of_any_year_is_a_member() -> None:
    """The days of the season are only what is drawn."""
    assert {"name": "obtenir_jour_de_la_semaine", "arguments": {"date": "2024-02-29"}} in call_space()


def test_calls_survive_json() -> None:
    """There and back, in the plain form."""
    space = call_space()
    calls = [space.sample() for _ in range(20)]
    texts = json.dumps(space.to_jsonable([*calls, ToolCall(RESPOND, {"content": "à demain"})]))
    back = space.from_jsonable(json.loads(texts))
    assert back == [*calls, {"name": RESPOND, "arguments": {"content": "à demain"}}]
    assert all(call in space for call in back)


def test_to_jsonable_shares_nothing_with_its_calls() -> None:
    """Changing the data changes no call."""
    space = call_space()
    call = {"name": RESPOND, "arguments": {"content": "a"}}
    space.to_jsonable([call])[0]["arguments"]["content"] = "b"
    assert call["arguments"] == {"content": "a"}


def test_equality_looks_at_the_calls_only() -> None:
    """Random states do not count."""
    assert call_space("fr", 1) == call_space("fr", 2)
    assert call_space("fr") != call_space("de")
    assert call_space() != UnicodeText()
    assert UnicodeText(5) == UnicodeText(5, seed=1)
    assert UnicodeText(5) != UnicodeText(6)


@pytest.mark.parametrize("copier", [copy.deepcopy, lambda space: pickle.loads(pickle.dumps(space))])
@pytest.mark.parametrize("make", [call_space, lambda: UnicodeText(seed=0)])
def test_copies_go_on_alike_and_apart(make: Callable[[], Any], copier: Callable[[Any], Any]) -> None:
    """A copy has its own generator in the same state."""
    space = make()
    space.sample()
    twin = copier(space)
    assert twin == space
    assert [twin.sample() for _ in range(10)] == [space.sample() for _ in range(10)]


@pytest.mark.parametrize("space", [call_space(), UnicodeText(seed=0)])
def test_batches_are_tuples(space: Any) -> None:
    """Gymnasium's functions for vector environments take the spaces as they are."""
    batch = batch_space(space, 3)
    assert isinstance(batch, spaces.Tuple)
    assert len(batch) == 3
    items = batch.sample()
    assert items in batch
    assert list(iterate(batch, items)) == list(items)
    nothing: Any = create_empty_array(space, 3)
    assert concatenate(space, items, nothing) == items
    assert space.is_np_flattenable is False
    assert space.shape is None and space.dtype is None


def test_batched_masks_reach_each_space() -> None:
    """One mask for each."""
    space = call_space()
    masks = tuple(np.eye(6, dtype=np.int8)[place] for place in range(3))
    assert [call["name"] for call in batch_space(space, 3).sample(mask=masks)] == list(space.names[:3])


def test_text_takes_what_any_language_writes() -> None:
    """Up to its length; nothing but text."""
    space = UnicodeText(12)
    for text in ("", "São Paulo", "Köln – 1.", "€ 12,50", "日本", "a\nb"):
        assert text in space
    for other in ("a" * 13, b"a", None, 3, ["a"]):
        assert other not in space


def test_text_samples_are_members_seeded_and_varied() -> None:
    """Accents among them."""
    space = UnicodeText(20, seed=3)
    texts = [space.sample() for _ in range(100)]
    assert all(text in space for text in texts)
    assert max(map(len, texts)) <= 20
    assert any(not text.isascii() for text in texts)
    space.seed(3)
    assert [space.sample() for _ in range(100)] == texts


@pytest.mark.parametrize(
    "build",
    [
        lambda: ToolCallSpace({}),
        lambda: ToolCallSpace({"ask": (Argument("name", "choice"),)}),
        lambda: UnicodeText(-1),
        lambda: UnicodeText(True),
        lambda: UnicodeText().sample(mask=1),  # type: ignore[arg-type]
    ],
)
def test_spaces_that_cannot_be_are_refused(build: Callable[[], object]) -> None:
    """At construction, or where a mask is given that means nothing."""
    with pytest.raises(ConfigurationError):
        build()


def test_spaces_say_what_they_are() -> None:
    """Short, for messages of Gymnasium."""
    assert repr(call_space("en")).startswith("ToolCallSpace(get_user_info, ")
    assert repr(UnicodeText(9)) == "UnicodeText(9)"
