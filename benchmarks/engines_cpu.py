r"""A real small model through real engines on a CPU: does the whole path work, and how fast is it there?

    python benchmarks/engines_cpu.py --model HuggingFaceTB/SmolLM2-135M-Instruct --out runs/engines-cpu --parts vllm
    python benchmarks/engines_cpu.py --model ... --out runs/engines-cpu --parts serve transformers
    python benchmarks/engines_cpu.py --model assets/models/small-en --out runs/small-en --chat-template own \
        --languages en --templates t01 t08 --split validation --max-tokens 64 --max-steps 8 --temperature 0

Each part plays the same queries with the same harness and leaves a run folder and a small `PART.json`:

- `vllm`: vLLM in this process; beside the evaluation, the same replayed conversations once each on its own (continuous
  batching) and once in rounds in which all wait for the slowest. Their tool results are those of real episodes,
  shortened.
- `serve`: `vllm serve` on a port of this machine, asked by the OpenAI client.
- `transformers`: the transformers engine.

SmolLM2 is too weak to score: what is shown is that nothing between a request and a score breaks. The small model of
this project makes real calls, so that the engines' scores can be compared. Each part needs its extra installed (`vllm`
or `transformers`) and about 4 GB of memory. vLLM for CPUs takes its settings from the environment:
`VLLM_CPU_KVCACHE_SPACE=2` (GB), `OMP_NUM_THREADS`, and `VLLM_ENABLE_V1_MULTIPROCESSING=0`, which starts one process
fewer. A part that was stopped goes on where it was, without its speed.
"""

import argparse
import asyncio
import contextlib
import heapq
import itertools
import json
import random
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ticket_gym.agents import ModelAgent, make_agent
from ticket_gym.engines import Completion, Engine, Request, make_engine
from ticket_gym.journal import RunFolder
from ticket_gym.metrics import Estimate
from ticket_gym.plan import make_config
from ticket_gym.records import ModelInfo, Trajectory
from ticket_gym.report import load_runs
from ticket_gym.rollout import play_episode
from ticket_gym.runner import run
from ticket_gym.session import Session
from ticket_gym.types import LANGUAGES, SPLITS, Message

TEMPLATE = str(Path(__file__).parents[1] / "baselines" / "configs" / "smollm2_tools.jinja")
OWN_TEMPLATE = "own"
RESULT_CHARACTERS = 200


def main(words: Sequence[str] | None = None) -> None:
    """Run the chosen parts and print what each found."""
    arguments = _parser().parse_args(words)
    arguments.out.mkdir(parents=True, exist_ok=True)
    for part in arguments.parts:
        found = {"part": part, **PARTS[part](arguments)}
        (arguments.out / f"{part}.json").write_text(json.dumps(found, ensure_ascii=False, indent=2) + "\n", "utf-8")
        print(json.dumps(found, ensure_ascii=False, indent=2))


# The benchmark through an engine


def run_vllm(arguments: argparse.Namespace) -> dict[str, Any]:
    """The vLLM engine in this process."""
    return asyncio.run(_run_vllm(arguments))


async def _run_vllm(arguments: argparse.Namespace) -> dict[str, Any]:
    start = time.perf_counter()
    engine = _vllm(arguments)
    ready = round(time.perf_counter() - start, 1)
    try:
        found = await evaluate(engine, "vllm", arguments)
        return {"seconds_to_start": ready, **found, "batching": await compare_batching(engine, arguments)}
    finally:
        await engine.aclose()


def run_transformers(arguments: argparse.Namespace) -> dict[str, Any]:
    """The transformers engine."""
    engine = make_engine(
        "transformers",
        model=arguments.model,
        style="hermes",
        chat_template=arguments.chat_template,
        dtype="float32",
        device="cpu",
        max_context=arguments.context,
        max_batch=arguments.concurrency,
        **_sampling(arguments),
    )
    return asyncio.run(_evaluate_and_close(engine, "transformers", arguments))


def run_serve(arguments: argparse.Namespace) -> dict[str, Any]:
    """`vllm serve` and the OpenAI client."""
    with _server(arguments) as url:
        engine = make_engine(
            "openai",
            model=arguments.model,
            base_urls=(url,),
            style="hermes",
            server="vllm serve --tool-call-parser hermes",
            extra_body={"skip_special_tokens": False},
            **_sampling(arguments),
        )
        return asyncio.run(_evaluate_and_close(engine, "serve", arguments))


async def _evaluate_and_close(engine: Engine, part: str, arguments: argparse.Namespace) -> dict[str, Any]:
    try:
        return await evaluate(engine, part, arguments)
    finally:
        await engine.aclose()


async def evaluate(engine: Engine, part: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Play the queries and sum up the run folder."""
    agent = ModelAgent(engine, ModelInfo(name=Path(arguments.model).name))
    config = make_config(
        agent,
        languages=arguments.languages,
        templates=arguments.templates,
        split=arguments.split,
        count=arguments.count,
        trials=arguments.trials,
        max_steps=arguments.max_steps,
        model=agent.model,
    )
    folder = arguments.out / part
    # Otherwise every conversation of the first batch would compute the system prompt and the tools for itself.
    for language in arguments.languages:
        session = Session(language=language)
        session.reset(session.source.at(0))
        await engine.complete(Request(session.messages, session.tools, seed=0))
    start = time.perf_counter()
    with RunFolder.open(folder, config) as journal:
        progress = await run(config, agent, journal, concurrency=arguments.concurrency, on_progress=_say)
    seconds = time.perf_counter() - start
    speed = {"played": progress.played, "seconds": round(seconds, 1), "concurrency": arguments.concurrency}
    return {"agent": config.agent, "versions": config.versions, **speed, **sum_up(folder, seconds, progress.played)}


def sum_up(folder: Path, seconds: float, played: int) -> dict[str, Any]:
    """Scores with their intervals, and how the calls were written."""
    (scored,) = load_runs([folder])
    episodes: list[Trajectory] = list(RunFolder.read(folder).episodes())
    calls = [call for episode in episodes for call in episode.calls if call.name != "respond"]
    malformed = sum(call.error == "malformed_call" for call in calls)
    tokens = sum(episode.usage.completion_tokens for episode in episodes)
    stops: dict[str, int] = {}
    for episode in episodes:
        stops[episode.stop_reason] = stops.get(episode.stop_reason, 0) + 1
    whole = played == len(episodes)
    return {
        "episodes": len(episodes),
        "model_calls": sum(episode.usage.model_calls for episode in episodes),
        "completion_tokens": tokens,
        "prompt_tokens": sum(episode.usage.prompt_tokens for episode in episodes),
        "cached_tokens": sum(episode.usage.cached_tokens for episode in episodes),
        "completion_tokens_per_second": round(tokens / seconds, 1) if whole else None,
        "episodes_per_second": round(len(episodes) / seconds, 3) if whole else None,
        "tool_calls": len(calls),
        "malformed_calls": malformed,
        "calls_answered_by_an_error": sum(call.error is not None for call in calls),
        "stop_reasons": stops,
        "do_nothing": scored.summary.do_nothing,
        "pass_hat_k": {
            "overall": _interval(scored.summary.overall.total.headline),
            **{language: _interval(group.total.headline) for language, group in scored.summary.languages.items()},
        },
        "pass_1": {
            "overall": _interval(scored.summary.overall.total.success_rate),
            **{language: _interval(group.total.success_rate) for language, group in scored.summary.languages.items()},
        },
    }


def _interval(estimate: Estimate) -> list[float]:
    return [round(number, 4) for number in (estimate.value, estimate.low, estimate.high)]


def _say(progress: Any) -> None:
    print(f"{progress.done}/{progress.total} {progress.elapsed_s:.0f} s", file=sys.stderr, flush=True)


def _vllm(arguments: argparse.Namespace) -> Engine:
    return make_engine(
        "vllm",
        **{
            "model": arguments.model,
            "style": "hermes",
            "chat_template": arguments.chat_template,
            "dtype": "float32",
            "max_model_len": arguments.context,
            "max_num_seqs": arguments.concurrency,
            "enforce_eager": True,
            **_sampling(arguments),
        },
    )


def _sampling(arguments: argparse.Namespace) -> dict[str, Any]:
    return {"temperature": arguments.temperature, "top_p": arguments.top_p, "max_tokens": arguments.max_tokens}


@contextlib.contextmanager
def _server(arguments: argparse.Namespace) -> Iterator[str]:
    """A vLLM server for as long as the block runs."""
    port = random.randrange(20_000, 40_000)
    options = {
        "--port": port,
        "--dtype": "float32",
        "--max-model-len": arguments.context,
        "--max-num-seqs": arguments.concurrency,
        "--max-num-batched-tokens": 32_768,
        "--tool-call-parser": "hermes",
    }
    if arguments.chat_template is not None:
        options["--chat-template"] = arguments.chat_template
    command = [str(Path(sys.executable).with_name("vllm")), "serve", arguments.model]
    command += [str(word) for option in options.items() for word in option]
    log = (arguments.out / "serve.log").open("w", encoding="utf-8")
    command += ["--enforce-eager", "--enable-auto-tool-choice", "--enable-prompt-tokens-details"]
    server = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        while not _healthy(port):
            if server.poll() is not None:
                sys.exit(f"vllm serve has ended: see {log.name}")
            time.sleep(1)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.terminate()
        server.wait()
        log.close()


def _healthy(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


# Continuous batching against rounds


@dataclass(slots=True)
class Clock:
    """What a mode took.

    Attributes:
        generating_s: Seconds that messages were being generated, summed over the conversations.
        idle_s: Seconds that conversations waited for others, summed.
        lengths: Generated tokens, by conversation and turn.
        texts: What was written, by conversation and turn.
    """

    generating_s: float = 0.0
    idle_s: float = 0.0
    lengths: dict[tuple[int, int], int] = field(default_factory=dict)
    texts: dict[tuple[int, int], str] = field(default_factory=dict)


@dataclass(slots=True)
class Replay:
    """A conversation whose tool results are known beforehand, whatever the model writes."""

    number: int
    messages: list[Message]
    tools: list[dict[str, Any]]
    results: list[str]
    turn: int = 0
    memory: dict[str, Any] = field(default_factory=dict)

    async def step(self, engine: Engine, clock: Clock) -> float:
        """One turn; returns when its message was there."""
        start = time.perf_counter()
        seed = 1000 * self.number + self.turn
        request = Request(self.messages, self.tools, seed, f"replay-{self.number}", self.memory)
        completion: Completion = await engine.complete(request)
        end = time.perf_counter()
        clock.generating_s += end - start
        clock.lengths[self.number, self.turn] = completion.usage.completion_tokens
        clock.texts[self.number, self.turn] = str(completion.message["raw_text"])
        result = self.results[self.turn]
        self.messages = [*self.messages, completion.message, {"role": "tool", "tool_call_id": "1", "content": result}]
        self.turn += 1
        return end

    @property
    def done(self) -> bool:
        """Whether all results are used up."""
        return self.turn == len(self.results)


async def compare_batching(engine: Engine, arguments: argparse.Namespace) -> dict[str, Any]:
    """The same conversations through the same engine, on their own and in rounds."""
    found: dict[str, Any] = {"live": arguments.replays_live, "conversations": arguments.replays}
    texts = []
    for name, mode in (("continuous", _alone), ("rounds", _in_rounds)):
        replays = await _replays(arguments)
        start = time.perf_counter()
        clock = await mode(engine, replays, arguments.replays_live)
        seconds = time.perf_counter() - start
        texts.append(clock.texts)
        tokens = sum(clock.lengths.values())
        found[name] = {
            "turns": len(clock.texts),
            "completion_tokens": tokens,
            "seconds": round(seconds, 1),
            "completion_tokens_per_second": round(tokens / seconds, 1),
            "idle_share": round(clock.idle_s / (clock.idle_s + clock.generating_s), 3),
            "decoding_steps": STEPS[name](_by_conversation(clock), arguments.replays_live),
        }
    first = texts[0]
    found["share_of_equal_messages"] = sum(texts[1][key] == text for key, text in first.items()) / len(first)
    return found


async def _replays(arguments: argparse.Namespace) -> list[Replay]:
    """Conversations from episodes of the oracle: its requests and tools, and the results that it got."""
    replays = []
    for number in range(arguments.replays):
        session = Session(language=arguments.languages[number % len(arguments.languages)])
        episode = await play_episode(session, make_agent("oracle"), session.source.at(number))
        results = [
            str(message["content"])[:RESULT_CHARACTERS] for message in episode.messages if message["role"] == "tool"
        ]
        start: list[Message] = [dict(message) for message in episode.messages[:2]]
        replays.append(Replay(number, start, session.tools, results[: 1 + number % 5]))
    return replays


async def _alone(engine: Engine, replays: list[Replay], live: int) -> Clock:
    """Each conversation goes on as soon as its own message is there."""
    clock = Clock()
    pending = iter(replays)

    async def work() -> None:
        for replay in pending:
            while not replay.done:
                await replay.step(engine, clock)

    await asyncio.gather(*(work() for _ in range(live)))
    return clock


async def _in_rounds(engine: Engine, replays: list[Replay], live: int) -> Clock:
    """All conversations of a batch ask together, and none goes on before the slowest has its message."""
    clock = Clock()
    for first in range(0, len(replays), live):
        batch = replays[first : first + live]
        while open_ones := [replay for replay in batch if not replay.done]:
            ends = await asyncio.gather(*(replay.step(engine, clock) for replay in open_ones))
            clock.idle_s += sum(max(ends) - end for end in ends)
    return clock


def _by_conversation(clock: Clock) -> list[list[int]]:
    """Tokens of each turn of each conversation."""
    turns: dict[int, list[int]] = {}
    for (number, _), length in sorted(clock.lengths.items()):
        turns.setdefault(number, []).append(length)
    return list(turns.values())


def _steps_alone(conversations: list[list[int]], live: int) -> int:
    """Decoding steps of a batch of `live` places in which each conversation goes on by itself."""
    free = [0] * live
    for turns in conversations:
        heapq.heapreplace(free, free[0] + sum(turns))
    return max(free)


def _steps_in_rounds(conversations: list[list[int]], live: int) -> int:
    """Decoding steps where every round lasts as long as its longest message."""
    batches = [conversations[first : first + live] for first in range(0, len(conversations), live)]
    return sum(max(turn) for batch in batches for turn in itertools.zip_longest(*batch, fillvalue=0))


STEPS = {"continuous": _steps_alone, "rounds": _steps_in_rounds}
"""Steps are what counts on a GPU, where a step costs about the same for one message as for a hundred."""

PARTS = {"vllm": run_vllm, "serve": run_serve, "transformers": run_transformers}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", required=True, help="its name or a folder")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--languages", nargs="+", choices=LANGUAGES, default=["pt", "en"])
    parser.add_argument("--templates", nargs="+", help="all of them by default")
    parser.add_argument("--split", choices=SPLITS, default="test")
    parser.add_argument("--count", type=int, default=40, help="queries in each language")
    parser.add_argument("--trials", type=int, default=3)
    parser.add_argument("--max-steps", type=int, default=4)
    parser.add_argument("--max-tokens", type=int, default=48)
    parser.add_argument("--temperature", type=float, default=0.2)
    parser.add_argument("--top-p", type=float, default=0.9)
    parser.add_argument("--context", type=int, default=4096, help="tokens of a conversation")
    parser.add_argument(
        "--chat-template",
        default=TEMPLATE,
        type=lambda word: None if word == OWN_TEMPLATE else word,
        help="a file, or 'own' for the model's; by default one for SmolLM2, whose own knows no tools",
    )
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--replays", type=int, default=24, help="replayed conversations of the part vllm")
    parser.add_argument("--replays-live", type=int, default=12, help="how many of them are alive at once")
    return parser


if __name__ == "__main__":
    main()
