"""Calls in: localised names and values become canonical ones, or an error that says what was wrong."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ticket_gym.codec.arguments import (
    T,
    look_up,
    read_boolean,
    read_date,
    read_integer,
    read_object,
)
from ticket_gym.errors import ErrorCode, ToolError
from ticket_gym.locale import League, ToolTexts, fold
from ticket_gym.tools import ORDERS, PARAMETERS, Parameter, ValueKind
from ticket_gym.types import Tool


class ParsedCall(NamedTuple):
    """A call as the tools take it.

    Attributes:
        tool: Canonical name.
        arguments: Canonical names and values: slots, dates, integers.
        repairs: Kinds of mending that were needed, in order.
    """

    tool: Tool
    arguments: dict[str, Any]
    repairs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Names:
    """Names that a value can be, and what a value that is none of them is told."""

    exact: Mapping[str, Any]
    folded: Mapping[str, Any]
    code: ErrorCode
    not_text: str = "text"


def _names(exact: Mapping[str, T], code: ErrorCode, not_text: str = "text") -> _Names:
    return _Names(exact, {fold(name): value for name, value in exact.items()}, code, not_text)


class CallReader:
    """Reads calls worded with one language's tool names and one league's names."""

    def __init__(self, texts: ToolTexts, league: League) -> None:
        self._tools: dict[str, Tool] = {texts.tools[tool].name: tool for tool in PARAMETERS}
        self._parameters: dict[Tool, dict[str, tuple[str, Parameter]]] = {
            tool: {texts.tools[tool].parameters[name].name: (name, parameter) for name, parameter in parameters.items()}
            for tool, parameters in PARAMETERS.items()
        }
        orders = texts.tools["list_games"].parameters["order_by"].values
        self._names: Mapping[ValueKind, _Names] = {
            "team": _names({team.name: slot for slot, team in enumerate(league.teams)}, "unknown_team"),
            "city": _names(league.cities, "unknown_city"),
            "order": _names({orders[order]: order for order in ORDERS}, "invalid_argument", "choice"),
        }

    def tool_named(self, name: object) -> Tool | None:
        """The canonical tool behind a localised name; none for what is no text."""
        return self._tools.get(name) if isinstance(name, str) else None

    def parse(self, name: str, arguments: object) -> ParsedCall:
        """Read a call; harmless slips are mended and recorded.

        Raises:
            ToolError: The call cannot be read; see `ERROR_CODES`.
        """
        tool = self.tool_named(name)
        if tool is None:
            raise ToolError("unknown_tool", tool=name) if name else ToolError("malformed_call")
        repairs: list[str] = []
        given = read_object(arguments, repairs)
        parameters = self._parameters[tool]
        values: dict[str, Any] = {}
        for local, value in given.items():
            if local not in parameters:
                raise ToolError("unexpected_argument", parameter=local)
            canonical, parameter = parameters[local]
            if value is None or (isinstance(value, str) and not value and not parameter.required):
                repairs.append("empty_value")
            else:
                values[canonical] = self._read(canonical, parameter.kind, value, repairs)
        for canonical, parameter in parameters.values():
            if parameter.required and canonical not in values:
                raise ToolError("missing_argument", parameter=canonical)
        return ParsedCall(tool, values, tuple(repairs))

    def _read(self, name: str, kind: ValueKind, value: object, repairs: list[str]) -> Any:
        match kind:
            case "page" | "game" | "year":
                return read_integer(name, value, repairs)
            case "boolean":
                return read_boolean(name, value, repairs)
            case "date":
                return read_date(name, value, repairs)
            case "team" | "city" | "order":
                return self._read_name(name, self._names[kind], value, repairs)

    def _read_name(self, name: str, names: _Names, value: object, repairs: list[str]) -> Any:
        if not isinstance(value, str):
            raise ToolError("invalid_argument", parameter=name, expected=names.not_text)
        found = look_up(value, names.exact, names.folded, repairs)
        if found is None:
            raise ToolError(names.code, parameter=name, value=value, expected=names.not_text)
        return found
