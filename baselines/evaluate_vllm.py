"""Evaluate a model on the whole benchmark with vLLM, in one command. Run it in the folder of the checkout.

    pip install "ticket-gym[eval,vllm]"
    python baselines/evaluate_vllm.py --config baselines/configs/qwen3.toml --model Qwen/Qwen3-8B --out runs/qwen3-8b

A config says for a model family how its calls are read, how its tokens are drawn and what the engine is given; any
engine option can be set on the command line as well: `--set tensor_parallel_size=4 --set temperature=0`. All episodes
that are alive share one engine in this process, which batches continuously: nobody waits for another's turn. A run that
is stopped goes on where it was by the same command.
"""

import argparse
import asyncio
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from ticket_gym.agents import ModelAgent
from ticket_gym.display import ProgressDisplay
from ticket_gym.engines import Engine, make_engine
from ticket_gym.errors import ConfigurationError, TicketGymError
from ticket_gym.journal import RunFolder
from ticket_gym.plan import make_config
from ticket_gym.records import ModelInfo
from ticket_gym.report import load_runs, print_report
from ticket_gym.runner import play
from ticket_gym.types import LANGUAGES


def main(words: Sequence[str] | None = None) -> None:
    """Play the benchmark and print the scores."""
    arguments = _parser().parse_args(words)
    try:
        config = read_config(arguments.config)
        options = {**config["engine"], **read_settings(arguments.set, config["engine"])}
        evaluate(arguments, config, options)
    except TicketGymError as problem:
        sys.exit(f"evaluate_vllm: {problem}")


def evaluate(arguments: argparse.Namespace, config: dict[str, Any], options: dict[str, Any]) -> None:
    """Load the model, play all episodes that the run folder does not hold yet, and print the report."""
    engine = make_engine("vllm", model=arguments.model, **options)
    size = arguments.size or config["models"].get(arguments.model)
    name = arguments.name or arguments.model
    agent = ModelAgent(engine, ModelInfo(name=name, family=config["family"], size_b=size))
    try:
        run_config = make_config(
            agent,
            languages=arguments.languages,
            count=arguments.count,
            trials=arguments.trials,
            seed=arguments.seed,
            max_steps=arguments.max_steps,
            model=agent.model,
        )
        with RunFolder.open(arguments.out, run_config) as journal, ProgressDisplay() as display:
            play(
                run_config,
                agent,
                journal,
                concurrency=arguments.concurrency,
                retry_errors=arguments.retry_errors,
                on_progress=display,
            )
    finally:
        close(engine)
    print_report(load_runs([arguments.out]), Console())


def close(engine: Engine) -> None:
    """Let the engine stop its processes."""
    asyncio.run(engine.aclose())


def read_config(path: Path) -> dict[str, Any]:
    """A model family's config: `family`, `[models]` (name to billions of parameters) and `[engine]` (its options).

    Raises:
        ConfigurationError: The file cannot be read, or has other parts.
    """
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise ConfigurationError(f"--config {path}: {problem}") from problem
    if set(found) != {"family", "models", "engine"}:
        raise ConfigurationError(f"--config {path}: it must hold family, [models] and [engine], not {sorted(found)}")
    return found


def read_settings(settings: Sequence[str], base: dict[str, Any]) -> dict[str, Any]:
    """Options from the command line, `KEY=VALUE`, the value as in TOML or else a text; a dot leads into a table.

    Raises:
        ConfigurationError: One has no `=`, names the model, or leads into what is no table.
    """
    chosen: dict[str, Any] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals:
            raise ConfigurationError(f"--set {setting}: must be KEY=VALUE, such as temperature=0.6")
        if key.strip() == "model":
            raise ConfigurationError(f"--set {setting}: the model is named by --model")
        key, _, inner = key.partition(".")
        value = _value(text)
        if inner:
            table = chosen.get(key, base.get(key, {}))
            if not isinstance(table, dict):
                raise ConfigurationError(f"--set {setting}: {key} is no table")
            value = {**table, inner: value}
        chosen[key] = value
    return chosen


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--config", type=Path, required=True, help="the model family: baselines/configs/*.toml")
    parser.add_argument("--model", required=True, help="name on the Hugging Face hub, or a folder")
    parser.add_argument("--out", type=Path, required=True, help="run folder; an interrupted run goes on there")
    parser.add_argument("--name", help="name in tables; that of the model by default")
    parser.add_argument("--size", type=float, help="parameters in billions, where the config does not know the model")
    parser.add_argument("--languages", nargs="+", choices=LANGUAGES, default=LANGUAGES)
    parser.add_argument("--count", type=int, help="only so many queries, the templates in turn")
    parser.add_argument("--trials", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--max-steps", type=int, default=50)
    parser.add_argument("--concurrency", type=int, default=256, help="episodes alive at once")
    parser.add_argument("--retry-errors", action="store_true", help="play again what the engine broke off")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="an option of the engine")
    return parser


if __name__ == "__main__":
    main()
