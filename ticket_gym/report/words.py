"""The words of the report, and the published scores: data files, checked when they are read."""

import json
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from ticket_gym.errors import AssetError
from ticket_gym.tasks import TEMPLATES, Cause
from ticket_gym.types import LANGUAGES

ASSETS = Path(__file__).parent.parent / "assets"
FOLDER = ASSETS / "report"

NO_RECORD = "no_record"
"""The cause under which an episode is counted that was never played."""

CAUSES: tuple[str, ...] = (*Cause, NO_RECORD)
"""Every cause of failure, in the order of precedence."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class CauseWords(_Part):
    """One cause of failure: its short name, the group it is counted under, what it means."""

    name: str
    group: str
    meaning: str


class Words(_Part):
    """All words of the report."""

    causes: dict[str, CauseWords]
    groups: dict[str, str]
    templates: dict[str, str]
    languages: dict[str, str]
    days: dict[str, str]
    halves: dict[str, str]
    constraints: dict[str, str]
    wanted: dict[str, str]
    violated: dict[str, str]
    explained: dict[str, str]


class PublishedModel(_Part):
    """One published score, a fraction; the size in billions of parameters where it is known."""

    name: str
    score: float
    family: str
    size_b: float | None


class Published(_Part):
    """Scores from the paper, to be shown as references only."""

    source: str
    metric: str
    caution: str
    sizes: str
    models: tuple[PublishedModel, ...]


@cache
def load_words() -> Words:
    """Read the words.

    Raises:
        AssetError: The file is missing, damaged, or lacks a word.
    """
    file = FOLDER / "words.toml"
    try:
        words = Words.model_validate(tomllib.loads(read_asset(file)))
    except (tomllib.TOMLDecodeError, ValidationError) as error:
        raise AssetError(f"{file}: {error}") from error
    for name, got, wanted in (
        ("causes", words.causes, CAUSES),
        ("templates", words.templates, TEMPLATES),
        ("languages", words.languages, LANGUAGES),
        ("groups", words.groups, {cause.group for cause in words.causes.values()}),
    ):
        if missing := set(wanted) - set(got):
            raise AssetError(f"{file}: {name} lacks {', '.join(sorted(missing))}")
    return words


@cache
def load_published() -> Published:
    """Read the published scores.

    Raises:
        AssetError: The file is missing or damaged.
    """
    file = ASSETS / "published.json"
    try:
        data: Any = json.loads(read_asset(file))
        return Published.model_validate(data)
    except ValueError as error:
        raise AssetError(f"{file}: {error}") from error


def read_asset(file: Path) -> str:
    """The text of a packaged file.

    Raises:
        AssetError: It cannot be read.
    """
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise AssetError(f"{file}: {error}") from error
