"""Whatever an agent writes: no exception, no wrong state, and every mending on record."""

import json
import math
import unicodedata
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ticket_gym import TicketBenchEnv, ToolCall
from ticket_gym.codec import Codec
from ticket_gym.session import Session
from ticket_gym.types import LANGUAGES, RESPOND, TOOLS, Language, Tool
from ticket_gym.world import get_world

FUZZ = settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
QUERIES = ("t02-01", "t10-01", "t13-01", "t17-05")
ENVS: dict[Language, TicketBenchEnv] = {
    language: TicketBenchEnv(language=language, max_steps=10**9) for language in LANGUAGES
}

# Values

TEXTS = st.text(st.characters(exclude_categories=()), max_size=12)
"""Any characters, lone surrogates and control characters among them."""

HUGE = st.sampled_from([2**31, 2**63, 2**64, -(2**63), 10**30, 10**400, -(10**400)])
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 400), st.integers(), HUGE, st.floats(), TEXTS, st.binary(max_size=5)
)
KEYS = st.one_of(TEXTS, st.integers(), HUGE, st.booleans(), st.none(), st.floats(), st.tuples(TEXTS))
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(KEYS, inner, max_size=3),
        st.tuples(inner),
        st.builds(lambda value: json.dumps(repr(value)), inner),
    ),
    max_leaves=6,
)
DEEP = st.builds(
    lambda opening, depth, closed: opening * depth + ("}" if opening[0] == "{" else "]") * depth * closed,
    st.sampled_from(['{"page":', "[", '{"a":[', '"', '{"equipe":{']),
    st.sampled_from([1, 50, 900, 1100, 20_000, 100_000]),
    st.booleans(),
)


def evenly(*strategies: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """One of these, each as often; `st.one_of` would favour those that are unions themselves."""
    return st.sampled_from(strategies).flatmap(lambda strategy: strategy)


def calls_of(codec: Codec) -> st.SearchStrategy[Any]:
    """Calls of every degree of brokenness, the sound ones included."""
    known = {
        codec.tool_names[tool]: [codec.parameter_name(tool, name) for name in codec.texts.tools[tool].parameters]
        for tool in TOOLS
    }
    teams = [team.name for team in codec.clubs.teams]
    words = st.sampled_from([*teams, *codec.clubs.cities, "2025-03-01", "2025-02-30", "true", "False"])
    numbers = st.sampled_from([0, 1, 2, 38, 190, 380, 381, 2022, 2024, 2025])
    values = evenly(
        words,
        words.map(lambda word: f"\u00a0{word.swapcase()} "),
        words.map(lambda word: unicodedata.normalize("NFD", word)),
        numbers,
        numbers.map(str),
        numbers.map(float),
        st.booleans(),
        st.sampled_from([None, ""]),
        VALUES,
        DEEP,
    )
    names = st.sampled_from([*known, RESPOND])
    half_right = st.sampled_from([name for name in known if known[name]]).flatmap(
        lambda name: st.fixed_dictionaries(
            {"name": st.just(name), "arguments": st.dictionaries(st.sampled_from(known[name]), values, max_size=3)}
        )
    )
    purchase = st.builds(
        lambda game: {
            "name": codec.tool_names["buy_game_ticket"],
            "arguments": {codec.parameter_name("buy_game_ticket", "game_id"): game},
        },
        evenly(st.integers(1, 190), st.integers(1, 400).map(str), st.integers(1, 400).map(float)),
    )
    drawn = st.builds(lambda seed: _drawn(codec, seed), st.integers(0, 10**6))
    return evenly(
        purchase,
        drawn,
        half_right,
        half_right,
        evenly(purchase, drawn, half_right).flatmap(_damaged),
        st.fixed_dictionaries({"name": evenly(names, VALUES), "arguments": evenly(VALUES, DEEP)}),
        st.builds(ToolCall, evenly(names, VALUES), evenly(VALUES, DEEP)),
        evenly(VALUES, DEEP),
    )


def _drawn(codec: Codec, seed: int) -> Any:
    space = ENVS[codec.language].action_space
    space.seed(seed)
    return space.sample()


def _damaged(call: dict[str, Any]) -> st.SearchStrategy[Any]:
    """A call with its arguments as text, whole, cut off, encoded twice, or with something more in it."""
    text = json.dumps(call["arguments"], default=repr, skipkeys=True)
    cut = st.integers(0, len(text)).map(lambda end: {**call, "arguments": text[:end]})
    return st.one_of(
        cut,
        st.sampled_from(
            [
                {**call, "arguments": text},
                {**call, "arguments": json.dumps(text)},
                {**call, "arguments": json.dumps(json.dumps(text))},
                {**call, "arguments": f"```json\n{text}\n```"},
                {**call, "arguments": [call["arguments"]]},
                {**call, "arguments": {**call["arguments"], "arguments": call["arguments"]}},
                {"function": call},
                {"name": f" {call['name']} ", "arguments": call["arguments"]},
                {"name": call["name"]},
                json.dumps(call, default=repr, skipkeys=True),
            ]
        ),
        VALUES.map(lambda value: {**call, "arguments": {**call["arguments"], "more": value}}),
    )


STRATEGIES = {language: st.lists(calls_of(env.session.codec), max_size=12) for language, env in ENVS.items()}
EPISODES = st.sampled_from(LANGUAGES).flatmap(lambda language: st.tuples(st.just(language), STRATEGIES[language]))


@FUZZ
@given(episode=EPISODES, query=st.sampled_from(QUERIES))
def test_no_call_raises_or_changes_state_wrongly(episode: tuple[Language, list[Any]], query: str) -> None:
    """Balance and bookings agree after every call, and an error changes nothing."""
    language, actions = episode
    env = ENVS[language]
    env.reset(options={"query": query})
    for action in actions:
        before = env.session.snapshot()
        text, reward, terminated, truncated, info = env.step(action)
        _check_observation(text, info, terminated)
        _check_state(env.session, before, info)
        assert reward == float(terminated and env.session.success)
        assert truncated is False
        if terminated:
            env.reset(options={"query": query})


def _check_observation(text: str, info: dict[str, Any], terminated: bool) -> None:
    json.dumps(info, ensure_ascii=False).encode()
    json.dumps(text, ensure_ascii=False).encode()
    assert len(text) < 10_000
    if terminated:
        assert text == ""
    else:
        assert isinstance(json.loads(text), dict)


def _check_state(session: Session, before: dict[str, Any], info: dict[str, Any]) -> None:
    after = session.snapshot()
    task = session.playing
    world = get_world(task.split, task.world)
    season = world.seasons[task.season]
    games = [season.game(game) for game in after["bookings"]]
    assert len(set(after["bookings"])) == len(games)
    assert after["balance"] == world.users[task.user].balance - sum(game.price for game in games if game is not None)
    assert None not in games
    assert after["balance"] >= 0
    assert after["steps"] == before["steps"] + 1 == info["steps"]
    if info["error"] is not None or info["tool"] != "buy_game_ticket":
        unchanged = ("task", "balance", "bookings")
        assert [after[fact] for fact in unchanged] == [before[fact] for fact in unchanged]
    else:
        assert after["bookings"][:-1] == before["bookings"]


@FUZZ
@given(arguments=st.one_of(VALUES, DEEP), name=st.one_of(st.sampled_from(["lister_matchs", "?"]), VALUES))
def test_a_bare_session_never_raises_either(arguments: Any, name: Any) -> None:
    """Adapters call it without the environment's reading of actions."""
    session = Session(language="fr")
    session.reset("t01-01")
    for _ in range(2):
        session.call(name, arguments).text.encode()
    assert session.steps == 2


# Mending, kind by kind


def localise(codec: Codec, tool: Tool, arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments under their localised names."""
    return {codec.parameter_name(tool, name): value for name, value in arguments.items()}


def accented(codec: Codec) -> str:
    """A team whose name is written differently in NFD."""
    return next(team.name for team in codec.clubs.teams if unicodedata.normalize("NFD", team.name) != team.name)


def first_team(codec: Codec) -> str:
    """The first team."""
    return codec.clubs.teams[0].name


Arguments = Callable[[Codec], Any]

MENDED: dict[str, tuple[Tool, Arguments, tuple[str, ...]]] = {
    "null": ("get_user_info", lambda codec: None, ("no_arguments",)),
    "empty text": ("get_user_info", lambda codec: "", ("no_arguments",)),
    "blank text": ("list_games", lambda codec: " \n", ("no_arguments",)),
    "null as text": ("list_games", lambda codec: "null", ("json_text", "no_arguments")),
    "JSON text": ("list_games", lambda codec: json.dumps(localise(codec, "list_games", {"page": 2})), ("json_text",)),
    "doubly encoded": (
        "list_games",
        lambda codec: json.dumps(json.dumps(localise(codec, "list_games", {"page": 2}))),
        ("json_text", "doubly_encoded"),
    ),
    "integer as text": (
        "list_games",
        lambda codec: localise(codec, "list_games", {"page": "2"}),
        ("integer_as_text",),
    ),
    "integer as decimal": (
        "get_leaderboard",
        lambda codec: localise(codec, "get_leaderboard", {"year": 2024.0}),
        ("integer_as_decimal",),
    ),
    "boolean as text": (
        "list_games",
        lambda codec: localise(codec, "list_games", {"descending": "True"}),
        ("boolean_as_text",),
    ),
    "spaces around": (
        "list_games",
        lambda codec: localise(codec, "list_games", {"team": f" {first_team(codec)}\n"}),
        ("spaces",),
    ),
    "spaces around a date": (
        "get_weekday_from_date",
        lambda codec: localise(codec, "get_weekday_from_date", {"date": " 2025-03-01"}),
        ("spaces",),
    ),
    "NFD": (
        "list_games",
        lambda codec: localise(codec, "list_games", {"team": unicodedata.normalize("NFD", accented(codec))}),
        ("unicode_form",),
    ),
    "letter case": (
        "list_games",
        lambda codec: localise(codec, "list_games", {"team": first_team(codec).swapcase()}),
        ("letter_case",),
    ),
    "null for an optional value": (
        "list_games",
        lambda codec: localise(codec, "list_games", {"team": None}),
        ("empty_value",),
    ),
    "empty text for an optional value": (
        "list_games",
        lambda codec: localise(codec, "list_games", {"team": "", "page": ""}),
        ("empty_value", "empty_value"),
    ),
    "everything at once": (
        "list_games",
        lambda codec: json.dumps(
            localise(
                codec,
                "list_games",
                {"page": "1", "city": None, "team": f" {unicodedata.normalize('NFD', accented(codec)).upper()}"},
            )
        ),
        ("json_text", "integer_as_text", "empty_value", "spaces", "unicode_form", "letter_case"),
    ),
}

ACCEPTED: dict[str, tuple[Tool, Arguments]] = {
    "no arguments": ("list_games", lambda codec: {}),
    "explicit defaults": (
        "list_games",
        lambda codec: localise(codec, "list_games", {"page": 1, "descending": False}),
    ),
}


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("slip", MENDED)
def test_each_mending_is_recorded(slip: str, language: Language) -> None:
    """In every language; the call succeeds and only the step is counted."""
    tool, arguments, repairs = MENDED[slip]
    env = TicketBenchEnv(language=language, league="pt")
    env.reset(options={"query": "t01-01"})
    codec = env.session.codec
    before = env.session.snapshot()
    _, _, _, _, info = env.step({"name": codec.tool_names[tool], "arguments": arguments(codec)})
    assert info == {"tool": tool, "error": None, "repairs": repairs, "steps": 1}
    assert env.session.snapshot() == {**before, "steps": 1}


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("form", ACCEPTED)
def test_what_is_right_needs_no_mending(form: str, language: Language) -> None:
    """Explicit defaults among it."""
    tool, arguments = ACCEPTED[form]
    session = Session(language=language)
    session.reset("t01-01")
    observation = session.call(session.codec.tool_names[tool], arguments(session.codec))
    assert (observation.error, observation.repairs) == (None, ())


def test_a_mended_purchase_is_a_purchase() -> None:
    """Booked once, with the repair on record."""
    session = Session(language="fr")
    session.reset("t01-01")
    (game,) = session.playing.expected
    for value in (f" {game} ", float(game)):
        session.reset("t01-01")
        observation = session.call("acheter_billet", localise(session.codec, "buy_game_ticket", {"game_id": value}))
        assert observation.repairs in (("integer_as_text",), ("integer_as_decimal",))
        assert session.bookings == (game,)


# What is not mended

NO_INTEGERS: list[Any] = [
    math.nan, math.inf, -math.inf, True, False, -1, 0, -3.0, 10**9, 10**30, 1e30, 2.5, "-1", "2.5", "0x1", "1e3",
    "\u0663", "10000000", "drei", "", " ", {"value": 1}, {}, [1], [], (1,), b"1", {1}, 1j, "1 2",
]  # fmt: skip
NO_BOOLEANS: list[Any] = [0, 1, "yes", "1", math.nan, {}, [True], "truefalse"]
NO_DATES: list[Any] = [
    "2025-02-30", "2025-2-3", "20250203", "2025-W05-1", "03.02.2025", "0000-01-01", "2025-13-01", 20250203, 1.0, {}, [],
    "\u0662\u0660\u0662\u0665-01-01", "2025-01-01T00:00", True,
]  # fmt: skip
NO_NAMES: list[Any] = [3, 2.0, True, ["LOSC Lille"], {"name": "LOSC Lille"}, math.nan, b"LOSC Lille"]

REFUSED: list[tuple[Tool, str, Any]] = [
    *[("buy_game_ticket", "game_id", value) for value in NO_INTEGERS],
    *[("get_leaderboard", "year", value) for value in NO_INTEGERS],
    *[("list_games", "page", value) for value in NO_INTEGERS if value != ""],
    *[("list_games", "descending", value) for value in NO_BOOLEANS],
    *[("get_weekday_from_date", "date", value) for value in NO_DATES],
    *[("list_games", name, value) for name in ("team", "city", "order_by") for value in NO_NAMES],
    ("list_games", "order_by", "points"),
]


@pytest.mark.parametrize(("tool", "name", "value"), REFUSED)
def test_what_cannot_be_meant_is_an_invalid_argument(tool: Tool, name: str, value: Any) -> None:
    """The message names the parameter; the state is as before."""
    session = Session(language="fr")
    session.reset("t01-01")
    before = session.snapshot()
    codec = session.codec
    observation = session.call(codec.tool_names[tool], localise(codec, tool, {name: value}))
    assert observation.error == "invalid_argument"
    error = json.loads(observation.text)["erreur"]
    assert error["code"] == "invalid_argument"
    assert codec.parameter_name(tool, name) in error["message"]
    assert session.snapshot() == {**before, "steps": 1}


@pytest.mark.parametrize(
    ("tool", "arguments", "code"),
    [
        ("list_games", "{", "malformed_call"),
        ("list_games", "[1]", "malformed_call"),
        ("list_games", [], "malformed_call"),
        ("list_games", 3, "malformed_call"),
        ("list_games", json.dumps(json.dumps(json.dumps({}))), "malformed_call"),
        ("list_games", "[" * 100_000, "malformed_call"),
        ("list_games", '{"page": ' + "9" * 5000 + "}", "malformed_call"),
        ("list_games", '{"page": NaN}', "invalid_argument"),
        ("list_games", '{"page": Infinity}', "invalid_argument"),
        ("list_games", '{"page": {"page": 1}}', "invalid_argument"),
        ("list_games", {"pages": 1}, "unexpected_argument"),
        ("list_games", {1: 1}, "unexpected_argument"),
        ("list_games", {10**5000: 1}, "unexpected_argument"),
        ("list_games", {"page": 10**5000}, "invalid_argument"),
        ("list_games", {"page": np.arange(3)}, "invalid_argument"),
        ("list_games", {"\ud800": 1}, "unexpected_argument"),
        ("list_games", {"equipe": "\ud800"}, "unknown_team"),
        ("list_games", {"equipe": "Real Madrid CF"}, "unknown_team"),
        ("list_games", {"ville": "Berlin"}, "unknown_city"),
        ("buy_game_ticket", {}, "missing_argument"),
        ("buy_game_ticket", None, "missing_argument"),
        ("buy_game_ticket", {"id_match": None}, "missing_argument"),
        ("get_leaderboard", {"annee": 1999}, "unknown_year"),
        ("buy_game_ticket", {"id_match": 999_999}, "unknown_game"),
        ("get_user_info", {"nom": "x"}, "unexpected_argument"),
    ],
)
def test_other_slips_have_their_codes(tool: Tool, arguments: Any, code: str) -> None:
    """Each slip its stable code; the state is as before."""
    session = Session(language="fr")
    session.reset("t01-01")
    before = session.snapshot()
    observation = session.call(session.codec.tool_names[tool], arguments)
    assert observation.error == code
    observation.text.encode()
    assert session.snapshot() == {**before, "steps": 1}
