"""What must hold for every template in every language: the oracle's 1.000, and nobody else's."""

import json
from collections import Counter
from functools import cache
from typing import Any

import pytest

from ticket_gym.agents import CARELESS, ScriptedAgent
from ticket_gym.records import Trajectory
from ticket_gym.rollout import play_episode
from ticket_gym.session import Session
from ticket_gym.tasks import TEMPLATES, diagnose, get_benchmark
from ticket_gym.tasks.diagnosis import CATEGORY_OF
from ticket_gym.types import LANGUAGES, Language

BENCHMARK = get_benchmark()
UNTESTED = {("S", "t07"), ("W", "t09")}
"""Only unsolvable requests of these templates put the category to the test."""


def play_all(agent: str, language: Language) -> dict[str, Trajectory]:
    return _play_all(agent, language)


@cache
def _play_all(agent: str, language: Language) -> dict[str, Trajectory]:
    import asyncio

    async def play() -> dict[str, Trajectory]:
        session = Session(language=language)
        return {
            task.id: await play_episode(session, ScriptedAgent(agent), task, seed=number)
            for number, task in enumerate(BENCHMARK.tasks)
        }

    return asyncio.run(play())


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("template", TEMPLATES)
def test_the_oracle_solves_every_query_with_the_tools_alone(template: str, language: Language) -> None:
    played = [episode for episode in play_all("oracle", language).values() if episode.template == template]
    assert [episode.reward for episode in played] == [1.0] * 10
    assert not any(call.error or call.repairs for episode in played for call in episode.calls)


@pytest.mark.parametrize("language", LANGUAGES)
def test_doing_nothing_scores_the_unsolvable_share(language: Language) -> None:
    played = play_all("do_nothing", language)
    assert sum(episode.success for episode in played.values()) == 26
    assert all(episode.success != BENCHMARK.by_id[query].solvable for query, episode in played.items())


@pytest.mark.parametrize("language", LANGUAGES)
def test_acting_at_random_is_no_better_than_doing_nothing(language: Language) -> None:
    assert sum(episode.success for episode in play_all("random", language).values()) <= 26


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("category", CARELESS)
def test_overlooking_a_category_fails_wherever_it_counts(category: Any, language: Language) -> None:
    for query, episode in play_all(CARELESS[category], language).items():
        task = BENCHMARK.by_id[query]
        if category not in TEMPLATES[task.template].categories:
            assert episode.success, query
        elif task.solvable and (category, task.template) not in UNTESTED:
            assert not episode.success, query


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("category", CARELESS)
def test_a_careless_failure_is_diagnosed_as_its_own_category(category: Any, language: Language) -> None:
    causes: Counter[object] = Counter()
    for query, episode in play_all(CARELESS[category], language).items():
        if not episode.success:
            diagnosis = diagnose(BENCHMARK.by_id[query], episode.bookings, episode.stop_reason, episode.calls)
            assert diagnosis.primary is not None and diagnosis.causes[0] is diagnosis.primary
            causes[CATEGORY_OF.get(diagnosis.primary)] += 1
    assert causes[category] >= 0.99 * causes.total() > 0


def canonical(episode: Trajectory) -> list[object]:
    """Calls and results of an episode without any language."""
    session = Session(language=episode.language)
    session.reset(episode.query_id)
    teams = {team.name: slot for slot, team in enumerate(session.codec.clubs.teams)}
    keys = {local: name for name, local in session.codec.texts.keys.items()}
    weekdays = {local: name for name, local in session.codec.texts.weekdays.items()}
    cities = {team.city: slot for slot, team in reversed(list(enumerate(session.codec.clubs.teams)))}

    def plain(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            # Several names can stand for one key in no result at once, so the tool decides nothing here.
            return {keys[local]: plain(item, keys[local]) for local, item in value.items()}
        if isinstance(value, list):
            return [plain(item, key) for item in value]
        if not isinstance(value, str):
            return value
        if key in ("price", "balance"):
            return value.split()[0]
        if key in ("city", "stadium", "name"):
            return "-"
        return teams.get(value, weekdays.get(value, cities.get(value, value)))

    trace: list[object] = []
    for call in episode.calls[:-1]:
        parsed = session.codec.parse(call.name, call.arguments)
        result = json.loads(session.call(call.name, call.arguments).text)
        trace.append((parsed.tool, sorted(parsed.arguments.items()), plain(result)))
    return trace


@pytest.mark.parametrize("language", [language for language in LANGUAGES if language != "en"])
def test_the_reference_calls_leave_the_same_canonical_trace(language: Language) -> None:
    here, there = play_all("oracle", language), play_all("oracle", "en")
    for query, episode in here.items():
        assert episode.bookings == there[query].bookings
        assert canonical(episode) == canonical(there[query])


@pytest.mark.parametrize("language", LANGUAGES)
def test_all_languages_ask_the_same_queries(language: Language) -> None:
    source = Session(language=language).source
    assert [source.get(task.id) for task in BENCHMARK.tasks] == list(BENCHMARK.tasks)
    requests = {Session(language=language).reset(task) for task in BENCHMARK.tasks}
    assert len(requests) > 100


@pytest.mark.parametrize("tool_language", LANGUAGES)
def test_the_oracle_plays_any_mix_of_languages(tool_language: Language) -> None:
    import asyncio

    for language, league in (("fr", "pt"), ("en", "de")):
        session = Session(language=language, tool_language=tool_language, league=league)
        for task in BENCHMARK.tasks[::5]:
            assert asyncio.run(play_episode(session, ScriptedAgent("oracle"), task)).success


def test_the_oracle_also_solves_streams_with_all_their_extras() -> None:
    import asyncio

    for split in ("train", "validation"):
        for language in ("pt", "en"):
            session = Session(split=split, language=language)
            for index in range(17 * 10):
                task = session.source.at(index)
                episode = asyncio.run(play_episode(session, ScriptedAgent("oracle"), task))
                assert episode.success or not task.solvable, task
