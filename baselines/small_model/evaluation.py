"""Scores on held-out tasks, one line of a journal each."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from baselines.small_model.conversation import Transcript
from ticket_gym.metrics.distributions import clopper_pearson
from ticket_gym.request import Task

Line = dict[str, Any]
"""One evaluation, as a line of JSON."""


def score(tasks: Sequence[Task], successes: Sequence[bool]) -> Line:
    """Pass^1 with its exact 95% interval, and the part of the tasks for which something is to be bought.

    Each task is played once, so tasks are independent draws and the limits of Clopper and Pearson (1934) hold.
    """
    low, high = clopper_pearson(np.array(sum(successes), dtype=float), len(tasks), 0.95)
    solvable = [success for task, success in zip(tasks, successes, strict=True) if task.solvable]
    by_template: dict[str, list[bool]] = {}
    for task, success in zip(tasks, successes, strict=True):
        by_template.setdefault(task.template, []).append(success)
    return {
        "tasks": len(tasks),
        "pass_hat_1": _share(successes),
        "low": round(float(low), 4),
        "high": round(float(high), 4),
        "solvable_only": _share(solvable),
        "by_template": {template: _share(some) for template, some in by_template.items()},
    }


def score_transcripts(transcripts: Sequence[Transcript]) -> Line:
    """The score of played episodes."""
    tasks = [transcript.task for transcript in transcripts]
    return score(tasks, [transcript.reward == 1.0 for transcript in transcripts])


def _share(successes: Sequence[bool]) -> float:
    return round(sum(successes) / len(successes), 4)


class Journal:
    """A file of evaluations that is only ever appended to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: list[Line] = []
        if path.exists():
            self.lines = [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()]

    def has(self, **fields: Any) -> bool:
        """Whether there is a line with these values."""
        return any(all(line.get(name) == value for name, value in fields.items()) for line in self.lines)

    def add(self, line: Line) -> None:
        """Append a line and flush it to the disk."""
        self.lines.append(line)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
