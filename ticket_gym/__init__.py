"""A Gymnasium environment for multilingual tool calling: buying football tickets in six languages.

Importing the package registers the environments and loads nothing else; the public names are loaded when first used.
"""

from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any

from gymnasium.envs.registration import register, registry

from ticket_gym.types import LANGUAGES, Language, StopReason, ToolCall

if TYPE_CHECKING:
    from ticket_gym.env import TicketBenchEnv
    from ticket_gym.errors import ConfigurationError, TicketGymError, UnknownTaskError
    from ticket_gym.session import Observation, Session, Settings
    from ticket_gym.spaces import ToolCallSpace, UnicodeText
    from ticket_gym.tasks import Stream
    from ticket_gym.vector import TicketBenchVectorEnv

    __version__: str

__all__ = [
    "LANGUAGES",
    "ConfigurationError",
    "Language",
    "Observation",
    "Session",
    "Settings",
    "StopReason",
    "Stream",
    "TicketBenchEnv",
    "TicketBenchVectorEnv",
    "TicketGymError",
    "ToolCall",
    "ToolCallSpace",
    "UnicodeText",
    "UnknownTaskError",
    "__version__",
]

_HOMES = {
    "ConfigurationError": "errors",
    "Observation": "session",
    "Session": "session",
    "Settings": "session",
    "Stream": "tasks",
    "TicketBenchEnv": "env",
    "TicketBenchVectorEnv": "vector",
    "TicketGymError": "errors",
    "ToolCallSpace": "spaces",
    "UnicodeText": "spaces",
    "UnknownTaskError": "errors",
}
"""The module that each name loaded on first use lives in."""

ENVIRONMENTS: dict[str, dict[str, Any]] = {
    "TicketBench-v0": {},
    "TicketBench-pt-v0": {"language": "pt"},
    "TicketBench-fr-v0": {"language": "fr"},
    "TicketBench-de-v0": {"language": "de"},
    "TicketBench-es-v0": {"language": "es"},
    "TicketBench-it-v0": {"language": "it"},
    "TicketBench-en-v0": {"language": "en"},
}
"""The registered ids, each with its keywords."""


def __getattr__(name: str) -> Any:
    """Load a public name on first use."""
    value: Any
    if name == "__version__":
        try:
            value = metadata.version("ticket-gym")
        except metadata.PackageNotFoundError:  # a source tree that was never installed
            value = "0+unknown"
    elif name in _HOMES:
        value = getattr(import_module(f"ticket_gym.{_HOMES[name]}"), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, those not loaded yet included."""
    return sorted({*globals(), *__all__})


for _id, _keywords in ENVIRONMENTS.items():
    # Entry points are texts, so that specs can be written as JSON and worker processes can load them. No
    # `max_episode_steps`: the session counts steps itself.
    if _id not in registry:
        register(
            _id,
            entry_point="ticket_gym.env:TicketBenchEnv",
            vector_entry_point="ticket_gym.vector:TicketBenchVectorEnv",
            kwargs=_keywords,
        )
