"""Shows how far a run has come: a bar where there is a terminal, a line now and then where there is none."""

import sys
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn
from rich.progress import Progress as Bar

from ticket_gym.runner import Progress

LINE_SECONDS = 10.0
"""Plain lines are at least so far apart, except for the first and the last."""


class ProgressDisplay:
    """Takes the progress of a run, as `on_progress`, inside a `with` block."""

    def __init__(self, console: Console | None = None, line_seconds: float = LINE_SECONDS) -> None:
        """Choose where to show it.

        Args:
            console: Standard error by default, so that the output proper can be piped.
            line_seconds: Distance of plain lines.
        """
        self._console = console or Console(file=sys.stderr)
        self._line_seconds = line_seconds
        self._bar: Bar | None = None
        self._task = TaskID(0)
        self._latest: Progress | None = None
        self._printed: Progress | None = None
        self._last_line = 0.0

    def __enter__(self) -> Self:
        """Draw the bar, where there is a terminal."""
        if self._console.is_terminal:
            self._bar = Bar(
                BarColumn(bar_width=None),
                MofNCompleteColumn(),
                TextColumn("{task.fields[figures]}"),
                console=self._console,
                expand=True,
            )
            self._task = self._bar.add_task("", total=None, figures="")
            self._bar.start()
        return self

    def __call__(self, progress: Progress) -> None:
        """Show where the run is now."""
        self._latest = progress
        if self._bar is not None:
            self._bar.update(
                self._task, total=progress.total, completed=progress.done, figures=describe_progress(progress)
            )
        elif self._printed is None or time.monotonic() - self._last_line >= self._line_seconds:
            self._print(progress)

    def _print(self, progress: Progress) -> None:
        line = f"{progress.done}/{progress.total} episodes · {describe_progress(progress)}"
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)
        self._printed = progress
        self._last_line = time.monotonic()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the last state standing."""
        if self._bar is not None:
            self._bar.stop()
        elif self._latest is not None and self._latest is not self._printed:
            self._print(self._latest)


def describe_progress(progress: Progress) -> str:
    """Success so far, engine errors, tokens, rate and time left, in one line; what is not known yet is left out."""
    parts = []
    if progress.success_rate is not None:
        parts.append(f"{progress.success_rate:.1%} success")
    if progress.errors:
        parts.append(f"{progress.errors} engine errors")
    if progress.tokens:
        parts.append(f"{_short(progress.tokens)} tokens")
    if progress.rate is not None:
        parts.append(f"{progress.rate:.1f}/s" if progress.rate >= 1 else f"{progress.rate * 60:.1f}/min")
    if progress.left_s is not None and progress.done < progress.total:
        parts.append(f"{_duration(progress.left_s)} left")
    return " · ".join(parts)


def _short(number: int) -> str:
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return str(number)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
