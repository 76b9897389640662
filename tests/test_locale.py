"""Locale packs: complete, aligned across languages, grammatical where places meet prepositions."""

import unicodedata
from collections.abc import Callable
from typing import Any

import pytest

from ticket_gym.locale import Locale, find_problems, load_locale
from ticket_gym.session import Session
from ticket_gym.tasks.benchmark import BENCHMARK_CITIES
from ticket_gym.types import LANGUAGES, Language


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_pack_is_complete(language: Language) -> None:
    assert list(find_problems(load_locale(language))) == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_benchmarks_cities_have_one_club_in_every_league(language: Language) -> None:
    cities = list(load_locale(language).league.cities.values())
    assert all(slots in cities for slots in BENCHMARK_CITIES)


def test_no_two_leagues_share_a_name() -> None:
    teams = [team.name for language in LANGUAGES for team in load_locale(language).league.teams]
    assert len(set(teams)) == 120


def _without(path: str) -> Callable[[dict[str, Any]], None]:
    *parents, last = path.split("/")

    def change(data: dict[str, Any]) -> None:
        for parent in parents:
            data = data[parent]
        del data[last]

    return change


def _set(path: str, value: object) -> Callable[[dict[str, Any]], None]:
    *parents, last = path.split("/")

    def change(data: dict[str, Any]) -> None:
        for parent in parents:
            data = data[parent]
        data[last] = value

    return change


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (_without("texts/keys/price"), "keys: missing price"),
        (_without("texts/errors/unknown_city"), "errors: missing unknown_city"),
        (_without("texts/weekdays/monday"), "weekdays: missing monday"),
        (_without("texts/tools/get_leaderboard/parameters/year"), "tools.get_leaderboard.parameters: missing year"),
        (_without("wordings/templates/t09"), "templates: missing t09"),
        (_without("wordings/days/midweek"), "days: missing midweek"),
        (_set("texts/keys/colour", "couleur"), "keys: unknown colour"),
        (_set("texts/keys/home_team", load_locale("fr").texts.keys["away_team"]), "have the same name"),
        (_set("texts/errors/unknown_team", "Non."), "errors.unknown_team: must hold {parameter}, {value}"),
        (_set("wordings/templates/t03", ["a {half}", "b {half}", "c {half}", "d"]), "t03, wording 4: must hold {half}"),
        (_set("wordings/templates/t01", ["a", "b", "c"]), "t01: at least four"),
        (_set("wordings/templates/t01", ["a", "b", "c", "a"]), "t01: at least four"),
        (_set("wordings/in_city/default", "à"), "in_city.default: must hold {city}"),
    ],
)
def test_a_gap_in_a_pack_is_named(change: Callable[[dict[str, Any]], None], told: str) -> None:
    data = load_locale("fr").model_dump()
    change(data)
    assert told in "; ".join(find_problems(Locale.model_validate(data)))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (_set("texts/keys/price", "prix total"), "snake_case"),
        (_set("texts/keys/price", "priće"), "snake_case"),
        (_set("texts/weekdays/monday", unicodedata.normalize("NFD", "lundí")), "normal form C"),
        (_set("texts/weekdays/monday", " "), "empty"),
        (_set("league/currency", "euro"), "currency"),
    ],
)
def test_a_malformed_text_is_refused(change: Callable[[dict[str, Any]], None], told: str) -> None:
    data = load_locale("fr").model_dump()
    change(data)
    with pytest.raises(ValueError, match=told):
        Locale.model_validate(data)


@pytest.mark.parametrize(
    ("language", "league", "city", "phrase"),
    [
        ("fr", "fr", "Le Havre", "au Havre"),
        ("fr", "pt", "Recife", "à Recife"),
        ("pt", "pt", "Recife", "no Recife"),
        ("pt", "pt", "Rio de Janeiro", "no Rio de Janeiro"),
        ("pt", "pt", "Santos", "em Santos"),
        ("it", "fr", "Angers", "ad Angers"),
        ("it", "it", "Napoli", "a Napoli"),
        ("de", "de", "Köln", "in Köln"),
        ("es", "es", "Las Palmas de Gran Canaria", "en Las Palmas de Gran Canaria"),
        ("en", "en", "Nottingham", "in Nottingham"),
    ],
)
def test_a_city_takes_the_preposition_of_the_language(
    language: Language, league: Language, city: str, phrase: str
) -> None:
    assert city in load_locale(league).league.cities
    assert load_locale(language).wordings.in_city.of(city) == phrase


UNCONTRACTED = {
    "pt": (" em o ", " em a ", " de o ", " a o ", " em um ", " em uma "),
    "fr": (" à le ", " à les ", " de le ", " de les ", " à Le "),
    "de": (" in dem Jahr ", " zu dem "),
    "es": (" a el ", " de el "),
    "it": (" a il ", " di il ", " in il ", " in la ", " di le ", " a le ", " da il "),
    "en": (" a a ", " the the "),
}


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_request_has_an_uncontracted_preposition_or_a_loose_end(language: Language) -> None:
    session = Session(language=language, split="train", seed=3)
    for index in range(17 * 60):
        request = session.reset(session.source.at(index))
        assert not [pair for pair in UNCONTRACTED[language] if pair in request], request
        assert "{" not in request and "  " not in request
        assert request == unicodedata.normalize("NFC", request).strip()
