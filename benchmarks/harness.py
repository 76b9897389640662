"""What the harness costs beside the model: speed and memory with an agent that answers at once, and the time to score.

    python benchmarks/harness.py [--episodes 4000] [--scored 100000]

Every episode is eight calls: a user's data, three pages of games, a leaderboard, a weekday, a purchase and the answer.
The agent gives way to the event loop at every turn, as one that waits for a server does, but waits for nothing. Times
are CPU times of this process. Prints a table to standard error and one line of JSON to standard output.
"""

import argparse
import asyncio
import gc
import json
import os
import statistics
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path
from typing import Any

from ticket_gym.agents import Turn
from ticket_gym.journal import MemoryJournal, RunFolder
from ticket_gym.metrics import Grid, QueryInfo, collect_outcomes, summarize
from ticket_gym.plan import make_config
from ticket_gym.records import RunConfig
from ticket_gym.rollout import play_episode
from ticket_gym.runner import run
from ticket_gym.session import Session
from ticket_gym.tasks import get_benchmark
from ticket_gym.types import LANGUAGES, Message, ToolCall
from ticket_gym.world import PAST_YEARS, YEAR

CALLS = 8
CONCURRENCIES = (1, 64, 1024)
LIVE = 1024
ROUNDS = 3


class Scripted:
    """Plays the same eight calls in every episode; can hold every episode before its last turn."""

    name = "scripted-8"

    def __init__(self) -> None:
        """Nothing is held at first."""
        self.held: asyncio.Event | None = None
        self.waiting = 0

    def describe(self) -> dict[str, Any]:
        """There is nothing to choose."""
        return {"agent": self.name}

    def start(self, session: Session, seed: int) -> "ScriptedPlayer":
        """A player for one episode."""
        return ScriptedPlayer(self, session)


class ScriptedPlayer:
    """One episode."""

    def __init__(self, agent: Scripted, session: Session) -> None:
        """Word the calls in the language of the tools."""
        codec = session.codec
        names, word = codec.tool_names, codec.parameter_name
        played: list[tuple[str, dict[str, object]]] = [(names["get_user_info"], {})]
        played += [(names["list_games"], {word("list_games", "page"): page}) for page in (1, 2, 3)]
        played.append((names["get_leaderboard"], {word("get_leaderboard", "year"): PAST_YEARS[-1]}))
        date = f"{YEAR}-03-01"
        played.append((names["get_weekday_from_date"], {word("get_weekday_from_date", "date"): date}))
        played.append((names["buy_game_ticket"], {word("buy_game_ticket", "game_id"): 1}))
        self.agent = agent
        self.calls = [ToolCall(name, arguments, f"call_{number}") for number, (name, arguments) in enumerate(played)]
        self.turns = 0

    async def turn(self, messages: list[Message]) -> Turn:
        """The next call, or the answer."""
        await asyncio.sleep(0)
        self.turns += 1
        if self.turns < CALLS:
            call = self.calls[self.turns - 1]
            return Turn({"role": "assistant", "content": None, "tool_calls": [call.to_message()]}, (call,))
        if self.agent.held is not None:
            self.agent.waiting += 1
            await self.agent.held.wait()
        return Turn({"role": "assistant", "content": "-"})


def measure_speed(config: RunConfig, concurrency: int, folder: str | None) -> float:
    """CPU seconds of one run, median of a few."""
    seconds = []
    for number in range(ROUNDS):
        gc.collect()
        begin = time.process_time()
        if folder is None:
            asyncio.run(run(config, Scripted(), Discard(), concurrency=concurrency))
        else:
            with RunFolder.open(Path(folder) / f"{concurrency}-{number}", config) as journal:
                asyncio.run(run(config, Scripted(), journal, concurrency=concurrency))
        seconds.append(time.process_time() - begin)
    return statistics.median(seconds)


class Discard(MemoryJournal):
    """Drops every episode, so that keeping them is not measured."""

    def append(self, episode: object) -> None:
        """Let it go."""


async def _hold_live() -> dict[str, float]:
    """Bytes of each of many episodes before their last turn, by the allocator and by the system."""
    agent = Scripted()
    agent.held = asyncio.Event()
    queries = [task.id for task in get_benchmark().tasks]
    sessions = [Session(language=LANGUAGES[number % len(LANGUAGES)]) for number in range(LIVE)]
    gc.collect()
    before, resident = tracemalloc.get_traced_memory()[0], resident_bytes()
    tasks = [
        asyncio.create_task(play_episode(session, agent, queries[number % len(queries)]))
        for number, session in enumerate(sessions)
    ]
    while agent.waiting < LIVE:
        await asyncio.sleep(0)
    gc.collect()
    found = {
        "traced": (tracemalloc.get_traced_memory()[0] - before) / LIVE,
        "resident": (resident_bytes() - resident) / LIVE,
    }
    agent.held.set()
    await asyncio.gather(*tasks)
    return found


def measure_memory() -> dict[str, float]:
    """Bytes per live episode, its conversation included; tracing falsifies the system's figure, hence two passes."""
    resident = asyncio.run(_hold_live())["resident"]
    tracemalloc.start()
    traced = asyncio.run(_hold_live())["traced"]
    tracemalloc.stop()
    return {"traced": traced, "resident": resident}


def resident_bytes() -> int:
    """Memory of this process in the machine; 0 where the system does not tell it."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def measure_scoring(episodes: int) -> dict[str, float]:
    """CPU seconds to read a journal of this length (one trial of everything, again and again), and to score it."""
    agent, played = Scripted(), MemoryJournal()
    trials = -(-episodes // (len(LANGUAGES) * len(get_benchmark().tasks)))
    config = make_config(agent, trials=trials)
    tasks = get_benchmark().by_id
    queries = tuple(QueryInfo(query, tasks[query].template, tasks[query].solvable) for query in config.queries)
    asyncio.run(run(config.model_copy(update={"trials": 1}), agent, played, concurrency=64))
    with tempfile.TemporaryDirectory() as folder:
        with RunFolder.open(folder, config) as journal:
            for trial in range(trials):
                for episode in played.episodes:
                    journal.append(episode.model_copy(update={"trial": trial}))
        played.episodes.clear()
        size = (Path(folder) / "episodes.jsonl").stat().st_size
        begin = time.process_time()
        outcomes = collect_outcomes(
            RunFolder.read(folder).episodes(messages=False), Grid(config.languages, queries, trials)
        )
        read = time.process_time()
        summarize(outcomes)
        scored = time.process_time()
    return {
        "episodes": outcomes.success.size,
        "megabytes": size / 1e6,
        "read_s": read - begin,
        "summarize_s": scored - read,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=4080, help="episodes of each speed run (default 4080)")
    parser.add_argument("--scored", type=int, default=0, help="episodes of the scoring run (default none)")
    options = parser.parse_args()
    config = make_config(Scripted(), trials=max(1, options.episodes // 1020))
    episodes = len(config.languages) * len(config.queries) * config.trials
    results: dict[str, Any] = {"calls_per_episode": CALLS, "episodes": episodes}
    asyncio.run(run(config.model_copy(update={"trials": 1}), Scripted(), Discard()))
    # First, for later on the system's figure would not grow: memory of earlier runs is used again.
    results["bytes_per_live_episode"] = memory = {name: round(value) for name, value in measure_memory().items()}
    print(f"{LIVE} live episodes: {memory['traced']} bytes each, {memory['resident']} resident", file=sys.stderr)
    print(f"{'concurrency':>11}  {'journal':7}  {'episodes/s':>10}  {'us CPU per model call':>21}", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        for concurrency in CONCURRENCIES:
            for journal in (False, True):
                seconds = measure_speed(config, concurrency, folder if journal else None)
                rate, per_call = episodes / seconds, seconds / episodes / CALLS * 1e6
                results[f"concurrency_{concurrency}{'_journal' if journal else ''}"] = {
                    "episodes_per_cpu_s": round(rate, 1),
                    "cpu_us_per_model_call": round(per_call, 1),
                }
                shown = "yes" if journal else "no"
                print(f"{concurrency:>11}  {shown:7}  {rate:>10.0f}  {per_call:>21.1f}", file=sys.stderr)
    if options.scored:
        results["scoring"] = scoring = {
            name: round(value, 2) for name, value in measure_scoring(options.scored).items()
        }
        print(
            f"{scoring['episodes']:.0f} episodes, {scoring['megabytes']:.0f} MB: read in {scoring['read_s']} s, "
            f"scored in {scoring['summarize_s']} s",
            file=sys.stderr,
        )
    print(json.dumps(results))


if __name__ == "__main__":
    main()
