"""What a training run does, read from a TOML file."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

from baselines.small_model.grpo import Groups
from baselines.small_model.network import Shape
from baselines.small_model.play import Limits
from ticket_gym.errors import ConfigurationError
from ticket_gym.session import Settings
from ticket_gym.tasks import Stream
from ticket_gym.types import Language, Split


@dataclass(frozen=True, slots=True)
class Drills:
    """Imitation of abridged episodes.

    Attributes:
        rate: Learning rate.
        warm_up: Updates over which it rises.
        batch: Episodes of an update.
        others: The most games that are left on a page beside those to be bought.
        enough: The loss for a token, averaged over ten updates, at which drills end.
        updates: The most updates.
    """

    rate: float
    warm_up: int
    batch: int
    others: int
    enough: float
    updates: int


@dataclass(frozen=True, slots=True)
class Imitation:
    """Imitation of real episodes, stopped early.

    Attributes:
        rate: Learning rate.
        warm_up: Updates over which it rises.
        batch: Episodes of an update.
        noise: Share of the system prompt and schemas that is replaced by random tokens.
        check_every: Updates between two looks at the score.
        check_tasks: Tasks of such a look.
        stop_at: The sampled score at which imitation ends.
        updates: The most updates.
    """

    rate: float
    warm_up: int
    batch: int
    noise: float
    check_every: int
    check_tasks: int
    stop_at: float
    updates: int


@dataclass(frozen=True, slots=True)
class Reinforcement:
    """GRPO.

    Attributes:
        templates: What is played; scores are reported on these templates.
        rate: Learning rate.
        warm_up: Iterations over which it rises.
        iterations: How many there are.
        stream: Extras of the tasks.
    """

    templates: tuple[str, ...]
    rate: float
    warm_up: int
    iterations: int
    stream: Stream


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Tasks of an evaluation, and iterations of GRPO between two of them."""

    tasks: int
    every: int


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole training run; `templates` are those that are imitated."""

    language: Language
    templates: tuple[str, ...]
    max_steps: int
    vocabulary_languages: tuple[Language, ...]
    shape: Shape
    limits: Limits
    drills: Drills
    imitation: Imitation
    reinforcement: Reinforcement
    groups: Groups
    evaluation: Evaluation

    def settings(self, split: Split, seed: int = 0) -> Settings:
        """Of the episodes that are played with reinforcement, or held out."""
        return Settings(
            language=self.language,
            split=split,
            seed=seed,
            templates=self.reinforcement.templates,
            max_steps=self.max_steps,
            stream=self.reinforcement.stream,
        )

    def imitated(self, seed: int) -> Settings:
        """Of the episodes that are imitated: other wordings and cities too."""
        return Settings(
            language=self.language, split="train", seed=seed, templates=self.templates, max_steps=self.max_steps
        )


def read_plan(path: Path) -> Plan:
    """Read a plan.

    Raises:
        ConfigurationError: The file cannot be read, or an entry is missing or unknown.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
        grpo = data["grpo"]
        templates, stream = tuple(grpo.pop("templates")), Stream(**grpo.pop("stream"))
        own = {name: grpo.pop(name) for name in ("rate", "warm_up", "iterations")}
        return Plan(
            data["language"],
            tuple(data["templates"]),
            data["max_steps"],
            tuple(data["vocabulary_languages"]),
            Shape(**data["network"]),
            Limits(**data["limits"]),
            Drills(**data["drills"]),
            Imitation(**data["sft"]),
            Reinforcement(templates, stream=stream, **own),
            Groups(**grpo),
            Evaluation(**data["evaluation"]),
        )
    except (OSError, tomllib.TOMLDecodeError, KeyError, TypeError) as problem:
        raise ConfigurationError(
            f"{path}: not a training plan ({problem}); see baselines/configs/small_cpu.toml"
        ) from None
