"""What a reset, a step and a live session cost: `python benchmarks/environment.py`.

Processor time of this process, as medians of repeats, beside a Gymnasium environment that does nothing, measured in
the same run: ratios can be compared between machines, microseconds cannot.
"""

import gc
import json
import statistics
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import gymnasium as gym
from gymnasium import spaces

import ticket_gym  # registers the environments
from ticket_gym import Session

REPEATS = 9
LIVE = 1_000


class NoOp(gym.Env[Any, Any]):
    """Does nothing: the floor of any environment made with `gym.make`."""

    observation_space = spaces.Discrete(2)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin nothing."""
        return 0, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Do nothing."""
        return 0, 0.0, False, False, {}


def measure(work: Callable[[], object], seconds: float = 0.1) -> float:
    """Microseconds of processor time a call takes: the median of repeats of about `seconds` each."""
    work()
    loops, spent = 1, 0.0
    while spent < seconds / 4:
        loops *= 2
        spent = time_loops(work, loops)
    loops = max(1, round(loops * seconds / spent))
    return statistics.median(time_loops(work, loops) / loops * 1e6 for _ in range(REPEATS))


def time_loops(work: Callable[[], object], loops: int) -> float:
    """Seconds of processor time for many calls."""
    gc.collect()
    start = time.process_time()
    for _ in range(loops):
        work()
    return time.process_time() - start


def live_bytes() -> dict[str, float]:
    """Bytes of a live session after a reset, and after a page, a table and a purchase."""
    sessions = [Session(language="fr") for _ in range(LIVE)]
    for session in sessions:
        session.reset("t16-03")
    found = {}
    for name in ("after reset", "after three calls"):
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        fresh = []
        for _ in range(LIVE):
            session = Session(sessions[0].settings)
            session.reset("t16-03")
            if name != "after reset":
                session.call("lister_matchs", {"equipe": "RC Lens"})
                session.call("obtenir_classement", {"annee": 2022})
                session.call("acheter_billet", {"id_match": 77})
            fresh.append(session)
        found[name] = (tracemalloc.get_traced_memory()[0] - before) / LIVE
        tracemalloc.stop()
    return found


def main() -> None:
    """Measure and print a table, then one line of JSON."""
    gym.register("NoOp-v0", entry_point=lambda **_: NoOp())
    nothing = gym.make("NoOp-v0")
    nothing.reset()
    env = gym.make("TicketBench-fr-v0", max_steps=10**9)
    env.reset(options={"query": "t16-03"})
    session = Session(language="fr", max_steps=10**9)
    session.reset("t16-03")
    page = {"name": "lister_matchs", "arguments": {"equipe": "RC Lens", "trier_par": "prix", "page": 2}}
    wire = {"name": "lister_matchs", "arguments": json.dumps(page["arguments"])}
    table = {"name": "obtenir_classement", "arguments": {"annee": 2022}}
    user: dict[str, Any] = {"name": "obtenir_infos_utilisateur", "arguments": {}}
    train = Session(language="fr", split="train")
    places = iter(range(10**9))
    times = {
        "no-op step": measure(lambda: nothing.step(0)),
        "no-op reset": measure(lambda: nothing.reset()),
        "step: page of ten games": measure(lambda: env.step(page)),
        "step: the same, arguments as JSON text": measure(lambda: env.step(wire)),
        "step: leaderboard": measure(lambda: env.step(table)),
        "step: user": measure(lambda: env.step(user)),
        "reset to a query": measure(lambda: env.reset(options={"query": "t16-03"})),
        "reset": measure(lambda: env.reset()),
        "session.call: page of ten games": measure(lambda: session.call("lister_matchs", page["arguments"])),
        "session.reset to a query": measure(lambda: session.reset("t16-03")),
        "a new train task, worlds included": measure(lambda: train.source.at(next(places)), 1.0),
    }
    floor = times["no-op step"]
    print(f"{'':42}{'microseconds':>14}{'times a no-op step':>20}")
    for name, value in times.items():
        print(f"{name:42}{value:14.2f}{value / floor:20.1f}")
    memory = live_bytes()
    for name, size in memory.items():
        print(f"{'bytes of a live session, ' + name:42}{size:14.0f}")
    print(json.dumps({"version": ticket_gym.__version__, "microseconds": times, "bytes": memory}))


if __name__ == "__main__":
    main()
