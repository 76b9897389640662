"""Reports: scored from bookings alone, the same figures in every format, nothing hidden, every failure explained."""

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from ticket_gym.agents import CARELESS
from ticket_gym.errors import ConfigurationError, RunError, RunWriteError
from ticket_gym.journal import CONFIG_FILE, EPISODES_FILE
from ticket_gym.metrics import Estimate
from ticket_gym.records import ModelInfo
from ticket_gym.report import (
    ScoredRun,
    load_runs,
    print_report,
    render_csv,
    render_json,
    render_markdown,
    write_markdown,
)
from ticket_gym.report.explain import Explainer
from ticket_gym.report.findings import confusion_table
from ticket_gym.request import Category
from ticket_gym.tasks import TEMPLATES, Cause
from ticket_gym.tasks.diagnosis import CATEGORY_OF
from ticket_gym.types import LANGUAGES, Language

MakeRun = Callable[..., Path]
QUERIES = tuple(f"{template}-{number:02d}" for template in TEMPLATES for number in (1, 6))


@pytest.fixture(scope="module")
def noisy(make_run: MakeRun) -> Path:
    """A run with both successes and failures in every language."""
    return make_run("noisy_oracle:0.7", queries=QUERIES)


def load(*folders: Path, **options: Any) -> list[ScoredRun]:
    """Score with few resamples."""
    return load_runs(folders, **({"resamples": 199} | options))


def edit(folder: Path, target: Path, change: Callable[[int, dict[str, Any]], dict[str, Any] | None]) -> Path:
    """A copy of a run with changed episodes; None leaves an episode out."""
    target.mkdir()
    (target / CONFIG_FILE).write_bytes((folder / CONFIG_FILE).read_bytes())
    lines = (folder / EPISODES_FILE).read_text(encoding="utf-8").splitlines()
    changed = [change(number, json.loads(line)) for number, line in enumerate(lines)]
    text = "".join(json.dumps(episode, ensure_ascii=False) + "\n" for episode in changed if episode is not None)
    (target / EPISODES_FILE).write_text(text, encoding="utf-8")
    return target


def printed(runs: list[ScoredRun], width: int = 100) -> str:
    """The report as a terminal shows it."""
    console = Console(width=width, file=io.StringIO(), color_system=None)
    print_report(runs, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


# Diagnosis


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("category", CARELESS)
def test_what_an_agent_overlooks_is_what_it_fails_of(make_run: MakeRun, category: Category, language: Language) -> None:
    """Failures of an agent that overlooks one category of constraints are diagnosed as that category."""
    [run] = load(make_run(CARELESS[category], languages=[language], trials=1))
    causes = sum(run.causes().values(), Counter[str]())
    assert causes.total() == 170 - run.summary.overall.total.successes >= 20
    own = sum(number for cause, number in causes.items() if CATEGORY_OF.get(Cause(cause)) == category)
    assert own / causes.total() >= 0.99


def test_the_confusion_table_counts_every_failure_once(noisy: Path) -> None:
    """Rows add up to the failures of their template, all together to the failures of the run."""
    [run] = load(noisy)
    table = confusion_table(run)
    failed = {row[0].text: int(row[-2].text) for row in table.rows}
    for row in table.rows:
        assert sum(int(cell.text) for cell in row[2:-2] if cell.text != "–") == failed[row[0].text]
    total = run.summary.overall.total
    assert list(failed) == list(TEMPLATES)
    assert sum(failed.values()) == total.episodes - total.successes > 100


def test_failures_are_explained_by_the_games_in_question(make_run: MakeRun) -> None:
    """Every wrongly bought game and every missed one is named, with the reason in words."""
    [run] = load(make_run("careless_weekday", languages=["fr"], trials=1))
    explainer = Explainer("fr")
    seen = 0
    for episode, verdict in run.episodes():
        task = run.find_task(episode.language, episode.query_id)
        text = " ".join(explainer.explain(task, episode, verdict.diagnosis))
        if verdict.success:
            assert text.startswith("Right")
            continue
        seen += 1
        assert re.search(r"it is on a \w+day, not ", text)
        for game in (*verdict.diagnosis.extra, *verdict.diagnosis.missing):
            assert f"Game {game} (" in text
        assert ("should have been bought" in text) == (not task.solvable)
    assert seen >= 20


# Scores


def test_success_is_what_the_bookings_say(noisy: Path, tmp_path: Path) -> None:
    """A record that claims another success than its bookings show is not believed, and loudly so."""

    def claim(number: int, episode: dict[str, Any]) -> dict[str, Any]:
        return {**episode, "success": True, "reward": 1.0}

    [honest] = load(noisy)
    [claimed] = load(edit(noisy, tmp_path / "claimed", claim))
    assert claimed.summary == honest.summary
    wrong = honest.summary.overall.total.episodes - honest.summary.overall.total.successes
    [warning] = claimed.warnings
    assert f"wrong about {wrong:,} episodes" in warning
    assert not honest.warnings
    for text in (printed([claimed]), render_markdown([claimed])):
        assert "bookings were believed" in " ".join(text.split())


@pytest.mark.parametrize("require_response", [False, True])
def test_an_answer_counts_only_where_it_is_required(make_run: MakeRun, tmp_path: Path, require_response: bool) -> None:
    """A cut-off episode with the right bookings succeeds, unless the run requires an answer."""
    folder = make_run("oracle", languages=["it"], queries=QUERIES[:4], trials=1, require_response=require_response)
    [run] = load(edit(folder, tmp_path / "cut", lambda number, episode: {**episode, "stop_reason": "max_steps"}))
    assert run.summary.overall.total.headline.value == (0 if require_response else 1)
    if require_response:
        assert sum(run.causes().values(), Counter[str]()) == {"ran_out": 4}
        episode, verdict = next(run.episodes())
        told = Explainer("it").explain(run.find_task("it", episode.query_id), episode, verdict.diagnosis)
        assert told[0].startswith("The bookings are right, but this run asks for a final answer")


def test_what_is_missing_counts_as_failed_and_is_shown(make_run: MakeRun, tmp_path: Path) -> None:
    """An unfinished perfect run is no perfect run: the share that was played is its score."""
    folder = make_run("oracle", languages=["pt", "en"], queries=QUERIES, trials=1)
    every_fourth = edit(folder, tmp_path / "cut", lambda number, episode: None if number % 4 == 0 else episode)
    [run] = load(every_fourth)
    counts = run.summary.overall.counts
    assert (counts.expected, counts.present, counts.missing) == (68, 51, 17)
    assert run.summary.overall.total.headline.value == 0.75
    assert sum(run.causes().values(), Counter[str]()) == {"no_record": 17}
    for text in (printed([run]), render_markdown([run])):
        assert "17 of 68 episodes have no record" in " ".join(text.split())
        assert "no record" in text
    assert "overall,total,episodes_missing,,,17," in render_csv([run])
    assert json.loads(render_json([run]))["runs"][0]["summary"]["overall"]["counts"]["missing"] == 17


def test_k_fits_the_trials(noisy: Path, make_run: MakeRun) -> None:
    """pass^3 by default; with fewer trials the greatest k there is; more cannot be asked for."""
    single = make_run("oracle", languages=["de"], queries=QUERIES[:4], trials=1)
    assert [run.summary.k for run in load(noisy)] == [3]
    assert [run.summary.k for run in load(noisy, single)] == [1, 1]
    assert [run.summary.k for run in load(noisy, k=2)] == [2]
    with pytest.raises(ConfigurationError, match="k=4: must be from 1 to the number of trials of every run, here 3"):
        load(noisy, k=4)
    with pytest.raises(ConfigurationError, match="none twice"):
        load(noisy, noisy)


def test_another_benchmark_is_refused(noisy: Path, tmp_path: Path) -> None:
    """Bookings of one benchmark are never compared with the expected ones of another."""
    other = edit(noisy, tmp_path / "other", lambda number, episode: episode)
    config = json.loads((other / CONFIG_FILE).read_text(encoding="utf-8"))
    config["benchmark"]["digest"] = "0" * 64
    (other / CONFIG_FILE).write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(RunError, match="score it with the ticket_gym that played it"):
        load(other)


# Formats


def test_every_format_tells_the_same_figures(noisy: Path, make_run: MakeRun) -> None:
    """Markdown, CSV, JSON and terminal hold the summary's numbers, to their digits."""
    runs = load(noisy, make_run("do_nothing", queries=QUERIES))
    data = json.loads(render_json(runs))
    lines = {
        (row["run"], row["language"], row["part"], row["measure"], row["k"], row["estimator"]): row
        for row in csv.DictReader(io.StringIO(render_csv(runs)))
    }
    markdown, terminal = render_markdown(runs), printed(runs)
    for run, told in zip(runs, data["runs"], strict=True):
        for language, group in run.groups().items():
            stored = told["summary"]["overall"] if language == "overall" else told["summary"]["languages"][language]
            for pass_hat, in_json in zip(group.total.pass_hat, stored["total"]["pass_hat"], strict=True):
                for name, found in _estimates(pass_hat):
                    row = lines[run.label, language, "total", "pass_hat", str(pass_hat.k), name]
                    figures = (float(row["value"]), float(row["low"]), float(row["high"]))
                    assert figures == (found.value, found.low, found.high)
                    assert in_json[name] == {"value": found.value, "low": found.low, "high": found.high}
            headline = group.total.headline
            shown = f"{headline.value:.3f}"
            limits = f"{headline.low:.3f}–{headline.high:.3f}".replace("0.", ".").replace("1.000", "1")
            assert limits in terminal and shown in terminal
            cell = f"**{shown}** ({limits})" if language == "overall" else f"{shown} ({limits})"
            [row_text] = [line for line in _section(markdown, "pass^3").splitlines() if f"| {_md(run.label)} |" in line]
            assert cell in row_text


def _estimates(pass_hat: Any) -> Iterator[tuple[str, Estimate]]:
    for name in ("paper", "unbiased", "pooled"):
        yield name, getattr(pass_hat, name)


def _section(markdown: str, title: str) -> str:
    return markdown.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]


def _md(text: str) -> str:
    return text.replace("_", r"\_")


def test_runs_are_compared_where_they_can_be(noisy: Path, make_run: MakeRun) -> None:
    """Two runs on the same queries are compared in pairs; for others the reason is given instead."""
    perfect = make_run("oracle", queries=QUERIES)
    other = make_run("oracle", languages=["es"], queries=QUERIES[:4])
    same, different = (json.loads(render_json(load(noisy, run)))["comparisons"] for run in (perfect, other))
    assert same[0]["overall"]["difference"]["high"] < 0
    assert same[0]["overall"]["p_value"] < 0.05
    assert "they differ in languages, queries" in different[0]["not_comparable"]
    assert "they differ in languages, queries" in " ".join(printed(load(noisy, other)).split())


def test_hostile_names_break_no_format(make_run: MakeRun) -> None:
    """A model may be called anything; runs of one name are told apart."""
    name = "a|b\n# [red]<b>*x*"
    options = {"languages": ["en"], "queries": QUERIES[:4], "trials": 1, "model": ModelInfo(name=name)}
    runs = load(make_run("oracle", **options), make_run("do_nothing", **options))
    assert len({run.label for run in runs}) == 2
    markdown = render_markdown(runs)
    columns = {line.replace("\\|", "").count("|") for line in _section(markdown, "pass^1").splitlines() if "|" in line}
    assert columns == {4}
    assert not re.search(r"^# \[", markdown, re.MULTILINE)
    assert {row["run"] for row in csv.DictReader(io.StringIO(render_csv(runs), newline=""))} == {
        run.label for run in runs
    }
    assert "[red]" in printed(runs)


def test_a_report_fits_a_narrow_terminal(noisy: Path) -> None:
    """Eighty columns are enough for the paper's table."""
    text = printed(load(noisy), width=80)
    assert max(map(len, text.splitlines())) <= 80
    assert re.search(r"Run +pt +fr +de +es +it +en +Overall", text)


def test_a_file_that_cannot_be_written_is_told(noisy: Path, tmp_path: Path) -> None:
    """The message names the file."""
    with pytest.raises(RunWriteError, match=r"nowhere.report\.md: cannot be written"):
        write_markdown(load(noisy), tmp_path / "nowhere" / "report.md")
