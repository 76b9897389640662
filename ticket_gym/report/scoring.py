"""Scores runs offline: from what they recorded, against the expected bookings, and from nothing else."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ticket_gym.errors import ConfigurationError, RunError, UnknownTaskError
from ticket_gym.journal import EPISODES_FILE, Cell, RunFolder
from ticket_gym.metrics import (
    Comparison,
    Cost,
    Grid,
    Outcomes,
    Prices,
    QueryInfo,
    Summary,
    collect_outcomes,
    compare_languages,
    measure_cost,
    summarize,
)
from ticket_gym.metrics.summary import GroupSummary
from ticket_gym.plan import settings_of
from ticket_gym.records import RunConfig, Trajectory
from ticket_gym.report.words import NO_RECORD
from ticket_gym.request import Task
from ticket_gym.tasks import Diagnosis, diagnose, get_benchmark
from ticket_gym.types import Language, StopReason

DEFAULT_K = 3


@dataclass(frozen=True, slots=True)
class Scoring:
    """How runs are scored.

    Attributes:
        k: Greatest k of pass^k.
        confidence: Level of the intervals.
        stratify: Whether intervals are about new queries from the same templates in the same shares.
        resamples: Bootstrap resamples, and permutations of the comparisons.
        seed: Seed of both.
    """

    k: int = DEFAULT_K
    confidence: float = 0.95
    stratify: bool = False
    resamples: int = 9_999
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Verdict:
    """One recorded episode, judged anew.

    Attributes:
        diagnosis: Why it failed.
        recorded_success: What the run had taken it for.
    """

    cell: Cell
    template: str
    diagnosis: Diagnosis
    recorded_success: bool

    @property
    def success(self) -> bool:
        """Whether it counts as a success."""
        return self.diagnosis.success


@dataclass(frozen=True, eq=False)
class ScoredRun:
    """A run with its scores.

    Attributes:
        path: The run folder.
        label: How tables call the run: the model's name, made unique.
        config: What was played.
        scoring: How it was scored.
        outcomes: Every declared episode on its grid.
        summary: The scores.
        verdicts: Every recorded episode, judged anew.
        warnings: What a reader must know before believing the scores.
        episodes_digest: SHA-256 of the episodes' file.
        find_task: Looks a request up by language and query id, as it was played.
        cost: What its tokens cost; None where no prices were given.
    """

    path: Path
    label: str
    config: RunConfig
    scoring: Scoring
    outcomes: Outcomes
    summary: Summary
    verdicts: dict[Cell, Verdict] = field(repr=False)
    warnings: tuple[str, ...]
    episodes_digest: str
    find_task: Callable[[Language, str], Task] = field(repr=False)
    cost: Cost | None = None

    def episodes(self) -> Iterator[tuple[Trajectory, Verdict]]:
        """The recorded episodes, read from the folder again."""
        for episode in RunFolder.read(self.path).episodes():
            verdict = self.verdicts.get(Cell.of(episode))
            if verdict is not None:
                yield episode, verdict

    def compare_languages(self) -> dict[tuple[Language, Language], Comparison]:
        """Each pair of languages on the same queries, corrected for the number of pairs (Holm)."""
        how = self.scoring
        return compare_languages(
            self.outcomes, k=how.k, confidence=how.confidence, resamples=how.resamples, seed=how.seed
        )

    def groups(self) -> dict[str, GroupSummary]:
        """The summary of all languages together as `overall`, and that of each language."""
        languages: dict[str, GroupSummary] = {str(name): group for name, group in self.summary.languages.items()}
        return {"overall": self.summary.overall, **languages}

    def causes(self) -> dict[str, Counter[str]]:
        """Failed episodes by template and primary cause; episodes without a record are failures too."""
        counts = {query.template: Counter[str]() for query in self.outcomes.grid.queries}
        for verdict in self.verdicts.values():
            if verdict.diagnosis.primary is not None:
                counts[verdict.template][verdict.diagnosis.primary] += 1
        missing = (~self.outcomes.recorded).sum(axis=(0, 2))
        for query, number in zip(self.outcomes.grid.queries, missing, strict=True):
            if number:
                counts[query.template][NO_RECORD] += int(number)
        return counts

    def rescored(self, scoring: Scoring) -> "ScoredRun":
        """The same run, scored in another way."""
        return replace(self, scoring=scoring, summary=_summarize(self.outcomes, scoring))


def load_runs(
    paths: Sequence[str | Path],
    *,
    k: int | None = None,
    confidence: float = 0.95,
    stratify: bool = False,
    resamples: int = 9_999,
    seed: int = 0,
    prices: Mapping[str, Prices] | None = None,
) -> list[ScoredRun]:
    """Read run folders and score them.

    Args:
        paths: The folders.
        k: k of the headline pass^k; by default 3, or the number of trials where one of the runs has fewer.
        confidence: Level of the intervals.
        stratify: See `ticket_gym.metrics.summarize`.
        resamples: Bootstrap resamples, and permutations of the comparisons.
        seed: Seed of both.
        prices: By model name, to show what the runs cost; they change no score.

    Raises:
        ConfigurationError: No folder is named, one is named twice, or an option cannot be used.
        RunError: A folder is no run, is damaged, or was made with another benchmark.
    """
    folders = [Path(path) for path in paths]
    if not folders or len({folder.resolve() for folder in folders}) < len(folders):
        raise ConfigurationError("runs: name at least one run folder, and none twice")
    runs = [RunFolder.read(folder) for folder in folders]
    fewest = min(run.config.trials for run in runs)
    if k is not None and not 1 <= k <= fewest:
        raise ConfigurationError(f"k={k}: must be from 1 to the number of trials of every run, here {fewest}")
    scoring = Scoring(min(DEFAULT_K, fewest) if k is None else k, confidence, stratify, resamples, seed)
    labels = _label(runs)
    return [_score(run, label, scoring, prices) for run, label in zip(runs, labels, strict=True)]


def _score(run: RunFolder, label: str, scoring: Scoring, prices: Mapping[str, Prices] | None) -> ScoredRun:
    """Read a run once: what is kept of an episode is its verdict and its place in the scores."""
    verdicts: dict[Cell, Verdict] = {}
    find = _task_finder(run.config)
    digest = _file_digest(run.path / EPISODES_FILE)
    outcomes = collect_outcomes(_judge_all(run, find, verdicts), _grid(run.config, find))
    return ScoredRun(
        path=run.path,
        label=label,
        config=run.config,
        scoring=scoring,
        outcomes=outcomes,
        summary=_summarize(outcomes, scoring),
        verdicts=verdicts,
        warnings=tuple(_warnings(run, outcomes, verdicts)),
        episodes_digest=digest,
        find_task=find,
        cost=None if prices is None else measure_cost(outcomes, _names(run.config), prices),
    )


def _judge_all(
    run: RunFolder, find: Callable[[Language, str], Task], verdicts: dict[Cell, Verdict]
) -> Iterator[Trajectory]:
    for episode in run.episodes(messages=False):
        verdict = judge(episode, find(episode.language, episode.query_id), run.config.require_response)
        verdicts[verdict.cell] = verdict
        if verdict.success != episode.success:
            episode = episode.model_copy(update={"success": verdict.success})
        yield episode


def judge(episode: Trajectory, task: Task, require_response: bool) -> Verdict:
    """Judge an episode by its bookings; what it was taken for when it was played does not count."""
    reason = episode.stop_reason
    answered = reason is StopReason.RESPONDED or not require_response
    success = reason is not StopReason.ENGINE_ERROR and answered and tuple(sorted(episode.bookings)) == task.expected
    diagnosis = diagnose(task, episode.bookings, reason, episode.calls, success=success)
    return Verdict(Cell.of(episode), episode.template, diagnosis, episode.success)


def _task_finder(config: RunConfig) -> Callable[[Language, str], Task]:
    """Looks requests up; those of an unlimited split may depend on the league."""
    if config.split == "test" and config.benchmark.get("digest") != get_benchmark().digest:
        raise RunError(
            f"the run was made with benchmark {config.benchmark}, this ticket_gym holds {get_benchmark().version} with "
            f"digest {get_benchmark().digest}: score it with the ticket_gym that played it"
        )
    sources = {language: settings_of(config, language).source() for language in config.languages}

    def find(language: Language, query_id: str) -> Task:
        try:
            return sources[language].get(query_id)
        except UnknownTaskError as error:
            raise RunError(f"the run names a query that cannot be found: {error}") from error

    return find


def _grid(config: RunConfig, find: Callable[[Language, str], Task]) -> Grid:
    tasks = [find(config.languages[0], query) for query in config.queries]
    queries = tuple(QueryInfo(task.id, task.template, task.solvable) for task in tasks)
    return Grid(config.languages, queries, config.trials)


def _names(config: RunConfig) -> tuple[str, ...]:
    """What the model is called: in tables, and by the engine, which a script may have told otherwise."""
    return (config.model.name, *(name for name in [config.agent.get("model")] if isinstance(name, str)))


def _summarize(outcomes: Outcomes, how: Scoring) -> Summary:
    return summarize(
        outcomes,
        k=how.k,
        confidence=how.confidence,
        stratify=how.stratify,
        resamples=how.resamples,
        seed=how.seed,
    )


def _warnings(run: RunFolder, outcomes: Outcomes, verdicts: dict[Cell, Verdict]) -> Iterator[str]:
    yield from run.notices
    expected = outcomes.recorded.size
    if missing := expected - int(outcomes.recorded.sum()):
        yield f"Incomplete: {missing:,} of {expected:,} episodes have no record. They count as failures."
    if broken := int(outcomes.engine_error.sum()):
        yield f"{broken:,} of {expected:,} episodes ended with an engine error. They count as failures."
    changed = [verdict for verdict in verdicts.values() if verdict.success != verdict.recorded_success]
    if changed:
        cell = changed[0].cell
        yield (
            f"The record is wrong about {len(changed):,} episodes: their bookings say otherwise than their recorded "
            f"success, the first being language {cell.language}, query {cell.query_id}, trial {cell.trial}. "
            "The bookings were believed."
        )


def _label(runs: Sequence[RunFolder]) -> list[str]:
    """Model names; where two runs have the same, the folder's name tells them apart, or else its whole path."""
    labels = [run.config.model.name for run in runs]
    for more in (lambda run: run.path.resolve().name, lambda run: str(run.path.resolve())):
        counts = Counter(labels)
        labels = [
            f"{run.config.model.name} ({more(run)})" if counts[label] > 1 else label
            for run, label in zip(runs, labels, strict=True)
        ]
    return labels


def _file_digest(path: Path) -> str:
    if not path.exists():
        return hashlib.sha256().hexdigest()
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
