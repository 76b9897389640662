"""Many episodes at once in plain PyTorch, one turn after another, with keys and values kept.

All conversations read what is new to them, then all write a message token by token, then the sessions answer. The
tokens that were sampled are the tokens that are trained.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedTokenizerBase

from baselines.small_model.conversation import Transcript, encode, prefix_ids, request_text, results_text
from baselines.small_model.network import Memory, Network
from ticket_gym.engines.reader import read_calls
from ticket_gym.request import Task
from ticket_gym.session import Session, Settings
from ticket_gym.types import RESPOND, StopReason

READ_AT_ONCE = 32
"""Conversations that read together; more would only need more memory."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Where an episode is cut off.

    Attributes:
        message: Tokens of one message.
        episode: Tokens of one episode, without the common prefix.
        batch: Episodes that are played at once.
    """

    message: int = 48
    episode: int = 800
    batch: int = 64


@dataclass(slots=True)
class Clock:
    """Where the time of playing went, in seconds, and what was done in it."""

    total: float = 0.0
    environment: float = 0.0
    episodes: int = 0
    tokens: int = 0


@dataclass(slots=True)
class _Row:
    """One conversation under way; `pending` are tokens that the network has not read yet."""

    session: Session
    transcript: Transcript
    pending: list[int] = field(default_factory=list)
    read: int = 0


class Player:
    """Plays tasks of one setting with one network."""

    def __init__(
        self, network: Network, tokenizer: PreTrainedTokenizerBase, settings: Settings, limits: Limits = Limits()
    ) -> None:
        self.network, self.tokenizer, self.settings, self.limits = network, tokenizer, settings, limits
        self.clock = Clock()
        self._prefix = prefix_ids(tokenizer, Session(settings))
        self._end = int(tokenizer.eos_token_id)

    def play(self, tasks: Sequence[Task], temperature: float, seed: int) -> list[Transcript]:
        """Play each task once.

        Args:
            tasks: What is played; a task may come several times.
            temperature: Of the sampling; 0 takes the likeliest token.
            seed: Of the sampling.

        Returns:
            A transcript for each task, in order.
        """
        start = time.perf_counter()
        generator = torch.Generator().manual_seed(seed)
        transcripts: list[Transcript] = []
        with torch.no_grad():
            _, prefix = self.network.read(torch.tensor([self._prefix]))
            for first in range(0, len(tasks), self.limits.batch):
                rows = [self._begin(task) for task in tasks[first : first + self.limits.batch]]
                transcripts += [row.transcript for row in rows]
                self._play_rows(rows, prefix, temperature, generator)
        self.clock.total += time.perf_counter() - start
        self.clock.episodes += len(tasks)
        self.clock.tokens += sum(len(transcript.ids) for transcript in transcripts)
        return transcripts

    def _begin(self, task: Task) -> _Row:
        start = time.perf_counter()
        session = Session(self.settings)
        request = session.reset(task)
        self.clock.environment += time.perf_counter() - start
        row = _Row(session, Transcript(task))
        self._hear(row, encode(self.tokenizer, request_text(request)))
        return row

    def _hear(self, row: _Row, ids: list[int]) -> None:
        row.transcript.append(ids, own=False)
        row.transcript.log_probs += [0.0] * len(ids)
        row.pending += ids

    def _play_rows(self, rows: list[_Row], prefix: Memory, temperature: float, generator: torch.Generator) -> None:
        capacity = self.limits.episode + self.limits.message + 1
        buffers = [(_room(keys, len(rows), capacity), _room(values, len(rows), capacity)) for keys, values in prefix]
        while rows:
            hidden = self._read_pending(rows, prefix, buffers)
            self._write_messages(rows, hidden, prefix, buffers, temperature, generator)
            for row in rows:
                self._answer(row)
            kept = [number for number, row in enumerate(rows) if not row.session.done]
            if len(kept) < len(rows):
                buffers = [(keys[kept], values[kept]) for keys, values in buffers]
                rows = [rows[number] for number in kept]

    def _read_pending(self, rows: list[_Row], prefix: Memory, buffers: Memory) -> Tensor:
        """Hidden state after each row's last token; rows with about as much to read are read together."""
        hidden = torch.empty(len(rows), self.network.shape.width)
        order = sorted(range(len(rows)), key=lambda number: len(rows[number].pending))
        for first in range(0, len(order), READ_AT_ONCE):
            chosen = order[first : first + READ_AT_ONCE]
            some = [rows[number] for number in chosen]
            ids = pad_sequence([torch.tensor(row.pending) for row in some], batch_first=True)
            states = self.network.extend(ids, _places(some), prefix, buffers, torch.tensor(chosen))
            last = torch.tensor([len(row.pending) - 1 for row in some])
            hidden[chosen] = states[torch.arange(len(some)), last]
            for row in some:
                row.read += len(row.pending)
                row.pending = []
        return hidden

    def _write_messages(
        self,
        rows: list[_Row],
        hidden: Tensor,
        prefix: Memory,
        buffers: Memory,
        temperature: float,
        generator: torch.Generator,
    ) -> None:
        """Let every row write one message. Its last token stays pending, to be read with the answer."""
        writing = [True] * len(rows)
        for count in range(self.limits.message):
            log_probs = self.network.logits(hidden).log_softmax(-1)
            tokens = _draw(log_probs, temperature, generator)
            drawn = log_probs.gather(1, tokens.unsqueeze(1)).squeeze(1).tolist()
            for number, token in enumerate(tokens.tolist()):
                if writing[number]:
                    row = rows[number]
                    row.transcript.append([token], own=True)
                    row.transcript.log_probs.append(drawn[number])
                    row.pending.append(token)
                    writing[number] = token != self._end
            if not any(writing) or count == self.limits.message - 1:
                return
            hidden = self.network.extend(tokens.unsqueeze(1), _places(rows), prefix, buffers)[:, -1]
            for number, row in enumerate(rows):
                if writing[number]:
                    row.read += 1
                    row.pending = []

    def _answer(self, row: _Row) -> None:
        """Play the message that a row has just written."""
        session, transcript = row.session, row.transcript
        if transcript.ids[-1] != self._end:
            session.finish(StopReason.LENGTH)
        else:
            reading = read_calls(str(self.tokenizer.decode(last_message(transcript))), "hermes")
            start = time.perf_counter()
            results = [session.call(call.name, call.arguments).text for call in reading.calls]
            if not reading.calls:
                session.call(RESPOND, {"content": reading.content})
            self.clock.environment += time.perf_counter() - start
            if not session.done:
                heard = encode(self.tokenizer, results_text(results))
                if len(transcript.ids) + len(heard) > self.limits.episode:
                    session.finish(StopReason.CONTEXT_OVERFLOW)
                else:
                    self._hear(row, heard)
        transcript.reward = session.reward


def last_message(transcript: Transcript) -> list[int]:
    """The tokens of the message that the model has just written."""
    start = len(transcript.ids)
    while start and transcript.own[start - 1]:
        start -= 1
    return transcript.ids[start:]


def _draw(log_probs: Tensor, temperature: float, generator: torch.Generator) -> Tensor:
    """One token for each row of (batch, vocabulary)."""
    if temperature == 0:
        return log_probs.argmax(-1)
    return torch.multinomial((log_probs / temperature).softmax(-1), 1, generator=generator).squeeze(1)


def _places(rows: Sequence[_Row]) -> Tensor:
    return torch.tensor([row.read for row in rows])


def _room(part: Tensor, rows: int, capacity: int) -> Tensor:
    """Room for the keys or values that each row adds to the prefix's."""
    _, heads, _, size = part.shape
    return torch.zeros(rows, heads, capacity, size)
