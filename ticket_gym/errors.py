"""Every exception of the house, in one tree.

Only `ToolError` is meant for the agent: the session turns it into an error observation. Everything else is for the
person who runs the environment and is never turned into a reward.
"""

from typing import Literal, get_args

ErrorCode = Literal[
    "unknown_tool",
    "malformed_call",
    "missing_argument",
    "unexpected_argument",
    "invalid_argument",
    "unknown_team",
    "unknown_city",
    "unknown_year",
    "unknown_game",
    "already_booked",
    "insufficient_balance",
    "episode_over",
]
"""Stable codes of error observations, the same in every language."""

ERROR_CODES: tuple[ErrorCode, ...] = get_args(ErrorCode)


class TicketGymError(Exception):
    """Base of all errors raised by this package."""


class ConfigurationError(TicketGymError, ValueError):
    """An option has a value that cannot be used; the message names the option and what would be right."""


class UnknownTaskError(ConfigurationError):
    """A query or task id that the chosen split does not hold."""


class AssetError(TicketGymError):
    """A packaged data file (locale pack, frozen benchmark) is missing, incomplete or inconsistent."""


class ToolError(TicketGymError):
    """A tool call that cannot be carried out; it changes nothing and reaches the agent as an observation.

    Attributes:
        code: Stable code, see `ERROR_CODES`.
        details: Values for the placeholders of the localised message (canonical names, raw values).
    """

    def __init__(self, code: ErrorCode, **details: object) -> None:
        super().__init__(code, details)
        self.code: ErrorCode = code
        self.details = details


class EngineError(TicketGymError):
    """A model engine failed after its retries. The episode is recorded as `engine_error`, never as a 0."""


class EngineSetupError(TicketGymError):
    """A wrong key, address or model: no episode could ever be played, so the run stops instead of failing each one."""


class ContextOverflowError(TicketGymError):
    """The conversation no longer fits the model's context window."""


class RunError(TicketGymError):
    """Base of the errors about a run folder."""


class RunLockedError(RunError):
    """Another process is writing to the run folder."""


class RunMismatchError(RunError):
    """The run folder was made with another configuration; the message lists the fields that differ."""


class RunWriteError(RunError):
    """The run folder cannot be written (full disk, read-only); what had been written stays as it was."""


class RunInterruptedError(RunError):
    """A run was stopped from outside and can be continued.

    Attributes:
        signal: Number of the signal; shells expect 128 more as the exit status.
    """

    def __init__(self, message: str, signal: int) -> None:
        super().__init__(message)
        self.signal = signal
