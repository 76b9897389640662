"""Generating a batch of messages with a transformers model: padding, the shared beginning, who ended where."""

import copy
import inspect
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import DynamicCache, GenerationConfig, LogitsProcessorList, StoppingCriteria, StoppingCriteriaList

from ticket_gym.engines.base import Sampling
from ticket_gym.engines.prompting import Sampled
from ticket_gym.engines.seeded_draw import SeededDraw

_KEPT_PREFIXES = 8
_WORTH_EXTENDING = 64
"""A kept prefix serves unless the shared beginning is longer by more tokens than these."""


@dataclass(frozen=True, slots=True)
class Row:
    """One message to generate.

    Attributes:
        prompt: Token ids.
        limit: Tokens that it may have.
        context_bound: Whether that limit is the end of the context window rather than the token limit.
        seed: Its own seed.
    """

    prompt: Sequence[int]
    limit: int
    context_bound: bool
    seed: int | None


class BatchGenerator:
    """Generates messages side by side with one model; not to be called from two threads at once."""

    def __init__(self, model: Any, stop_ids: Sequence[int], sampling: Sampling, prefix_cache: bool) -> None:
        """Take the model and how it ends and draws its messages."""
        self._model = model
        # Newer versions of transformers rename it, and warn of the old name.
        new_name = "cache" in inspect.signature(model.forward).parameters
        self._cache_argument = "cache" if new_name else "past_key_values"
        self._stop_ids = list(stop_ids)
        self._sampling = sampling
        self._prefixes: OrderedDict[tuple[int, ...], Any] | None = OrderedDict() if prefix_cache else None
        self.closing = threading.Event()

    def generate(self, rows: Sequence[Row]) -> list[Sampled]:
        """Generate one message per row.

        Where the memory does not suffice for all of them at once, the batch is halved.

        Raises:
            torch.OutOfMemoryError: It does not suffice for a single one.
        """
        try:
            return self._generate(rows)
        except torch.OutOfMemoryError:
            if len(rows) == 1:
                raise
        half = len(rows) // 2
        return [*self.generate(rows[:half]), *self.generate(rows[half:])]

    def _generate(self, rows: Sequence[Row]) -> list[Sampled]:
        prefix = self._shared_prefix([row.prompt for row in rows])
        ids, mask = self._padded([row.prompt for row in rows], len(prefix))
        draw = SeededDraw(
            [row.prompt for row in rows],
            [row.seed for row in rows],
            [row.limit for row in rows],
            self._stop_ids[0],
            self._sampling,
        )
        options: dict[str, Any] = {}
        if prefix:
            options[self._cache_argument] = self._cache(prefix, len(rows))
        own_config = self._model.generation_config
        # What is not set in a call's own config is taken from the model's: it must hold no sampling of its own.
        self._model.generation_config = GenerationConfig()
        try:
            with torch.inference_mode():
                output = self._model.generate(
                    ids,
                    attention_mask=mask,
                    generation_config=GenerationConfig(
                        do_sample=False,
                        max_new_tokens=max(row.limit for row in rows) + 1,
                        eos_token_id=self._stop_ids,
                        pad_token_id=self._stop_ids[0],
                    ),
                    logits_processor=LogitsProcessorList([draw]),
                    stopping_criteria=StoppingCriteriaList([_Closing(self.closing)]),
                    **options,
                )
        finally:
            self._model.generation_config = own_config
        written = output[:, ids.shape[1] :].tolist()
        return [
            self._sampled(row, tokens, forced, len(prefix))
            for row, tokens, forced in zip(rows, written, draw.forced, strict=True)
        ]

    def _sampled(self, row: Row, tokens: list[int], forced: int | None, cached: int) -> Sampled:
        end = next((place for place, token in enumerate(tokens) if token in self._stop_ids), len(tokens))
        if forced is not None and end >= forced:
            return Sampled(tokens[:forced], cut=True, context_full=row.context_bound, cached_tokens=cached)
        return Sampled(tokens[: end + 1], cached_tokens=cached)

    def _padded(self, prompts: Sequence[Sequence[int]], prefix: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Ids and attention mask, `[rows, tokens]`; the padding stands between the shared prefix and the rest."""
        width = max(len(prompt) for prompt in prompts)
        ids, mask = [], []
        for prompt in prompts:
            padding = width - len(prompt)
            ids.append([*prompt[:prefix], *[self._stop_ids[0]] * padding, *prompt[prefix:]])
            mask.append([1] * prefix + [0] * padding + [1] * (len(prompt) - prefix))
        device = self._model.device
        return torch.tensor(ids, device=device), torch.tensor(mask, device=device)

    # The shared beginning

    def _shared_prefix(self, prompts: Sequence[Sequence[int]]) -> tuple[int, ...]:
        """The beginning whose keys and values are kept, or nothing."""
        if self._prefixes is None:
            return ()
        shared = shared_length(prompts)
        # One token at least must be left to begin with.
        shared = min([shared, *(len(prompt) - 1 for prompt in prompts)])
        beginning = tuple(prompts[0][:shared])
        kept = max((old for old in self._prefixes if beginning[: len(old)] == old), key=len, default=())
        if shared - len(kept) > _WORTH_EXTENDING:
            self._keep(beginning, kept)
            return beginning
        if kept:
            self._prefixes.move_to_end(kept)
        return kept

    def _keep(self, prefix: tuple[int, ...], known: tuple[int, ...]) -> None:
        assert self._prefixes is not None
        cache = copy.deepcopy(self._prefixes[known]) if known else DynamicCache(config=self._model.config)
        new = torch.tensor([prefix[len(known) :]], device=self._model.device)
        with torch.inference_mode():
            self._model(new, use_cache=True, logits_to_keep=1, **{self._cache_argument: cache})
        self._prefixes[prefix] = cache
        while len(self._prefixes) > _KEPT_PREFIXES:
            self._prefixes.popitem(last=False)

    def _cache(self, prefix: tuple[int, ...], rows: int) -> Any:
        assert self._prefixes is not None
        cache = copy.deepcopy(self._prefixes[prefix])
        cache.batch_repeat_interleave(rows)
        return cache


class _Closing(StoppingCriteria):  # type: ignore[misc]
    """Ends a batch early when the engine is closed."""

    def __init__(self, closing: threading.Event) -> None:
        self._closing = closing

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **options: Any) -> torch.Tensor:
        return torch.full((input_ids.shape[0],), self._closing.is_set(), device=input_ids.device, dtype=torch.bool)


def shared_length(prompts: Sequence[Sequence[int]]) -> int:
    """How many ids all prompts begin with alike."""
    first, last = min(prompts, key=list), max(prompts, key=list)
    pairs = zip(first, last, strict=False)
    return next((place for place, (a, b) in enumerate(pairs) if a != b), min(len(first), len(last)))
