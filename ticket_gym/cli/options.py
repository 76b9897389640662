"""Options that several subcommands share, and how their values are read."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from ticket_gym.engines import ENGINES, Engine, make_engine
from ticket_gym.errors import ConfigurationError
from ticket_gym.types import LANGUAGES, Language, Split

LanguagesOption = Annotated[str, typer.Option("--languages", "--language", "-l", help="Such as fr,de; all by default.")]
LanguageOption = Annotated[str, typer.Option("--language", "-l", help=f"One of {', '.join(LANGUAGES)}.")]
EngineOption = Annotated[str, typer.Option("--engine", help=f"What runs the model: {', '.join(ENGINES)}.")]
ModelOption = Annotated[str, typer.Option("--model", help="The model's name, as the engine or server knows it.")]
BaseUrlsOption = Annotated[
    list[str] | None,
    typer.Option("--base-url", help="Server's address up to /v1; several share the load.", show_default=False),
]
EngineOptionsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        "-o",
        help="Further option of engine or sampling as NAME=VALUE, VALUE as JSON or plain text: temperature=0.6, "
        "style=hermes, max_model_len=16384, 'extra_body={\"chat_template_kwargs\": ...}'.",
        show_default=False,
    ),
]

PricesOption = Annotated[
    Path | None,
    typer.Option(
        "--prices",
        help="TOML table of model prices, in USD for a million tokens, to show the cost.",
        show_default=False,
    ),
]


def read_language(text: str) -> Language:
    """One language.

    Raises:
        ConfigurationError: There is no such language.
    """
    for language in LANGUAGES:
        if language == text.strip():
            return language
    raise ConfigurationError(f"language {text!r}: choose one of {', '.join(LANGUAGES)}")


def read_languages(text: str) -> tuple[Language, ...]:
    """Languages separated by commas; none means all."""
    return tuple(map(read_language, split_names(text))) or LANGUAGES


def read_split(text: str) -> Split:
    """A split.

    Raises:
        ConfigurationError: There is no such split.
    """
    splits: tuple[Split, ...] = get_args(Split)
    for split in splits:
        if split == text:
            return split
    raise ConfigurationError(f"split {text!r}: choose one of {', '.join(splits)}")


def split_names(text: str) -> tuple[str, ...]:
    """Names separated by commas."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def read_engine(kind: str, model: str, base_urls: Iterable[str] | None, options: Iterable[str] | None) -> Engine:
    """The engine that the options describe.

    Raises:
        ConfigurationError: An option is missing, unknown or has a wrong value.
    """
    if not model:
        raise ConfigurationError(f"--engine {kind} needs --model")
    chosen: dict[str, Any] = dict(map(_read_pair, options or ()))
    if "model" in chosen:
        raise ConfigurationError("--option model=...: the model is named by --model")
    if base_urls:
        chosen["base_urls"] = tuple(base_urls)
    return make_engine(kind, model=model, **chosen)


def _read_pair(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ConfigurationError(f"--option {text!r}: must be NAME=VALUE, such as temperature=0.6")
    try:
        return name.strip(), json.loads(value)
    except ValueError:
        return name.strip(), value
