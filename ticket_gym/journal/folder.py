"""The run folder itself, for reading and for writing, and its stand-in in memory."""

import contextlib
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Protocol, Self

from ticket_gym.errors import RunError
from ticket_gym.journal.configuration import CONFIG_FILE, check_same, read_config, write_config
from ticket_gym.journal.disk import sync_file, sync_folder, writing
from ticket_gym.journal.lines import encode_episode, read_lines, torn_tail
from ticket_gym.journal.lock import FolderLock
from ticket_gym.records import RunConfig, Trajectory
from ticket_gym.types import Language, StopReason

EPISODES_FILE = "episodes.jsonl"
TORN_FILE = "episodes.torn.jsonl"
LOCK_FILE = "run.lock"

SYNC_SECONDS = 2.0
"""An append at least so long after the last `fsync` is followed by one."""


class Cell(NamedTuple):
    """The name of an episode within its run."""

    language: Language
    query_id: str
    trial: int

    @classmethod
    def of(cls, episode: Trajectory) -> "Cell":
        """The cell that an episode fills."""
        return cls(episode.language, episode.query_id, episode.trial)

    def __str__(self) -> str:
        return f"language {self.language}, query {self.query_id}, trial {self.trial}"


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a journal remembers of an episode.

    Attributes:
        tokens: Of prompts and completions.
    """

    success: bool
    engine_error: bool
    tokens: int

    @classmethod
    def of(cls, episode: Trajectory) -> "Recorded":
        """The gist of an episode."""
        usage = episode.usage
        return cls(
            episode.success,
            episode.stop_reason is StopReason.ENGINE_ERROR,
            usage.prompt_tokens + usage.completion_tokens,
        )


class Journal(Protocol):
    """Where a run leaves its episodes."""

    @property
    def recorded(self) -> Mapping[Cell, Recorded]:
        """The episodes that are there already."""

    def append(self, episode: Trajectory) -> None:
        """Keep one more episode."""


@dataclass(slots=True)
class MemoryJournal:
    """Keeps episodes in memory, in the order in which they ended: for runs that need no folder."""

    episodes: list[Trajectory] = field(default_factory=list)

    @property
    def recorded(self) -> Mapping[Cell, Recorded]:
        """The episodes that are there already."""
        return {Cell.of(episode): Recorded.of(episode) for episode in self.episodes}

    def append(self, episode: Trajectory) -> None:
        """Keep one more episode."""
        self.episodes.append(episode)


class RunFolder:
    """A run folder, for reading. Reading takes no lock and is safe while a run is being written.

    Attributes:
        path: The folder.
        config: What was, or is being, played.
        notices: What the reader should be told, such as a line that was cut off.
    """

    def __init__(self, path: Path, config: RunConfig, notices: Iterable[str] = ()) -> None:
        """Use `read` or `open`."""
        self.path = path
        self.config = config
        self.notices = tuple(notices)

    @staticmethod
    def read(path: str | Path) -> "RunFolder":
        """A folder to read from.

        Raises:
            RunError: It is no run folder, or was written by a newer version.
        """
        path = Path(path)
        config = read_config(path)
        journal = path / EPISODES_FILE
        tail = torn_tail(journal)
        return RunFolder(path, config, [f"{journal}: {_describe_torn(tail)} It is left out."] if tail else ())

    @staticmethod
    def open(path: str | Path, config: RunConfig) -> "RunWriter":
        """A folder to write to: a new one, or one that was begun with the same configuration.

        Only `versions` may differ from the folder's own; such a difference is in `notices`.

        Raises:
            RunLockedError: Another process is writing to it.
            RunMismatchError: It was begun with another configuration; the message names every difference.
            RunWriteError: It cannot be written.
            RunError: It holds something else, or a damaged line.
        """
        return RunWriter(Path(path), config)

    def episodes(self, *, messages: bool = True) -> Iterator[Trajectory]:
        """Every episode once; those that the engine broke off come last.

        Args:
            messages: Whether conversations are wanted. Without them, which is enough for scoring, reading is several
                times as fast; damage inside a conversation is then not noticed.

        Raises:
            RunError: A line is damaged, two lines tell of one episode, or an episode is not of this run.
        """
        broken_off: dict[Cell, Trajectory] = {}
        settled: set[Cell] = set()
        languages, queries = set(self.config.languages), set(self.config.queries)
        for place, episode in read_lines(self.path / EPISODES_FILE, messages):
            cell = Cell.of(episode)
            if cell in settled:
                raise RunError(f"{place}: a second record of one episode ({cell})")
            if (
                cell.language not in languages
                or cell.query_id not in queries
                or not 0 <= cell.trial < self.config.trials
            ):
                raise RunError(f"{place}: an episode that this run does not hold ({cell})")
            if episode.stop_reason is StopReason.ENGINE_ERROR:
                broken_off[cell] = episode
            else:
                broken_off.pop(cell, None)
                settled.add(cell)
                yield episode
        yield from broken_off.values()


class RunWriter(RunFolder):
    """A run folder, for writing; it is locked until `close`, which leaving a `with` block does too.

    Attributes:
        recorded: The episodes that are there already.
    """

    def __init__(self, path: Path, config: RunConfig) -> None:
        """See `RunFolder.open`."""
        if path.exists() and not path.is_dir():
            raise RunError(f"{path}: this is a file; name a folder for the run")
        with writing(path):
            path.mkdir(parents=True, exist_ok=True)
        self._lock = FolderLock(path / LOCK_FILE)
        try:
            super().__init__(path, config, _claim(path, config))
            self.recorded = {Cell.of(episode): Recorded.of(episode) for episode in self.episodes()}
            self._set_torn_aside()
            with writing(path):
                self._file = open(path / EPISODES_FILE, "ab", buffering=0)  # noqa: SIM115 - closed by `close`
                sync_folder(path)
        except BaseException:
            self._lock.release()
            raise
        self._end = self._file.tell()
        self._synced = time.monotonic()
        self._cut_off = False

    def append(self, episode: Trajectory) -> None:
        """Write one episode; it survives the death of the process from here on.

        Raises:
            RunWriteError: It could not be written, for example because the disk is full; what had been written before
                stays as it was.
            RunError: It is recorded already.
        """
        cell = Cell.of(episode)
        known = self.recorded.get(cell)
        if known is not None and not known.engine_error:
            raise RunError(f"{self.path}: the episode is recorded already ({cell})")
        line = encode_episode(episode)
        with writing(self.path):
            self._write(line)
            self.recorded[cell] = Recorded.of(episode)
            if time.monotonic() - self._synced >= SYNC_SECONDS:
                os.fsync(self._file.fileno())
                self._synced = time.monotonic()

    def _write(self, line: bytes) -> None:
        if self._cut_off:
            raise OSError(None, "an earlier line was cut off; open the folder anew")
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError:
            self._cut_off = True
            with contextlib.suppress(OSError):
                self._file.truncate(self._end)
                self._cut_off = False
            raise
        self._end += len(line)

    def _set_torn_aside(self) -> None:
        """The tail is safe in its new place before it leaves the old one: dying in between loses nothing."""
        journal = self.path / EPISODES_FILE
        tail = torn_tail(journal)
        if not tail:
            return
        with writing(self.path):
            with open(self.path / TORN_FILE, "ab") as torn:
                torn.write(tail + b"\n")
                sync_file(torn)
            with open(journal, "r+b") as file:
                file.truncate(journal.stat().st_size - len(tail))
                sync_file(file)
        self.notices += (
            f"{journal}: {_describe_torn(tail)} It is now in {TORN_FILE}, and its episode is played again.",
        )

    def close(self) -> None:
        """Write everything through to the disk and give the lock back.

        Raises:
            RunWriteError: The disk did not take it.
        """
        if self._file.closed:
            return
        try:
            with writing(self.path):
                os.fsync(self._file.fileno())
        finally:
            self._file.close()
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _claim(path: Path, config: RunConfig) -> list[str]:
    """Make the folder this configuration's own, or see that it is; what may differ is returned, to be told."""
    if (path / CONFIG_FILE).exists():
        return check_same(path, read_config(path), config)
    if (path / EPISODES_FILE).exists() and (path / EPISODES_FILE).stat().st_size:
        raise RunError(f"{path}: there are episodes but no {CONFIG_FILE} that says what they belong to; restore it")
    write_config(path, config)
    return []


def _describe_torn(tail: bytes) -> str:
    return f"the last line was cut off after {len(tail)} bytes, as happens when a run is killed."
