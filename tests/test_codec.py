"""The border: what agents may write, what they read, in every language."""

import json
import re
import unicodedata
from typing import Any

import pytest

from ticket_gym.codec import Codec, get_codec
from ticket_gym.errors import ERROR_CODES
from ticket_gym.session import Observation, Session
from ticket_gym.tools import PARAMETERS, RESULT_KEYS
from ticket_gym.types import LANGUAGES, Language


def play(language: Language, tool: Any, **arguments: object) -> Observation:
    """Make one call by canonical names in the episode of one query."""
    session = Session(language=language)
    session.reset("t08-01")
    codec = session.codec
    named = {codec.parameter_name(tool, name): value for name, value in arguments.items()}
    return session.call(codec.tool_names[tool], named)


def keys_of(value: Any) -> set[str]:
    if isinstance(value, dict):
        return set(value) | {key for item in value.values() for key in keys_of(item)}
    return {key for item in value for key in keys_of(item)} if isinstance(value, list) else set()


@pytest.mark.parametrize("language", LANGUAGES)
def test_schemas_are_what_hosted_apis_take(language: Language) -> None:
    for schema in get_codec(language).schemas:
        function = schema["function"]
        names = [function["name"], *function["parameters"]["properties"]]
        assert all(re.fullmatch("[a-zA-Z0-9_-]{1,64}", name) for name in names)
        assert set(function["parameters"].get("required", ())) <= set(function["parameters"]["properties"])
        for entry in function["parameters"]["properties"].values():
            assert entry["type"] in ("string", "integer", "boolean")
            assert entry["description"]
            assert set(entry) <= {"type", "enum", "description"}


def test_names_differ_between_languages() -> None:
    names = {get_codec(language).tool_names["buy_game_ticket"] for language in LANGUAGES}
    assert len(names) == 6


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_result_has_the_localised_keys_and_no_other(language: Language) -> None:
    arguments: dict[str, dict[str, object]] = {
        "get_leaderboard": {"year": 2023},
        "get_weekday_from_date": {"date": "2025-03-01"},
        "buy_game_ticket": {"game_id": 9},
    }
    key = get_codec(language).texts.keys
    for tool in PARAMETERS:
        observation = play(language, tool, **arguments.get(tool, {}))
        assert observation.error is None, observation
        assert keys_of(json.loads(observation.text)) == {key[name] for name in RESULT_KEYS[tool]}


def test_results_are_literal_text() -> None:
    observation = play("fr", "list_games", team="AS Saint-Étienne")
    assert "Saint-Étienne" in observation.text
    assert "\\u" not in observation.text


def test_amounts_have_two_digits_and_the_currency_of_the_league() -> None:
    for language, currency in (("en", "GBP"), ("pt", "BRL"), ("fr", "EUR")):
        games = json.loads(play(language, "list_games").text)  # type: ignore[arg-type]
        price = get_codec(language).texts.keys["price"]  # type: ignore[arg-type]
        for game in games[get_codec(language).texts.keys["games"]]:  # type: ignore[arg-type]
            assert re.fullmatch(rf"\d+\.\d\d {currency}", game[price])


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_weekday_is_a_name_in_the_tool_language(language: Language) -> None:
    saturday = get_codec(language).texts.weekdays["saturday"]
    assert saturday in play(language, "get_weekday_from_date", date="2025-03-01").text


BAD_CALLS: list[tuple[str, str, dict[str, object], str]] = [
    ("missing_argument", "buy_game_ticket", {}, "game_id"),
    ("invalid_argument", "buy_game_ticket", {"game_id": -1}, "game_id"),
    ("invalid_argument", "list_games", {"page": True}, "page"),
    ("invalid_argument", "list_games", {"descending": 1}, "descending"),
    ("invalid_argument", "list_games", {"order_by": "colour"}, "order_by"),
    ("invalid_argument", "list_games", {"team": ["Arsenal"]}, "team"),
    ("invalid_argument", "get_weekday_from_date", {"date": "2025-02-30"}, "date"),
    ("invalid_argument", "get_weekday_from_date", {"date": "20250301"}, "date"),
    ("invalid_argument", "get_weekday_from_date", {"date": 20250301}, "date"),
    ("unknown_team", "list_games", {"team": "FC Nowhere"}, "team"),
    ("unknown_city", "list_games", {"city": "Nowhere"}, "city"),
    ("unknown_year", "get_leaderboard", {"year": 2021}, "year"),
    ("unknown_game", "buy_game_ticket", {"game_id": 381}, "game_id"),
]


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(("code", "tool", "arguments", "parameter"), BAD_CALLS)
def test_a_bad_call_gets_a_stable_code_and_names_the_localised_parameter(
    language: Language, code: str, tool: Any, arguments: dict[str, object], parameter: str
) -> None:
    observation = play(language, tool, **arguments)
    codec = get_codec(language)
    key = codec.texts.keys
    error = json.loads(observation.text)[key["error"]]
    assert observation.error == error[key["code"]] == code
    assert codec.parameter_name(tool, parameter) in error[key["message"]]


@pytest.mark.parametrize("language", LANGUAGES)
def test_unreadable_calls_are_answered(language: Language) -> None:
    session = Session(language=language)
    session.reset("t01-01")
    buy = session.codec.tool_names["buy_game_ticket"]
    assert session.call("launch_rocket", {}).error == "unknown_tool"
    assert session.call("", "{").error == "malformed_call"
    for arguments in ("{", "[1]", "3", [1], 3, '"[]"', "{'game_id': 3}", "[" * 100_000, "9" * 5000):
        assert session.call(buy, arguments).error == "malformed_call"
    assert session.call(buy, {"colour": "red"}).error == "unexpected_argument"
    assert session.call(buy, {3: 4}).error == "unexpected_argument"
    assert session.bookings == ()


def test_every_error_code_has_a_message_in_every_language() -> None:
    for language in LANGUAGES:
        assert set(get_codec(language).texts.errors) == set(ERROR_CODES)


def nfd(text: str) -> str:
    return unicodedata.normalize("NFD", text)


@pytest.mark.parametrize(
    ("tool", "arguments", "repairs"),
    [
        ("obtenir_infos_utilisateur", None, ("no_arguments",)),
        ("obtenir_infos_utilisateur", "", ("no_arguments",)),
        ("obtenir_infos_utilisateur", "{}", ("json_text",)),
        ("obtenir_infos_utilisateur", {}, ()),
        ("lister_matchs", '{"page": 2}', ("json_text",)),
        ("lister_matchs", json.dumps('{"page": 2}'), ("json_text", "doubly_encoded")),
        ("lister_matchs", {"page": "2"}, ("integer_as_text",)),
        ("lister_matchs", {"page": 2.0}, ("integer_as_decimal",)),
        ("lister_matchs", {"page": 1, "trier_par": "date", "ordre_decroissant": False}, ()),
        ("lister_matchs", {"ordre_decroissant": "True"}, ("boolean_as_text",)),
        ("lister_matchs", {"equipe": None, "ville": ""}, ("empty_value", "empty_value")),
        ("lister_matchs", {"equipe": " AS  Saint-Étienne "}, ("spaces",)),
        ("lister_matchs", {"equipe": nfd("AS Saint-Étienne")}, ("unicode_form",)),
        ("lister_matchs", {"equipe": "as saint-étienne"}, ("letter_case",)),
        ("lister_matchs", {"ville": "  " + nfd("SAINT-ÉTIENNE")}, ("spaces", "unicode_form", "letter_case")),
        ("lister_matchs", {"trier_par": "Prix"}, ("letter_case",)),
        ("obtenir_jour_de_la_semaine", {"date": " 2025-03-01"}, ("spaces",)),
    ],
)
def test_a_harmless_slip_is_mended_and_recorded(tool: str, arguments: object, repairs: tuple[str, ...]) -> None:
    session = Session(language="fr")
    session.reset("t01-01")
    observation = session.call(tool, arguments)
    assert observation.error is None, observation.text
    assert observation.repairs == repairs


def test_a_mended_call_gives_what_the_clean_call_gives() -> None:
    session = Session(language="fr")
    session.reset("t01-01")
    clean = session.call("lister_matchs", {"equipe": "AS Saint-Étienne", "page": 2, "ordre_decroissant": True})
    mended = session.call(
        "lister_matchs", json.dumps({"equipe": nfd(" as saint-étienne"), "page": "2", "ordre_decroissant": "true"})
    )
    assert clean.text == mended.text


def test_a_missing_accent_is_another_name() -> None:
    assert play("fr", "list_games", team="AS Saint-Etienne").error == "unknown_team"


def test_repairs_of_a_call_that_fails_in_the_end_are_kept() -> None:
    observation = play("en", "buy_game_ticket", game_id="9999")
    assert observation.error == "unknown_game"
    assert observation.repairs == ("integer_as_text",)


def test_an_agents_own_value_is_quoted_short_and_encodable() -> None:
    observation = play("en", "list_games", team="\ud800" + "x" * 10_000)
    assert observation.error == "unknown_team"
    assert len(observation.text.encode("utf-8")) < 500


def test_the_three_axes_are_independent() -> None:
    session = Session(language="fr", tool_language="de", league="it")
    request = session.reset("t05-01")
    assert "déplacement" in request
    assert [schema["function"]["name"] for schema in session.tools][1] == "spiele_auflisten"
    text = session.call("spiele_auflisten", {"mannschaft": "Napoli"}).text
    assert "heimmannschaft" in text.lower() or "heim" in text
    assert "EUR" in text


def test_codecs_are_shared_and_keep_their_identity_when_pickled() -> None:
    import pickle

    codec: Codec = get_codec("fr")
    assert get_codec("fr", "fr", "fr") is codec
    assert pickle.loads(pickle.dumps(codec)) is codec
