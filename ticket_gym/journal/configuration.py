"""`run.json`: what a run plays, written once and compared ever after."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ticket_gym.errors import RunError, RunMismatchError
from ticket_gym.journal.disk import sync_file, sync_folder, writing
from ticket_gym.journal.lines import check_schema, first_error, stated_schema, storable
from ticket_gym.records import RunConfig

CONFIG_FILE = "run.json"

_SHOWN = 120
_ABSENT = object()


def write_config(folder: Path, config: RunConfig) -> None:
    """Write the configuration in one go: after a crash the file is whole or absent.

    Raises:
        RunWriteError: It cannot be written.
    """
    text = json.dumps(storable(config.model_dump(mode="json")), ensure_ascii=False, indent=2) + "\n"
    part = folder / f"{CONFIG_FILE}.part"
    with writing(folder):
        with open(part, "wb") as file:
            file.write(text.encode())
            sync_file(file)
        os.replace(part, folder / CONFIG_FILE)
        sync_folder(folder)


def read_config(folder: Path) -> RunConfig:
    """The configuration of a run folder.

    Raises:
        RunError: It cannot be read, is damaged, or of another schema version.
    """
    file = folder / CONFIG_FILE
    try:
        text = file.read_bytes()
    except FileNotFoundError as problem:
        raise RunError(f"{folder}: no run folder: there is no {CONFIG_FILE} in it") from problem
    except OSError as problem:
        raise RunError(f"{file}: cannot be read: {problem.strerror}") from problem
    try:
        config = RunConfig.model_validate_json(text)
    except ValidationError as problem:
        check_schema(stated_schema(text), str(file))
        raise RunError(f"{file}: damaged: {first_error(problem)}") from problem
    check_schema(config.schema_version, str(file))
    return config


def check_same(folder: Path, stored: RunConfig, given: RunConfig) -> list[str]:
    """Compare a folder's configuration with the given one; what may differ is returned, to be told.

    Raises:
        RunMismatchError: They differ in what could change a score.
    """
    if differences := describe_differences(stored, given):
        raise RunMismatchError(
            f"{folder}: this run was begun with another configuration; choose another folder, or go back to the old "
            "configuration. What differs:\n  " + "\n  ".join(differences)
        )
    versions = _differences("versions", stored.versions, given.versions)
    return [f"{folder}: the run was begun with other packages: {difference}" for difference in versions]


def describe_differences(stored: RunConfig, given: RunConfig) -> list[str]:
    """What stands between two configurations that must be equal, a line for each field; `versions` need not be."""
    left, right = (storable(config.model_dump(mode="json", exclude={"versions"})) for config in (stored, given))
    return list(_differences("", left, right))


def _differences(name: str, stored: Any, given: Any) -> Iterator[str]:
    if isinstance(stored, dict) and isinstance(given, dict):
        for key in dict.fromkeys([*stored, *given]):
            inner = f"{name}.{key}" if name else key
            yield from _differences(inner, stored.get(key, _ABSENT), given.get(key, _ABSENT))
    elif stored != given:
        yield f"{name}: {_shown(stored, given)} in the folder, {_shown(given, stored)} now"


def _shown(value: Any, other: Any) -> str:
    """A value, short: of a long list only its length and what the other one lacks."""
    if value is _ABSENT:
        return "nothing"
    text = json.dumps(value, ensure_ascii=False)
    if len(text) > _SHOWN and isinstance(value, list):
        extra = [item for item in value if not isinstance(other, list) or item not in other]
        text = f"{len(value)} values" + (f", among them {json.dumps(extra, ensure_ascii=False)}" if extra else "")
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
