"""A classical baseline: masked PPO on the environment in numbers, in minutes on one core, without a language model.

    pip install "ticket-gym[ppo]"
    python -m baselines.train_ppo

The agent is `MaskablePPO` of sb3-contrib, played through `ticket_gym.adapters.numeric.NumericTickets`: it chooses among
26 numbered calls from 122 features that hold nothing of the expected bookings. It is trained on the `train` split and
scored on held-out `validation` tasks, beside an agent that buys nothing and a perfect one on the same tasks. Each score
is one line of `baselines/results/ppo.jsonl`; `--plot` draws that file without training.

The results that are there come from that command, four minutes of processor time for two seeds: 0.475 and 0.360 of the
tasks, where doing nothing is right in 0.135. Solved are requests for a match in a city (t05, t07, t09) and for the most
expensive match of a team (t02), and none of those for a cheapest match, of which t04 and t15 score by their unsolvable
requests alone. The features do suffice: a fixed policy of a dozen lines that reads nothing else solves the whole
benchmark (`tests/test_numeric.py`).
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import gymnasium as gym
import torch
from sb3_contrib import MaskablePPO
from scipy.stats import binomtest
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import DummyVecEnv

import ticket_gym
from ticket_gym.adapters.numeric import CONTEXT_SIZE, ROW_FEATURES, NumericTickets
from ticket_gym.agents import ScriptedAgent
from ticket_gym.errors import ConfigurationError
from ticket_gym.rollout import play_episode
from ticket_gym.session import Session
from ticket_gym.wrappers import PotentialShaping

RESULTS = Path(__file__).parent / "results" / "ppo.jsonl"
TEMPLATES = ("t01", "t02", "t03", "t04", "t05", "t07", "t08", "t09", "t14", "t15")
MAX_STEPS = 12
TASKS_APART = 10**6
"""Distance of the tasks that parallel environments begin with."""


class TaskSequence(gym.Wrapper[Any, Any, Any, Any]):
    """Plays the tasks of a stream one after another: neighbours share a world, which makes a reset cheap."""

    def __init__(self, env: gym.Env[Any, Any], first: int) -> None:
        super().__init__(env)
        self._indices = count(first)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin the next task."""
        return self.env.reset(seed=seed, options={"index": next(self._indices)})

    def action_masks(self) -> Any:
        """The numeric environment's mask."""
        return self.env.get_wrapper_attr("action_masks")()


class PageReader(BaseFeaturesExtractor):
    """Reads each row of the listed page with the same weights, in the light of the request; rows keep their order."""

    def __init__(self, observation_space: gym.spaces.Box, width: int = 48, row_width: int = 12) -> None:
        self._row_size = len(ROW_FEATURES)
        rows = (observation_space.shape[0] - CONTEXT_SIZE) // self._row_size
        super().__init__(observation_space, features_dim=CONTEXT_SIZE + rows * row_width)
        self.row = torch.nn.Sequential(
            torch.nn.Linear(CONTEXT_SIZE + self._row_size, width),
            torch.nn.ReLU(),
            torch.nn.Linear(width, row_width),
            torch.nn.ReLU(),
        )

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """Features of shape `(batch, features_dim)`."""
        context = observations[:, :CONTEXT_SIZE]
        rows = observations[:, CONTEXT_SIZE:].unflatten(1, (-1, self._row_size))
        beside = context.unsqueeze(1).expand(-1, rows.shape[1], -1)
        return torch.cat([context, self.row(torch.cat([beside, rows], dim=2)).flatten(1)], dim=1)


def make_env(language: str, split: str, templates: Sequence[str], **keywords: Any) -> NumericTickets:
    """The numeric environment."""
    env = gym.make(
        f"TicketBench-{language}-v0",
        disable_env_checker=True,
        split=split,
        templates=tuple(templates),
        max_steps=MAX_STEPS,
        **keywords,
    )
    return NumericTickets(env)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, score along the way, draw."""
    options = _read_options(arguments)
    if not options.plot:
        try:
            train(options)
        except ConfigurationError as error:
            sys.exit(str(error))
    draw(options.results)


def train(options: argparse.Namespace) -> None:
    """Train one agent for each seed and write its scores; results that are there stay until there are new ones."""
    torch.set_num_threads(1)
    options.results.parent.mkdir(parents=True, exist_ok=True)
    growing = options.results.with_name(options.results.name + ".new")
    with growing.open("w", encoding="utf-8") as file:
        for line in reference_lines(options):
            _write(file, line)
        for seed in options.seeds:
            scores = Scores(options, seed, file)
            model = make_model(options, seed)
            scores.init_callback(model)
            scores.write("start")
            model.learn(options.steps, callback=scores)
            scores.write("ppo", per_template=True)
            if options.save:
                model.save(options.save / f"ppo-{seed}")
    growing.replace(options.results)


def make_model(options: argparse.Namespace, seed: int) -> MaskablePPO:
    """The agent before its training."""

    def maker(number: int) -> Any:
        def make() -> gym.Env[Any, Any]:
            env = make_env(options.language, "train", options.templates, seed=seed)
            first = number * TASKS_APART
            return TaskSequence(PotentialShaping(env, options.gamma) if options.shaping else env, first)

        return make

    return MaskablePPO(
        "MlpPolicy",
        DummyVecEnv([maker(number) for number in range(options.envs)]),
        policy_kwargs={"features_extractor_class": PageReader, "net_arch": [128, 128]},
        n_steps=128,
        batch_size=256,
        n_epochs=8,
        gamma=options.gamma,
        gae_lambda=0.95,
        ent_coef=options.entropy,
        learning_rate=options.learning_rate,
        seed=seed,
        device="cpu",
    )


class Scores(BaseCallback):
    """Scores the agent every so many steps on the same held-out tasks."""

    def __init__(self, options: argparse.Namespace, seed: int, file: Any) -> None:
        super().__init__()
        self._options = options
        self._seed = seed
        self._file = file
        self._next = options.score_every
        self._start = time.perf_counter()

    def _on_step(self) -> bool:
        if self.num_timesteps >= self._next:
            self._next += self._options.score_every
            self.write("ppo")
        return True

    def write(self, stage: str, per_template: bool = False) -> None:
        """Score now; `per_template` adds a line for each template."""
        results = play_validation(self.model, self._options)
        lines = [(self._options.templates, results)]
        if per_template:
            lines += [((name,), [r for r in results if r[0] == name]) for name in self._options.templates]
        for templates, some in lines:
            facts = {"seed": self._seed, "stage": stage, "step": self.num_timesteps}
            wall_s = round(time.perf_counter() - self._start, 1)
            _write(self._file, facts | score(some) | _described(self._options, templates) | {"wall_s": wall_s})


Result = tuple[str, bool, bool]
"""Template, whether the task is solvable, success."""


def play_validation(model: Any, options: argparse.Namespace) -> list[Result]:
    """Play the held-out tasks once, always the likeliest action."""
    env = make_env(options.language, "validation", options.templates)
    results = []
    for index in range(options.tasks):
        observation, info = env.reset(options={"index": index})
        done = False
        while not done:
            action, _ = model.predict(observation, action_masks=env.action_masks(), deterministic=True)
            observation, _, terminated, truncated, outcome = env.step(int(action))
            done = terminated or truncated
        results.append((info["template"], env.session.playing.solvable, outcome["success"]))
    return results


def reference_lines(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """What buying nothing and playing perfectly reach on the same tasks."""
    session = Session(language=options.language, split="validation", templates=tuple(options.templates))
    for name in ("do_nothing", "oracle"):
        results = []
        for index in range(options.tasks):
            task = session.source.at(index)
            played = asyncio.run(play_episode(session, ScriptedAgent(name), task))
            results.append((task.template, task.solvable, played.success))
        yield {"seed": None, "stage": name, "step": 0} | score(results) | _described(options, options.templates)


def score(results: Sequence[Result]) -> dict[str, Any]:
    """Share of successes with its 95% Wilson interval, and the share among the solvable tasks alone."""
    successes = [success for _, _, success in results]
    solvable = [success for _, can_be_solved, success in results if can_be_solved]
    interval = binomtest(sum(successes), len(successes)).proportion_ci(method="wilson")
    return {
        "tasks": len(results),
        "pass_hat_1": sum(successes) / len(successes),
        "low": round(interval.low, 4),
        "high": round(interval.high, 4),
        "solvable_only": sum(solvable) / len(solvable) if solvable else None,
    }


def draw(results: Path) -> None:
    """Draw the learning curves beside `results`, as SVG."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    lines = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    whole = max((line["templates"] for line in lines), key=len)
    lines = [line for line in lines if line["templates"] == whole]
    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    for seed in sorted({line["seed"] for line in lines} - {None}):
        curve = [line for line in lines if line["seed"] == seed]
        steps = [line["step"] for line in curve]
        drawn = axes.plot(steps, [line["pass_hat_1"] for line in curve], label=f"MaskablePPO, seed {seed}")[0]
        lows, highs = [line["low"] for line in curve], [line["high"] for line in curve]
        axes.fill_between(steps, lows, highs, alpha=0.2, color=drawn.get_color(), linewidth=0)
    for name, style in (("oracle", "--"), ("do_nothing", ":")):
        level = next(line["pass_hat_1"] for line in lines if line["stage"] == name)
        axes.axhline(level, linestyle=style, color="0.4", label=name)
    tasks = lines[0]["tasks"]
    axes.set(xlabel="environment steps", ylabel=f"pass^1 on {tasks} validation tasks", ylim=(0, 1.03))
    axes.set_title(f"{len(whole)} templates: {', '.join(whole)}", fontsize="small")
    axes.legend(loc="lower right", fontsize="small")
    figure.savefig(results.with_suffix(".svg"), metadata={"Date": None})


def _described(options: argparse.Namespace, templates: Sequence[str]) -> dict[str, Any]:
    return {"templates": list(templates), "language": options.language, "shaping": options.shaping}


def _write(file: Any, line: dict[str, Any]) -> None:
    print(json.dumps(line, ensure_ascii=False), file=file, flush=True)
    print(f"{line['stage']:>10} {line['step']:>8} {line['pass_hat_1']:.3f} {','.join(line['templates'])}", flush=True)


def _read_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100_000, help="environment steps of each seed")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--templates", nargs="+", default=list(TEMPLATES))
    parser.add_argument("--language", choices=ticket_gym.LANGUAGES, default="en")
    parser.add_argument("--tasks", type=int, default=200, help="held-out validation tasks")
    parser.add_argument("--score-every", type=int, default=20_000, help="steps between two scores")
    parser.add_argument("--envs", type=int, default=16)
    parser.add_argument("--gamma", type=float, default=0.98)
    parser.add_argument("--entropy", type=float, default=0.04)
    parser.add_argument("--learning-rate", type=float, default=7e-4)
    parser.add_argument("--shaping", action="store_true", help="add potential-based shaping to the reward")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--save", type=Path, help="folder for the trained agents")
    parser.add_argument("--plot", action="store_true", help="only draw the results that are there")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
