"""Drawing the next tokens of a batch, each message with random numbers of its own.

transformers draws a whole batch with one random generator, so that a message would depend on which others happen to be
generated beside it. Here every message has its own seed, and one random number per token picks from the distribution
by its cumulative sum: the same seed gives the same message in any batch, as far as the model's own numbers are the
same (their last bits depend on the shape of the batch, which now and then changes a token).
"""

import secrets
from collections.abc import Sequence

import numpy as np
import torch
from transformers import (
    LogitsProcessor,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from ticket_gym.engines.base import Sampling


class SeededDraw(LogitsProcessor):  # type: ignore[misc]
    """Draws the tokens itself and leaves only the drawn ones to the greedy search that it is used with.

    Attributes:
        forced: How many tokens each message had when its own limit ended it, or None.
    """

    def __init__(
        self,
        prompts: Sequence[Sequence[int]],
        seeds: Sequence[int | None],
        limits: Sequence[int],
        end_id: int,
        sampling: Sampling,
    ) -> None:
        """Take what belongs to each row of the batch.

        Args:
            prompts: Token ids, without padding.
            seeds: Seeds, or None for one that cannot be foreseen.
            limits: Tokens after which a message is ended.
            end_id: The token that ends it.
            sampling: How tokens are drawn; a temperature that is not given is 1.
        """
        self.forced: list[int | None] = [None] * len(prompts)
        self._prompts = prompts
        self._generators = [np.random.default_rng(secrets.randbits(63) if seed is None else seed) for seed in seeds]
        self._limits = limits
        self._end_id = end_id
        self._sampling = sampling
        self._warpers = _warpers(sampling)
        self._steps = 0
        self._seen: torch.Tensor | None = None
        self._written: torch.Tensor | None = None

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Scores in which only the drawn token of each row can be chosen.

        Args:
            input_ids: `[rows, tokens]`, padded on the left.
            scores: `[rows, vocabulary]`, logits.
        """
        drawn = self._draw(input_ids, self._penalised(input_ids, scores.float()))
        for row, limit in enumerate(self._limits):
            if self._steps >= limit:
                if self.forced[row] is None:
                    self.forced[row] = self._steps
                drawn[row] = self._end_id
        self._steps += 1
        return torch.full_like(scores, -torch.inf).scatter_(1, drawn[:, None], 0.0)

    def _draw(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if self._sampling.temperature == 0:
            return scores.argmax(-1)
        for warper in self._warpers:
            scores = warper(input_ids, scores)
        # Double precision where there is any: rounding must not move a border between two tokens.
        exact = torch.float32 if scores.device.type == "mps" else torch.float64
        sums = scores.softmax(-1, dtype=exact).cumsum(-1)
        numbers = torch.tensor([generator.random() for generator in self._generators], dtype=exact, device=sums.device)
        return (
            torch.searchsorted(sums, numbers[:, None] * sums[:, -1:], right=True)
            .squeeze(1)
            .clamp(max=sums.shape[1] - 1)
        )

    def _penalised(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Scores after the repetition penalty (prompt and message) and the presence penalty (message only)."""
        repetition = self._sampling.repetition_penalty or 1.0
        presence = self._sampling.presence_penalty or 0.0
        if repetition == 1.0 and presence == 0.0:
            return scores
        seen, written = self._counted(input_ids, scores)
        punished = torch.where(scores > 0, scores / repetition, scores * repetition)
        return torch.where(seen, punished, scores) - presence * written

    def _counted(self, input_ids: torch.Tensor, scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Which tokens stand in each row's prompt or message, and which in its message."""
        if self._seen is None or self._written is None:
            self._seen = torch.zeros_like(scores, dtype=torch.bool)
            self._written = torch.zeros_like(self._seen)
            for row, prompt in enumerate(self._prompts):
                self._seen[row, torch.tensor(list(prompt), device=scores.device)] = True
        if self._steps:
            self._seen.scatter_(1, input_ids[:, -1:], True)
            self._written.scatter_(1, input_ids[:, -1:], True)
        return self._seen, self._written


def _warpers(sampling: Sampling) -> list[LogitsProcessor]:
    warpers: list[LogitsProcessor] = []
    if sampling.temperature:
        warpers.append(TemperatureLogitsWarper(float(sampling.temperature)))
    if sampling.top_k is not None and sampling.top_k > 0:
        warpers.append(TopKLogitsWarper(sampling.top_k))
    if sampling.top_p is not None and sampling.top_p < 1:
        warpers.append(TopPLogitsWarper(float(sampling.top_p)))
    if sampling.min_p:
        warpers.append(MinPLogitsWarper(float(sampling.min_p)))
    return warpers
