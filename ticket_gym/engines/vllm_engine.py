"""vLLM in this process: its asynchronous engine batches continuously, so that no conversation waits for another's turn.

Prompts are token ids that only ever grow (`ticket_gym.engines.prompting`), which is what the prefix cache needs: of a
conversation's next turn only what is new is computed. Spreading a model over GPUs and machines is vLLM's own affair.
"""

import asyncio
import importlib.metadata
import itertools
import zlib
from typing import Any

from vllm import SamplingParams
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

from ticket_gym.engines.base import Completion, Request
from ticket_gym.engines.local_options import VllmOptions, as_texts, read_template, style_of
from ticket_gym.engines.overflow import is_context_overflow
from ticket_gym.engines.prompting import Prompter, Sampled
from ticket_gym.errors import ContextOverflowError, EngineError, EngineSetupError

_CPU_BATCHED_TOKENS = 32768


class VllmEngine:
    """Generates messages with a model that vLLM holds in this process.

    A seed makes a message repeatable for the same batch shapes. vLLM's kernels may round differently in other shapes,
    which now and then changes a token; its `VLLM_BATCH_INVARIANT=1` rules that out on GPUs that support it.
    """

    def __init__(self, options: VllmOptions) -> None:
        """Load the model; this takes from half a minute to many.

        A script that makes this engine needs `if __name__ == "__main__":`, because vLLM starts processes of its own.

        Raises:
            EngineSetupError: vLLM cannot load the model, or the chat template does not serve.
            ConfigurationError: The style of the model's calls is not known.
        """
        style = style_of(options)
        template = None if options.chat_template is None else read_template(options.chat_template)
        self.options = options
        self._engine = _start(options)
        config = self._engine.vllm_config.model_config
        self._context: int = config.max_model_len
        self._config = config
        tokenizer = self._engine.get_tokenizer()
        own = config.try_get_generation_config()
        self._defaults: dict[str, Any] = config.get_diff_sampling_param()
        try:
            self._prompter = Prompter(
                tokenizer, style, dict(options.chat_template_options), _stop_ids(own), chat_template=template
            )
        except EngineSetupError:
            self._engine.shutdown()
            raise
        self._numbers = itertools.count()
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def name(self) -> str:
        """The model's name."""
        return self.options.model

    def describe(self) -> dict[str, Any]:
        """Model, versions, template, sampling, and how the model is spread, which changes how numbers are rounded."""
        options, config = self.options, self._config
        return {
            "engine": "vllm",
            "versions": {name: importlib.metadata.version(name) for name in ("torch", "transformers", "vllm")},
            "model": options.model,
            "revision": getattr(config.hf_config, "_commit_hash", None) or options.revision,
            "dtype": str(config.dtype).removeprefix("torch."),
            "quantization": None if config.quantization is None else str(config.quantization),
            "device": self._engine.vllm_config.device_config.device_type,
            "context": self._context,
            "sampling": {**self._defaults, **options.sampling.given()},
            "parallel": {
                "tensor": options.tensor_parallel_size,
                "pipeline": options.pipeline_parallel_size,
                "data": options.data_parallel_size,
                "backend": options.distributed_executor_backend,
            },
            "engine_args": as_texts(options.engine_args),
            **({} if options.tokenizer is None else {"tokenizer": options.tokenizer}),
            **self._prompter.describe(),
        }

    async def complete(self, request: Request) -> Completion:
        """The model's next message; see `ticket_gym.engines.base.Engine`."""
        loop = asyncio.get_running_loop()
        if self._loop is not None and self._loop is not loop:
            raise EngineSetupError("a vLLM engine serves the event loop that first used it: make another engine")
        self._loop = loop
        prompt = self._prompter.prompt_ids(request)
        room = self._context - len(prompt)
        if room < 1:
            raise ContextOverflowError(f"{len(prompt)} tokens do not fit the context window of {self._context}")
        sampling = {**self._defaults, **self.options.sampling.given()}
        most = sampling.get("max_tokens")
        parameters = SamplingParams(
            **{**sampling, "max_tokens": min(most or room, room)},
            seed=request.seed,
            stop_token_ids=list(self._prompter.stop_ids),
            skip_special_tokens=False,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        output = await self._generate(prompt, parameters, self._replica(request.conversation))
        message = output.outputs[0]
        if message.finish_reason in ("abort", "error"):
            raise EngineError(f"vLLM broke the message off ({message.finish_reason}), see its log above")
        cut = message.finish_reason == "length"
        sampled = Sampled(
            list(message.token_ids), cut, cut and (most is None or room < most), output.num_cached_tokens or 0
        )
        return self._prompter.completion(request, prompt, sampled)

    def _replica(self, conversation: str) -> int | None:
        """The same one in all turns of a conversation, so that its prefix cache is used."""
        replicas = self.options.data_parallel_size
        return zlib.crc32(conversation.encode()) % replicas if replicas > 1 and conversation else None

    async def _generate(self, prompt: list[int], parameters: SamplingParams, replica: int | None) -> Any:
        final = None
        try:
            async for output in self._engine.generate(
                {"prompt_token_ids": prompt},
                parameters,
                request_id=f"turn-{next(self._numbers)}",
                data_parallel_rank=replica,
            ):
                final = output
        except EngineDeadError as problem:
            raise EngineSetupError(f"vLLM has died, see its log above: {problem}") from problem
        except (EngineGenerateError, ValueError) as problem:
            if is_context_overflow(str(problem)):
                raise ContextOverflowError(str(problem)) from problem
            raise EngineError(f"vLLM failed: {problem}") from problem
        if final is None:
            raise EngineError("vLLM gave no message")
        return final

    async def aclose(self) -> None:
        """Stop vLLM and its processes."""
        self._engine.shutdown()


def _start(options: VllmOptions) -> AsyncLLM:
    arguments = {
        "model": options.model,
        "revision": options.revision,
        "tokenizer": options.tokenizer,
        "dtype": options.dtype,
        "quantization": options.quantization,
        "max_model_len": options.max_model_len,
        "tensor_parallel_size": options.tensor_parallel_size,
        "pipeline_parallel_size": options.pipeline_parallel_size,
        "data_parallel_size": options.data_parallel_size,
        "distributed_executor_backend": options.distributed_executor_backend,
        "gpu_memory_utilization": options.gpu_memory_utilization,
        "max_num_seqs": options.max_num_seqs,
        "enforce_eager": options.enforce_eager,
        "trust_remote_code": options.trust_remote_code,
        "enable_prefix_caching": True,
        **_cpu_arguments(),
        **options.engine_args,
    }
    given = {name: value for name, value in arguments.items() if value is not None}
    try:
        return AsyncLLM.from_engine_args(AsyncEngineArgs(**given))
    except (OSError, ValueError, RuntimeError, TypeError, ImportError) as problem:
        raise EngineSetupError(f"vLLM cannot start with model {options.model!r}: {problem}") from problem


def _cpu_arguments() -> dict[str, Any]:
    """On a CPU a seeded message whose prompt is read in several chunks ends the engine: chunks must hold any prompt."""
    from vllm.platforms import current_platform

    return {"max_num_batched_tokens": _CPU_BATCHED_TOKENS} if current_platform.is_cpu() else {}


def _stop_ids(generation_config: dict[str, Any]) -> list[int]:
    ends = generation_config.get("eos_token_id")
    return [] if ends is None else [int(end) for end in ends] if isinstance(ends, list | tuple) else [int(ends)]
