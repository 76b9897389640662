"""What can be chosen about the engines that hold the model themselves: plain data, like `options`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from ticket_gym.engines.base import Sampling
from ticket_gym.engines.reader import STYLES, Style, style_for
from ticket_gym.errors import ConfigurationError, EngineSetupError

DistributedBackend = Literal["mp", "ray", "uni", "external_launcher"]
Reader = Literal["style", "tokenizer"]
Batching = Literal["static", "continuous"]


@dataclass(frozen=True, slots=True)
class VllmOptions:
    """A model in vLLM's asynchronous engine, in this process.

    Attributes:
        model: Name on the Hugging Face hub, or a folder.
        revision: Branch, tag or commit of the hub's repository.
        tokenizer: Another tokenizer than the model's.
        style: How the model writes calls (`ticket_gym.engines.reader.STYLES`); `auto` goes by the model's name.
        sampling: How tokens are drawn; what is not given is the model's generation config.
        chat_template: A file with another chat template, for models whose own knows no tools.
        chat_template_options: Further values for the chat template, such as `{"enable_thinking": False}`.
        dtype: `auto` (as the weights are stored), `bfloat16`, `float16` or `float32`.
        quantization: vLLM's name of a quantisation, where the model's config does not say.
        max_model_len: Context window in tokens; None for the model's own.
        tensor_parallel_size: GPUs that one replica is spread over.
        pipeline_parallel_size: Stages that one replica is cut into.
        data_parallel_size: Replicas, which share the conversations.
        distributed_executor_backend: `mp` within a machine, `ray` across several; None leaves it to vLLM.
        gpu_memory_utilization: Share of a GPU's memory that vLLM may take.
        max_num_seqs: Messages generated at once; None for vLLM's own.
        enforce_eager: No CUDA graphs: starts sooner and runs slower.
        trust_remote_code: Whether code that comes with the model may run.
        engine_args: Further arguments of vLLM's `AsyncEngineArgs`; they win over all others.
    """

    model: str
    revision: str | None = None
    tokenizer: str | None = None
    style: str = "auto"
    sampling: Sampling = field(default_factory=Sampling)
    chat_template: str | None = None
    chat_template_options: Mapping[str, Any] = field(default_factory=dict)
    dtype: str = "auto"
    quantization: str | None = None
    max_model_len: int | None = None
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    distributed_executor_backend: DistributedBackend | None = None
    gpu_memory_utilization: float = 0.9
    max_num_seqs: int | None = None
    enforce_eager: bool = False
    trust_remote_code: bool = False
    engine_args: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the options.

        Raises:
            ConfigurationError: An option cannot be used; the message says which and what would be right.
        """
        backend = self.distributed_executor_backend
        sizes = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")
        _refuse(
            self,
            {
                **_common_mistakes(self.model, self.style),
                **{name: (getattr(self, name) < 1, "an integer from 1") for name in sizes},
                "max_model_len": (self.max_model_len is not None and self.max_model_len < 1, "an integer from 1"),
                "max_num_seqs": (self.max_num_seqs is not None and self.max_num_seqs < 1, "an integer from 1"),
                "gpu_memory_utilization": (not 0 < self.gpu_memory_utilization <= 1, "above 0 and up to 1"),
                "distributed_executor_backend": (
                    backend is not None and backend not in get_args(DistributedBackend),
                    f"one of {', '.join(get_args(DistributedBackend))}",
                ),
            },
        )


@dataclass(frozen=True, slots=True)
class TransformersOptions:
    """A causal language model in transformers, in this process.

    Attributes:
        model: Name on the Hugging Face hub, or a folder.
        revision: Branch, tag or commit of the hub's repository.
        style: How the model writes calls (`ticket_gym.engines.reader.STYLES`); `auto` goes by the model's name.
        reader: `style`: calls are read here, as from every other engine. `tokenizer`: by the tokenizer's own
            `parse_response`, where it has one; what that refuses is read here.
        sampling: How tokens are drawn; what is not given is the model's generation config.
        chat_template: A file with another chat template, for models whose own knows no tools.
        chat_template_options: Further values for the chat template, such as `{"enable_thinking": False}`.
        device: `auto` (the first of cuda, mps and cpu that is there), or a torch device.
        dtype: `auto` (as the weights are stored), `bfloat16`, `float16` or `float32`.
        max_batch: Messages generated at once.
        batching: `static`: batch after batch, each message with a seed of its own. `continuous`: transformers' own
            continuous batching, in which no message waits for a longer one; only for temperature 0.
        max_context: Context window in tokens; None for the model's own.
        prefix_cache: Whether what all conversations begin with (system prompt and tools) is computed once and kept.
            Switch it off for models whose cache is not one of keys and values.
        trust_remote_code: Whether code that comes with the model may run.
        model_args: Further arguments of `from_pretrained`, such as `attn_implementation` or `device_map`.
    """

    model: str
    revision: str | None = None
    style: str = "auto"
    reader: Reader = "style"
    sampling: Sampling = field(default_factory=Sampling)
    chat_template: str | None = None
    chat_template_options: Mapping[str, Any] = field(default_factory=dict)
    device: str = "auto"
    dtype: str = "auto"
    max_batch: int = 16
    batching: Batching = "static"
    max_context: int | None = None
    prefix_cache: bool = True
    trust_remote_code: bool = False
    model_args: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the options.

        Raises:
            ConfigurationError: An option cannot be used; the message says which and what would be right.
        """
        _refuse(
            self,
            {
                **_common_mistakes(self.model, self.style),
                "reader": (self.reader not in get_args(Reader), f"one of {', '.join(get_args(Reader))}"),
                "max_batch": (self.max_batch < 1, "an integer from 1"),
                "batching": (self.batching not in get_args(Batching), f"one of {', '.join(get_args(Batching))}"),
                "max_context": (self.max_context is not None and self.max_context < 1, "an integer from 1"),
            },
        )


def style_of(options: VllmOptions | TransformersOptions) -> Style:
    """The chosen style, or that of the model's family.

    Raises:
        ConfigurationError: The family is not known.
    """
    return next((style for style in STYLES if style == options.style), None) or style_for(options.model)


def as_texts(arguments: Mapping[str, Any]) -> dict[str, str]:
    """Arguments of a library as a run's record keeps them: by name, whatever they are."""
    return {name: str(value) for name, value in sorted(arguments.items())}


def read_template(path: str) -> str:
    """The text of a chat template.

    Raises:
        EngineSetupError: It cannot be read.
    """
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise EngineSetupError(f"chat_template={path!r}: cannot be read: {problem}") from problem


def _common_mistakes(model: str, style: str) -> dict[str, tuple[bool, str]]:
    return {
        "model": (not model, "a name on the Hugging Face hub or a folder"),
        "style": (style not in ("auto", *STYLES), f"auto or one of {', '.join(STYLES)}"),
    }


def _refuse(options: object, mistakes: dict[str, tuple[bool, str]]) -> None:
    for name, (is_wrong, right) in mistakes.items():
        if is_wrong:
            raise ConfigurationError(f"{name}={getattr(options, name)!r}: must be {right}")
