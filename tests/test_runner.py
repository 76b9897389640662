"""Runs: continued wherever they were stopped, and loud about faults."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import ticket_gym
from ticket_gym.agents import Player, ScriptedAgent, Turn
from ticket_gym.errors import ConfigurationError, EngineError, RunInterruptedError
from ticket_gym.journal import EPISODES_FILE, Cell, MemoryJournal, RunFolder
from ticket_gym.plan import make_config, plan_run
from ticket_gym.records import Trajectory
from ticket_gym.runner import Progress, play, run
from ticket_gym.session import Session
from ticket_gym.types import Message, StopReason

ROOT = Path(ticket_gym.__file__).parents[1]


class Watched:
    """An oracle that waits at every turn, may fail, and is counted."""

    name = "watched"

    def __init__(self, fail: Callable[[Cell], None] = lambda cell: None, delay: float = 0.0) -> None:
        """Choose what happens at every turn of an episode, and how long a turn takes in seconds."""
        self.fail = fail
        self.delay = delay
        self.live: set[object] = set()
        self.most = 0
        self.begun: list[tuple[str, int]] = []

    def describe(self) -> dict[str, Any]:
        """What fails when is no part of the configuration, so that a fault can be mended."""
        return {"agent": "watched"}

    def start(self, session: Session, seed: int) -> Player:
        """A player that is counted while it lives."""
        self.begun.append((session.playing.id, seed))
        return WatchedPlayer(self, session, seed)


class WatchedPlayer:
    """One episode of `Watched`."""

    def __init__(self, watch: Watched, session: Session, seed: int) -> None:
        """Play the oracle's part."""
        self.watch = watch
        self.cell = Cell(session.codec.language, session.playing.id, 0)
        self.inner = ScriptedAgent("oracle").start(session, seed)

    async def turn(self, messages: list[Message]) -> Turn:
        """The oracle's turn, after a wait."""
        self.watch.live.add(self)
        self.watch.most = max(self.watch.most, len(self.watch.live))
        await asyncio.sleep(self.watch.delay)
        self.watch.fail(self.cell)
        turn = await self.inner.turn(messages)
        if not turn.calls:
            self.watch.live.discard(self)
        return turn


def gist(episodes: Sequence[Trajectory]) -> dict[Cell, dict[str, Any]]:
    """Episodes by cell, without their times; none may come twice."""
    found = {Cell.of(one): one.model_dump(mode="json", exclude={"started_at", "wall_s"}) for one in episodes}
    assert len(found) == len(episodes)
    return found


# Running


def test_the_oracle_is_right_everywhere_and_a_second_run_plays_nothing(tmp_path: Path) -> None:
    """A run ends with exactly its plan, in a folder and in memory alike."""
    agent = ScriptedAgent("oracle")
    config = make_config(agent, languages=["pt", "de"], count=34, trials=2)
    seen: list[Progress] = []
    with RunFolder.open(tmp_path, config) as folder:
        last = play(config, agent, folder, concurrency=5, on_progress=seen.append)
    assert (last.total, last.done, last.successes, last.errors, last.played) == (136, 136, 136, 0, 136)
    assert [progress.done for progress in seen] == list(range(137))
    assert seen[0].rate is None and seen[-1].left_s == 0
    memory = MemoryJournal()
    play(config, agent, memory)
    stored = gist(list(RunFolder.read(tmp_path).episodes()))
    assert stored == gist(memory.episodes)
    assert {(cell, one["seed"]) for cell, one in stored.items()} == {
        (planned.cell, planned.seed) for planned in plan_run(config)
    }
    with RunFolder.open(tmp_path, config) as folder:
        again = play(config, agent, folder)
    assert (again.done, again.successes, again.played) == (136, 136, 0)


@pytest.mark.parametrize("concurrency", [1, 7, 64])
def test_as_many_episodes_live_at_once_as_asked_for(concurrency: int) -> None:
    """Never more; and fewer only where there are fewer."""
    agent = Watched()
    config = make_config(agent, languages=["fr"], count=34, trials=1)
    play(config, agent, MemoryJournal(), concurrency=concurrency)
    assert agent.most == min(concurrency, 34)


@pytest.mark.parametrize("concurrency", [0, -1, True, 2.0])
def test_an_unusable_concurrency_is_refused(concurrency: Any) -> None:
    """Before anything is played."""
    agent = ScriptedAgent("oracle")
    with pytest.raises(ConfigurationError, match="concurrency="):
        play(make_config(agent, count=1), agent, MemoryJournal(), concurrency=concurrency)


def test_a_configuration_of_another_agent_is_refused() -> None:
    """A folder must never say that somebody else has played."""
    config = make_config(ScriptedAgent("random"), count=1)
    with pytest.raises(ConfigurationError, match=r'agent\.agent: "random"'):
        play(config, ScriptedAgent("oracle"), MemoryJournal())


def test_engine_errors_are_recorded_and_tried_again_only_when_asked(tmp_path: Path) -> None:
    """The run goes on around them; the new record supersedes the old one, which stays in the file."""

    def fail(cell: Cell) -> None:
        if cell.query_id in ("t02-01", "t05-01"):
            raise EngineError("the server is down")

    agent = Watched(fail)
    config = make_config(agent, languages=["fr", "en"], count=17, trials=1)
    with RunFolder.open(tmp_path, config) as folder:
        last = play(config, agent, folder, concurrency=4)
    assert (last.done, last.errors, last.successes) == (34, 4, 30)
    failed = [one for one in RunFolder.read(tmp_path).episodes() if one.stop_reason is StopReason.ENGINE_ERROR]
    assert {(one.reward, one.success, one.error) for one in failed} == {(None, False, "the server is down")}

    agent = Watched()
    with RunFolder.open(tmp_path, config) as folder:
        assert play(config, agent, folder).played == 0
    with RunFolder.open(tmp_path, config) as folder:
        last = play(config, agent, folder, retry_errors=True)
    assert (last.done, last.errors, last.successes, last.played) == (34, 0, 34, 4)
    assert sorted(agent.begun) == sorted((one.query_id, one.seed) for one in failed)
    read = list(RunFolder.read(tmp_path).episodes())
    assert len(gist(read)) == 34 and all(one.success for one in read)
    assert (tmp_path / EPISODES_FILE).read_bytes().count(b"\n") == 38


def test_a_fault_stops_the_run_loudly_and_keeps_what_is_recorded(tmp_path: Path) -> None:
    """It is no engine error: it says which episode it broke, and once it is mended the run is completed."""

    def fail(cell: Cell) -> None:
        if cell.query_id == "t09-01":
            raise KeyError("a bug")

    agent = Watched(fail, delay=0.001)
    config = make_config(agent, languages=["fr"], count=34, trials=1)
    with RunFolder.open(tmp_path, config) as folder, pytest.raises(KeyError) as caught:
        play(config, agent, folder, concurrency=4)
    assert any("language fr, query t09-01, trial 0" in note for note in caught.value.__notes__)
    before = list(RunFolder.read(tmp_path).episodes())
    assert 0 < len(before) < 34 and all(one.success for one in before)
    with RunFolder.open(tmp_path, config) as folder:
        assert play(config, Watched(), folder).played == 34 - len(before)
    assert len(gist(list(RunFolder.read(tmp_path).episodes()))) == 34


async def test_a_cancelled_run_is_continued(tmp_path: Path) -> None:
    """Inside somebody else's event loop."""
    agent = Watched(delay=0.002)
    config = make_config(agent, languages=["fr"], count=34, trials=1)
    with RunFolder.open(tmp_path, config) as folder:
        task = asyncio.create_task(run(config, agent, folder, concurrency=4))
        while len(folder.recorded) < 5:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert 5 <= len(folder.recorded) < 34
    with RunFolder.open(tmp_path, config) as folder:
        await run(config, agent, folder)
    assert len(gist(list(RunFolder.read(tmp_path).episodes()))) == 34


# Stopped from outside


NURSERY = """
import asyncio, os, sys
from ticket_gym.agents import ScriptedAgent
from ticket_gym.errors import RunInterruptedError
from ticket_gym.journal import RunFolder
from ticket_gym.plan import make_config
from ticket_gym.runner import play

class Slow(ScriptedAgent):
    def start(self, session, seed):
        player = super().start(session, seed)
        turn = player.turn
        async def slow(messages):
            await asyncio.sleep(delay)
            return await turn(messages)
        player.turn = slow
        return player

def work():
    with RunFolder.open(sys.argv[1], config) as folder:
        print(os.getpid(), len(folder.recorded), flush=True)
        try:
            play(config, agent, folder, concurrency=8)
        except RunInterruptedError as stop:
            print(stop, flush=True)
            return 128 + stop.signal
    print("complete", flush=True)
    return 0

agent = Slow("random")
config = make_config(agent, languages=["pt", "it"], count=85, trials=5, seed=11)
for line in sys.stdin:
    delay = float(line)
    child = os.fork()
    if not child:
        os._exit(work())
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""Starts a run at every line that it is given, in a process of its own: imports are paid once."""


class Nursery:
    """Runs of random episodes, one after another, that can be killed; see `NURSERY`."""

    def __init__(self, path: Path) -> None:
        """Start the process; every run continues the folder."""
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(
            [sys.executable, "-c", NURSERY, path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def begin(self, delay: float) -> tuple[int, int]:
        """Begin a run with a delay at every turn, in seconds; its process id and how many episodes were there."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{delay}\n")
        self.process.stdin.flush()
        child, recorded = self.read().split()
        return int(child), int(recorded)

    def read(self) -> str:
        """The next line of output: what the run says, then its exit status."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip()


@pytest.fixture
def nursery(tmp_path: Path) -> Iterator[Nursery]:
    """A nursery for the test's folder."""
    if sys.platform == "win32":
        pytest.skip("processes are forked and signalled the POSIX way")
    nursery = Nursery(tmp_path)
    yield nursery
    nursery.process.communicate()


def wait_for_lines(path: Path, lines: int) -> None:
    """Wait until a file has grown by some lines, so that machines of any speed are killed at the same stages."""
    end = time.monotonic() + 60
    with open(path, "rb") as file:
        file.seek(0, os.SEEK_END)
        while lines > 0:
            assert time.monotonic() < end, "the run does not go on"
            lines -= file.read().count(b"\n")
            time.sleep(0.001)


def test_killed_twenty_times_a_run_ends_with_exactly_its_episodes(tmp_path: Path, nursery: Nursery) -> None:
    """None lost, none twice, all as in an undisturbed run."""
    rng = random.Random(5)
    counts = []
    for _ in range(20):
        child, recorded = nursery.begin(0.01)
        counts.append(recorded)
        wait_for_lines(tmp_path / EPISODES_FILE, rng.randrange(40))
        time.sleep(rng.uniform(0.0, 0.01))
        os.kill(child, signal.SIGKILL)
        assert nursery.read() == str(-signal.SIGKILL)
    assert len(set(counts)) > 10, "most kills must fall between episodes that were recorded"
    assert nursery.begin(0.0)[1] < 850
    assert (nursery.read(), nursery.read()) == ("complete", "0")
    agent = ScriptedAgent("random")
    undisturbed = MemoryJournal()
    play(make_config(agent, languages=["pt", "it"], count=85, trials=5, seed=11), agent, undisturbed)
    assert gist(list(RunFolder.read(tmp_path).episodes())) == gist(undisturbed.episodes)
    assert (tmp_path / EPISODES_FILE).read_bytes().count(b"\n") == 850


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_a_run_cleanly_and_says_how_to_go_on(
    tmp_path: Path, nursery: Nursery, number: signal.Signals
) -> None:
    """The message tells what is recorded; the folder is free at once."""
    child, _ = nursery.begin(0.01)
    wait_for_lines(tmp_path / EPISODES_FILE, 20)
    os.kill(child, number)
    output = nursery.read()
    assert nursery.read() == str(128 + number)
    folder = RunFolder.read(tmp_path)
    recorded = len(list(folder.episodes()))
    assert 0 < recorded < 850 and folder.notices == ()
    assert f"stopped by {number.name}: {recorded} of 850 episodes are recorded" in output
    with RunFolder.open(tmp_path, folder.config) as writer:
        assert len(writer.recorded) == recorded


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent the POSIX way")
def test_an_agent_that_never_waits_can_be_stopped_too() -> None:
    """Workers give way after every episode."""
    agent = ScriptedAgent("oracle")
    config = make_config(agent, trials=10)
    journal = MemoryJournal()

    def stop(progress: Progress) -> None:
        if progress.played == 3:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(RunInterruptedError, match=r"stopped by SIGINT: .* of 10200 episodes") as caught:
        play(config, agent, journal, on_progress=stop)
    assert caught.value.signal == signal.SIGINT
    assert 3 <= len(journal.episodes) < 1000
