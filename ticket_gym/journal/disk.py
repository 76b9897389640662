"""Writing that reaches the disk, or says clearly that it did not."""

import contextlib
import io
import os
from collections.abc import Iterator
from pathlib import Path

from ticket_gym.errors import RunWriteError


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[None]:
    """What the operating system refuses inside becomes an error for the person who runs the evaluation.

    Raises:
        RunWriteError: Something could not be written.
    """
    try:
        yield
    except OSError as problem:
        raise RunWriteError(
            f"{folder}: the run folder cannot be written: {problem.strerror}. Episodes recorded before are safe; once "
            "the folder can be written, the same command continues the run"
        ) from problem


def sync_file(file: io.BufferedIOBase) -> None:
    """Push a file's content through to the disk."""
    file.flush()
    os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Make new names in a folder durable; systems on which folders cannot be synced do so themselves."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
