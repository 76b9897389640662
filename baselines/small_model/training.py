"""One training run of one seed: drills, imitation, reinforcement, and an evaluation between them.

Every stage leaves a checkpoint in the work folder, and a run that was broken off goes on from the last one.
"""

import json
import random
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from baselines.small_model.conversation import prefix_ids
from baselines.small_model.evaluation import Journal, score_transcripts
from baselines.small_model.grpo import reinforce
from baselines.small_model.imitation import Imitator
from baselines.small_model.learning import make_optimiser, warm_up
from baselines.small_model.network import Network, load_network, save_network
from baselines.small_model.plan import Plan
from baselines.small_model.play import Clock, Player
from ticket_gym.errors import ConfigurationError
from ticket_gym.session import Session

DECODINGS = {"sampled": 1.0, "greedy": 0.0}
"""How evaluations take tokens: drawn at temperature 1, as in training, or always the likeliest."""

OPTIMISER = "optimiser.pt"

CHECK_STREAM = 1
"""Stream of the validation split that decides when imitation stops; scores are reported on stream 0."""


class Training:
    """Trains one seed."""

    def __init__(
        self, plan: Plan, seed: int, tokenizer: PreTrainedTokenizerBase, folder: Path, journal: Journal
    ) -> None:
        self.plan, self.seed, self.tokenizer, self.folder, self.journal = plan, seed, tokenizer, folder, journal
        self.session = Session(plan.imitated(seed))
        self.prefix = prefix_ids(tokenizer, self.session)
        self.stage, self.step, self.tasks_seen, self.wall_s = "start", 0, 0, 0.0
        self.clock = Clock()
        self.learning_s = 0.0
        torch.manual_seed(seed)
        self.network = Network(len(tokenizer), plan.shape)
        self._resumed = time.perf_counter()
        self._claim()
        self._load()

    def run(self) -> Network:
        """Do whatever is not done yet; returns the trained network."""
        if self.stage == "start":
            self._evaluate()
            self._drill()
        if self.stage == "drills":
            self._imitate()
        if self.stage == "sft":
            self._evaluate()
            self.stage, self.step = "grpo", 0
        self._reinforce()
        return self.network

    def _drill(self) -> None:
        drills = self.plan.drills
        imitator = self._imitator(drills.rate, drills.batch)
        losses: list[float] = []
        for update in range(drills.updates):
            warm_up(imitator.optimiser, drills.rate, update, drills.warm_up)
            losses.append(imitator.drill(drills.others))
            if update % 20 == 0:
                self._note(update, "drills", loss=losses[-1])
            if len(losses) >= 10 and sum(losses[-10:]) / 10 < drills.enough:
                break
        self.stage, self.step = "drills", len(losses)
        self._save(imitator.done)

    def _imitate(self) -> None:
        sft = self.plan.imitation
        imitator = self._imitator(sft.rate, sft.batch)
        check = Session(self.plan.settings("validation", CHECK_STREAM)).source
        tasks = [check.at(index) for index in range(sft.check_tasks)]
        player = Player(self.network, self.tokenizer, self.plan.settings("validation", CHECK_STREAM), self.plan.limits)
        update = 0
        for update in range(1, sft.updates + 1):
            warm_up(imitator.optimiser, sft.rate, update - 1, sft.warm_up)
            loss = imitator.imitate(self.prefix, sft.noise)
            if update % sft.check_every == 0:
                reached = score_transcripts(player.play(tasks, 1.0, update))["pass_hat_1"]
                self._note(update, "sft", loss=loss, sampled=reached)
                if reached >= sft.stop_at:
                    break
        self.stage, self.step = "sft", update
        self._save(imitator.done)

    def _reinforce(self) -> None:
        grpo, groups = self.plan.reinforcement, self.plan.groups
        settings = self.plan.settings("train", self.seed)
        source = Session(settings).source
        player = Player(self.network, self.tokenizer, settings, self.plan.limits)
        player.clock = self.clock
        optimiser = make_optimiser(self.network, grpo.rate)
        saved = self._checkpoint() / OPTIMISER
        if saved.exists():
            optimiser.load_state_dict(torch.load(saved))
        while self.step < grpo.iterations:
            warm_up(optimiser, grpo.rate, self.step, grpo.warm_up)
            first, self.tasks_seen = self.tasks_seen, self.tasks_seen + groups.tasks
            tasks = [source.at(index) for index in range(first, self.tasks_seen)]
            played = player.play(groups.spread(tasks), 1.0, self.seed * 10**6 + self.step)
            start = time.perf_counter()
            telling = reinforce(
                self.network, optimiser, self.prefix, played, groups, random.Random(f"{self.seed} {self.step}")
            )
            self.learning_s += time.perf_counter() - start
            self.step += 1
            reward = sum(transcript.reward for transcript in played) / len(played)
            self._note(self.step, "grpo", reward=reward, telling=telling, tasks=groups.tasks)
            if self.step % self.plan.evaluation.every == 0 or self.step == grpo.iterations:
                self._evaluate()
                self._save(self.tasks_seen, optimiser)

    def _imitator(self, rate: float, batch: int) -> Imitator:
        rng = random.Random(f"{self.seed} {self.stage}")
        optimiser = make_optimiser(self.network, rate)
        return Imitator(self.network, optimiser, self.tokenizer, self.session, rng, batch, self.tasks_seen)

    def _evaluate(self) -> None:
        settings = self.plan.settings("validation")
        source = Session(settings).source
        tasks = [source.at(index) for index in range(self.plan.evaluation.tasks)]
        # Greedy play is looked at where a stage ends; on the way it would cost as much again.
        ends = self.stage != "grpo" or self.step == self.plan.reinforcement.iterations
        for decoding, temperature in DECODINGS.items():
            if decoding == "greedy" and not ends:
                continue
            if self.journal.has(seed=self.seed, stage=self.stage, step=self.step, decoding=decoding):
                continue
            player = Player(self.network, self.tokenizer, settings, self.plan.limits)
            found = score_transcripts(player.play(tasks, temperature, self.step))
            line = {
                "seed": self.seed,
                "stage": self.stage,
                "step": self.step,
                "templates": list(settings.templates or ()),
                "language": self.plan.language,
                **found,
                "wall_s": round(self._elapsed(), 1),
                "decoding": decoding,
            }
            self.journal.add(line)
            self._note(self.step, f"{self.stage} {decoding}", pass_hat_1=found["pass_hat_1"], **found["by_template"])

    def _elapsed(self) -> float:
        """Seconds of this run, those before a break included."""
        return self.wall_s + time.perf_counter() - self._resumed

    def _note(self, step: int, what: str, **values: Any) -> None:
        words = " ".join(
            f"{name}={value:.3g}" if isinstance(value, float) else f"{name}={value}" for name, value in values.items()
        )
        print(f"[{self._elapsed():6.0f} s] seed {self.seed} {what} {step}: {words}", flush=True)

    def _save(self, tasks_seen: int, optimiser: torch.optim.Optimizer | None = None) -> None:
        """Write a checkpoint; the small file that tells its stage and step comes last."""
        self.tasks_seen = tasks_seen
        checkpoint = self._checkpoint()
        save_network(self.network, self.tokenizer, checkpoint)
        if optimiser is not None:
            torch.save(optimiser.state_dict(), checkpoint / OPTIMISER)
        state = {
            "stage": self.stage,
            "step": self.step,
            "tasks_seen": tasks_seen,
            "wall_s": self._elapsed(),
            "learning_s": self.learning_s,
            "playing_s": self.clock.total,
            "environment_s": self.clock.environment,
            "episodes": self.clock.episodes,
            "tokens": self.clock.tokens,
        }
        (self.folder / "state.json").write_text(json.dumps(state, indent=1), encoding="utf-8")

    def _checkpoint(self) -> Path:
        """The folder of this stage and step."""
        return self.folder / f"{self.stage}-{self.step:04d}"

    def _claim(self) -> None:
        """Make the folder this plan's; only the number of iterations may grow.

        Raises:
            ConfigurationError: It holds a training by another plan.
        """
        whole = asdict(self.plan)
        del whole["reinforcement"]["iterations"]
        path, plan = self.folder / "plan.json", json.dumps(whole, indent=1)
        if path.exists() and path.read_text(encoding="utf-8") != plan:
            raise ConfigurationError(f"{self.folder} holds a training by another plan, see {path.name}: choose another")
        self.folder.mkdir(parents=True, exist_ok=True)
        path.write_text(plan, encoding="utf-8")

    def _load(self) -> None:
        path = self.folder / "state.json"
        if not path.exists():
            return
        state = json.loads(path.read_text(encoding="utf-8"))
        self.stage, self.step = state["stage"], state["step"]
        self.tasks_seen, self.wall_s, self.learning_s = state["tasks_seen"], state["wall_s"], state["learning_s"]
        self.clock = Clock(state["playing_s"], state["environment_s"], state["episodes"], state["tokens"])
        self.network = load_network(self._checkpoint())
