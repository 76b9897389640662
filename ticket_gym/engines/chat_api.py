"""Any server that speaks OpenAI's chat completions: `vllm serve`, `transformers serve`, llama.cpp, hosted APIs."""

import asyncio
import json
import os
import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import openai

from ticket_gym.engines.base import Completion, Request
from ticket_gym.engines.dialects import NO_JSON
from ticket_gym.engines.history import sent_messages
from ticket_gym.engines.options import OPENAI_KEY, OPENAI_URL, ChatApiOptions
from ticket_gym.engines.overflow import is_context_overflow
from ticket_gym.engines.payload import read_payload
from ticket_gym.engines.reader import STYLES, Style, style_for
from ticket_gym.engines.retries import Retries, Servers, is_retried
from ticket_gym.engines.text_tools import manual_digest, text_messages
from ticket_gym.errors import ConfigurationError, ContextOverflowError, EngineError, EngineSetupError
from ticket_gym.types import StopReason

_CONNECT_S = 15.0
_LONGEST_PAGE = 500
_UNREACHABLE = frozenset({None, 502, 503, 504})
"""Status of a server that is not there: no answer at all, or that of a gateway before it."""
_REFUSALS = frozenset({"content_filter", "content_policy_violation", "invalid_prompt", "data_inspection_failed"})
"""Values of `code` by which a server refuses what a conversation says."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An answer that is none.

    Attributes:
        said: What the server or the network says about it.
        status: HTTP status, or None where no server answered.
        codes: `code` and `type` of the error body.
        headers: Of the response.
    """

    said: str
    status: int | None = None
    codes: tuple[object, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)


class ChatApiEngine:
    """Asks one or more OpenAI-compatible servers through the official SDK.

    The SDK's own retries are off: here a wait honours what the server asks for, moves to another server where there
    is one, and a mistake that would fail every episode alike (key, address, model) stops the run.
    """

    def __init__(self, options: ChatApiOptions) -> None:
        """Set up the clients; nothing is sent yet.

        Raises:
            ConfigurationError: The key that a hosted API needs is not in the environment.
        """
        self.options = options
        self._key = _key(options)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connect()
        self._servers = Servers(tuple(self._clients))
        self._retries = Retries(options.retries, options.backoff_s)
        self._rng = random.Random()
        self._style = _style(options)
        self._answered = False

    @property
    def name(self) -> str:
        """The model's name."""
        return self.options.model

    def describe(self) -> dict[str, Any]:
        """The model and how it is asked; addresses and patience change no score and are left out."""
        options = self.options
        return {
            "engine": "openai",
            "engine_version": openai.__version__,
            "model": options.model,
            "server": options.server,
            "tool_mode": options.tool_mode,
            "tool_manual": manual_digest() if options.tool_mode == "text" else None,
            "reader": self._style,
            "sampling": options.sampling.given(),
            "send_seed": options.send_seed,
            "reasoning_key": options.reasoning_key,
            "extra_body": dict(options.extra_body),
            **({} if options.max_tokens_key == "max_tokens" else {"max_tokens_key": options.max_tokens_key}),
        }

    async def complete(self, request: Request) -> Completion:
        """The model's next message; see `Engine.complete`."""
        if self._loop is not (loop := asyncio.get_running_loop()):
            if self._loop is not None:
                # Connections and slots belong to the loop of an earlier run, which is closed.
                self._connect()
            self._loop = loop
        body = self._body(request)
        async with self._slots:
            return await self._ask(body, request.conversation)

    async def list_models(self) -> dict[str, list[str]]:
        """Names of the models of each server.

        Raises:
            EngineSetupError: A server cannot be reached or does not list its models.
        """
        found = {}
        for url, client in self._clients.items():
            try:
                response = await client.models.with_raw_response.list()
                found[url] = [str(model["id"]) for model in json.loads(response.content)["data"]]
            except (openai.APIError, ValueError, KeyError, TypeError) as problem:
                raise EngineSetupError(f"{url}: the models cannot be listed: {_reason(problem)}") from problem
        return found

    async def aclose(self) -> None:
        """Close all connections."""
        if self._loop not in (None, asyncio.get_running_loop()):
            # The connections belonged to the loop of an earlier run, and ended with it.
            return
        for client in self._clients.values():
            await client.close()

    def _connect(self) -> None:
        options = self.options
        timeout = openai.Timeout(options.timeout_s, connect=min(_CONNECT_S, options.timeout_s))
        self._clients = {
            url: openai.AsyncOpenAI(base_url=url, api_key=self._key, max_retries=0, timeout=timeout)
            for url in dict.fromkeys(options.base_urls)
        }
        self._slots = asyncio.Semaphore(options.concurrency)

    def _body(self, request: Request) -> dict[str, Any]:
        options = self.options
        chosen = options.sampling.given()
        body: dict[str, Any] = {"model": options.model}
        if options.tool_mode == "text":
            body["messages"] = text_messages(request.messages, request.tools)
        else:
            body["messages"] = sent_messages(request.messages, options.reasoning_key)
            if request.tools:
                body["tools"] = list(request.tools)
        if options.send_seed and request.seed is not None:
            body["seed"] = request.seed
        if (most := chosen.pop("max_tokens", None)) is not None:
            body[options.max_tokens_key] = most
        return body | chosen | dict(options.extra_body)

    async def _ask(self, body: dict[str, Any], conversation: str) -> Completion:
        """Ask the conversation's server and, where it cannot be reached, the next one."""
        tried: list[str] = []
        failure = Failure("no server is left")
        while (url := self._servers.choose(conversation, tried)) is not None:
            answer = await self._ask_patiently(url, body)
            if isinstance(answer, Completion):
                self._answered = True
                self._servers.answered(url)
                return answer
            failure = answer
            if failure.status not in _UNREACHABLE:
                break
            tried.append(url)
            self._servers.put_down(url, conversation, failure.said)
        problem = f"{url or ', '.join(tried)}: {failure.said} (after {self._retries.most + 1} tries)"
        if not self._answered and (failure.status is None or failure.status >= 500):
            raise EngineSetupError(f"{problem}; is the server running, and the address right?")
        raise EngineError(problem)

    async def _ask_patiently(self, url: str, body: dict[str, Any]) -> Completion | Failure:
        most = 0 if self._servers.is_doubted(url) else self._retries.most
        tries = 0
        while True:
            answer = await self._ask_once(url, body)
            tries += 1
            if isinstance(answer, Completion):
                return answer
            if answer.status is not None and (refused := self._judge(url, answer)) is not None:
                return refused
            if tries > most:
                return answer
            await asyncio.sleep(self._retries.wait_s(tries, answer.headers, self._rng))

    async def _ask_once(self, url: str, body: dict[str, Any]) -> Completion | Failure:
        try:
            # The typed method of the SDK spends most of a request's time on checking each field of each message.
            payload = await self._clients[url].post("/chat/completions", cast_to=object, body=body)
        except openai.APIStatusError as problem:
            said, codes = _said(problem.body)
            return Failure(said or _reason(problem), problem.status_code, codes, problem.response.headers)
        except openai.APIConnectionError as problem:
            return Failure(_reason(problem))
        except NO_JSON:
            return Failure("the answer is not JSON", 502)
        if not isinstance(payload, dict):
            return Failure("the answer is not a JSON object", 502)
        completion = read_payload(payload, self._style, as_text=self.options.tool_mode == "text")
        if completion is not None:
            return _tell_full_context(completion, body.get(self.options.max_tokens_key))
        said, codes = _said(_failed_choice(payload) or payload)
        status = next((code for code in codes if isinstance(code, int) and 400 <= code < 600), 502)
        return Failure(said or "the answer holds no message", status, codes)

    def _judge(self, url: str, failure: Failure) -> Completion | None:
        """What an HTTP error means, where another try would not help; a refusal of the content is an answer."""
        said, status = failure.said, failure.status or 0
        if is_context_overflow(said, *failure.codes):
            raise ContextOverflowError(said)
        if _REFUSALS & {code for code in failure.codes if isinstance(code, str)}:
            return Completion({"role": "assistant", "content": None, "refusal": said}, (), StopReason.REFUSED)
        if status in (401, 403):
            raise EngineSetupError(
                f"{url} refuses the key (HTTP {status}): {said}; the environment variable "
                f"{self.options.api_key_env} must hold a key for this server"
            )
        if status == 402 or "insufficient_quota" in failure.codes:
            raise EngineSetupError(f"{url}: the account has no credit left (HTTP {status}): {said}")
        if status == 404:
            raise EngineSetupError(
                f"{url} does not serve model {self.options.model!r}, or is no address of chat completions "
                f"(most end in /v1) (HTTP 404): {said}"
            )
        if is_retried(status):
            return None
        problem = f"{url} refuses the request (HTTP {status}): {said}"
        if not self._answered:
            raise EngineSetupError(
                f"{problem}; a field that the server does not know can be left out or renamed: seed by "
                "send_seed=false, max_tokens by max_tokens_key=max_completion_tokens; others come from sampling and "
                "extra_body"
            )
        raise EngineError(problem)


def _key(options: ChatApiOptions) -> str:
    key = os.environ.get(options.api_key_env, "")
    needed = options.api_key_env != OPENAI_KEY or OPENAI_URL in options.base_urls
    if not key and needed:
        raise ConfigurationError(f"the environment variable {options.api_key_env} is not set: it must hold the API key")
    return key or "none"


def _style(options: ChatApiOptions) -> Style | None:
    if options.tool_mode == "text":
        return "hermes"
    if options.style == "auto":
        try:
            return style_for(options.model)
        except ConfigurationError:
            return None
    return next((style for style in STYLES if style == options.style), None)


def _tell_full_context(completion: Completion, most: int | None) -> Completion:
    """Servers say `length` also where the context window is full: then a message ends before its own limit."""
    # Some servers count the reasoning apart.
    written = completion.usage.completion_tokens + completion.usage.reasoning_tokens
    if completion.stop is StopReason.LENGTH and most is not None and 0 < written < most:
        return replace(completion, stop=StopReason.CONTEXT_OVERFLOW)
    return completion


def _failed_choice(payload: Mapping[str, Any]) -> object:
    """The choice in whose place a server says what went wrong, where it does."""
    choices = payload.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    return choice if isinstance(choice, dict) and choice.get("error") else None


def _said(body: object) -> tuple[str, tuple[object, ...]]:
    """Message and codes of an error body, which is worded in several ways."""
    inner = body.get("error", body) if isinstance(body, dict) else body
    if not isinstance(inner, dict):
        # Often a page in HTML.
        return (" ".join(inner.split())[:_LONGEST_PAGE] if isinstance(inner, str) else ""), ()
    said = next((inner[key] for key in ("message", "detail", "error") if inner.get(key)), "")
    return said if isinstance(said, str) else json.dumps(said), (inner.get("code"), inner.get("type"))


def _reason(problem: BaseException) -> str:
    cause = f" ({problem.__cause__})" if problem.__cause__ is not None and str(problem.__cause__) else ""
    return f"{str(problem) or type(problem).__name__}{cause}"
