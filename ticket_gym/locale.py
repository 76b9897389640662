"""One language pack: a league, the tools and the wordings, loaded from `assets/locales/<lang>/` and validated.

A pack is complete or it is an error: no text of one language ever stands in for a missing one of another.
"""

import re
import string
import tomllib
import unicodedata
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from ticket_gym.errors import ERROR_CODES, AssetError
from ticket_gym.request import DAY_GROUPS, WEEKDAYS
from ticket_gym.tools import ORDERS, PARAMETERS, RESULT_KEYS
from ticket_gym.types import LANGUAGES, TOOLS, Language
from ticket_gym.world import TEAM_COUNT, USER_COUNT

ASSETS = Path(__file__).parent / "assets"

SHARED_KEYS = ("error", "code", "message")
"""Keys of an error observation."""

WORDING_PLACEHOLDERS: Mapping[str, frozenset[str]] = {
    "t01": frozenset(),
    "t02": frozenset(),
    "t03": frozenset({"half"}),
    "t04": frozenset({"days"}),
    "t05": frozenset({"in_city"}),
    "t06": frozenset({"n", "year"}),
    "t07": frozenset({"in_city", "half"}),
    "t08": frozenset({"in_city"}),
    "t09": frozenset({"in_city", "days"}),
    "t10": frozenset({"half", "days"}),
    "t11": frozenset({"half", "x", "year"}),
    "t12": frozenset({"days", "x", "year"}),
    "t13": frozenset({"in_city", "n", "year"}),
    "t14": frozenset({"in_city", "half"}),
    "t15": frozenset({"in_city", "half", "days"}),
    "t16": frozenset({"half", "days", "n", "year"}),
    "t17": frozenset({"in_city", "half", "days", "n", "year"}),
}

ERROR_PLACEHOLDERS: Mapping[str, frozenset[str]] = {
    "unknown_tool": frozenset({"tool", "tools"}),
    "malformed_call": frozenset(),
    "missing_argument": frozenset({"parameter"}),
    "unexpected_argument": frozenset({"parameter"}),
    "invalid_argument": frozenset({"parameter", "expected"}),
    "unknown_team": frozenset({"parameter", "value"}),
    "unknown_city": frozenset({"parameter", "value"}),
    "unknown_year": frozenset({"parameter", "value", "years"}),
    "unknown_game": frozenset({"parameter", "value"}),
    "already_booked": frozenset({"value"}),
    "insufficient_balance": frozenset({"price", "balance"}),
    "episode_over": frozenset(),
}


def _nfc(text: str) -> str:
    if unicodedata.normalize("NFC", text) != text:
        raise ValueError("the text is not in Unicode normal form C")
    if not text.strip():
        raise ValueError("the text is empty")
    return text


def _identifier(text: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,63}", text):
        raise ValueError("names and keys are ASCII snake_case of at most 64 characters")
    return text


Text = Annotated[str, AfterValidator(_nfc)]
Identifier = Annotated[str, AfterValidator(_identifier)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Team(_Part):
    """A club of the league, at its slot."""

    name: Text
    city: Text
    stadium: Text


class League(_Part):
    """The 20 clubs of one country in slot order, its currency, and 20 user names."""

    name: Text
    country: Text
    season: Text
    currency: Annotated[str, Field(pattern=r"^[A-Z]{3}$")]
    users: Annotated[tuple[Text, ...], Field(min_length=USER_COUNT, max_length=USER_COUNT)]
    teams: Annotated[tuple[Team, ...], Field(min_length=TEAM_COUNT, max_length=TEAM_COUNT)]

    @property
    def cities(self) -> dict[str, tuple[int, ...]]:
        """Each city with the slots of its clubs."""
        slots: dict[str, tuple[int, ...]] = {}
        for slot, team in enumerate(self.teams):
            slots[team.city] = (*slots.get(team.city, ()), slot)
        return slots


class ParameterText(_Part):
    """How a parameter is called and described; `values` names the choices of an enumeration."""

    name: Identifier
    description: Text
    values: dict[str, Text] = {}


class ToolText(_Part):
    """How a tool and its parameters are called and described."""

    name: Identifier
    description: Text
    parameters: dict[str, ParameterText] = {}


class ToolTexts(_Part):
    """Everything an agent reads about tools in one language."""

    tools: dict[str, ToolText]
    keys: dict[str, Identifier]
    weekdays: dict[str, Text]
    expected: dict[str, Text]
    errors: dict[str, Text]


class Place(_Part):
    """How a city is put where a match is played; `special` holds what grammar bends."""

    default: Text
    special: dict[str, Text] = {}

    def of(self, city: str) -> str:
        """The phrase for a city: "in Leicester", "au Havre"."""
        return self.special.get(city) or self.default.format(city=city)


class Wordings(_Part):
    """How users word their requests in one language."""

    system_prompt: Text
    in_city: Place
    half: dict[str, Text]
    days: dict[str, Text]
    templates: dict[str, tuple[Text, ...]]


class Locale(_Part):
    """One language pack."""

    language: Language
    league: League
    texts: ToolTexts
    wordings: Wordings


@lru_cache(maxsize=len(LANGUAGES))
def load_locale(language: Language) -> Locale:
    """Load and validate the pack of a language.

    Raises:
        AssetError: The pack is missing, incomplete or inconsistent; the message names file and key.
    """
    folder = ASSETS / "locales" / language
    files = {part: folder / f"{part}.toml" for part in ("league", "tools", "queries")}
    data: dict[str, Any] = {}
    for part, file in files.items():
        try:
            data[part] = tomllib.loads(file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise AssetError(f"{file}: {error}") from error
    try:
        locale = Locale(language=language, league=data["league"], texts=data["tools"], wordings=data["queries"])
    except ValidationError as error:
        raise AssetError(f"{folder}: {error}") from error
    if problems := list(find_problems(locale)):
        raise AssetError(f"{folder}: " + "; ".join(problems))
    return locale


def find_problems(locale: Locale) -> Iterator[str]:
    """What is missing, surplus or clashing in a pack whose types are right."""
    yield from _tool_problems(locale.texts)
    yield from _wording_problems(locale.wordings)
    teams = [team.name for team in locale.league.teams]
    if len({fold(name) for name in teams}) < TEAM_COUNT:
        yield "league: two teams have the same name"
    if len({fold(city) for city in locale.league.cities}) < len(locale.league.cities):
        yield "league: two cities differ only in letter case or accents' encoding"


def _tool_problems(texts: ToolTexts) -> Iterator[str]:
    yield from _key_problems("tools", texts.tools, TOOLS)
    for tool, text in texts.tools.items():
        parameters = PARAMETERS.get(tool, {})  # type: ignore[call-overload]
        yield from _key_problems(f"tools.{tool}.parameters", text.parameters, parameters)
        if len({parameter.name for parameter in text.parameters.values()}) < len(text.parameters):
            yield f"tools.{tool}: two parameters have the same name"
    order = texts.tools["list_games"].parameters["order_by"]
    yield from _key_problems("tools.list_games.parameters.order_by.values", order.values, ORDERS)
    names = {tool.name for tool in texts.tools.values()}
    if len(names) < len(TOOLS) or "respond" in names:
        yield "tools: names must differ from each other and from 'respond'"
    expected_keys = {key for keys in RESULT_KEYS.values() for key in keys} | set(SHARED_KEYS)
    yield from _key_problems("keys", texts.keys, expected_keys)
    for tool, keys in RESULT_KEYS.items():
        if len({texts.keys.get(key) for key in keys}) < len(keys):
            yield f"keys: two keys of the result of {tool} have the same name"
    yield from _key_problems("weekdays", texts.weekdays, WEEKDAYS)
    yield from _key_problems("expected", texts.expected, ("integer", "boolean", "date", "text", "choice"))
    yield from _key_problems("errors", texts.errors, ERROR_CODES)
    for code, message in texts.errors.items():
        yield from _placeholder_problems(f"errors.{code}", message, ERROR_PLACEHOLDERS.get(code, frozenset()))


def _wording_problems(wordings: Wordings) -> Iterator[str]:
    yield from _placeholder_problems("system_prompt", wordings.system_prompt, {"year"})
    yield from _placeholder_problems("in_city.default", wordings.in_city.default, {"city"})
    yield from _key_problems("half", wordings.half, ("1", "2"))
    yield from _key_problems("days", wordings.days, DAY_GROUPS)
    yield from _key_problems("templates", wordings.templates, WORDING_PLACEHOLDERS)
    for template, texts in wordings.templates.items():
        if len(set(texts)) < max(4, len(texts)):
            yield f"templates.{template}: at least four different wordings are needed"
        for number, text in enumerate(texts, start=1):
            wanted = WORDING_PLACEHOLDERS.get(template, frozenset())
            yield from _placeholder_problems(f"templates.{template}, wording {number}", text, wanted)


def _key_problems(place: str, got: Mapping[str, object], wanted: Any) -> Iterator[str]:
    if missing := sorted(set(wanted) - set(got)):
        yield f"{place}: missing {', '.join(missing)}"
    if surplus := sorted(set(got) - set(wanted)):
        yield f"{place}: unknown {', '.join(surplus)}"


def _placeholder_problems(place: str, text: str, wanted: frozenset[str] | set[str]) -> Iterator[str]:
    found = [name for _, name, _, _ in string.Formatter().parse(text) if name is not None]
    if sorted(found) != sorted(wanted):
        names = ", ".join(f"{{{name}}}" for name in sorted(wanted)) or "no placeholder"
        yield f"{place}: must hold {names}, each once"


def fold(text: str) -> str:
    """The form in which names are compared when they are not spelled exactly: NFC, no letter case, single spaces."""
    return " ".join(unicodedata.normalize("NFC", text).casefold().split())
