"""What a run costs: prices from a table, tokens from the record, and no figure where either is not known."""

import asyncio
import csv
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from ticket_gym.errors import ConfigurationError
from ticket_gym.journal import CONFIG_FILE, EPISODES_FILE
from ticket_gym.metrics import Cost, Prices
from ticket_gym.records import Usage
from ticket_gym.report import (
    ScoredRun,
    load_runs,
    print_report,
    read_prices,
    render_csv,
    render_html,
    render_json,
    render_markdown,
    submit,
)

MakeRun = Callable[..., Path]
Handler = Callable[[str, dict[str, Any]], Any]
Serve = Callable[[Handler], AbstractAsyncContextManager[str]]

PRICES = Prices(prompt=2.0, completion=10.0, cached=0.5)
USAGE = Usage(prompt_tokens=1_000_000, cached_tokens=400_000, completion_tokens=200_000, reasoning_tokens=150_000)
USD = 600_000 * 2e-6 + 400_000 * 0.5e-6 + 200_000 * 10e-6
TABLE = '["hosted/model-1.5"]\nprompt = 2\ncompletion = 10.0\ncached = 0.5\n'


def test_a_cached_token_has_its_own_price_or_that_of_all_others() -> None:
    assert PRICES.cost_usd(USAGE) == pytest.approx(1.2 + 0.2 + 2.0, rel=1e-12)
    assert Prices(prompt=2.0, completion=10.0).cost_usd(USAGE) == pytest.approx(2.0 + 2.0, rel=1e-12)
    assert Prices(prompt=2.0, completion=10.0, cached=0.0).cost_usd(USAGE) == pytest.approx(1.2 + 2.0, rel=1e-12)


# The price table


def test_a_price_table_is_read(tmp_path: Path) -> None:
    file = tmp_path / "prices.toml"
    file.write_text(TABLE + "[free]\nprompt = 0\ncompletion = 0\n", encoding="utf-8")
    assert read_prices(file) == {"hosted/model-1.5": PRICES, "free": Prices(prompt=0.0, completion=0.0)}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[m]\nprompt = -1\ncompletion = 2", "entry 'm': prompt cannot be -1"),
        ("[m]\nprompt = 1\ncompletion = 2\ncached = -0.5", "entry 'm': cached cannot be -0.5"),
        ("[m]\nprompt = '1'\ncompletion = 2", "entry 'm': prompt cannot be '1'"),
        ("[m]\nprompt = true\ncompletion = 2", "entry 'm': prompt cannot be True"),
        ("[m]\nprompt = inf\ncompletion = nan", "entry 'm': prompt cannot be inf; entry 'm': completion cannot be nan"),
        ("[m]\ncompletion = 2", "entry 'm': prompt is missing"),
        ("[m]\nprompt = 2", "entry 'm': completion is missing"),
        (
            "[good]\nprompt = 1\ncompletion = 1\n[m]\nprompt = 1\ncompletion = 2\ncache = 1",
            "entry 'm': cache is no known",
        ),
        ("[gpt-4.1]\nprompt = 1\ncompletion = 2", "entry 'gpt-4': 1 is no known key"),
        ("prompt = 1", "entry 'prompt': cannot be 1"),
    ],
)
def test_a_wrong_entry_is_named_with_what_is_right(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "prices.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(
        ConfigurationError, match=r"in quotes.* prompt, completion and.* million tokens, from 0"
    ) as found:
        read_prices(file)
    assert str(found.value).startswith(f"{file}: entry")
    assert said in str(found.value)
    assert "good" not in str(found.value)


def test_a_file_that_is_no_price_table_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"nowhere\.toml: the price table cannot be read: No such file"):
        read_prices(tmp_path / "nowhere.toml")
    for content in (b"[m\n", b"[m]\nprompt = \xff"):
        (tmp_path / "broken.toml").write_bytes(content)
        with pytest.raises(ConfigurationError, match=r"broken\.toml: the price table is no TOML"):
            read_prices(tmp_path / "broken.toml")


# Figures


@pytest.fixture(scope="module")
def played(make_run: MakeRun) -> Path:
    """Four episodes of an oracle."""
    return make_run("oracle", languages=["fr"], queries=["t01-01", "t02-01"], trials=2)


def change(folder: Path, target: Path, *changes: dict[str, Any]) -> Path:
    """A copy of a run; each episode gets the changes in its turn."""
    target.mkdir()
    (target / CONFIG_FILE).write_bytes((folder / CONFIG_FILE).read_bytes())
    lines = (folder / EPISODES_FILE).read_text(encoding="utf-8").splitlines()
    changed = [{**json.loads(line), **new} for line, new in zip(lines, changes, strict=True)]
    (target / EPISODES_FILE).write_text("".join(json.dumps(each) + "\n" for each in changed), encoding="utf-8")
    return target


def used(**tokens: int) -> dict[str, Any]:
    return {"usage": {**USAGE.model_dump(), "model_calls": 3, **tokens}}


def load(*folders: Path, prices: dict[str, Prices] | None = None) -> list[ScoredRun]:
    return load_runs(folders, resamples=199, prices={"oracle": PRICES} if prices is None else prices)


def cost_of(folder: Path, prices: dict[str, Prices] | None = None) -> Cost:
    [run] = load(folder, prices=prices)
    assert run.cost is not None
    return run.cost


def printed(runs: list[ScoredRun], width: int = 120) -> str:
    console = Console(width=width, file=io.StringIO(), color_system=None)
    print_report(runs, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def figures(runs: list[ScoredRun]) -> dict[str, str]:
    """The cost's lines of the CSV."""
    rows = csv.DictReader(io.StringIO(render_csv(runs)))
    return {row["measure"]: row["value"] for row in rows if row["measure"].startswith("cost_")}


def test_every_format_tells_the_cost_and_no_score_changes(played: Path, tmp_path: Path) -> None:
    """Four episodes, three successes: USD 3.40 each, 13.60 together, 4.5333 for a success."""
    runs = load(change(played, tmp_path / "run", *([used()] * 3), {**used(), "bookings": []}))
    told = ("4,000,000", "1,600,000", "800,000", "600,000", "13.6000", "3.4000", "4.5333")
    assert pytest.approx(3.4) == USD
    assert re.search(r"oracle +" + " +".join(told), printed(runs))
    assert "| oracle | " + " | ".join(told) + " |" in render_markdown(runs)
    page = re.sub(r"\s*<.*?>\s*", " ", render_html(runs, conversations=False)).split("Tokens and cost")[1]
    assert "oracle " + " ".join(told) in " ".join(page.split())
    lines = figures(runs)
    assert (lines["cost_prompt_tokens"], lines["cost_cached_tokens"], lines["cost_model_calls"]) == (
        "4000000",
        "1600000",
        "12",
    )
    cost = json.loads(render_json(runs))["runs"][0]["cost"]
    for name, value in (("usd", 13.6), ("usd_per_episode", 3.4), ("usd_per_success", 13.6 / 3)):
        assert cost[name] == pytest.approx(value, rel=1e-12)
        assert float(lines[f"cost_{name}"]) == cost[name]
    assert cost["usage"]["completion_tokens"] == 800_000
    assert cost["prices"] == {"prompt": 2.0, "completion": 10.0, "cached": 0.5}
    [without] = load_runs([runs[0].path], resamples=199)
    assert without.summary == runs[0].summary
    assert submit(without) == submit(runs[0])
    assert "Tokens and cost" not in printed([without]) + render_markdown([without]) + render_html([without])
    assert not figures([without])


def test_what_the_engine_broke_off_is_paid_for_and_what_is_missing_is_not(played: Path, tmp_path: Path) -> None:
    broken = {**used(), "stop_reason": "engine_error", "reward": None, "success": False, "error": "gone"}
    folder = change(played, tmp_path / "run", used(), used(), used(), broken)
    assert cost_of(folder).usd == pytest.approx(4 * USD)
    assert cost_of(folder).usd_per_success == pytest.approx(4 * USD / 3)
    lines = (folder / EPISODES_FILE).read_text(encoding="utf-8").splitlines(keepends=True)
    (folder / EPISODES_FILE).write_text("".join(lines[:2]), encoding="utf-8")
    assert cost_of(folder).usd == pytest.approx(2 * USD)
    assert cost_of(folder).usd_per_episode == pytest.approx(USD)


def test_without_a_success_there_is_no_cost_of_one(played: Path, tmp_path: Path) -> None:
    runs = load(change(played, tmp_path / "run", *([{**used(), "bookings": []}] * 4)))
    assert re.search(r" 13\.6000 +3\.4000 +none", printed(runs))
    assert "| 13.6000 | 3.4000 | none |" in render_markdown(runs)
    assert figures(runs)["cost_usd_per_success"] == ""
    assert json.loads(render_json(runs))["runs"][0]["cost"]["usd_per_success"] is None


@pytest.mark.parametrize(
    "tokens",
    [
        {"prompt_tokens": 0, "completion_tokens": 0, "cached_tokens": 0, "reasoning_tokens": 0},
        {"completion_tokens": 0, "reasoning_tokens": 0},
    ],
)
def test_tokens_that_were_not_counted_are_unknown_and_not_free(
    played: Path, tmp_path: Path, tokens: dict[str, int]
) -> None:
    runs = load(change(played, tmp_path / "run", used(), used(**tokens), used(), used()))
    assert re.search(r"oracle" + 7 * r" +unknown", printed(runs))
    assert "oracle: no token counts for 1 of 4 episodes" in " ".join(printed(runs).split())
    assert "| oracle |" + 7 * " unknown |" in render_markdown(runs)
    assert figures(runs) == {
        "cost_uncounted": "1",
        "cost_usd": "",
        "cost_usd_per_episode": "",
        "cost_usd_per_success": "",
    }
    cost = json.loads(render_json(runs))["runs"][0]["cost"]
    assert (cost["usage"], cost["usd"], cost["usd_per_episode"], cost["usd_per_success"]) == (None,) * 4


def test_an_agent_that_calls_no_model_costs_nothing(played: Path) -> None:
    assert cost_of(played).usd == 0.0


def test_a_model_without_a_price_shows_its_tokens_and_the_name_that_was_looked_for(
    played: Path, tmp_path: Path
) -> None:
    runs = load(change(played, tmp_path / "run", *([used()] * 4)), prices={"other": PRICES})
    assert re.search(r"oracle +4,000,000 +1,600,000 +800,000 +600,000 +– +– +–", printed(runs))
    for text in (printed(runs), render_markdown(runs)):
        assert "oracle: no cost, for the price table has no 'oracle'." in " ".join(text.split())
    assert (figures(runs)["cost_usd"], figures(runs)["cost_prompt_tokens"]) == ("", "4000000")


def test_the_name_that_the_engine_knows_is_looked_for_after_that_of_the_tables(played: Path, tmp_path: Path) -> None:
    folder = change(played, tmp_path / "run", *([used()] * 4))
    config = json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8"))
    config["agent"]["model"] = "vendor/oracle-2"
    (folder / CONFIG_FILE).write_text(json.dumps(config), encoding="utf-8")
    free = Prices(prompt=0.0, completion=0.0)
    assert cost_of(folder, {"vendor/oracle-2": PRICES}).usd == pytest.approx(4 * USD)
    assert cost_of(folder, {"vendor/oracle-2": PRICES, "oracle": free}).usd == 0.0
    assert "has no 'oracle' and no 'vendor/oracle-2'." in " ".join(printed(load(folder, prices={})).split())


def test_the_costs_of_a_large_run_fit_a_narrow_terminal(played: Path, tmp_path: Path) -> None:
    big = used(prompt_tokens=40_000_000, cached_tokens=30_000_000, completion_tokens=9_000_000)
    text = printed(load(change(played, tmp_path / "run", *([big] * 4))), width=80)
    assert max(map(len, text.splitlines())) <= 80
    assert re.search(r"160,000,000 +120,000,000 +36,000,000 +600,000 +500\.00 +125\.00 +125\.00", text)


# The command


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from ticket_gym.cli import main; main()", *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=240,
        env={**os.environ, "COLUMNS": "160", "PYTHONIOENCODING": "utf-8", "NO_PROXY": "127.0.0.1"},
        check=False,
    )


async def test_a_hosted_model_is_played_and_priced(serve: Serve, oracle: Handler, tmp_path: Path) -> None:
    """The server's own counts, over real sockets: prices change neither what is played nor what is stored."""
    asked: list[str] = []
    details = {"completion_tokens_details": {"reasoning_tokens": 20}, "prompt_tokens_details": {"cached_tokens": 600}}

    def counted(path: str, body: dict[str, Any]) -> Any:
        asked.append(body["messages"][1]["content"])
        status, headers, answer = oracle(path, body)
        if asked[-1] == asked[0]:
            # The request that comes first is never served, so there are fewer successes than episodes.
            answer["choices"][0] = {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": "?"},
            }
        return status, headers, {**answer, "usage": {"prompt_tokens": 1_000, "completion_tokens": 50, **details}}

    prices, folder, files = tmp_path / "prices.toml", tmp_path / "run", (CONFIG_FILE, EPISODES_FILE)
    prices.write_text(TABLE, encoding="utf-8")
    async with serve(counted) as url:
        model = ("--engine", "openai", "--base-url", url, "--model", "hosted/model-1.5")
        played = ("--language", "fr", "--queries", "t01-01,t05-01", "--trials", "2", "--out", str(folder))
        plain = await asyncio.to_thread(command, "evaluate", *model, *played)
        stored, calls = [(folder / file).read_bytes() for file in files], len(asked)
        priced = await asyncio.to_thread(command, "evaluate", *model, *played, "--prices", str(prices))
    assert (plain.returncode, priced.returncode) == (0, 0), plain.stderr + priced.stderr
    assert "Tokens and cost" not in plain.stdout
    assert len(asked) == calls > 4
    assert [(folder / file).read_bytes() for file in files] == stored
    usd = calls * (400 * 2 + 600 * 0.5 + 50 * 10) / 1e6
    row = (*(f"{calls * each:,}" for each in (1_000, 600, 50, 20)), f"{usd:.6f}", f"{usd / 4:.6f}", f"{usd / 2:.6f}")
    told = await asyncio.to_thread(command, "report", str(folder), "--prices", str(prices), "--json", f"{folder}.json")
    for done in (priced, told):
        assert re.search(r"hosted/model-1\.5 +" + " +".join(row), done.stdout), done.stdout
    [run] = json.loads(Path(f"{folder}.json").read_text(encoding="utf-8"))["runs"]
    assert run["cost"]["usd"] == pytest.approx(usd, rel=1e-12)
    assert run["cost"]["usage"]["model_calls"] == calls


def test_a_wrong_table_stops_the_command_before_anything_is_played(played: Path, tmp_path: Path) -> None:
    prices, folder = tmp_path / "prices.toml", tmp_path / "run"
    prices.write_text("[oracle]\nprompt = '2'\n", encoding="utf-8")
    evaluate = ("evaluate", "--agent", "oracle", "--queries", "t01-01", "--out", str(folder))
    for arguments in (evaluate, ("report", str(played))):
        done = command(*arguments, "--prices", str(prices))
        assert done.returncode == 2
        assert f"{prices}: entry 'oracle': prompt cannot be '2'; entry 'oracle': completion is missing." in done.stderr
        assert "Traceback" not in done.stderr
    assert not folder.exists()
