"""What can be chosen about each engine: plain data, importable without the libraries that the engines need."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from ticket_gym.engines.base import Sampling
from ticket_gym.engines.reader import STYLES
from ticket_gym.errors import ConfigurationError

OPENAI_URL = "https://api.openai.com/v1"
OPENAI_KEY = "OPENAI_API_KEY"

ToolMode = Literal["native", "text"]
TOOL_MODES: tuple[ToolMode, ...] = get_args(ToolMode)


@dataclass(frozen=True, slots=True)
class ChatApiOptions:
    """An OpenAI-compatible server.

    Attributes:
        model: The model's name as the server knows it.
        base_urls: Addresses up to and including `/v1`. Several share the load; all must serve the same model.
        api_key_env: Environment variable that holds the key; a server of one's own needs none.
        tool_mode: `native`: the server tells the model its tools and reads its calls. `text`: for servers that cannot,
            tools go into the system prompt, and the calls are read here, in `hermes` style.
        style: How the model writes calls (`ticket_gym.engines.reader.STYLES`), to read those that a server leaves in
            the content because they are not well formed: they are answered with an error instead of ending the episode
            as its answer. `auto` goes by the model's name, `none` trusts the server.
        sampling: How tokens are drawn.
        send_seed: Whether requests hold a seed; some hosted APIs refuse it.
        max_tokens_key: Name of the field for `sampling.max_tokens`; newer hosted models want `max_completion_tokens`.
        reasoning_key: Field of past assistant messages in which the model gets its reasoning back (`reasoning_content`
            or `reasoning`), for chat templates that keep it between tool calls; None keeps it out. Hosted APIs refuse
            fields that they do not know.
        extra_body: Further fields of each request, such as `chat_template_kwargs`; they win over all others.
        server: What is known of the server and cannot be asked (engine, version, parser, quantisation), for the record.
        concurrency: Requests under way at once, over all servers.
        timeout_s: Seconds until a request is given up.
        retries: Further tries of a request that failed for a passing reason.
        backoff_s: Seconds before the first of them, doubled each time, unless the server says how long to wait.
    """

    model: str
    base_urls: tuple[str, ...] = (OPENAI_URL,)
    api_key_env: str = OPENAI_KEY
    tool_mode: ToolMode = "native"
    style: str = "auto"
    sampling: Sampling = field(default_factory=Sampling)
    send_seed: bool = True
    max_tokens_key: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    reasoning_key: str | None = None
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    server: str = ""
    concurrency: int = 64
    timeout_s: float = 600.0
    retries: int = 6
    backoff_s: float = 1.0

    def __post_init__(self) -> None:
        """Check the options.

        Raises:
            ConfigurationError: An option cannot be used; the message says which and what would be right.
        """
        wrong = {
            "model": (not self.model, "the model's name as the server knows it"),
            "base_urls": (
                not self.base_urls or not all(url.startswith(("http://", "https://")) for url in self.base_urls),
                "addresses such as http://localhost:8000/v1",
            ),
            "tool_mode": (self.tool_mode not in TOOL_MODES, f"one of {', '.join(TOOL_MODES)}"),
            "style": (self.style not in ("auto", "none", *STYLES), f"auto, none or one of {', '.join(STYLES)}"),
            "max_tokens_key": (
                self.max_tokens_key not in ("max_tokens", "max_completion_tokens"),
                "max_tokens or max_completion_tokens",
            ),
            "concurrency": (self.concurrency < 1, "an integer from 1"),
            "timeout_s": (not self.timeout_s > 0, "above 0"),
            "retries": (self.retries < 0, "an integer from 0"),
            "backoff_s": (not self.backoff_s >= 0, "a number from 0"),
        }
        for name, (is_wrong, right) in wrong.items():
            if is_wrong:
                raise ConfigurationError(f"{name}={getattr(self, name)!r}: must be {right}")
