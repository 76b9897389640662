"""Episodes as lines of a file, out and in, whatever a model wrote and wherever a process was killed."""

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from ticket_gym.errors import RunError
from ticket_gym.records import SCHEMA_VERSION, Trajectory

MAX_DEPTH = 100
"""Deepest nesting that is stored of what a model wrote; JSON readers give up near 200."""

TOO_DEEP = "[nested too deeply to be stored]"

_TAIL_BLOCK = 1 << 16


def encode_episode(episode: Trajectory) -> bytes:
    """An episode as a line of literal UTF-8 that can be read back whatever a model wrote.

    Lone surrogates become U+FFFD, values below `MAX_DEPTH` become `TOO_DEEP`.

    Raises:
        PydanticSerializationError: A value is no JSON data at all, which no model can bring about.
    """
    if not _deeper_than(MAX_DEPTH, [episode.messages, [call.arguments for call in episode.calls]]):
        with contextlib.suppress(PydanticSerializationError):
            return episode.model_dump_json().encode() + b"\n"
    calls = [
        call.model_copy(
            update={"id": storable(call.id), "name": storable(call.name), "arguments": storable(call.arguments)}
        )
        for call in episode.calls
    ]
    messages = [storable(message) for message in episode.messages]
    clean = episode.model_copy(update={"messages": messages, "calls": calls, "error": storable(episode.error)})
    return clean.model_dump_json().encode() + b"\n"


def storable(value: Any, depth: int = MAX_DEPTH) -> Any:
    """JSON data that a UTF-8 file can hold and a JSON reader can read."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if not isinstance(value, (dict, list, tuple)):
        return value
    if not depth:
        return TOO_DEEP
    if isinstance(value, dict):
        return {storable(key): storable(child, depth - 1) for key, child in value.items()}
    return [storable(child, depth - 1) for child in value]


def _deeper_than(limit: int, value: object) -> bool:
    """Level by level rather than recursively, for the nesting may exceed every stack."""
    level = [value]
    for _ in range(limit):
        level = [child for item in level for child in _children(item) if isinstance(child, (dict, list, tuple))]
        if not level:
            return False
    return True


def _children(value: Any) -> Any:
    return value.values() if isinstance(value, dict) else value


def read_lines(path: Path, messages: bool = True) -> Iterator[tuple[str, Trajectory]]:
    """Place and episode of every line; a last line without its end is left out.

    Args:
        path: The file.
        messages: Whether conversations are wanted; most of the time goes into reading them.

    Raises:
        RunError: A line is damaged, or of another schema version; the message names its number.
    """
    if not path.exists():
        return
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                return
            place = f"{path}, line {number}"
            try:
                episode = Trajectory.model_validate_json(line) if messages else _read_without_messages(line)
            except ValidationError as problem:
                check_schema(stated_schema(line), place)
                raise RunError(
                    f"{place}: damaged: {first_error(problem)}. Nothing was changed. Restore the line, or take it out: "
                    "what is missing is played when the run is continued"
                ) from problem
            check_schema(episode.schema_version, place)
            yield place, episode


def _read_without_messages(line: bytes) -> Trajectory:
    """An episode with its conversation cut out before the line is read.

    Quotes inside texts are escaped, and what stands before the messages holds no keys of others, so the cut begins at
    the right place. It can only end too late, inside the arguments of a call that has such a key itself; the brackets
    are then uneven, and the line is read in full, as is one that somebody has formatted anew.
    """
    start, end = line.find(b',"messages":['), line.rfind(b'],"calls":[')
    if 0 < start < end:
        with contextlib.suppress(ValidationError):
            return Trajectory.model_validate_json(line[:start] + b',"messages":[' + line[end:])
    return Trajectory.model_validate_json(line).model_copy(update={"messages": []})


def torn_tail(path: Path) -> bytes:
    """What follows the last line break, read from the end."""
    if not path.exists():
        return b""
    tail = b""
    with open(path, "rb") as file:
        start = file.seek(0, os.SEEK_END)
        while start and b"\n" not in tail:
            block = min(start, _TAIL_BLOCK)
            start = file.seek(start - block)
            tail = file.read(block) + tail
    return tail.rpartition(b"\n")[2]


def stated_schema(text: bytes) -> object:
    """The schema version that a record states, or this one's where none can be read."""
    try:
        return json.loads(text)["schema_version"]
    except (ValueError, RecursionError, LookupError, TypeError):
        return SCHEMA_VERSION


def check_schema(version: object, place: str) -> None:
    """Tell a record of another version from a damaged one.

    Raises:
        RunError: It is of another version.
    """
    if version != SCHEMA_VERSION:
        raise RunError(
            f"{place}: written with schema version {version!r}, while this ticket_gym reads version {SCHEMA_VERSION}; "
            "use the ticket_gym that wrote it, or a newer one"
        )


def first_error(problem: ValidationError) -> str:
    """The first thing that is wrong with a record, in one line."""
    error = problem.errors(include_url=False, include_input=False)[0]
    place = ".".join(map(str, error["loc"]))
    return f"{place}: {error['msg']}" if place else str(error["msg"])
