"""The price table: a TOML file that the user writes."""

import tomllib
from collections.abc import Iterator
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from ticket_gym.errors import ConfigurationError
from ticket_gym.metrics import Prices

_TABLE = TypeAdapter(dict[str, Prices])
_PROBLEMS = {"missing": "is missing", "extra_forbidden": "is no known key"}
_RIGHT = (
    'An entry is a table such as ["Qwen/Qwen3-8B"], a name with dots or slashes in quotes, with the numbers prompt, '
    "completion and, where it has a price of its own, cached: USD for a million tokens, from 0"
)


def read_prices(path: str | Path) -> dict[str, Prices]:
    """Read prices by model name.

    Raises:
        ConfigurationError: The file cannot be read or an entry is wrong; the message says which, and what is right.
    """
    try:
        return _TABLE.validate_python(tomllib.loads(Path(path).read_text(encoding="utf-8")))
    except ValidationError as error:
        raise ConfigurationError(f"{path}: {'; '.join(_problems(error))}. {_RIGHT}") from error
    except OSError as error:
        raise ConfigurationError(f"{path}: the price table cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigurationError(f"{path}: the price table is no TOML: {error}") from error


def _problems(error: ValidationError) -> Iterator[str]:
    for problem in error.errors():
        model, *keys = problem["loc"]
        told = _PROBLEMS.get(problem["type"], f"cannot be {problem['input']!r}")
        yield " ".join(map(str, (f"entry {model!r}:", *keys, told)))
