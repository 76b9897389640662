"""What a config file of `train_grpo.py` can say, and how it is shrunk for a dry run."""

import tomllib
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from ticket_gym.errors import ConfigurationError
from ticket_gym.tasks import TEMPLATES, Stream
from ticket_gym.types import Language

TINY = "tiny"
"""As a model's name: random weights made on the spot, see `baselines/tiny_model.py`."""


def _distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    if not names or len(set(names)) < len(names):
        raise ValueError("name at least one, and none twice")
    return names


def _known(names: tuple[str, ...]) -> tuple[str, ...]:
    if unknown := [name for name in names if name not in TEMPLATES]:
        raise ValueError(f"unknown {', '.join(unknown)}; there are t01 to t17")
    return names


Templates = Annotated[tuple[str, ...], AfterValidator(_distinct), AfterValidator(_known)]
Languages = Annotated[tuple[Language, ...], AfterValidator(_distinct)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ModelOptions(_Part):
    """The starting model: a name on the Hugging Face hub, a folder, or `tiny`; `lora` as `peft.LoraConfig` takes it."""

    name: str
    style: str = "auto"
    lora: dict[str, Any] | None = None


class TaskOptions(_Part):
    """Which tasks are trained on; in several languages the rows take turns."""

    languages: Languages = ("en",)
    seed: int = Field(default=0, ge=0)
    max_calls: int = Field(default=20, ge=1)
    paraphrases: bool = True
    other_cities: bool = True
    unaffordable: bool = True

    @property
    def stream(self) -> Stream:
        """The extras of the `train` split."""
        return Stream(self.paraphrases, self.other_cities, self.unaffordable)


class Stage(_Part):
    """One stage of the curriculum."""

    templates: Templates
    steps: int = Field(ge=1)


class RewardChoice(_Part):
    """As in `ticket_gym.wrappers.RewardOptions`: the sparse reward alone by default."""

    shaping: bool = False
    call_cost: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    partial_credit: float = Field(default=0.0, ge=0, allow_inf_nan=False)


class EvaluationOptions(_Part):
    """How the model is measured: every `every` steps on the same tasks, each of all templates trained unless named."""

    every: int = Field(default=50, ge=1)
    tasks: int = Field(default=170, ge=1)
    languages: Languages | None = None
    templates: Templates | None = None
    max_tokens: int = Field(default=1024, ge=1)
    temperature: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    batch: int = Field(default=32, ge=1)


class Config(_Part):
    """A config file, read and checked."""

    model: ModelOptions
    tasks: TaskOptions = TaskOptions()
    stages: tuple[Stage, ...] = Field(min_length=1)
    reward: RewardChoice = RewardChoice()
    evaluation: EvaluationOptions = EvaluationOptions()
    trainer: dict[str, Any] = {}

    @property
    def steps(self) -> int:
        """Optimisation steps of all stages."""
        return sum(stage.steps for stage in self.stages)

    @property
    def templates(self) -> tuple[str, ...]:
        """All templates of the curriculum."""
        return tuple(sorted({name for stage in self.stages for name in stage.templates}))


DRY_RUN = {
    "use_cpu": True,
    "bf16": False,
    "fp16": False,
    "use_vllm": False,
    "gradient_checkpointing": False,
    "num_generations": 2,
    "per_device_train_batch_size": 2,
    "gradient_accumulation_steps": 2,
    "max_completion_length": 48,
    "save_steps": 1,
}
"""What a dry run changes of `[trainer]`: small, on the CPU, without vLLM; everything else stays and is checked."""


def read_config(path: Path) -> Config:
    """Read a config file.

    Raises:
        ConfigurationError: It cannot be read, or a value in it cannot be used.
    """
    try:
        return Config.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, ValidationError) as error:
        raise ConfigurationError(str(error)) from error


def shrink(config: Config) -> Config:
    """The same training in two steps of a tiny model, one step for each of the first two stages."""
    stages = tuple(stage.model_copy(update={"steps": 1}) for stage in (*config.stages, config.stages[0])[:2])
    evaluation = config.evaluation.model_copy(update={"every": 1, "tasks": 2, "max_tokens": 16, "batch": 2})
    return config.model_copy(
        update={
            "model": config.model.model_copy(update={"name": TINY}),
            "tasks": config.tasks.model_copy(update={"max_calls": 3}),
            "stages": stages,
            "evaluation": evaluation,
            "trainer": config.trainer | DRY_RUN,
        }
    )
