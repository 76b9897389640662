"""The run folder: `run.json` says what is played, `episodes.jsonl` holds one episode a line, appended as each ends.

What can be relied on:

- A killed process loses at most the episodes in flight: a line is handed to the operating system before its episode
  counts as done. A power failure costs at most what was appended since the last `fsync`; one follows every append
  that comes `SYNC_SECONDS` or more after the one before, and the end of the run.
- Nothing is overwritten. A last line that was cut off while it was written moves to `episodes.torn.jsonl`; its episode
  is played again. Any other damage is an error that names the line and changes nothing.
- An episode that the engine broke off keeps its line when it is played again; readers see the last one only.
- Text that no UTF-8 file can hold (lone surrogates, which models do emit) is stored as U+FFFD, and values nested deeper
  than `MAX_DEPTH` as `TOO_DEEP`, so that no episode can stop a run or make its journal unreadable.
"""

from ticket_gym.journal.configuration import CONFIG_FILE, describe_differences
from ticket_gym.journal.folder import (
    EPISODES_FILE,
    LOCK_FILE,
    SYNC_SECONDS,
    TORN_FILE,
    Cell,
    Journal,
    MemoryJournal,
    Recorded,
    RunFolder,
    RunWriter,
)
from ticket_gym.journal.lines import MAX_DEPTH, TOO_DEEP, encode_episode

__all__ = [
    "CONFIG_FILE",
    "EPISODES_FILE",
    "LOCK_FILE",
    "MAX_DEPTH",
    "SYNC_SECONDS",
    "TOO_DEEP",
    "TORN_FILE",
    "Cell",
    "Journal",
    "MemoryJournal",
    "Recorded",
    "RunFolder",
    "RunWriter",
    "describe_differences",
    "encode_episode",
]
