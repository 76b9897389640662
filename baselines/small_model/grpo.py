"""Group-relative policy optimisation (Shao et al. 2024, "DeepSeekMath") on the environment's own reward, 1 or 0.

No KL term and no value network. Several episodes are played of each task, and an episode is reinforced by how much
better it went than the others of its task. A group in which all went alike teaches nothing and is left out. The loss is
averaged over tokens, not over episodes (Yu et al. 2025, "DAPO").
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from baselines.small_model.conversation import Transcript
from baselines.small_model.learning import own_log_probs, step
from baselines.small_model.network import Network
from ticket_gym.request import Task

READ_AT_ONCE = 12
"""Episodes that are read together in training."""


@dataclass(frozen=True, slots=True)
class Groups:
    """How episodes are gathered and used.

    Attributes:
        tasks: Tasks of one iteration.
        size: Episodes of each task.
        minibatch: Episodes of one update.
        clip: How far the ratio of probabilities may leave 1 before it stops counting (Schulman et al. 2017).
    """

    tasks: int = 12
    size: int = 8
    minibatch: int = 48
    clip: float = 0.2

    def spread(self, tasks: Sequence[Task]) -> list[Task]:
        """Each task as often as its group has members."""
        return [task for task in tasks for _ in range(self.size)]


def advantages(rewards: Tensor) -> Tensor:
    """Rewards (groups, size) against their group's mean, in its standard deviations; 0 where all are alike."""
    spread = rewards.std(dim=1, correction=0, keepdim=True)
    return torch.where(spread > 0, (rewards - rewards.mean(dim=1, keepdim=True)) / spread.clamp(min=1e-6), 0.0)


def clipped_loss(log_probs: Tensor, sampled: Tensor, mask: Tensor, advantage: Tensor, clip: float) -> Tensor:
    """The clipped surrogate of PPO, averaged over the model's own tokens.

    Args:
        log_probs: By the network as it is, (episodes, tokens).
        sampled: By the network as it was when it played, of the same shape.
        mask: 1 for a token, 0 for padding.
        advantage: Of each episode.
        clip: See `Groups`.
    """
    ratio = (log_probs - sampled).exp()
    gain = advantage.unsqueeze(1)
    surrogate = torch.minimum(ratio * gain, ratio.clamp(1 - clip, 1 + clip) * gain)
    return -(surrogate * mask).sum() / mask.sum()


def reinforce(
    network: Network,
    optimiser: torch.optim.Optimizer,
    prefix: Sequence[int],
    transcripts: Sequence[Transcript],
    groups: Groups,
    rng: random.Random,
) -> int:
    """Learn from the episodes of one iteration.

    Args:
        network: What played them and learns.
        optimiser: Of its weights.
        prefix: Tokens before every episode.
        transcripts: Group after group.
        groups: How they were gathered.
        rng: Shuffles the minibatches.

    Returns:
        How many groups there was something to learn from.
    """
    rewards = torch.tensor([transcript.reward for transcript in transcripts]).view(-1, groups.size)
    gains = advantages(rewards)
    telling = [pair for pair in zip(transcripts, gains.flatten().tolist(), strict=True) if pair[1]]
    rng.shuffle(telling)
    for first in range(0, len(telling), groups.minibatch):
        step(network, optimiser, _losses(network, prefix, telling[first : first + groups.minibatch], groups.clip))
    return int(gains.any(dim=1).sum())


def _losses(
    network: Network, prefix: Sequence[int], telling: Sequence[tuple[Transcript, float]], clip: float
) -> Iterator[Tensor]:
    """The loss of a minibatch in parts, each of episodes of about the same length, which need little padding."""
    ordered = sorted(telling, key=lambda pair: len(pair[0].ids))
    tokens = sum(sum(transcript.own) for transcript, _ in ordered)
    for first in range(0, len(ordered), READ_AT_ONCE):
        some = ordered[first : first + READ_AT_ONCE]
        log_probs, mask = own_log_probs(network, prefix, [transcript for transcript, _ in some])
        sampled = pad_sequence([torch.tensor(transcript.own_log_probs) for transcript, _ in some], batch_first=True)
        advantage = torch.tensor([gain for _, gain in some])
        yield clipped_loss(log_probs, sampled, mask, advantage, clip) * (mask.sum() / tokens)
