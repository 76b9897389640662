"""The border between languages and the world: schemas, requests and results out, tool calls in.

Everything that a language can say about a world is rendered here and everything an agent writes is read here; on the
other side there are only ids, slots, dates and minor units.
"""

from functools import cache

from ticket_gym.codec.reading import CallReader, ParsedCall
from ticket_gym.codec.rendering import Renderer, amount, dump
from ticket_gym.codec.schemas import make_arguments, make_schemas
from ticket_gym.locale import load_locale
from ticket_gym.request import Task
from ticket_gym.tools import PARAMETERS
from ticket_gym.types import Argument, Language, Tool
from ticket_gym.world import YEAR

__all__ = ["Codec", "ParsedCall", "amount", "dump", "get_codec"]


class Codec:
    """One cell of the three language axes; immutable, shared by all episodes (see `get_codec`).

    Attributes:
        language: Of the request and the system prompt.
        tool_language: Of tool names, descriptions, result keys, messages and weekday names.
        league: Whose clubs, cities, stadiums and user names are used.
        schemas: OpenAI function schemas of the five tools, in the order of `TOOLS`.
        system_prompt: The rules of the game.
        tool_names: Localised name of each tool.
        city_groups: Team slots that share a city, for each city of the league.
    """

    def __init__(self, language: Language, tool_language: Language, league: Language) -> None:
        self.language = language
        self.tool_language = tool_language
        self.league = league
        self.wordings = load_locale(language).wordings
        self.texts = load_locale(tool_language).texts
        self.clubs = load_locale(league).league
        self.system_prompt = self.wordings.system_prompt.strip().format(year=YEAR)
        self.tool_names: dict[Tool, str] = {tool: self.texts.tools[tool].name for tool in PARAMETERS}
        self.schemas = make_schemas(self.texts)
        self.city_groups = tuple(self.clubs.cities.values())
        self._city_names = {slots: city for city, slots in self.clubs.cities.items()}
        renderer = Renderer(self.texts, self.clubs)
        self.render = renderer.render
        self.render_error = renderer.render_error
        reader = CallReader(self.texts, self.clubs)
        self.parse = reader.parse
        self.tool_named = reader.tool_named

    def __reduce__(self) -> tuple[object, tuple[Language, Language, Language]]:
        return get_codec, (self.language, self.tool_language, self.league)

    def parameter_name(self, tool: Tool, parameter: str) -> str:
        """The localised name of a canonical parameter."""
        return self.texts.tools[tool].parameters[parameter].name

    def city_name(self, slots: tuple[int, ...]) -> str:
        """The city of these clubs; for a group of another league, the first club's city."""
        return self._city_names.get(slots) or self.clubs.teams[slots[0]].city

    def arguments(self) -> dict[str, tuple[Argument, ...]]:
        """What each call of an action space may hold, the final answer included, by localised tool name."""
        return make_arguments(self.texts, self.clubs)

    def render_request(self, task: Task) -> str:
        """The text of a request, in one of its template's wordings."""
        wanted = task.constraints
        wordings = self.wordings.templates[task.template]
        opponent = wanted.opponent
        return wordings[task.wording % len(wordings)].format(
            in_city="" if wanted.city is None else self.wordings.in_city.of(self.city_name(wanted.city)),
            half="" if wanted.half is None else self.wordings.half[str(wanted.half)],
            days="" if wanted.days is None else self.wordings.days[wanted.days],
            n="" if opponent is None else opponent.value,
            x="" if opponent is None else opponent.value,
            year="" if opponent is None else opponent.year,
        )


def get_codec(language: Language, tool_language: Language | None = None, league: Language | None = None) -> Codec:
    """The shared codec of one cell of the three axes; the last two default to the first."""
    return _get_codec(language, tool_language or language, league or language)


@cache
def _get_codec(language: Language, tool_language: Language, league: Language) -> Codec:
    return Codec(language, tool_language, league)
