"""The command as a person uses it."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ticket_gym.cli import evaluate
from ticket_gym.engines import Completion, Request
from ticket_gym.errors import EngineSetupError


def run(*arguments: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from ticket_gym.cli import main; main()", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=240,
        env={**os.environ, "COLUMNS": "160", "PYTHONIOENCODING": "utf-8", **environment},
        check=False,
    )


def ok(*arguments: str, stdin: str = "") -> str:
    done = run(*arguments, stdin=stdin)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_evaluate_prints_the_table_in_the_papers_order() -> None:
    text = ok("evaluate", "--agent", "oracle", "--templates", "t07", "--trials", "3")
    head = next(line for line in text.splitlines() if "Overall" in line)
    assert head.split()[-7:] == ["pt", "fr", "de", "es", "it", "en", "Overall"]
    row = next(line for line in text.splitlines() if line.startswith("oracle"))
    assert row.split()[-7:] == ["1.000"] * 7
    assert "Solvable" in text and "Unsolvable" in text
    assert all(f"k = {k}" in text for k in (1, 2, 3))


def test_a_run_folder_is_continued_reported_submitted_and_verified(tmp_path: Path) -> None:
    folder = str(tmp_path / "run")
    arguments = ("evaluate", "--agent", "careless_price", "--languages", "de,fr", "--queries", "t01-01,t05-01")
    ok(*arguments, "--out", folder)
    lines = (tmp_path / "run" / "episodes.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 2 * 2 * 3
    ok(*arguments, "--out", folder)
    assert (tmp_path / "run" / "episodes.jsonl").read_text(encoding="utf-8").splitlines() == lines
    refused = run(
        "evaluate", "--agent", "oracle", "--languages", "de,fr", "--queries", "t01-01,t05-01", "--out", folder
    )
    assert refused.returncode == 2
    assert "careless_price" in refused.stderr and "oracle" in refused.stderr
    outputs = {kind: tmp_path / f"report.{kind}" for kind in ("html", "markdown", "csv", "json")}
    text = ok("report", folder, *(part for kind, path in outputs.items() for part in (f"--{kind}", str(path))))
    assert "0.500" in text
    assert all(path.stat().st_size > 100 for path in outputs.values())
    entry = tmp_path / "entry.json"
    ok("submit", folder, "--out", str(entry))
    assert "holds" in ok("verify", str(entry), folder)
    claimed = json.loads(entry.read_text(encoding="utf-8"))
    claimed["scores"]["overall"]["value"] = 1.0
    entry.write_text(json.dumps(claimed), encoding="utf-8")
    assert run("verify", str(entry), folder).returncode == 1


def test_show_says_why_the_expected_game_wins() -> None:
    text = ok("show", "t01-01", "--language", "fr")
    assert "Je voudrais" in text and "expected" in text and "lowest price" in text
    text = ok("show", "validation-0-3")
    assert "validation-0-3" in text


def test_play_takes_calls_and_an_answer() -> None:
    text = ok("play", "t08-01", "--language", "it", stdin='elenca_partite {"ordina_per": "prezzo"}\nGrazie!\n')
    assert "stadio" in text
    assert "Reward 0: none_bought" in text


def test_build_check_and_audit_pass() -> None:
    assert ok("build", "--check").count("the same, byte for byte") == 2
    assert "share 0 schedules, 0 standings, 0 queries" in ok("audit", "--count", "340")


def test_export_writes_every_language(tmp_path: Path) -> None:
    ok("export", str(tmp_path), "--languages", "pt,it")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["it", "pt"]


class Watched:
    """An engine that notes how it was made and that it was closed."""

    name = "m"

    def __init__(self, kind: str, model: str, base_urls: object, options: list[str]) -> None:
        self.options = options
        self.closed = False
        self.fault: Exception | None = None

    def describe(self) -> dict[str, Any]:
        """Nothing that matters."""
        return {}

    async def complete(self, request: Request) -> Completion:
        """An answer, or a fault."""
        if self.fault is not None:
            raise self.fault
        return Completion({"role": "assistant", "content": "Non."})

    async def aclose(self) -> None:
        """Note it."""
        self.closed = True


@pytest.mark.parametrize("fault", [None, EngineSetupError("the server is gone")], ids=["played", "broken off"])
def test_evaluate_closes_its_engine_and_lets_it_ask_for_all_episodes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], fault: Exception | None
) -> None:
    made: list[Watched] = []

    def make(*arguments: Any) -> Watched:
        made.append(Watched(*arguments))
        made[-1].fault = fault
        return made[-1]

    monkeypatch.setattr(evaluate, "read_engine", make)
    with contextlib.nullcontext() if fault is None else pytest.raises(EngineSetupError):
        evaluate.evaluate(engine="openai", model="m", languages="fr", count=1, trials=1, concurrency=99)
    assert [engine.closed for engine in made] == [True]
    assert made[0].options == ["concurrency=99"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("evaluate",), "either --agent"),
        (("evaluate", "--agent", "oracle", "--engine", "openai"), "either --agent"),
        (("evaluate", "--agent", "nobody"), "choose one of oracle"),
        (("evaluate", "--agent", "oracle", "--languages", "nl"), "choose one of pt, fr"),
        (("evaluate", "--agent", "oracle", "--templates", "t99"), "unknown t99"),
        (("evaluate", "--agent", "oracle", "--model", "x"), "--model"),
        (("evaluate", "--engine", "openai"), "needs --model"),
        (("evaluate", "--engine", "abacus", "--model", "x"), "choose one of"),
        (("evaluate", "--engine", "openai", "--model", "x", "-o", "colour=red"), "colour"),
        (("evaluate", "--engine", "openai", "--model", "x", "-o", "colour"), "NAME=VALUE"),
        (("evaluate", "--engine", "openai", "--model", "x", "-o", "retries=x"), "retries='x': must be a valid integer"),
        (("evaluate", "--engine", "openai", "--model", "x", "-o", "model=y"), "--model"),
        (("evaluate", "--agent", "oracle", "-o", "temperature=0"), "--option"),
        (("evaluate", "--agent", "oracle", "--split", "train"), "count"),
        (("show", "t99-01"), "t01-01 to t17-10"),
        (("report", "nowhere"), "nowhere"),
        (("export", "/dev/null/nowhere"), "cannot be written"),
    ],
)
def test_a_mistake_is_told_in_a_line_without_a_traceback(arguments: tuple[str, ...], told: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert told in done.stderr
    assert "Traceback" not in done.stderr
