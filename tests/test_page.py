"""The report's page in a real browser: readable, filterable, harmless whatever a model wrote, silent on the network.

Needs Chromium or Chrome and the `browser` extra. Without them the tests are skipped, unless TICKET_GYM_REQUIRE_BROWSER
is set, as it should be where these tests must not be missed.
"""

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from ticket_gym.agents import ScriptedAgent, make_agent
from ticket_gym.journal import CONFIG_FILE, EPISODES_FILE
from ticket_gym.records import ModelInfo
from ticket_gym.report import ScoredRun, load_runs, render_html, write_html

MakeRun = Callable[..., Path]
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
LARGEST_PAGE = 3_000_000
"""Bytes, for three trials of the whole benchmark."""

ATTACK = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
ARABIC = "لا توجد مباراة تناسب الطلب، لذلك لم أشترِ شيئًا."
EMOJI = "🎟️👩‍👩‍👧‍👦⚽"
LONG_TEXT = "una risposta molto lunga " * 4_000


class Opened:
    """A page in the browser, with everything that went wrong on it."""

    def __init__(self, browser: Any, file: Path, **context: Any) -> None:
        """Open a file."""
        self.page = browser.new_context(**context).new_page()
        self.troubles: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.troubles.append(message.text))
        self.page.on("pageerror", lambda error: self.troubles.append(str(error)))
        self.page.on("dialog", self._dismiss)
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(file.as_uri())
        self.page.wait_for_function("!document.getElementById('count').textContent.includes('Unpacking')")
        self.file = file

    def _dismiss(self, dialog: Any) -> None:
        self.troubles.append(dialog.message)
        dialog.dismiss()

    def count(self) -> int:
        """How many episodes the filters leave."""
        found = re.match(r"([\d,]+) of", self.page.inner_text("#count"))
        assert found is not None
        return int(found[1].replace(",", ""))

    def choose(self, **filters: str) -> int:
        """Set filters, clear the others, and tell how many episodes are left."""
        self.page.evaluate("document.getElementById('filters').reset()")
        self.page.wait_for_timeout(20)
        for name, value in filters.items():
            control = self.page.locator(f"#filters [name={name}]")
            control.fill(value) if name == "text" else control.select_option(value)
        return self.count()

    def close(self) -> None:
        """Check that nothing went wrong, and close."""
        assert not self.troubles
        assert set(self.requests) <= {self.file.as_uri(), "data:,"}
        self.page.context.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless browser."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _do_without("playwright: pip install 'ticket-gym[browser]'")
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        _do_without(f"a browser: none of {', '.join(BROWSERS)} is installed")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, args=list(FLAGS))
        yield started
        started.close()


def _do_without(missing: str) -> NoReturn:
    if os.environ.get("TICKET_GYM_REQUIRE_BROWSER"):
        pytest.fail(f"needs {missing}")
    pytest.skip(f"needs {missing}")


@pytest.fixture(scope="module")
def whole(make_run: MakeRun) -> list[ScoredRun]:
    """Three trials of the whole benchmark."""
    return load_runs([make_run("noisy_oracle:0.8")], resamples=199)


@pytest.fixture(scope="module")
def whole_file(whole: list[ScoredRun], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its page."""
    file = tmp_path_factory.mktemp("page") / "report.html"
    write_html(whole, file)
    return file


def test_the_whole_benchmark_fits_a_small_page(whole: list[ScoredRun], whole_file: Path) -> None:
    """3,060 conversations take a few megabytes, and the same run gives the same page."""
    assert whole[0].summary.overall.counts.present == 3060
    assert whole_file.stat().st_size < LARGEST_PAGE
    assert render_html(whole) == whole_file.read_text(encoding="utf-8")


def test_filters_agree_with_the_scores(browser: Any, whole: list[ScoredRun], whole_file: Path) -> None:
    """Each filter leaves as many episodes as the summary counts, alone and together."""
    opened = Opened(browser, whole_file)
    [run] = whole
    total = run.summary.overall.total
    assert opened.count() == 3060
    assert opened.choose(outcome="success") == total.successes
    assert opened.choose(outcome="failure") == 3060 - total.successes
    french = run.summary.languages["fr"].total
    assert opened.choose(language="fr", outcome="success") == french.successes
    assert opened.choose(template="t07") == 180
    causes = run.causes()
    most = causes["t01"].most_common(1)[0]
    assert opened.choose(template="t01", cause=most[0]) == most[1]
    assert opened.choose(text="t05-03 lille") == 0
    assert opened.choose(text="T05-03") == 18
    assert opened.choose() == 3060
    opened.close()


def test_a_conversation_reads_as_it_was_played(browser: Any, whole: list[ScoredRun], whole_file: Path) -> None:
    """Request, calls, results, bookings and explanation of a failure, opened with the keyboard alone."""
    opened = Opened(browser, whole_file)
    page = opened.page
    opened.choose(outcome="failure", language="de")
    page.focus("#list")
    for _ in range(3):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    page.wait_for_selector(".verdict")
    assert page.evaluate("document.activeElement.id") == "conversation"
    _, _, language, query, trial = re.split("[#/]", page.evaluate("location.hash").replace("episode/", ""))
    failures = [(episode, verdict) for episode, verdict in whole[0].episodes() if not verdict.success]
    [(episode, verdict)] = [
        pair
        for pair in failures
        if (pair[0].language, pair[0].query_id, str(pair[0].trial)) == (language, query, trial)
    ]
    assert page.inner_text(".message.user .text") == episode.messages[1]["content"]
    calls = [call for message in episode.messages for call in message.get("tool_calls") or []]
    assert page.locator(".call .name").all_inner_texts() == [call["function"]["name"] for call in calls]
    results = [message["content"] for message in episode.messages if message["role"] == "tool"]
    assert page.locator(".message.tool .text").all_text_contents() == results
    shown = page.inner_text(".verdict")
    for game in (*verdict.diagnosis.missing, *verdict.diagnosis.extra):
        assert f"Game {game} (" in shown
    side = page.inner_text(".side")
    for game in {*episode.bookings, *whole[0].find_task("de", query).expected}:
        assert f"game {game} ·" in side
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.id") == "list"
    opened.close()


def test_the_heat_map_leads_to_its_episodes(browser: Any, whole_file: Path) -> None:
    """A cell filters by its template and language."""
    opened = Opened(browser, whole_file)
    opened.page.click("button[data-template=t09][data-language=it]")
    assert opened.count() == 30
    assert opened.page.locator("#list li").count() == 30
    opened.close()


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (390, "dark"), (1280, "light"), (1280, "dark")])
def test_the_page_fits_every_screen(browser: Any, whole_file: Path, width: int, scheme: str) -> None:
    """No sideways scrolling, and text in plain contrast to its ground, in light and dark."""
    opened = Opened(browser, whole_file, viewport={"width": width, "height": 844}, color_scheme=scheme)
    page = opened.page
    page.click("#list li")
    page.wait_for_selector(".verdict")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    luminance = page.evaluate(
        """() => ["backgroundColor", "color"].map((name) => {
            const parts = getComputedStyle(document.body)[name].match(/[\\d.]+/g).slice(0, 3).map(Number);
            const linear = parts.map((part) => ((part / 255 + 0.055) / 1.055) ** 2.4);
            return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
        })"""
    )
    darker, lighter = sorted(luminance)
    assert (lighter + 0.05) / (darker + 0.05) > 7
    assert (luminance[0] > luminance[1]) == (scheme == "light")
    opened.close()


# Whatever a model may write


@pytest.fixture(scope="module")
def hostile_file(make_run: MakeRun, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page whose model has an evil name and answers with everything that could break a page."""
    model = ModelInfo(name=ATTACK, family=f"$x$ {EMOJI}", size_b=7)
    folder = make_run("oracle", languages=["it"], queries=["t01-01", "t02-01"], trials=1, model=model)
    target = tmp_path_factory.mktemp("hostile")
    (target / CONFIG_FILE).write_bytes((folder / CONFIG_FILE).read_bytes())
    lines = []
    for line in (folder / EPISODES_FILE).read_text(encoding="utf-8").splitlines():
        episode = json.loads(line)
        *_, answer = episode["messages"]
        answer["content"] = f"{ATTACK}\n{ARABIC}\n{EMOJI}\n{LONG_TEXT}"
        answer["reasoning_content"] = f"<b>{ATTACK}</b>"
        call = next(message for message in episode["messages"] if message.get("tool_calls"))["tool_calls"][0]
        call["function"]["arguments"] = f'{{"{ATTACK}": '
        episode["messages"].append(
            {"role": ATTACK, "content": [{"type": "text", "text": ATTACK}], "odd": {"a": [ATTACK]}}
        )
        lines.append(json.dumps(episode, ensure_ascii=False) + "\n")
    (target / EPISODES_FILE).write_text("".join(lines), encoding="utf-8")
    file = target / "report.html"
    write_html(load_runs([target], resamples=199), file)
    return file


def test_no_content_does_harm(browser: Any, hostile_file: Path) -> None:
    """Markup, Arabic, emoji and 100,000 characters are shown as they are, and nothing of it runs."""
    assert "<script>alert" not in hostile_file.read_text(encoding="utf-8")
    opened = Opened(browser, hostile_file, viewport={"width": 390, "height": 844})
    page = opened.page
    assert page.inner_text("h1") == ATTACK
    assert ATTACK in page.inner_text("#plots .legend") or EMOJI in page.inner_text("#plots .legend")
    page.click("#list li")
    page.wait_for_selector(".verdict")
    answer = page.locator(".message.assistant").last
    answer.locator("button.more").click()
    assert answer.locator(".text.long").text_content() == f"{ATTACK}\n{ARABIC}\n{EMOJI}\n{LONG_TEXT}"
    assert answer.locator("details .text").text_content() == f"<b>{ATTACK}</b>"
    assert page.locator(".call .arguments").first.text_content() == f' {{"{ATTACK}": '
    assert page.locator(".chat > .message").last.locator(".role").text_content() == ATTACK
    assert page.locator("#conversation img, #conversation script").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    directions = page.evaluate(
        """(text) => {
            const node = document.createElement("div");
            node.className = "text";
            node.dir = "auto";
            node.textContent = text;
            document.getElementById("conversation").append(node);
            return getComputedStyle(node).direction;
        }""",
        ARABIC,
    )
    assert directions == "rtl"
    opened.close()


def test_several_runs_share_a_page(browser: Any, make_run: MakeRun, tmp_path: Path) -> None:
    """Runs are told apart in the filters, and the choice of a run changes what is shown of it."""
    agents = (make_agent("oracle"), ScriptedAgent("do_nothing"))
    runs = load_runs([make_run(agent, queries=["t01-01", "t05-01"], trials=1) for agent in agents], resamples=199)
    write_html(runs, tmp_path / "report.html")
    opened = Opened(browser, tmp_path / "report.html")
    assert opened.count() == 24
    assert opened.choose(run="1") == 12
    assert opened.page.inner_text("#list li:first-child .muted:nth-child(2)") == "do_nothing"
    assert opened.page.locator(".run:visible").get_attribute("data-run") == "0"
    opened.page.select_option("#run-choice", "1")
    assert opened.page.locator(".run:visible").get_attribute("data-run") == "1"
    opened.close()


def test_a_page_without_conversations_is_small_and_works(browser: Any, whole: list[ScoredRun], tmp_path: Path) -> None:
    """Tables and plots alone, for sharing."""
    write_html(whole, tmp_path / "report.html", conversations=False)
    assert (tmp_path / "report.html").stat().st_size < 200_000
    page = browser.new_page()
    troubles: list[str] = []
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("console", lambda message: troubles.append(message.text))
    page.goto((tmp_path / "report.html").as_uri())
    assert page.locator("#scores tbody tr").count() == 2
    assert page.locator("#episodes").count() == 0
    assert not troubles
    page.close()
