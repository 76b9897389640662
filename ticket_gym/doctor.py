"""Checks in seconds that a server or model can do what the benchmark needs, and says what mends it where it cannot.

Nothing here is scored: a weak model may fail a check that a strong one passes, so what only shows weakness is a
warning, and a failure is what would make every episode fail.
"""

import asyncio
import re
import unicodedata
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from ticket_gym.codec import get_codec
from ticket_gym.engines import STYLES, VLLM_PARSERS, Completion, Engine, Request
from ticket_gym.errors import ContextOverflowError, EngineError, EngineSetupError
from ticket_gym.types import Message, StopReason, ToolCall

Status = Literal["ok", "warn", "fail"]

CITY = "Saint-Étienne"
_STADIUM = "Geoffroy-Guichard"
_WORD = "KANGOUROU"


@dataclass(frozen=True, slots=True)
class Check:
    """What one check found.

    Attributes:
        name: What was checked.
        status: `fail`: the benchmark cannot be played; `warn`: it can, but scores may suffer or not be repeatable.
        found: What was seen.
        remedy: What mends it, where anything does.
    """

    name: str
    status: Status
    found: str
    remedy: str = ""


@runtime_checkable
class ListsModels(Protocol):
    """An engine that asks servers."""

    async def list_models(self) -> dict[str, list[str]]:
        """Names of the models of each server, by its address."""


async def examine(engine: Engine) -> list[Check]:
    """Run all checks, most of them at once.

    Args:
        engine: As it will play: with the options, the sampling and the key of the run.

    Returns:
        The checks in a fixed order; after one that shows that nothing can be asked, no more.
    """
    listed = await _check_models(engine) if isinstance(engine, ListsModels) else []
    call = await _guarded("calls a tool", _check_call, engine)
    if any(check.status == "fail" and check.name == "answers" for check in call):
        return [*listed, *call]
    others = await asyncio.gather(*(_guarded(name, check, engine) for name, check in _CHECKS.items()))
    return [*listed, *call, *(found for checks in others for found in checks)]


async def _guarded(name: str, check: Callable[[Engine], Awaitable[list[Check]]], engine: Engine) -> list[Check]:
    try:
        return await check(engine)
    except EngineSetupError as problem:
        return [Check("answers", "fail", str(problem))]
    except ContextOverflowError as problem:
        return [Check(name, "fail", str(problem), _remedies(engine).context)]
    except EngineError as problem:
        return [Check(name, "fail", str(problem))]


async def _check_models(engine: ListsModels) -> list[Check]:
    model = getattr(engine, "name", "")
    try:
        served = await engine.list_models()
    except EngineSetupError as problem:
        return [Check("lists the model", "warn", str(problem), "an address that ends in /v1, and a server that is up")]
    lacking = {url: names for url, names in served.items() if model not in names}
    if not lacking:
        return [Check("lists the model", "ok", f"{model} at {', '.join(served)}")]
    found = "; ".join(f"{url} has {', '.join(names[:5]) or 'none'}" for url, names in lacking.items())
    return [Check("lists the model", "warn", f"no model {model!r}: {found}", "--model with one of these names")]


async def _check_call(engine: Engine) -> list[Check]:
    codec = get_codec("fr")
    tool, parameter = codec.tool_names["list_games"], codec.parameter_name("list_games", "city")
    answer = await engine.complete(_ask(f"Appelle l'outil {tool} avec {parameter} = « {CITY} ».", codec.system_prompt))
    return [_judge_call(engine, answer, tool, parameter), _judge_usage(answer)]


def _judge_call(engine: Engine, answer: Completion, tool: str, parameter: str) -> Check:
    name = "calls a tool"
    if answer.stop is StopReason.LENGTH:
        return Check(name, "fail", "the message was cut off", "more tokens for a message: -o max_tokens=NUMBER")
    if not answer.calls:
        return Check(name, "fail", f"it answered without a call: {_short(answer)}", _remedies(engine).reading)
    call = answer.calls[0]
    if not isinstance(call.arguments, dict):
        return Check(name, "warn", f"the arguments cannot be read: {call.arguments!r}", _remedies(engine).reading)
    city = call.arguments.get(parameter)
    if call.name == tool and city == CITY:
        return Check(name, "ok", f"{tool}({parameter}={city!r})")
    if isinstance(city, str) and unicodedata.normalize("NFC", city) == CITY:
        return Check(name, "warn", f"the accent of {city!r} is decomposed: it is understood, but counts as a repair")
    if isinstance(city, str) and re.fullmatch("Saint-.+tienne", city) and city != "Saint-Etienne":
        return Check(name, "fail", f"the accent was damaged: {city!r}", "UTF-8 in the server and all that is before it")
    return Check(name, "warn", f"asked for {tool}({parameter}={CITY!r}), it called {call.name}({call.arguments})")


@dataclass(frozen=True, slots=True)
class _Remedies:
    """Flags of a server, or options of an engine in this process.

    Attributes:
        reading: For calls that are not found.
        template: For conversations that the chat template refuses or leaves out parts of.
        context: For a context window that is too short.
    """

    reading: str
    template: str
    context: str


def _remedies(engine: Engine) -> _Remedies:
    described = engine.describe()
    if described.get("engine") in ("vllm", "transformers"):
        size = "max_model_len" if described["engine"] == "vllm" else "max_context"
        return _Remedies(
            f"-o style=NAME for the model's way to write calls ({', '.join(STYLES)}), or -o chat_template=FILE",
            "another chat template: -o chat_template=FILE",
            f"a longer context: -o {size}=NUMBER, as far as the model goes",
        )
    parser = next((parser for name, parser in VLLM_PARSERS.items() if name == described.get("reader")), "NAME")
    return _Remedies(
        f"vLLM: --enable-auto-tool-choice --tool-call-parser {parser}; llama.cpp: --jinja; "
        "a server without tool calls: -o tool_mode=text",
        "another chat template (vLLM: --chat-template FILE, llama.cpp: --jinja --chat-template-file FILE)",
        "a longer context (vLLM: --max-model-len, llama.cpp: --ctx-size)",
    )


def _judge_usage(answer: Completion) -> Check:
    usage = answer.usage
    if usage.prompt_tokens and usage.completion_tokens:
        counted = f"{usage.prompt_tokens} + {usage.completion_tokens} tokens"
        return Check("counts tokens", "ok", counted)
    return Check("counts tokens", "warn", "no usage in the answer: tokens and costs will be missing in reports")


async def _check_result(engine: Engine) -> list[Check]:
    """A turn after a tool's result, after two at once, and after a call that could not be read."""
    codec = get_codec("fr")
    tool, parameter = codec.tool_names["list_games"], codec.parameter_name("list_games", "city")
    checks = []
    good = {parameter: CITY}
    for name, written in (
        ("takes a result", [good]),
        ("takes two results at once", [good, good]),
        ("takes back a broken call", ['{"']),
    ):
        calls = [ToolCall(tool, arguments, f"call{number:05}") for number, arguments in enumerate(written)]
        results: list[Message] = [
            {"role": "tool", "tool_call_id": call.id, "content": f'{{"stade": "{_STADIUM}"}}'} for call in calls
        ]
        request = _ask(
            f"Dans quel stade joue-t-on à {CITY} ?",
            codec.system_prompt,
            {"role": "assistant", "content": None, "tool_calls": [call.to_message() for call in calls]},
            *results,
        )
        try:
            answer = await engine.complete(request)
        except EngineError as problem:
            checks.append(Check(name, "fail", str(problem), _remedies(engine).template))
            continue
        used = _STADIUM.lower() in str(answer.message.get("content")).lower()
        checks.append(Check(name, "ok", "and used it" if used else f"then it wrote: {_short(answer)}"))
    return checks


async def _check_two_calls(engine: Engine) -> list[Check]:
    codec = get_codec("en")
    tool = codec.tool_names["get_leaderboard"]
    wish = f"In one message, call {tool} twice: for 2023 and for 2024."
    answer = await engine.complete(Request(_messages(codec.system_prompt, wish), codec.schemas, 1, "doctor"))
    name = "makes two calls at once"
    if len(answer.calls) >= 2:
        return [Check(name, "ok", f"{len(answer.calls)} calls")]
    return [
        Check(
            name, "warn", f"{len(answer.calls)} calls: episodes take more turns", "nothing, if the model is like that"
        )
    ]


async def _check_system_prompt(engine: Engine) -> list[Check]:
    rule = f"Whatever the user writes, answer with the single word {_WORD} and nothing else."
    answer = await engine.complete(Request(_messages(rule, "Bonjour !"), (), 1, "doctor"))
    if _WORD.lower() in str(answer.message.get("content")).lower():
        return [Check("keeps the system prompt", "ok", _short(answer))]
    found = f"told to say {_WORD}, it wrote: {_short(answer)}"
    return [Check("keeps the system prompt", "warn", found, _remedies(engine).template)]


async def _check_seed(engine: Engine) -> list[Check]:
    name = "honours a seed"
    if engine.describe().get("send_seed") is False:
        found = "no seed is sent: a run cannot be repeated exactly"
        return [Check(name, "warn", found, "-o send_seed=true, where the server takes one")]
    messages = _messages("You are a poet.", "Write eight random words.")
    first, second, other = await asyncio.gather(
        *(engine.complete(Request(messages, (), seed, "doctor")) for seed in (11, 11, 12))
    )
    texts = [str(answer.message) for answer in (first, second, other)]
    if texts[0] != texts[1]:
        found = "the same seed gave two texts: a run cannot be repeated exactly"
        return [Check(name, "warn", found, "vLLM: VLLM_BATCH_INVARIANT=1; hosted APIs promise no more than their best")]
    if texts[1] == texts[2]:
        found = "different seeds gave the same text: the trials of a query would be alike"
        return [Check(name, "warn", found, "a temperature above 0: -o temperature=0.7; nothing, if greedy is meant")]
    return [Check(name, "ok", "the same seed gave the same text, another seed another one")]


_CHECKS: dict[str, Callable[[Engine], Awaitable[list[Check]]]] = {
    "takes a result": _check_result,
    "makes two calls at once": _check_two_calls,
    "keeps the system prompt": _check_system_prompt,
    "honours a seed": _check_seed,
}


def _messages(system: str, user: str) -> list[Message]:
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]


def _ask(user: str, system: str, *further: Message) -> Request:
    tools: list[dict[str, Any]] = get_codec("fr").schemas
    return Request([*_messages(system, user), *further], tools, 1, "doctor")


def _short(answer: Completion) -> str:
    text = " ".join(str(answer.message.get("content") or "").split())
    return repr(text[:120] + ("…" if len(text) > 120 else ""))
