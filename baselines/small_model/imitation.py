"""Imitation of the expert: first drills on abridged episodes, then the real thing.

What is hard for a network from nothing is to attend to the one token that has to be copied, among a thousand. In a
drill there are a hundred: the system prompt and the schemas are left out, and each page of games holds the game that is
bought and few others. Heads that copy form there within minutes, and hold when the rest comes back.
"""

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from transformers import PreTrainedTokenizerBase

from baselines.small_model.conversation import Transcript, encode, expert_messages
from baselines.small_model.learning import own_log_probs, step
from baselines.small_model.network import Network
from ticket_gym.request import Task
from ticket_gym.session import Session


@dataclass(slots=True)
class Imitator:
    """Imitates one expert episode after another.

    Attributes:
        network: What learns.
        optimiser: Of its weights.
        tokenizer: Of the network.
        session: Whose tasks are played.
        rng: For the order of things that are drawn.
        batch: Episodes of one update.
        done: Episodes so far; the next task is the one at this index.
    """

    network: Network
    optimiser: torch.optim.Optimizer
    tokenizer: PreTrainedTokenizerBase
    session: Session
    rng: random.Random
    batch: int
    done: int = 0

    def drill(self, others: int) -> float:
        """One update on abridged episodes; returns the loss for each token that the expert wrote.

        Args:
            others: The most games that are left on a page beside those to be bought.
        """
        return self._update((), [self._transcript(task, others) for task in self._next_tasks()])

    def imitate(self, prefix: Sequence[int], noise: float) -> float:
        """One update on real episodes; returns the loss for each token that the expert wrote.

        Args:
            prefix: Tokens of the system prompt and the schemas.
            noise: Share of the prefix that is replaced by random tokens, so that what is learnt holds when a
                description is worded anew.
        """
        size = self.network.embed_tokens.num_embeddings
        worn = [self.rng.randrange(size) if self.rng.random() < noise else token for token in prefix]
        return self._update(worn, [self._transcript(task, None) for task in self._next_tasks()])

    def _next_tasks(self) -> Iterator[Task]:
        first, self.done = self.done, self.done + self.batch
        return (self.session.source.at(index) for index in range(first, first + self.batch))

    def _transcript(self, task: Task, others: int | None) -> Transcript:
        transcript = Transcript(task, reward=1.0)
        for text, own in expert_messages(self.session, task):
            if others is not None and not own:
                text = self._abridge(text, task, others)
            transcript.append(encode(self.tokenizer, text), own=own)
        return transcript

    def _abridge(self, text: str, task: Task, others: int) -> str:
        """Leave out games of a page, but not those to be bought; other text stays as it is."""
        keys = self.session.codec.texts.keys
        start, end = text.find(f'{{"{keys["games"]}": [{{'), text.rfind("}") + 1
        if start < 0:
            return text
        page = json.loads(text[start:end])
        games = page[keys["games"]]
        spare = [game[keys["id"]] for game in games if game[keys["id"]] not in task.expected]
        kept = {*task.expected, *self.rng.sample(spare, min(len(spare), self.rng.randint(0, others)))}
        page[keys["games"]] = [game for game in games if game[keys["id"]] in kept]
        return text[:start] + json.dumps(page, ensure_ascii=False) + text[end:]

    def _update(self, prefix: Sequence[int], transcripts: Sequence[Transcript]) -> float:
        log_probs, mask = own_log_probs(self.network, prefix, transcripts)
        return step(self.network, self.optimiser, [-(log_probs * mask).sum() / mask.sum()])
