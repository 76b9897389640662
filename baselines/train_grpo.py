"""GRPO with TRL from any starting model that can call tools. Run it in the folder of the checkout.

    pip install "ticket-gym[train]"
    python -m baselines.train_grpo --config baselines/configs/grpo_qwen3_0.6b.toml --out runs/grpo-0.6b
    python -m baselines.train_grpo --config ... --out ... --dry-run   # two steps of a tiny model, no GPU, no download
    python -m baselines.train_grpo --config ... --out ... --model assets/models/small-en   # another starting model

A config names the model, a curriculum of stages (each some templates for some steps), the reward, and whatever else
TRL's `GRPOConfig` takes. Tasks come from the `train` split in the order of the stages, so that an interrupted run goes
on exactly where its last checkpoint was: give the same command again. Before the first step, every so many steps and
after the last one the model plays held-out `validation` tasks through the benchmark's own runner.

The output folder holds TRL's checkpoints, `config.json` (what is run), `log.jsonl` (TRL's metrics, one line a step) and
`evaluations.jsonl` (one line an evaluation). With more than one process, only data parallelism is provided for: the
first process evaluates while the others wait.
"""

import argparse
import asyncio
import json
import math
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from datasets import Dataset
from peft import LoraConfig
from transformers import AutoTokenizer, TrainerCallback
from transformers.integrations import is_tensorboard_available
from trl import GRPOConfig, GRPOTrainer, add_response_schema

from baselines.grpo_config import TINY, Config, read_config, shrink
from baselines.tiny_model import make_tiny_model, make_tiny_tokenizer
from ticket_gym.adapters.trl import TicketEnvironment, environment_factory, training_dataset
from ticket_gym.agents.llm import ModelAgent
from ticket_gym.engines.base import Sampling
from ticket_gym.engines.local_options import TransformersOptions, style_of
from ticket_gym.engines.transformers_engine import TransformersEngine
from ticket_gym.errors import ConfigurationError
from ticket_gym.journal import MemoryJournal
from ticket_gym.metrics import Grid, QueryInfo, collect_outcomes, summarize
from ticket_gym.plan import make_config, settings_of
from ticket_gym.runner import run
from ticket_gym.wrappers import RewardOptions

HERMES_RESPONSES = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {
        "reasoning_content": {"open": "<think>", "close_pattern": r"</think>\s*", "content": "text"},
        "tool_calls": {
            "open": "<tool_call>",
            "close_pattern": r"</tool_call>\s*",
            "content": "json",
            "repeats": True,
            "transform": {"type": "function", "function": "{content}"},
        },
        "content": {"close_pattern": r"<\|im_end\|>\s*", "content": "text"},
    },
}
"""How transformers (`tokenizer.response_template`) reads calls in Hermes style, where the chat template is ChatML."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the options and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, required=True, help="a file such as configs/grpo_qwen3_0.6b.toml")
    parser.add_argument("--out", type=Path, required=True, help="output folder; one that is there is continued")
    parser.add_argument("--model", help="another starting model than the config's: a hub name or a folder")
    parser.add_argument("--seed", type=int, default=0, help="seed of the training")
    parser.add_argument("--tensorboard", action="store_true", help="write TensorBoard logs into OUT/tensorboard")
    parser.add_argument("--dry-run", action="store_true", help="two steps of a tiny model in place of the real one")
    options = parser.parse_args(arguments)
    try:
        config = read_config(options.config)
        if options.model:
            config = config.model_copy(update={"model": config.model.model_copy(update={"name": options.model})})
        if options.dry_run:
            config = shrink(config)
        train(config, options.out, options.seed, options.tensorboard)
    except ConfigurationError as error:
        parser.exit(2, f"{options.config}: {error}\n")


def train(config: Config, out: Path, seed: int = 0, tensorboard: bool = False) -> GRPOTrainer:
    """Train, or go on from the last checkpoint in `out`."""
    check_folder(config, out, seed)
    arguments = make_arguments(config, out, seed, tensorboard)
    model, tokenizer = load_model(config)
    trainer = GRPOTrainer(
        model=model,
        args=arguments,
        train_dataset=make_dataset(config, arguments),
        processing_class=tokenizer,
        environment_factory=make_environments(config),
        peft_config=make_adapter(config),
    )
    # Not earlier: a config that turned out not to be usable may be mended and tried again with the same folder.
    if trainer.is_world_process_zero():
        claim_folder(config, out, seed)
    trainer.add_callback(Journal(out))
    trainer.add_callback(Evaluation(config, trainer, out, seed))
    trainer.train(resume_from_checkpoint=last_checkpoint(out))
    trainer.save_model(str(out / "final"))
    return trainer


# What TRL is given


def make_arguments(config: Config, out: Path, seed: int, tensorboard: bool) -> GRPOConfig:
    """TRL's own options: those of the config, and those that follow from the curriculum."""
    fixed = {
        "output_dir": str(out),
        "max_steps": config.steps,
        "max_tool_calling_iterations": config.tasks.max_calls,
        "shuffle_dataset": False,
        "logging_steps": 1,
        "seed": seed,
        "report_to": ["tensorboard"] if tensorboard else "none",
    }
    if twice := sorted(fixed.keys() & config.trainer.keys()):
        raise ConfigurationError(f"[trainer] {', '.join(twice)}: set by the stages, [tasks] or the command line")
    if tensorboard:
        if not is_tensorboard_available():
            raise ConfigurationError("--tensorboard: is not installed; pip install tensorboard")
        os.environ["TENSORBOARD_LOGGING_DIR"] = str(out / "tensorboard")
    try:
        return GRPOConfig(**config.trainer, **fixed)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"[trainer] {error}") from error


def make_dataset(config: Config, arguments: GRPOConfig) -> Dataset:
    """The curriculum as one data set in the order in which it is trained on; no task comes twice."""
    rounds = arguments.steps_per_generation * arguments.num_iterations / arguments.gradient_accumulation_steps
    prompts_per_step = arguments.generation_batch_size / arguments.num_generations / rounds
    tasks = config.tasks
    rows: list[dict[str, Any]] = []
    # A turn of the stream holds one task of each template, so that stages which begin at new turns share no task.
    turn = 0
    for stage in config.stages:
        each = math.ceil(stage.steps * prompts_per_step / len(tasks.languages))
        parts = []
        for language in tasks.languages:
            first = turn * len(stage.templates)
            part = training_dataset(
                "train", language, stage.templates, each, tasks.seed, first=first, stream=tasks.stream
            )
            parts.append(part.to_list())
            turn += math.ceil(each / len(stage.templates))
        rows += [row for together in zip(*parts, strict=True) for row in together]
    return Dataset.from_list(rows)


def make_environments(config: Config) -> dict[str, type[TicketEnvironment]] | type[TicketEnvironment]:
    """The environment class, or one for each of several languages."""
    tasks = config.tasks
    classes: dict[str, type[TicketEnvironment]] = {
        language: environment_factory(
            language,
            seed=tasks.seed,
            max_steps=tasks.max_calls,
            stream=tasks.stream,
            reward=RewardOptions(**config.reward.model_dump()),
        )
        for language in tasks.languages
    }
    return classes if len(classes) > 1 else classes[tasks.languages[0]]


def load_model(config: Config) -> tuple[Any, Any]:
    """The model as TRL takes it, and its tokenizer."""
    options = config.model
    if options.name == TINY:
        tokenizer = make_tiny_tokenizer(config.tasks.languages)
        return make_tiny_model(tokenizer), tokenizer
    try:
        tokenizer = AutoTokenizer.from_pretrained(options.name)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"model {options.name!r}: no tokenizer can be loaded: {error}") from error
    return options.name, explain_calls(tokenizer, config)


def explain_calls(tokenizer: Any, config: Config) -> Any:
    """Tell TRL how the model writes its calls, also where it does not know the chat template.

    Raises:
        ConfigurationError: Neither TRL nor this script knows.
    """
    style = style_of(evaluation_options(config))
    if getattr(tokenizer, "response_template", None) or getattr(tokenizer, "response_schema", None):
        return tokenizer
    try:
        add_response_schema(tokenizer)
    except ValueError as error:
        if style != "hermes" or "<|im_start|>" not in str(tokenizer.chat_template):
            raise ConfigurationError(f"model {config.model.name!r}: TRL cannot read its calls: {error}") from error
        tokenizer.response_template = HERMES_RESPONSES
    return tokenizer


def make_adapter(config: Config) -> LoraConfig | None:
    """The LoRA adapter that is trained in place of all weights, if any."""
    if config.model.lora is None:
        return None
    try:
        return LoraConfig(task_type="CAUSAL_LM", **config.model.lora)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"[model.lora] {error}") from error


# What is left behind


def check_folder(config: Config, out: Path, seed: int) -> str:
    """Make sure that the output folder, if it is there, belongs to this training; what its `config.json` is to hold."""
    content = {"seed": seed, **config.model_dump(mode="json")}
    path = out / "config.json"
    if path.exists():
        before = json.loads(path.read_text(encoding="utf-8"))
        if differing := sorted(key for key in content | before if content.get(key) != before.get(key)):
            raise ConfigurationError(
                f"{out} holds a training with another {', '.join(differing)}, see its config.json: choose another --out"
            )
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def claim_folder(config: Config, out: Path, seed: int) -> None:
    """Make the output folder this training's."""
    content = check_folder(config, out, seed)
    out.mkdir(parents=True, exist_ok=True)
    replace_text(out / "config.json", content)


def last_checkpoint(out: Path) -> str | None:
    """The checkpoint to go on from, if any."""
    # The trainer's state is what is written last: a checkpoint without it was broken off.
    whole = [path.parent for path in out.glob("checkpoint-*/trainer_state.json")]
    return str(max(whole, key=lambda path: int(path.name.split("-")[1]))) if whole else None


def replace_text(path: Path, text: str) -> None:
    """Write a file as a whole or not at all."""
    beside = path.with_name(path.name + ".new")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


def append_line(path: Path, line: dict[str, Any]) -> None:
    """Append a line of JSON."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line, ensure_ascii=False) + "\n")


def keep_until(path: Path, step: int) -> list[dict[str, Any]]:
    """Drop what a broken-off training wrote after its last checkpoint, for those steps are done again.

    Args:
        path: A file of JSON lines; need not be there.
        step: That of the checkpoint; 0 for none, which keeps nothing: the beginning is measured again, too.

    Returns:
        The lines that are kept.
    """
    written = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() and step else []
    # Of a line without its end only a part was written.
    lines = [json.loads(line) for line in written if line.endswith("\n")]
    kept = [line for line in lines if line["step"] <= step]
    if path.exists():
        replace_text(path, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in kept))
    return kept


class Journal(TrainerCallback):
    """Writes TRL's metrics, one line a step."""

    def __init__(self, out: Path) -> None:
        self._path = out / "log.jsonl"

    def on_train_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Continue from the checkpoint's step."""
        if state.is_world_process_zero:
            keep_until(self._path, state.global_step)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **others: Any) -> None:
        """Write a line."""
        if state.is_world_process_zero:
            append_line(self._path, {"step": state.global_step, **(logs or {})})


class Evaluation(TrainerCallback):
    """Plays held-out tasks through the benchmark's runner, with the weights as they are."""

    def __init__(self, config: Config, trainer: GRPOTrainer, out: Path, seed: int) -> None:
        self._config = config
        self._trainer = trainer
        self._path = out / "evaluations.jsonl"
        self._seed = seed
        self._begun = time.perf_counter()

    def on_train_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Measure the starting model."""
        if state.is_world_process_zero and (kept := keep_until(self._path, state.global_step)):
            self._begun -= kept[-1]["wall_s"]
        if state.global_step == 0:
            self._measure(state, "start")

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Measure every so many steps, and after the last one."""
        if state.global_step % self._config.evaluation.every == 0 or state.global_step >= state.max_steps:
            self._measure(state, "grpo")

    def _measure(self, state: Any, stage: str) -> None:
        if state.is_world_process_zero:
            model = self._trainer.accelerator.unwrap_model(self._trainer.model)
            model.eval()
            scores = evaluate(model, self._trainer.processing_class, self._config)
            model.train()
            facts = {"seed": self._seed, "stage": stage, "step": state.global_step}
            for score in scores:
                append_line(self._path, facts | score | {"wall_s": round(time.perf_counter() - self._begun, 1)})
        self._trainer.accelerator.wait_for_everyone()


def evaluate(model: Any, tokenizer: Any, config: Config) -> list[dict[str, Any]]:
    """Play the validation tasks once; one score for each language, with its 95% interval."""
    evaluation = config.evaluation
    agent = ModelAgent(TransformersEngine(evaluation_options(config), model, tokenizer))
    declared = make_config(
        agent,
        languages=evaluation.languages or config.tasks.languages,
        split="validation",
        templates=evaluation.templates or config.templates,
        count=evaluation.tasks,
        trials=1,
        max_steps=config.tasks.max_calls,
    )
    journal = MemoryJournal()
    asyncio.run(_play(declared, agent, journal, evaluation.batch))
    source = settings_of(declared, declared.languages[0]).source()
    tasks = [source.get(query) for query in declared.queries]
    queries = tuple(QueryInfo(task.id, task.template, task.solvable) for task in tasks)
    summary = summarize(collect_outcomes(journal.episodes, Grid(declared.languages, queries, 1)), k=1)
    return [
        {
            "templates": sorted({task.template for task in tasks}),
            "language": language,
            "tasks": len(tasks),
            "pass_hat_1": group.total.success_rate.value,
            "low": group.total.success_rate.low,
            "high": group.total.success_rate.high,
            "solvable_only": None if group.solvable is None else group.solvable.success_rate.value,
            "do_nothing": summary.do_nothing,
            "engine_errors": group.counts.engine_error,
        }
        for language, group in summary.languages.items()
    ]


def evaluation_options(config: Config) -> TransformersOptions:
    """How the model is asked in an evaluation."""
    evaluation = config.evaluation
    return TransformersOptions(
        model=config.model.name,
        style="hermes" if config.model.name == TINY else config.model.style,
        sampling=Sampling(temperature=evaluation.temperature, max_tokens=evaluation.max_tokens),
        chat_template_options=config.trainer.get("chat_template_kwargs", {}),
        max_batch=evaluation.batch,
    )


async def _play(declared: Any, agent: ModelAgent, journal: MemoryJournal, concurrency: int) -> None:
    try:
        await run(declared, agent, journal, concurrency=concurrency)
    finally:
        await agent.engine.aclose()


if __name__ == "__main__":
    main()
