"""One writer for each run folder: a lock that the operating system drops when its holder dies, however it dies."""

import errno
import json
import os
import socket
import sys
from pathlib import Path

from ticket_gym.errors import RunLockedError, RunWriteError

if sys.platform == "win32":
    import msvcrt

    # Locked bytes cannot be read by others on Windows, so the locked one lies far behind the holder's name.
    _LOCKED_BYTE = 1 << 30

    def _acquire(handle: int) -> None:
        os.lseek(handle, _LOCKED_BYTE, os.SEEK_SET)
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _acquire(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


_HELD_BY_ANOTHER = (errno.EWOULDBLOCK, errno.EACCES, errno.EDEADLK)


class FolderLock:
    """Holds a lock file from its making to `release`.

    The file stays when the lock is released: removing it would let two processes lock two files of one name. It names
    its holder for people to read; only the lock counts, so the file of a dead process is no obstacle.
    """

    def __init__(self, path: Path) -> None:
        """Take the lock.

        Args:
            path: The lock file; its folder exists.

        Raises:
            RunLockedError: Somebody else holds it; the message names who.
            RunWriteError: The file cannot be written, or the file system knows no locks.
        """
        try:
            self._handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as problem:
            raise RunWriteError(f"{path}: the run folder cannot be written: {problem.strerror}") from problem
        try:
            _acquire(self._handle)
        except OSError as problem:
            os.close(self._handle)
            if problem.errno in _HELD_BY_ANOTHER:
                raise RunLockedError(
                    f"{path.parent}: {_read_holder(path)} is writing to this run folder; wait until it is done, or "
                    "choose another folder"
                ) from problem
            raise RunWriteError(
                f"{path}: the file system of the run folder cannot lock files ({problem.strerror}); choose a folder on "
                "a local disk"
            ) from problem
        self._sign(path)

    def _sign(self, path: Path) -> None:
        holder = json.dumps({"pid": os.getpid(), "host": socket.gethostname()}) + "\n"
        try:
            os.ftruncate(self._handle, 0)
            os.lseek(self._handle, 0, os.SEEK_SET)
            os.write(self._handle, holder.encode())
        except OSError as problem:
            self.release()
            raise RunWriteError(f"{path}: the run folder cannot be written: {problem.strerror}") from problem

    def release(self) -> None:
        """Give the lock back; the operating system does the same when the process ends."""
        os.close(self._handle)


def _read_holder(path: Path) -> str:
    try:
        holder = json.loads(path.read_text(encoding="utf-8"))
        return f"process {holder['pid']} on {holder['host']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
