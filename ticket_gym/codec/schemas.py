"""Tool schemas and argument specifications out, both from the one table of parameters."""

import datetime
from collections.abc import Mapping
from typing import Any

from ticket_gym.locale import League, ToolTexts
from ticket_gym.tools import ORDERS, PARAMETERS, Parameter, ValueKind
from ticket_gym.types import RESPOND, Argument, Tool
from ticket_gym.world import PAST_YEARS, YEAR

JSON_TYPES: Mapping[ValueKind, str] = {
    "page": "integer",
    "game": "integer",
    "year": "integer",
    "boolean": "boolean",
    "team": "string",
    "city": "string",
    "order": "string",
    "date": "string",
}

RANGES: Mapping[ValueKind, tuple[int, int]] = {
    "page": (1, 38),
    "game": (1, 380),
    "year": (PAST_YEARS[0], PAST_YEARS[-1]),
}
"""Integers that can mean something, from which an action space draws."""


def make_schemas(texts: ToolTexts) -> list[dict[str, Any]]:
    """OpenAI function schemas: flat scalar parameters, and no keyword that some trainer or server would drop."""
    return [_schema(texts, tool) for tool in PARAMETERS]


def _schema(texts: ToolTexts, tool: Tool) -> dict[str, Any]:
    text = texts.tools[tool]
    properties: dict[str, Any] = {}
    for name, parameter in PARAMETERS[tool].items():
        words = text.parameters[name]
        enum = {"enum": [words.values[order] for order in ORDERS]} if parameter.kind == "order" else {}
        properties[words.name] = {"type": JSON_TYPES[parameter.kind], **enum, "description": words.description}
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if required := [text.parameters[name].name for name, p in PARAMETERS[tool].items() if p.required]:
        schema["required"] = required
    return {
        "type": "function",
        "function": {"name": text.name, "description": text.description, "parameters": schema},
    }


def make_arguments(texts: ToolTexts, league: League) -> dict[str, tuple[Argument, ...]]:
    """What each call of an action space may hold, the final answer included, by localised tool name."""
    calls = {
        texts.tools[tool].name: tuple(
            _argument(texts, league, texts.tools[tool].parameters[name].name, parameter)
            for name, parameter in parameters.items()
        )
        for tool, parameters in PARAMETERS.items()
    }
    calls[RESPOND] = (Argument("content", "text", required=True, choices=("OK",)),)
    return calls


def _argument(texts: ToolTexts, league: League, name: str, parameter: Parameter) -> Argument:
    required = parameter.required
    match parameter.kind:
        case "page" | "game" | "year":
            low, high = RANGES[parameter.kind]
            return Argument(name, "integer", required, low=low, high=high)
        case "boolean":
            return Argument(name, "boolean", required)
        case "date":
            first = datetime.date(YEAR, 1, 1)
            days = tuple((first + datetime.timedelta(day)).isoformat() for day in range(365))
            return Argument(name, "date", required, choices=days)
        case "order":
            values = texts.tools["list_games"].parameters["order_by"].values
            return Argument(name, "choice", required, choices=tuple(values[order] for order in ORDERS))
        case "team":
            return Argument(name, "choice", required, choices=tuple(team.name for team in league.teams))
        case "city":
            return Argument(name, "choice", required, choices=tuple(league.cities))
