"""What a run plays: its configuration, its episodes in order, and the seed of each."""

import hashlib
import json
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata

from ticket_gym.agents import Agent
from ticket_gym.errors import ConfigurationError
from ticket_gym.journal import Cell
from ticket_gym.records import ModelInfo, RunConfig
from ticket_gym.session import DEFAULT_MAX_STEPS, Settings
from ticket_gym.tasks import get_benchmark
from ticket_gym.types import LANGUAGES, Language, Split

PACKAGES = ("ticket-gym", "numpy", "gymnasium", "pydantic", "openai", "vllm", "transformers", "torch")
"""Packages whose versions a run tells, where they are installed."""

_SEEDS = 2**31
_SPREAD = 0x9E3779B1


@dataclass(frozen=True, slots=True)
class PlannedEpisode:
    """One episode that a run declares.

    Attributes:
        cell: Its language, query and trial.
        seed: Its own seed, given to the engine.
    """

    cell: Cell
    seed: int


def plan_run(config: RunConfig) -> tuple[PlannedEpisode, ...]:
    """Every episode of a run, in the order in which they begin.

    A trial of everything comes before the next trial, so that an unfinished run holds whole passes; inside a trial the
    languages follow each other, so that an engine can reuse what it knows of the system prompt.
    """
    return tuple(
        PlannedEpisode(Cell(language, query, trial), trial_seed(config.seed, language, query, trial))
        for trial in range(config.trials)
        for language in config.languages
        for query in config.queries
    )


def trial_seed(seed: int, language: Language, query_id: str, trial: int) -> int:
    """The seed of one trial, from 0 to 2**31 - 1: what every engine and generator accepts.

    It seeds the sampling of the agent, never the world, so the language may enter: trials in two languages are
    independent draws. It depends on nothing else, so adding languages, queries or trials changes no seed. Trials of one
    query never share a seed: their distance is an odd multiple, which is one to one modulo a power of two.
    """
    digest = hashlib.sha256(f"{seed}/{language}/{query_id}".encode()).digest()
    return (int.from_bytes(digest[:8], "big") + trial * _SPREAD) % _SEEDS


def settings_of(config: RunConfig, language: Language) -> Settings:
    """The settings of the sessions that play one language of a run."""
    return Settings(
        language=language,
        tool_language=config.tool_language,
        league=config.league,
        split=config.split,
        seed=config.stream_seed,
        max_steps=config.max_steps,
        require_response=config.require_response,
    )


def make_config(
    agent: Agent,
    *,
    languages: Sequence[Language] = LANGUAGES,
    split: Split = "test",
    stream_seed: int = 0,
    templates: Sequence[str] | None = None,
    queries: Sequence[str] | None = None,
    count: int | None = None,
    trials: int = 3,
    seed: int = 0,
    max_steps: int = DEFAULT_MAX_STEPS,
    require_response: bool = False,
    tool_language: Language | None = None,
    league: Language | None = None,
    model: ModelInfo | None = None,
) -> RunConfig:
    """The full configuration of a run, with everything in it that could change a score.

    Args:
        agent: Who plays.
        languages: Languages of the requests, in any order.
        split: Where the queries come from.
        stream_seed: Which stream of an unlimited split.
        templates: Only queries of these templates.
        queries: Just these queries, by id, instead of all of the split.
        count: Only so many queries, the templates in turn; an unlimited split needs it, or `queries`.
        trials: Trials of each query.
        seed: From which every trial's own seed is derived.
        max_steps: Step limit of an episode.
        require_response: Whether an episode that is cut off counts as a failure.
        tool_language: Language of the tools; that of the request by default.
        league: League; that of the request by default.
        model: Who is behind the agent; by default only its name is known.

    Raises:
        ConfigurationError: An option cannot be used; the message names it and says what would be right.
        UnknownTaskError: A query that the split does not hold.
    """
    _check_number("trials", trials, 1)
    _check_number("seed", seed, 0)
    ordered = _in_order(languages)
    settings = Settings(
        language=ordered[0],
        tool_language=tool_language,
        league=league,
        split=split,
        seed=stream_seed,
        templates=None if templates is None else tuple(templates),
        max_steps=max_steps,
        require_response=require_response,
    )
    benchmark = get_benchmark()
    config = RunConfig(
        benchmark={"version": benchmark.version, "digest": benchmark.digest},
        split=split,
        stream_seed=stream_seed,
        languages=ordered,
        tool_language=tool_language,
        league=league,
        queries=_choose_queries(settings, queries, count),
        trials=trials,
        seed=seed,
        max_steps=max_steps,
        require_response=require_response,
        model=model or ModelInfo(name=agent.name),
        agent=agent.describe(),
        prompt_digest="",
        versions=find_versions(),
    )
    return config.model_copy(update={"prompt_digest": digest_prompts(config)})


def _check_number(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigurationError(f"{name}={value!r}: must be an integer from {least}")


def _in_order(languages: Sequence[Language]) -> tuple[Language, ...]:
    if unknown := [language for language in languages if language not in LANGUAGES]:
        raise ConfigurationError(
            f"languages: unknown {', '.join(map(repr, unknown))}; there are {', '.join(LANGUAGES)}"
        )
    if not languages or len(set(languages)) < len(languages):
        raise ConfigurationError("languages: name at least one, and none twice")
    return tuple(language for language in LANGUAGES if language in languages)


def _choose_queries(settings: Settings, queries: Sequence[str] | None, count: int | None) -> tuple[str, ...]:
    """Ids of the queries: those given, or the first of the split with the templates in turn."""
    source = settings.source()
    if queries is not None:
        if count is not None:
            raise ConfigurationError("give either queries or count, not both")
        if not queries or len(set(queries)) < len(queries):
            raise ConfigurationError("queries: name at least one, and none twice")
        return tuple(source.get(query).id for query in queries)
    if count is not None:
        _check_number("count", count, 1)
    if source.size is None:
        if count is None:
            raise ConfigurationError(f"split {settings.split!r} has no end: say how many queries with count")
        return tuple(source.at(index).id for index in range(count))
    if count is not None and count > source.size:
        raise ConfigurationError(f"count={count}: there are only {source.size} queries")
    ids = [source.at(index).id for index in range(source.size)]
    in_turn = sorted(ids, key=lambda query: query.partition("-")[::-1])
    return tuple(sorted(in_turn[:count]))


def digest_prompts(config: RunConfig) -> str:
    """SHA-256 of every text of this package that an agent can be shown in a run.

    System prompts, tool schemas and the requests themselves, and what results are worded with: result keys, messages,
    weekdays, clubs.
    """
    digest = hashlib.sha256()
    for language in config.languages:
        settings = settings_of(config, language)
        codec, source = settings.codec(), settings.source()
        requests = [codec.render_request(source.get(query)) for query in config.queries]
        texts = [codec.texts.model_dump(mode="json"), codec.clubs.model_dump(mode="json")]
        shown = [language, codec.system_prompt, codec.schemas, requests, texts]
        digest.update(json.dumps(shown, ensure_ascii=False, sort_keys=True).encode())
    return digest.hexdigest()


@lru_cache(maxsize=1)
def _versions() -> tuple[tuple[str, str], ...]:
    found = [("python", platform.python_version())]
    for package in PACKAGES:
        try:
            found.append((package, metadata.version(package)))
        except metadata.PackageNotFoundError:
            continue
    return tuple(found)


def find_versions() -> dict[str, str]:
    """Versions of Python and of those of `PACKAGES` that are installed."""
    return dict(_versions())
