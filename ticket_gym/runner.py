"""Plays a run: many episodes at once, each recorded as it ends, stopped and continued at will."""

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field

from ticket_gym.agents import Agent
from ticket_gym.errors import ConfigurationError, RunInterruptedError
from ticket_gym.journal import Journal, Recorded, describe_differences
from ticket_gym.plan import PlannedEpisode, plan_run, settings_of
from ticket_gym.records import RunConfig
from ticket_gym.rollout import play_episode
from ticket_gym.session import Session
from ticket_gym.types import Language

DEFAULT_CONCURRENCY = 32


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run has come.

    Attributes:
        total: Episodes of the run.
        done: Recorded episodes, those of earlier runs of the same folder included.
        successes: Successful ones among them.
        errors: Those among them that the engine broke off.
        tokens: Of prompts and completions, over all of them.
        played: Episodes played now.
        elapsed_s: Seconds since the run was begun or continued.
    """

    total: int
    done: int = 0
    successes: int = 0
    errors: int = 0
    tokens: int = 0
    played: int = 0
    elapsed_s: float = 0.0

    @property
    def success_rate(self) -> float | None:
        """Share of successes so far, engine errors counted as failures; None before the first episode."""
        return self.successes / self.done if self.done else None

    @property
    def rate(self) -> float | None:
        """Episodes a second; None before the first episode."""
        return self.played / self.elapsed_s if self.played and self.elapsed_s else None

    @property
    def left_s(self) -> float | None:
        """Seconds that the rest will take at this rate; None before the first episode."""
        return (self.total - self.done) / self.rate if self.rate else None


OnProgress = Callable[[Progress], None]


async def run(
    config: RunConfig,
    agent: Agent,
    journal: Journal,
    *,
    concurrency: int = DEFAULT_CONCURRENCY,
    retry_errors: bool = False,
    on_progress: OnProgress | None = None,
) -> Progress:
    """Play what the journal does not hold yet.

    An engine that fails is recorded as `engine_error` and the run goes on. Any other exception is a fault: the episodes
    in flight are cancelled and it is raised, with a note which episode it broke; what is recorded stays.

    Args:
        config: What is played; see `ticket_gym.plan.make_config`.
        agent: Who plays.
        journal: An open run folder, or a `MemoryJournal`.
        concurrency: Most episodes alive at once.
        retry_errors: Whether episodes that the engine broke off are played again.
        on_progress: Called at the beginning and after each episode.

    Returns:
        How far the run has come: to its end.

    Raises:
        ConfigurationError: The options do not fit.
        RunWriteError: The journal cannot be written.
    """
    if isinstance(concurrency, bool) or not isinstance(concurrency, int) or concurrency < 1:
        raise ConfigurationError(f"concurrency={concurrency!r}: must be an integer from 1")
    if others := describe_differences(config, config.model_copy(update={"agent": agent.describe()})):
        raise ConfigurationError("the configuration was made for another agent: " + "; ".join(others))
    plan = plan_run(config)
    recorded = journal.recorded
    pending: list[PlannedEpisode] = []
    tally = _Tally(len(plan))
    for planned in plan:
        known = recorded.get(planned.cell)
        if known is None or (known.engine_error and retry_errors):
            pending.append(planned)
        else:
            tally.count(known)
    report = on_progress or (lambda progress: None)
    report(tally.progress())
    line = _Line(config, agent, journal, iter(pending), tally, report)
    await _run_together([line.work for _ in range(min(concurrency, len(pending)))])
    return tally.progress()


async def _run_together(works: list[Callable[[], Coroutine[None, None, None]]]) -> None:
    """Run workers side by side; the first fault of one ends all and is raised as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            for work in works:
                group.create_task(work())
    except BaseExceptionGroup as faults:
        first, *others = faults.exceptions
        for other in others:
            first.add_note(f"another fault while stopping: {other!r}")
        raise first from None


@dataclass(slots=True)
class _Tally:
    total: int
    done: int = 0
    successes: int = 0
    errors: int = 0
    tokens: int = 0
    played: int = 0
    begun: float = field(default_factory=time.monotonic)

    def count(self, episode: Recorded) -> None:
        self.done += 1
        self.successes += episode.success
        self.errors += episode.engine_error
        self.tokens += episode.tokens

    def progress(self) -> Progress:
        return Progress(
            self.total,
            self.done,
            self.successes,
            self.errors,
            self.tokens,
            self.played,
            time.monotonic() - self.begun,
        )


@dataclass(frozen=True, slots=True)
class _Line:
    """What the workers of a run share: each takes the next episode, plays it, records it."""

    config: RunConfig
    agent: Agent
    journal: Journal
    pending: Iterator[PlannedEpisode]
    tally: _Tally
    report: OnProgress

    async def work(self) -> None:
        sessions: dict[Language, Session] = {}
        for planned in self.pending:
            cell = planned.cell
            if cell.language not in sessions:
                sessions[cell.language] = Session(settings_of(self.config, cell.language))
            try:
                episode = await play_episode(
                    sessions[cell.language], self.agent, cell.query_id, trial=cell.trial, seed=planned.seed
                )
            except Exception as fault:
                fault.add_note(f"while playing {cell}, seed {planned.seed}")
                raise
            self.journal.append(episode)
            self.tally.count(Recorded.of(episode))
            self.tally.played += 1
            self.report(self.tally.progress())
            # An agent that never waits would otherwise keep the other workers, and Ctrl-C, from their turn.
            await asyncio.sleep(0)


def play(
    config: RunConfig,
    agent: Agent,
    journal: Journal,
    *,
    concurrency: int = DEFAULT_CONCURRENCY,
    retry_errors: bool = False,
    on_progress: OnProgress | None = None,
) -> Progress:
    """`run` for programs without an event loop. Ctrl-C and SIGTERM stop it cleanly; a second one stops it at once.

    Raises:
        RunInterruptedError: It was stopped; the message says how to go on.
        ConfigurationError: The options do not fit.
        RunWriteError: The journal cannot be written.
    """
    work = run(config, agent, journal, concurrency=concurrency, retry_errors=retry_errors, on_progress=on_progress)
    caught: list[int] = []
    try:
        return asyncio.run(_until_signal(work, caught))
    except (KeyboardInterrupt, asyncio.CancelledError):
        number = signal.Signals(caught[0] if caught else signal.SIGINT)
    done, total = len(journal.recorded), len(config.languages) * len(config.queries) * config.trials
    raise RunInterruptedError(
        f"stopped by {number.name}: {done} of {total} episodes are recorded; the same command continues the run", number
    )


async def _until_signal(work: Coroutine[None, None, Progress], caught: list[int]) -> Progress:
    """Let the first signal cancel the work; from then on signals do what they do by default."""
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(work)
    numbers = (signal.SIGINT, signal.SIGTERM)

    def stop(number: int) -> None:
        caught.append(number)
        restore()
        task.cancel()

    def restore() -> None:
        for number in numbers:
            with contextlib.suppress(NotImplementedError, ValueError, RuntimeError):
                loop.remove_signal_handler(number)

    for number in numbers:
        # Refused outside the main thread and on systems where loops take no signals: there they act as ever.
        with contextlib.suppress(NotImplementedError, ValueError, RuntimeError):
            loop.add_signal_handler(number, stop, number)
    try:
        return await task
    finally:
        restore()
