"""The data of the page's episode viewer: an index of all episodes, and pages of conversations that are read on demand.

What comes again and again (system prompts, requests, results) is stored once in a string table per page, pages are
compressed one by one, and a reader's browser unpacks only those that are opened.
"""

import base64
import gzip
import json
from collections.abc import Mapping, Sequence
from typing import Any

from ticket_gym.codec import get_codec
from ticket_gym.records import CallRecord, Trajectory
from ticket_gym.report.explain import Explainer
from ticket_gym.report.scoring import ScoredRun, Verdict
from ticket_gym.report.words import CAUSES, load_words
from ticket_gym.request import Task
from ticket_gym.types import RESPOND, Language

_ANSWER_ID = "answer"
_TOLD_ELSEWHERE = frozenset({"role", "content", "tool_calls", "tool_call_id", "name"})


def pack(data: object) -> str:
    """JSON data, compressed, as text that is safe anywhere in HTML; the same data gives the same text."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return base64.b64encode(gzip.compress(text.encode("utf-8", "replace"), 9, mtime=0)).decode("ascii")


def collect_pages(runs: Sequence[ScoredRun]) -> dict[str, str]:
    """All packed pages by name: `index`, and for each run and language one such as `0-fr`."""
    pages: dict[str, ConversationPage] = {}
    index = _Index()
    for number, run in enumerate(runs):
        for episode, verdict in run.episodes():
            name = f"{number}-{episode.language}"
            page = pages.setdefault(name, ConversationPage(episode.league))
            task = run.find_task(episode.language, episode.query_id)
            index.add(number, page.add(task, episode, verdict), task, episode, verdict)
    return {"index": pack(index.data(runs)), **{name: pack(page.data()) for name, page in pages.items()}}


class _Table:
    """Each value once; `place` tells where it is."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._places: dict[str, int] = {}

    def place(self, value: Any) -> int:
        key = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        found = self._places.get(key)
        if found is None:
            found = self._places[key] = len(self.values)
            self.values.append(value)
        return found


class _Index:
    """What the list of episodes shows and filters by."""

    def __init__(self) -> None:
        self._tasks = _Table()
        self._rows: list[tuple[object, ...]] = []

    def add(self, run: int, place: int, task: Task, episode: Trajectory, verdict: Verdict) -> None:
        """Add an episode that stands at `place` of its page."""
        request = get_codec(episode.language, episode.tool_language, episode.league).render_request(task)
        number = self._tasks.place([task.id, task.template, episode.language, request])
        causes = [CAUSES.index(cause) for cause in verdict.diagnosis.causes]
        tokens = episode.usage.prompt_tokens + episode.usage.completion_tokens
        stop = episode.stop_reason.value
        self._rows.append((run, number, episode.trial, place, causes, stop, episode.steps, tokens))

    def data(self, runs: Sequence[ScoredRun]) -> dict[str, Any]:
        """Everything, rows in the order of run, language, query and trial."""
        words = load_words()
        tasks = self._tasks.values
        languages = list(words.languages)

        def order(row: tuple[Any, ...]) -> tuple[Any, ...]:
            query, _, language, _ = tasks[row[1]]
            return row[0], languages.index(language), query, row[2]

        return {
            "runs": [run.label for run in runs],
            "causes": [[cause, words.causes[cause].name, words.causes[cause].meaning] for cause in CAUSES],
            "languages": words.languages,
            "templates": words.templates,
            "tasks": tasks,
            "episodes": sorted(self._rows, key=order),
        }


class ConversationPage:
    """The conversations of one run in one language, with what is read beside them."""

    def __init__(self, league: Language) -> None:
        self._explainer = Explainer(league)
        self._texts = _Table()
        self._games = _Table()
        self._tasks: dict[str, Any] = {}
        self._episodes: list[dict[str, Any]] = []

    def add(self, task: Task, episode: Trajectory, verdict: Verdict) -> int:
        """Add an episode and return its place."""
        if task.id not in self._tasks:
            self._tasks[task.id] = {
                "request": self._explainer.describe_request(task),
                "expected": [self._game(task, game) for game in task.expected],
            }
        named = load_words().constraints
        violations = {
            game: [named[constraint] for constraint in broken] for game, broken in verdict.diagnosis.violations
        }
        self._episodes.append(
            {
                "task": task.id,
                "messages": read_messages(episode, self._texts),
                "bookings": [
                    [self._game(task, game), game in task.expected, violations.get(game, [])]
                    for game in episode.bookings
                ],
                "explanation": [
                    self._texts.place(line) for line in self._explainer.explain(task, episode, verdict.diagnosis)
                ],
                "seed": str(episode.seed),
                "wall_s": episode.wall_s,
            }
        )
        return len(self._episodes) - 1

    def _game(self, task: Task, game_id: int) -> int:
        return self._games.place(self._explainer.describe_game(task, game_id))

    def data(self) -> dict[str, Any]:
        """Everything on the page."""
        return {
            "texts": self._texts.values,
            "games": self._games.values,
            "tasks": self._tasks,
            "episodes": self._episodes,
        }


def read_messages(episode: Trajectory, texts: _Table) -> list[dict[str, Any]]:
    """A conversation as the viewer shows it; texts are places in the table.

    Nothing is left out: what is neither text nor calls, such as a model's reasoning, is kept under its own key.
    """
    played = [call for call in episode.calls if not (call.name == RESPOND and call.id == _ANSWER_ID)]
    shown: list[dict[str, Any]] = []
    for message in episode.messages:
        entry: dict[str, Any] = {"role": str(message.get("role", ""))}
        if (content := message.get("content")) not in (None, ""):
            entry["text"] = texts.place(_as_text(content))
        calls = message.get("tool_calls")
        if isinstance(calls, list) and calls:
            entry["calls"] = [_read_call(call, played, texts) for call in calls]
        extras = {key: texts.place(_as_text(value)) for key, value in message.items() if _is_extra(key, value)}
        if extras:
            entry["extras"] = extras
        shown.append(entry)
    return shown


def _read_call(call: object, played: list[CallRecord], texts: _Table) -> dict[str, Any]:
    """One call of a message, with what became of it when it was played."""
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        return {"name": "", "arguments": texts.place(_as_text(call))}
    name = str(function.get("name", ""))
    shown: dict[str, Any] = {"name": name, "arguments": texts.place(_as_text(function.get("arguments", "")))}
    if played and played[0].name == name:
        record = played.pop(0)
        shown |= {"error": record.error} if record.error else {}
        shown |= {"repairs": record.repairs} if record.repairs else {}
    return shown


def _is_extra(key: str, value: object) -> bool:
    return key not in _TOLD_ELSEWHERE and value not in (None, "", [], {})


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
