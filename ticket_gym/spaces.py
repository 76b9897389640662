"""The two Gymnasium spaces of the house: tool calls as actions, Unicode text as observations."""

import copy
import datetime
import multiprocessing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, overload

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.vector.utils.shared_memory import (
    create_shared_memory,
    read_from_shared_memory,
    write_to_shared_memory,
)

from ticket_gym.errors import ConfigurationError
from ticket_gym.types import Argument, ToolCall

Call = dict[str, Any]
"""An action in its plain form: `{"name": ..., "arguments": {...}}`."""

OPTIONAL_SHARE = 0.5
"""How often a drawn call holds each argument that may be left out."""

LONGEST_DRAWN_TEXT = 64

LENGTH_BYTES = 4
"""Bytes that tell the length of a text in shared memory."""

DRAWN_CHARACTERS = "abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ 0123456789 .,:?'-àâçéèêëîïñòôóõãíìúùûüäöß€"


class ToolCallSpace(gym.Space[Call]):
    """All well-formed calls of a set of tools.

    Every member is read without mending; whether a call succeeds depends on the episode (a game may be booked already).

    Attributes:
        calls: The arguments of each tool, by tool name; never changed after construction.
        names: The tool names, in the order that masks and probabilities follow.
    """

    def __init__(
        self, calls: Mapping[str, tuple[Argument, ...]], seed: int | np.random.Generator | None = None
    ) -> None:
        if not calls:
            raise ConfigurationError("calls: name at least one tool")
        for argument in (argument for known in calls.values() for argument in known):
            if argument.kind not in ("integer", "boolean") and not argument.choices:
                raise ConfigurationError(f"calls: {argument.name} needs texts to draw from")
        super().__init__(seed=seed)
        self.calls: dict[str, tuple[Argument, ...]] = dict(calls)
        self.names: tuple[str, ...] = tuple(calls)

    @property
    def is_np_flattenable(self) -> bool:
        """Calls have no array form."""
        return False

    def sample(self, mask: npt.ArrayLike | None = None, probability: npt.ArrayLike | None = None) -> Call:
        """Draw a call: a tool, then its arguments, each optional one half of the time.

        Args:
            mask: One flag for each of `names`, 1 where the tool may be drawn.
            probability: One probability for each of `names`; they sum to 1. Not together with a mask.

        Raises:
            ConfigurationError: Both are given, or the one that is given does not fit.
        """
        name = self._draw_name(mask, probability)
        arguments = {
            argument.name: self._draw_value(argument)
            for argument in self.calls[name]
            if argument.required or self.np_random.random() < OPTIONAL_SHARE
        }
        return {"name": name, "arguments": arguments}

    def contains(self, x: Any) -> bool:
        """Whether this is a call, plain or as a `ToolCall`, that is read without any mending."""
        if isinstance(x, ToolCall):
            x = x.to_action()
        if not isinstance(x, dict) or x.keys() != {"name", "arguments"} or not isinstance(x["name"], str):
            return False
        arguments = x["arguments"]
        known = self.calls.get(x["name"])
        if known is None or not isinstance(arguments, dict):
            return False
        needed = {argument.name: argument for argument in known}
        return all(argument.name in arguments for argument in known if argument.required) and all(
            name in needed and _is_valid(needed[name], value) for name, value in arguments.items()
        )

    def to_jsonable(self, sample_n: Iterable[Call | ToolCall]) -> list[Any]:
        """Calls as JSON data, in the plain form."""
        return [_plain(call) for call in sample_n]

    def from_jsonable(self, sample_n: Iterable[Any]) -> list[Any]:
        """Calls from JSON data."""
        return [_plain(call) for call in sample_n]

    def __eq__(self, other: object) -> bool:
        """Whether the same calls may be made; the random state does not count."""
        return isinstance(other, ToolCallSpace) and self.calls == other.calls

    __hash__ = None  # type: ignore[assignment]  # spaces hold a random state: mutable, like Gymnasium's own

    def __repr__(self) -> str:
        """Its tools."""
        return f"ToolCallSpace({', '.join(self.names)})"

    def __deepcopy__(self, memo: dict[int, Any]) -> "ToolCallSpace":
        """Copy the random state only: what calls there are never changes."""
        twin = ToolCallSpace(self.calls)
        twin._np_random = copy.deepcopy(self._np_random, memo)
        return twin

    def _draw_name(self, mask: npt.ArrayLike | None, probability: npt.ArrayLike | None) -> str:
        if mask is not None and probability is not None:
            raise ConfigurationError("give either a mask or probabilities, not both")
        if mask is not None:
            allowed = np.flatnonzero(self._one_each("mask", mask))
            if not allowed.size:
                raise ConfigurationError("mask: at least one tool must be allowed")
            return self.names[int(allowed[self._below(allowed.size)])]
        if probability is not None:
            shares = self._one_each("probability", probability).astype(float)
            if (shares < 0).any() or not np.isclose(shares.sum(), 1):
                raise ConfigurationError("probability: must be 0 or more and sum to 1")
            possible = np.flatnonzero(shares)
            place = np.searchsorted(np.cumsum(shares[possible]), self.np_random.random(), side="right")
            return self.names[int(possible[min(int(place), possible.size - 1)])]
        return self.names[self._below(len(self.names))]

    def _one_each(self, option: str, values: npt.ArrayLike) -> npt.NDArray[Any]:
        array = np.asarray(values)
        if array.shape != (len(self.names),) or array.dtype.kind not in "biuf":
            raise ConfigurationError(f"{option}: must hold one number for each of {', '.join(self.names)}")
        return array

    def _draw_value(self, argument: Argument) -> int | bool | str:
        if argument.kind == "integer":
            return argument.low + self._below(argument.high - argument.low + 1)
        if argument.kind == "boolean":
            return bool(self.np_random.random() < 0.5)
        return argument.choices[self._below(len(argument.choices))]

    def _below(self, end: int) -> int:
        return int(self.np_random.random() * end)


class UnicodeText(gym.Space[str]):
    """Any text up to a length, accents, spaces and the empty text included.

    Gymnasium's own `Text` takes ASCII letters and digits only and looks at every character.

    Attributes:
        max_length: The most characters that a member has.
    """

    def __init__(self, max_length: int = 2**16, seed: int | np.random.Generator | None = None) -> None:
        if isinstance(max_length, bool) or not isinstance(max_length, int) or max_length < 0:
            raise ConfigurationError(f"max_length={max_length!r}: must be an integer from 0")
        super().__init__(seed=seed)
        self.max_length = max_length

    @property
    def is_np_flattenable(self) -> bool:
        """Texts have no array form."""
        return False

    def sample(self, mask: None = None, probability: None = None) -> str:
        """Draw a short text in Latin letters with and without accents.

        Raises:
            ConfigurationError: A mask or probabilities are given; this space takes none.
        """
        if mask is not None or probability is not None:
            raise ConfigurationError("a text space takes no mask and no probabilities")
        length = int(self.np_random.random() * (min(self.max_length, LONGEST_DRAWN_TEXT) + 1))
        places = (self.np_random.random(length) * len(DRAWN_CHARACTERS)).astype(int)
        return "".join([DRAWN_CHARACTERS[place] for place in places])

    def contains(self, x: Any) -> bool:
        """Whether this is a text that is not too long."""
        return isinstance(x, str) and len(x) <= self.max_length

    def __eq__(self, other: object) -> bool:
        """Whether the same texts are members; the random state does not count."""
        return isinstance(other, UnicodeText) and self.max_length == other.max_length

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """Its longest text."""
        return f"UnicodeText({self.max_length})"


def _is_valid(argument: Argument, value: object) -> bool:
    if argument.kind == "integer":
        return isinstance(value, int) and not isinstance(value, bool) and argument.low <= value <= argument.high
    if argument.kind == "boolean":
        return isinstance(value, bool)
    if not isinstance(value, str):
        return False
    if argument.kind == "choice":
        return value in argument.choices
    return argument.kind == "text" or _is_date(value)


def _is_date(text: str) -> bool:
    """Whether this is a day that exists, in the one form YYYY-MM-DD."""
    try:
        return datetime.date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _plain(call: Call | ToolCall) -> Call:
    plain = call.to_action() if isinstance(call, ToolCall) else call
    arguments = plain["arguments"]
    return {"name": plain["name"], "arguments": dict(arguments) if isinstance(arguments, Mapping) else arguments}


# What `AsyncVectorEnv` passes observations through by default: a length and UTF-8, one place for each environment.


def _place_size(space: UnicodeText) -> int:
    return LENGTH_BYTES + 4 * space.max_length


@create_shared_memory.register(UnicodeText)
def _create_shared_text(space: UnicodeText, n: int = 1, ctx: Any = multiprocessing) -> Any:
    return ctx.Array("B", n * _place_size(space))


@write_to_shared_memory.register(UnicodeText)
def _write_shared_text(space: UnicodeText, index: int, values: str, shared_memory: Any) -> None:
    data = values.encode("utf-8", "surrogatepass")
    start = index * _place_size(space)
    view = memoryview(shared_memory.get_obj()).cast("B")
    view[start : start + LENGTH_BYTES + len(data)] = len(data).to_bytes(LENGTH_BYTES, "little") + data


@read_from_shared_memory.register(UnicodeText)
def _read_shared_text(space: UnicodeText, shared_memory: Any, n: int = 1) -> Sequence[str]:
    return _SharedTexts(space, shared_memory, n)


class _SharedTexts(Sequence[str]):
    """What stands in shared memory at the moment of looking; a deep copy is a tuple of it.

    Gymnasium reads shared memory once and expects what it got to change with it, as arrays do.
    """

    def __init__(self, space: UnicodeText, shared_memory: Any, n: int) -> None:
        self._size = _place_size(space)
        self._memory = shared_memory
        self._n = n

    def __len__(self) -> int:
        return self._n

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[str, ...]: ...
    def __getitem__(self, place: int | slice) -> str | tuple[str, ...]:
        if isinstance(place, slice):
            return tuple(self[number] for number in range(*place.indices(self._n)))
        view = memoryview(self._memory.get_obj()).cast("B")
        body = range(self._n)[place] * self._size + LENGTH_BYTES
        length = int.from_bytes(view[body - LENGTH_BYTES : body], "little")
        return bytes(view[body : body + length]).decode("utf-8", "surrogatepass")

    def __deepcopy__(self, memo: dict[int, Any]) -> tuple[str, ...]:
        return tuple(self)
