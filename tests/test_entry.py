"""Leaderboard entries: true ones are approved, and whatever was changed, in the entry or in the run, is named."""

import copy
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ticket_gym.errors import ConfigurationError
from ticket_gym.journal import EPISODES_FILE
from ticket_gym.report import load_runs, submit, verify
from ticket_gym.report.entry import sign

MakeRun = Callable[..., Path]


@pytest.fixture(scope="module")
def folder(make_run: MakeRun) -> Path:
    """A run that is neither all right nor all wrong."""
    return make_run("noisy_oracle:0.6", languages=["fr", "en"])


@pytest.fixture(scope="module")
def entry(folder: Path) -> dict[str, Any]:
    """Its entry, as a file would hold it."""
    [run] = load_runs([folder], k=2, stratify=True, resamples=299, seed=5)
    loaded: dict[str, Any] = json.loads(json.dumps(submit(run), indent=1))
    return loaded


def check(entry: dict[str, Any], folder: Path) -> list[str]:
    """Verify as a stranger does, who scores the run with other options first."""
    [run] = load_runs([folder], resamples=199)
    return verify(entry, run)


def test_a_true_entry_is_approved(entry: dict[str, Any], folder: Path) -> None:
    """Scored again as the entry says, not as the verifier happens to score."""
    assert check(entry, folder) == []
    assert entry["scoring"]["k"] == 2
    assert 0.15 < entry["scores"]["overall"]["low"] < entry["scores"]["overall"]["value"] < 0.85
    assert entry["counts"]["expected"] == 1020
    assert len(json.dumps(entry)) < 8_000


@pytest.mark.parametrize("signed_again", [False, True])
@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("scores", "fr", "value"), 0.99),
        (("scores", "overall", "low"), 0.9),
        (("counts", "missing"), 7),
        (("benchmark", "digest"), "0" * 64),
        (("config", "max_steps"), 500),
        (("model", "name"), "Somebody-else-70B"),
        (("episodes_sha256",), "f" * 64),
        (("causes", "invented"), 1),
    ],
)
def test_a_changed_entry_is_caught(
    entry: dict[str, Any], folder: Path, path: tuple[str, ...], value: object, signed_again: bool
) -> None:
    """The changed field is named even where the hash was made anew."""
    changed = copy.deepcopy(entry)
    place = changed
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    if signed_again:
        changed["sha256"] = sign({key: each for key, each in changed.items() if key != "sha256"})
    problems = check(changed, folder)
    assert any(problem.startswith(".".join(path) + ":") for problem in problems)
    assert any("changed after it was signed" in problem for problem in problems) is not signed_again


def test_a_changed_run_is_caught(entry: dict[str, Any], folder: Path, tmp_path: Path) -> None:
    """One more booking in one episode changes both the digest and what it stands for."""
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    lines = (other / EPISODES_FILE).read_text(encoding="utf-8").splitlines()
    place = next(number for number, line in enumerate(lines) if json.loads(line)["success"])
    episode = json.loads(lines[place])
    episode["bookings"] = [*episode["bookings"], 190 if 190 not in episode["bookings"] else 189]
    lines[place] = json.dumps(episode, ensure_ascii=False)
    (other / EPISODES_FILE).write_text("\n".join(lines) + "\n", encoding="utf-8")
    problems = check(entry, other)
    assert any(problem.startswith("episodes_sha256:") for problem in problems)
    assert any(problem.startswith("counts.successes:") for problem in problems)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "ticket_gym.entry/9"}, "format"),
        ({"scoring": None}, "scoring"),
        ({"scoring": {"k": "2"}}, "scoring"),
        ({"scoring": {"k": 2, "confidence": 0.95, "stratify": 1, "resamples": 299, "seed": 5}}, "scoring.stratify"),
    ],
)
def test_what_is_no_entry_is_refused(
    entry: dict[str, Any], folder: Path, changes: dict[str, Any], message: str
) -> None:
    """The message says what cannot be read."""
    with pytest.raises(ConfigurationError, match=message):
        check({**entry, **changes}, folder)
