"""transformers' own continuous batching: a message that is complete makes room for another at once.

It draws all messages with one random generator, so that no message could have a seed of its own. Hence it serves where
nothing is drawn: at temperature 0.
"""

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any

from transformers import GenerationConfig

from ticket_gym.engines.base import Sampling
from ticket_gym.engines.batches import Row
from ticket_gym.engines.prompting import Sampled
from ticket_gym.errors import EngineError, EngineSetupError

_PAGE = 64
_CPU_BATCHED_TOKENS = 512


class ContinuousGenerator:
    """Generates messages with one model, each from the moment on at which it is asked for."""

    def __init__(
        self, model: Any, stop_ids: Sequence[int], sampling: Sampling, most_messages: int, context: int
    ) -> None:
        """Take the model; its batches begin with the first message.

        Args:
            model: With transformers' continuous batching.
            stop_ids: Tokens that end a message.
            sampling: How tokens are drawn.
            most_messages: Messages generated at once.
            context: Tokens of the context window.

        Raises:
            EngineSetupError: This version of transformers or this model has no continuous batching, or the sampling
                is another than the likeliest token.
        """
        _refuse_drawing(sampling)
        try:
            from transformers import ContinuousBatchingConfig

            self._manager = model.init_continuous_batching(
                GenerationConfig(do_sample=False, eos_token_id=list(stop_ids), pad_token_id=stop_ids[0]),
                ContinuousBatchingConfig(
                    max_requests_per_batch=most_messages, **_cpu_limits(model, most_messages * context)
                ),
            )
        except (ImportError, AttributeError, TypeError, ValueError) as problem:
            raise EngineSetupError(f"batching='continuous': not with this model and transformers: {problem}") from None
        self._numbers = itertools.count()
        self._waiting: dict[str, asyncio.Future[Any]] = {}

    async def generate(self, row: Row) -> Sampled:
        """Generate one message.

        Raises:
            EngineError: transformers failed, or the engine was closed.
        """
        if not self._manager.is_running():
            self._manager.start()
        number = f"message-{next(self._numbers)}"
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        self._manager.register_result_handler(number, lambda result: _deliver(future, result))
        try:
            taken = self._manager.add_request(list(row.prompt), number, row.limit)
            if taken is None:
                raise EngineError("transformers takes no more messages: its batches have ended")
            result = await future
        finally:
            del self._waiting[number]
        if result.error is not None:
            raise EngineError(f"transformers failed: {result.error}")
        ids = list(result.generated_tokens)
        cut = len(ids) >= row.limit and ids[-1] not in self._manager.generation_config.eos_token_id
        return Sampled(ids, cut=cut, context_full=cut and row.context_bound)

    def close(self) -> None:
        """End the batches; who still waits is told."""
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(EngineError("the engine was closed"))
        self._manager.stop(block=True)


def _cpu_limits(model: Any, tokens: int) -> dict[str, int]:
    """Left to itself on a CPU, transformers fills the whole memory with its cache and a mask over it."""
    if model.device.type != "cpu":
        return {}
    return {"page_size": _PAGE, "num_blocks": -(-tokens // _PAGE), "max_batch_tokens": _CPU_BATCHED_TOKENS}


def _refuse_drawing(sampling: Sampling) -> None:
    wrong = {
        "temperature": sampling.temperature != 0,
        "repetition_penalty": sampling.repetition_penalty not in (None, 1),
        "presence_penalty": bool(sampling.presence_penalty),
    }
    right = {"temperature": 0, "repetition_penalty": 1, "presence_penalty": 0}
    for name, is_wrong in wrong.items():
        if is_wrong:
            raise EngineSetupError(
                f"{name}={getattr(sampling, name)}: batching='continuous' takes the likeliest token as it is, because "
                f"it knows no seed for each message: {name}={right[name]}, or batching='static'"
            )


def _deliver(future: "asyncio.Future[Any]", result: Any) -> None:
    if result.is_finished() and not future.done():
        future.set_result(result)
