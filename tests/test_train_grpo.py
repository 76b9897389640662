"""The GRPO script: its configs, a short training that is broken off and goes on, and what it refuses."""

import importlib.util
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ticket_gym.types import LANGUAGES

ROOT = Path(__file__).parents[1]
CONFIGS = {path.stem.removeprefix("grpo_"): path for path in sorted((ROOT / "baselines" / "configs").glob("grpo_*"))}

pytestmark = [
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in ("trl", "peft", "datasets")),
        reason="needs the extra `train`: pip install ticket-gym[train]",
    ),
    # Warnings of TRL and transformers, most of them about each other's next versions, are theirs.
    pytest.mark.filterwarnings("default"),
]


@pytest.mark.parametrize("path", CONFIGS.values(), ids=CONFIGS)
def test_configs_load_and_their_data_sets_are_built(path: Path) -> None:
    from baselines.grpo_config import DRY_RUN, read_config
    from baselines.train_grpo import make_arguments, make_dataset

    config = read_config(path)
    on_cpu = {name: DRY_RUN[name] for name in ("use_cpu", "bf16")}
    arguments = make_arguments(config.model_copy(update={"trainer": config.trainer | on_cpu}), Path("unused"), 0, False)
    rows = make_dataset(config, arguments)
    per_step = arguments.per_device_train_batch_size * arguments.gradient_accumulation_steps / arguments.num_generations
    assert config.steps * per_step <= len(rows) < config.steps * per_step + 6 * len(config.stages)
    assert len({(row["task"], row["environment"]) for row in rows}) == len(rows)
    first = rows.to_list()[: int(config.stages[0].steps * per_step)]
    assert {row["template"] for row in first} == set(config.stages[0].templates)
    assert {row["environment"] for row in first} == set(config.tasks.languages)


def test_dry_run_of_two_steps_is_logged_and_continues(tmp_path: Path) -> None:
    from baselines.train_grpo import main

    path = CONFIGS["qwen3_8b_lora"]
    command = ["--config", str(path), "--out", str(tmp_path), "--dry-run"]
    main(command)
    evaluations = read_lines(tmp_path / "evaluations.jsonl")
    assert [(line["stage"], line["step"]) for line in evaluations[::6]] == [("start", 0), ("grpo", 1), ("grpo", 2)]
    assert {line["language"] for line in evaluations} == set(LANGUAGES)
    assert not any(line["engine_errors"] for line in evaluations)
    steps = [line for line in read_lines(tmp_path / "log.jsonl") if "reward" in line]
    assert [line["step"] for line in steps] == [1, 2]

    # As if it had been killed while it wrote its last checkpoint.
    (tmp_path / "checkpoint-2" / "trainer_state.json").unlink()
    main(command)
    assert without_times(read_lines(tmp_path / "evaluations.jsonl")) == without_times(evaluations)
    again = [line for line in read_lines(tmp_path / "log.jsonl") if "reward" in line]
    assert [line["step"] for line in again] == [1, 2]
    assert (again[1]["entropy"], again[1]["num_tokens"]) == (steps[1]["entropy"], steps[1]["num_tokens"])
    assert (tmp_path / "final").is_dir()

    with pytest.raises(SystemExit):
        main([*command, "--seed", "1"])


def test_what_was_written_after_the_last_checkpoint_is_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before its first checkpoint, then, in the middle of a line, after the one of step 50."""
    from baselines import train_grpo
    from baselines.grpo_config import read_config

    monkeypatch.setattr(train_grpo, "evaluate", lambda *_: [{"language": "en"}, {"language": "fr"}])
    model = SimpleNamespace(eval=lambda: None, train=lambda: None)
    accelerator = SimpleNamespace(unwrap_model=lambda model: model, wait_for_everyone=lambda: None)
    trainer: Any = SimpleNamespace(accelerator=accelerator, model=model, processing_class=None)
    path = CONFIGS["qwen3_0.6b"]
    file = tmp_path / "evaluations.jsonl"

    def play(steps: list[int]) -> None:
        evaluation = train_grpo.Evaluation(read_config(path), trainer, tmp_path, 0)
        states = [SimpleNamespace(is_world_process_zero=True, global_step=step, max_steps=150) for step in steps]
        evaluation.on_train_begin(None, states[0], None)
        for state in states[1:]:
            evaluation.on_step_end(None, state, None)

    play([0, 50])
    play([0, 50, 100])
    lines = [line | {"wall_s": line["step"]} for line in read_lines(file)]
    whole = "".join(json.dumps(line) + "\n" for line in lines)
    file.write_text(whole[:-9], encoding="utf-8")
    play([50, 100, 150])
    lines = read_lines(file)
    assert [(line["step"], line["language"]) for line in lines] == [
        (step, language) for step in (0, 50, 100, 150) for language in ("en", "fr")
    ]
    # The clock goes on where it stood at the checkpoint.
    assert 50 <= lines[-1]["wall_s"] < 60


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('["t01", "t08"]', '["t01", "t99"]', "unknown t99; there are t01 to t17"),
        ('["t01", "t08"]', "[]", "name at least one"),
        ('languages = ["en"]', "languages = []", "name at least one"),
        ("max_calls", "max_cals", "max_cals"),
        ("beta", "betta", "betta"),
        ("every = 5", 'every = 5\ntemplates = ["t18"]', "unknown t18"),
        ('name = "tiny"', 'name = "no/such/model"', "no tokenizer can be loaded"),
        ('style = "hermes"', 'style = "hermes"\nlora = {rank = 8}', r"\[model.lora\].*rank"),
    ],
)
def test_a_config_that_cannot_be_used_says_why_and_leaves_the_folder_free(
    before: str, after: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from baselines.train_grpo import main

    path = CONFIGS["small_cpu"]
    text = path.read_text(encoding="utf-8")
    assert before in text
    config = tmp_path / "config.toml"
    config.write_text(text.replace(before, after), encoding="utf-8")
    with pytest.raises(SystemExit):
        main(["--config", str(config), "--out", str(tmp_path / "out")])
    assert re.search(message, capsys.readouterr().err)
    assert not (tmp_path / "out" / "config.json").exists()


def test_tensorboard_that_is_not_installed_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from baselines import train_grpo

    monkeypatch.setattr(train_grpo, "is_tensorboard_available", lambda: False)
    with pytest.raises(SystemExit):
        train_grpo.main(["--config", str(CONFIGS["small_cpu"]), "--out", str(tmp_path), "--tensorboard"])
    assert "pip install tensorboard" in capsys.readouterr().err


def test_the_shipped_model_can_be_trained_on(tmp_path: Path) -> None:
    """TRL does not know its chat template, and all the same reads the calls that it has learnt to make."""
    from baselines.train_grpo import main

    path = CONFIGS["small_cpu"]
    text = path.read_text(encoding="utf-8")
    smaller = {
        "steps = 10": "steps = 1",
        "tasks = 10": "tasks = 1",
        "max_tokens = 64": "max_tokens = 32",
        "num_generations = 4": "num_generations = 2",
        "per_device_train_batch_size = 8": "per_device_train_batch_size = 2",
        "gradient_accumulation_steps = 2": "gradient_accumulation_steps = 1",
    }
    for before, after in smaller.items():
        assert before in text
        text = text.replace(before, after)
    config = tmp_path / "config.toml"
    config.write_text(text, encoding="utf-8")
    model = ROOT / "assets" / "models" / "small-en"
    main(["--config", str(config), "--out", str(tmp_path / "out"), "--model", str(model)])
    [step] = [line for line in read_lines(tmp_path / "out" / "log.jsonl") if "reward" in line]
    assert step["tools/call_frequency"] >= 2
    assert step["tools/failure_frequency"] == 0


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def without_times(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in line.items() if name != "wall_s"} for line in lines]
