"""Engines: what turns a conversation with tools into a model's next message.

An engine is made by its kind: `make_engine("openai", model="Qwen/Qwen3-8B", base_urls=("http://localhost:8000/v1",))`.
"""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError

from ticket_gym.engines.base import RAW_TEXT, REASONING, Completion, Engine, Request, Sampling
from ticket_gym.engines.local_options import TransformersOptions, VllmOptions
from ticket_gym.engines.options import ChatApiOptions
from ticket_gym.engines.reader import STYLES, VLLM_PARSERS, Reading, Style, completion_from_text, read_calls, style_for
from ticket_gym.errors import ConfigurationError

__all__ = [
    "ENGINES",
    "RAW_TEXT",
    "REASONING",
    "STYLES",
    "VLLM_PARSERS",
    "ChatApiOptions",
    "Completion",
    "Engine",
    "EngineKind",
    "Reading",
    "Request",
    "Sampling",
    "Style",
    "TransformersOptions",
    "VllmOptions",
    "completion_from_text",
    "make_engine",
    "read_calls",
    "style_for",
]


@dataclass(frozen=True, slots=True)
class EngineKind:
    """Where an engine is found.

    Attributes:
        module: Its module, imported only when the engine is made, because it needs libraries of its own.
        name: Its class, which takes the options.
        options: What can be chosen; a field `sampling` is a `Sampling`.
        extra: The extra of this package that brings the libraries.
    """

    module: str
    name: str
    options: type[Any]
    extra: str


ENGINES: Mapping[str, EngineKind] = {
    "openai": EngineKind("ticket_gym.engines.chat_api", "ChatApiEngine", ChatApiOptions, "eval"),
    "vllm": EngineKind("ticket_gym.engines.vllm_engine", "VllmEngine", VllmOptions, "vllm"),
    "transformers": EngineKind(
        "ticket_gym.engines.transformers_engine", "TransformersEngine", TransformersOptions, "transformers"
    ),
}
"""Every engine by its kind."""


def make_engine(kind: str, **options: Any) -> Engine:
    """Make an engine.

    Args:
        kind: One of `ENGINES`.
        **options: Fields of its options; those of `Sampling` may stand among them.

    Raises:
        ConfigurationError: There is no such engine or option, an option has a wrong value, or a library is missing.
    """
    if kind not in ENGINES:
        raise ConfigurationError(f"engine {kind!r}: choose one of {', '.join(ENGINES)}")
    found = ENGINES[kind]
    names = [option.name for option in fields(found.options)]
    drawn = [option.name for option in fields(Sampling)]
    if unknown := options.keys() - {*names, *drawn}:
        raise ConfigurationError(
            f"engine {kind}: no option {', '.join(sorted(unknown))}; there are {', '.join(names + drawn)}"
        )
    # JSON and TOML know lists only.
    options = {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}
    _check_types(options, get_type_hints(found.options) | get_type_hints(Sampling))
    if chosen := {name: options.pop(name) for name in drawn if name in options}:
        options["sampling"] = Sampling(**chosen)
    try:
        module = importlib.import_module(found.module)
    except ImportError as problem:
        raise ConfigurationError(
            f"engine {kind} needs {problem.name}, which is not installed: pip install 'ticket-gym[{found.extra}]'"
        ) from problem
    engine: Engine = getattr(module, found.name)(found.options(**options))
    return engine


def _check_types(options: Mapping[str, Any], hints: Mapping[str, Any]) -> None:
    """Refuse a value of another type: a text such as `no` would count as true, and no range could be checked."""
    for name, value in options.items():
        try:
            TypeAdapter(hints[name]).validate_python(value, strict=True)
        except ValidationError as problem:
            said = problem.errors()[0]["msg"].replace("Input should be", "must be", 1)
            raise ConfigurationError(f"{name}={value!r}: {said}") from problem
