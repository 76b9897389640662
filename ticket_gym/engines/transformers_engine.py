"""A model in transformers, in this process: batches over the conversations that are waiting for their turn."""

import asyncio
import importlib.metadata
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from ticket_gym.engines.base import RAW_TEXT, REASONING, Completion, Request, Sampling
from ticket_gym.engines.batches import BatchGenerator, Row
from ticket_gym.engines.continuous import ContinuousGenerator
from ticket_gym.engines.local_options import TransformersOptions, as_texts, read_template, style_of
from ticket_gym.engines.prompting import Prompter, Sampled
from ticket_gym.errors import ContextOverflowError, EngineError, EngineSetupError
from ticket_gym.records import Usage
from ticket_gym.types import Message, StopReason, ToolCall

_GROUPED_BY = 64
"""Prompts that begin with the same ids, as many as these, go into a batch together: they share their beginning."""
_DRAWN = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")


class TransformersEngine:
    """Generates the next message of all waiting conversations at once, batch after batch.

    Each message is drawn with its own seed, whatever else is in the batch (`ticket_gym.engines.seeded_draw`). Between
    turns only the shared beginning of the conversations is kept, so that long conversations are read again in each
    turn; where speed matters, vLLM is the engine.
    """

    def __init__(self, options: TransformersOptions, model: Any = None, tokenizer: Any = None) -> None:
        """Load the model.

        Args:
            options: What is chosen.
            model: A loaded model in place of the named one, such as the one that is being trained.
            tokenizer: Its tokenizer; goes with `model`.

        Raises:
            EngineSetupError: Model or tokenizer cannot be loaded, or the chat template does not serve.
            ConfigurationError: The style of the model's calls is not known.
        """
        style = style_of(options)
        self.options = options
        self._tokenizer = tokenizer if tokenizer is not None else _load_tokenizer(options)
        template = None if options.chat_template is None else read_template(options.chat_template)
        self._model = model if model is not None else _load_model(options)
        self._sampling = _own_sampling(self._model.generation_config, options.sampling)
        self._context = _context(self._model, options)
        read = self._parse if options.reader == "tokenizer" else None
        if read is not None and not getattr(self._tokenizer, "response_template", None):
            raise EngineSetupError(f"model {options.model!r}: its tokenizer cannot parse responses: use reader=style")
        ends = _stop_ids(self._model.generation_config)
        self._prompter = Prompter(
            self._tokenizer, style, dict(options.chat_template_options), ends, read, chat_template=template
        )
        stop_ids = self._prompter.stop_ids
        if not stop_ids:
            raise EngineSetupError(
                f"model {options.model!r}: neither tokenizer nor generation config names an end token"
            )
        self._batches = BatchGenerator(self._model, stop_ids, self._sampling, options.prefix_cache)
        self._continuous: ContinuousGenerator | None = None
        if options.batching == "continuous":
            self._continuous = ContinuousGenerator(
                self._model, stop_ids, self._sampling, options.max_batch, self._context
            )
        self._waiting: deque[tuple[Row, asyncio.Future[Sampled]]] = deque()
        self._under_way: list[tuple[Row, asyncio.Future[Sampled]]] = []
        self._thread = ThreadPoolExecutor(1, "transformers")
        self._serving: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        """The model's name."""
        return self.options.model

    def describe(self) -> dict[str, Any]:
        """Model, versions, template and sampling; the size of a batch changes no score but for rounding."""
        config = self._model.config
        return {
            "engine": "transformers",
            "versions": {name: importlib.metadata.version(name) for name in ("torch", "transformers")},
            "model": self.options.model,
            "revision": getattr(config, "_commit_hash", None) or self.options.revision,
            "dtype": str(self._model.dtype).removeprefix("torch."),
            "quantization": _quantization(config),
            "device": self._model.device.type,
            "reader": self.options.reader,
            "context": self._context,
            "sampling": self._sampling.given(),
            "batching": self.options.batching,
            "seeds": "one per message, drawn apart from the batch" if self._continuous is None else "nothing is drawn",
            **({"model_args": as_texts(self.options.model_args)} if self.options.model_args else {}),
            **self._prompter.describe(),
        }

    async def complete(self, request: Request) -> Completion:
        """The model's next message; see `ticket_gym.engines.base.Engine`."""
        prompt = self._prompter.prompt_ids(request)
        room = self._context - len(prompt)
        if room < 1:
            raise ContextOverflowError(f"{len(prompt)} tokens do not fit the context window of {self._context}")
        most = self._sampling.max_tokens
        row = Row(prompt, min(most or room, room), most is None or room < most, request.seed)
        if self._continuous is not None:
            return self._prompter.completion(request, prompt, await self._continuous.generate(row))
        future: asyncio.Future[Sampled] = asyncio.get_running_loop().create_future()
        self._waiting.append((row, future))
        if self._serving is None or self._serving.done():
            self._serving = asyncio.create_task(self._serve())
            self._serving.add_done_callback(self._ended)
        return self._prompter.completion(request, prompt, await future)

    async def aclose(self) -> None:
        """End the batch under way and let go of the model."""
        self._batches.closing.set()
        if self._serving is not None:
            self._serving.cancel()
        self._thread.shutdown(wait=True)
        if self._continuous is not None:
            self._continuous.close()

    # Batches

    async def _serve(self) -> None:
        # All conversations that can ask at this moment come before the first batch is made up.
        await asyncio.sleep(0)
        while batch := self._next_batch():
            self._under_way = batch
            try:
                loop = asyncio.get_running_loop()
                results = await loop.run_in_executor(self._thread, self._batches.generate, [row for row, _ in batch])
            except (RuntimeError, ValueError, IndexError) as problem:
                _fail([future for _, future in batch], problem)
                continue
            for (_, future), sampled in zip(batch, results, strict=True):
                if not future.done():
                    future.set_result(sampled)
            # Those who have been answered ask again before the next batch is made up.
            await asyncio.sleep(0.001)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Nobody may wait for ever when the batches have ended by a fault or by closing."""
        fault = EngineError("the engine was closed") if task.cancelled() else task.exception()
        if fault is None:
            return
        for _, future in (*self._under_way, *self._waiting):
            if not future.done():
                future.set_exception(fault)

    def _next_batch(self) -> list[tuple[Row, asyncio.Future[Sampled]]]:
        """The one that has waited longest, and others that begin like it."""
        waiting = [entry for entry in self._waiting if not entry[1].done()]
        batch: list[tuple[Row, asyncio.Future[Sampled]]] = []
        if waiting:
            beginning = list(waiting[0][0].prompt[:_GROUPED_BY])
            alike = [entry for entry in waiting if list(entry[0].prompt[:_GROUPED_BY]) == beginning]
            batch = alike[: self.options.max_batch]
        chosen = {id(entry) for entry in batch}
        self._waiting = deque(entry for entry in waiting if id(entry) not in chosen)
        return batch

    # The tokenizer's own reading

    def _parse(
        self, request: Request, prompt: Sequence[int], text: str, usage: Usage, stop: StopReason | None
    ) -> Completion | None:
        """A message as the tokenizer's `parse_response` reads it; None where it cannot."""
        prefix = self._tokenizer.decode(list(prompt))
        try:
            parsed = self._tokenizer.parse_response(text, prefix=prefix, tools=list(request.tools))
            calls = tuple(map(_parsed_call, parsed.get("tool_calls") or ()))
        except (ValueError, KeyError, TypeError, AttributeError):
            return None
        message: Message = {"role": "assistant", "content": parsed.get("content") or (None if calls else "")}
        if calls:
            message["tool_calls"] = [call.to_message() for call in calls]
        if thought := parsed.get("reasoning_content") or parsed.get("thinking"):
            message[REASONING] = thought
        message[RAW_TEXT] = text
        return Completion(message, calls, stop, usage)


def _parsed_call(call: dict[str, Any]) -> ToolCall:
    """A call of the tokenizer's; `KeyError`, `TypeError` or `AttributeError` where it is not in OpenAI's form."""
    function = call["function"]
    if not isinstance(function["name"], str):
        raise TypeError("the name of a function must be a text")
    return ToolCall(function["name"], function.get("arguments"), call.get("id"))


def _fail(futures: Sequence[asyncio.Future[Sampled]], problem: Exception) -> None:
    advice = " (a smaller max_batch needs less memory)" if isinstance(problem, torch.OutOfMemoryError) else ""
    for future in futures:
        if not future.done():
            future.set_exception(EngineError(f"transformers failed: {problem}{advice}"))


# Loading


def _load_tokenizer(options: TransformersOptions) -> Any:
    try:
        return AutoTokenizer.from_pretrained(
            options.model, revision=options.revision, trust_remote_code=options.trust_remote_code
        )
    except (OSError, ValueError) as problem:
        raise EngineSetupError(f"model {options.model!r}: no tokenizer can be loaded: {problem}") from problem


def _load_model(options: TransformersOptions) -> Any:
    try:
        model = AutoModelForCausalLM.from_pretrained(
            options.model,
            revision=options.revision,
            dtype=options.dtype,
            trust_remote_code=options.trust_remote_code,
            **options.model_args,
        )
        if "device_map" not in options.model_args:
            model = model.to(_device(options.device))
    except (OSError, ValueError, RuntimeError, ImportError) as problem:
        raise EngineSetupError(f"model {options.model!r} cannot be loaded: {problem}") from problem
    return model.eval()


def _device(chosen: str) -> str:
    if chosen != "auto":
        return chosen
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def _own_sampling(config: Any, chosen: Sampling) -> Sampling:
    """What was chosen, over what the model's generation config sets: the same rule as vLLM's."""
    own = config.to_diff_dict()
    values: dict[str, Any] = {name: own[name] for name in _DRAWN if own.get(name) is not None}
    if values.get("top_k") == 0:
        values["top_k"] = -1
    if own.get("max_new_tokens") is not None:
        values["max_tokens"] = own["max_new_tokens"]
    return Sampling(**{**values, **chosen.given()})


def _stop_ids(config: Any) -> list[int]:
    ends = config.eos_token_id
    return [] if ends is None else list(ends) if isinstance(ends, list | tuple) else [int(ends)]


def _quantization(config: Any) -> str | None:
    own = getattr(config, "quantization_config", None)
    method = own.get("quant_method") if isinstance(own, dict) else getattr(own, "quant_method", None)
    return None if method is None else str(getattr(method, "value", method))


def _context(model: Any, options: TransformersOptions) -> int:
    text_config = model.config.get_text_config()
    own = getattr(text_config, "max_position_embeddings", None)
    if options.max_context is None and own is None:
        raise EngineSetupError(f"model {options.model!r}: its context window is not known: give max_context")
    return int(min(size for size in (options.max_context, own) if size is not None))
