"""Reads the arguments of a call: what a model may harmlessly write is mended, and every mending is recorded."""

import datetime
import json
import math
import re
import unicodedata
from collections.abc import Container, Iterator, Mapping
from typing import Any, TypeVar

from ticket_gym.errors import ToolError
from ticket_gym.locale import fold

LARGEST_INTEGER = 1_000_000
"""Above this no page, id or year can be meant."""

T = TypeVar("T")


def read_object(arguments: object, repairs: list[str]) -> dict[Any, Any]:
    """The arguments as a mapping; JSON given as text is read, twice where it was encoded twice.

    Raises:
        ToolError: `malformed_call`.
    """
    if isinstance(arguments, dict):
        return arguments
    if isinstance(arguments, Mapping):
        return dict(arguments)
    for repair in ("json_text", "doubly_encoded"):
        if arguments is None or (isinstance(arguments, str) and not arguments.strip()):
            repairs.append("no_arguments")
            return {}
        if not isinstance(arguments, str):
            break
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            break
        repairs.append(repair)
        if isinstance(arguments, dict):
            return arguments
    raise ToolError("malformed_call")


def read_integer(name: str, value: object, repairs: list[str]) -> int:
    """An integer from 1 to a million; `"3"` and `3.0` are mended.

    Raises:
        ToolError: `invalid_argument`.
    """
    if isinstance(value, str) and re.fullmatch(r"\s*[0-9]{1,7}\s*", value, re.ASCII):
        repairs.append("integer_as_text")
        value = int(value)
    elif isinstance(value, float) and math.isfinite(value) and value.is_integer():
        repairs.append("integer_as_decimal")
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= LARGEST_INTEGER:
        raise ToolError("invalid_argument", parameter=name, expected="integer")
    return value


def read_boolean(name: str, value: object, repairs: list[str]) -> bool:
    """A boolean; `"true"` and `"false"` are mended.

    Raises:
        ToolError: `invalid_argument`.
    """
    if isinstance(value, str) and (word := value.strip().lower()) in ("true", "false"):
        repairs.append("boolean_as_text")
        return word == "true"
    if not isinstance(value, bool):
        raise ToolError("invalid_argument", parameter=name, expected="boolean")
    return value


def read_date(name: str, value: object, repairs: list[str]) -> datetime.date:
    """A date in the form YYYY-MM-DD.

    Raises:
        ToolError: `invalid_argument`, also for a day that does not exist.
    """
    text = value.strip() if isinstance(value, str) else ""
    if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", text, re.ASCII):
        raise ToolError("invalid_argument", parameter=name, expected="date")
    if text != value:
        repairs.append("spaces")
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        raise ToolError("invalid_argument", parameter=name, expected="date") from None


def look_up(value: str, exact: Mapping[str, T], folded: Mapping[str, T], repairs: list[str]) -> T | None:
    """The thing that a name stands for, or None; spaces, Unicode form and letter case are mended."""
    found = exact.get(value)
    if found is None:
        found = folded.get(fold(value))
        if found is not None:
            repairs.extend(spelling_repairs(value, exact))
    return found


def spelling_repairs(value: str, exact: Container[str]) -> Iterator[str]:
    """Which kinds of mending lead from a spelling to the name it stands for."""
    spaced = " ".join(value.split())
    if spaced != value:
        yield "spaces"
    composed = unicodedata.normalize("NFC", spaced)
    if composed != spaced:
        yield "unicode_form"
    if composed not in exact:
        yield "letter_case"
