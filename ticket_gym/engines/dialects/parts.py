"""The parts of a text, and strict JSON: what the dialects share."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ticket_gym.types import ToolCall


@dataclass(frozen=True, slots=True)
class Unreadable:
    """What was meant as a call and cannot be read as one.

    Attributes:
        text: As the model wrote it, marks left out.
        name: The function's name as far as it can be read.
    """

    text: str
    name: str = ""


Part = str | ToolCall | Unreadable
"""A piece of content, a call, or an unreadable call."""

Dialect = Callable[[str], Iterator[Part]]

_CALL_KEYS = {"name", "arguments", "parameters", "id", "type"}
_NAME = re.compile(r'"name"\s*+:\s*+("(?:[^"\\]|\\.)*")')
_ARGUMENTS = re.compile(r'"(?:arguments|parameters)"\s*+:')


def no_constant(name: str) -> object:
    """For JSON readers: `NaN` and `Infinity` are no JSON, and few servers could read them back."""
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=no_constant)

NO_JSON = (ValueError, RecursionError)
"""What decoding raises; JSON of great depth makes the decoder run out of stack."""


def decode(text: str, start: int) -> tuple[object, int]:
    """The JSON value that begins at or after `start`, spaces aside, and where it ends."""
    return _DECODER.raw_decode(text, skip_space(text, start))


def skip_space(text: str, start: int) -> int:
    """The next position that holds no space."""
    while start < len(text) and text[start].isspace():
        start += 1
    return start


def first_of(text: str, marks: tuple[str, ...], start: int) -> int:
    """Where the first of some marks stands, or the end of the text."""
    return min((found for mark in marks if (found := text.find(mark, start)) >= 0), default=len(text))


def as_call(value: object, source: str) -> ToolCall | Unreadable:
    """A decoded value as a call: an object with a name and at most one of `arguments` and `parameters`."""
    if isinstance(value, dict) and isinstance(value.get("name"), str) and value.keys() <= _CALL_KEYS:
        arguments = [value[key] for key in ("arguments", "parameters") if key in value]
        if len(arguments) <= 1:
            given = value.get("id")
            return ToolCall(
                value["name"], arguments[0] if arguments else None, given if isinstance(given, str) else None
            )
    return unreadable(source)


def unreadable(source: str) -> Unreadable:
    """A broken call, with its name where that much can be read."""
    text = source.strip()
    found = _NAME.search(text)
    try:
        return Unreadable(text, json.loads(found[1]) if found else "")
    except ValueError:
        return Unreadable(text)


def meant_as_call(value: object) -> bool:
    """Whether a JSON value that stands in a text without any mark was meant as a call, and not as an answer in JSON."""
    if not isinstance(value, dict):
        return False
    if "function" in value or value.get("type") == "function":
        return True
    return "name" in value and (len(value) == 1 or "arguments" in value or "parameters" in value)


def broken_call(text: str) -> bool:
    """Whether a text that is no JSON was meant as a call: it names a function and begins its arguments."""
    return bool(_NAME.search(text) and _ARGUMENTS.search(text))
