"""A chat completion as a server sends it, read into a `Completion`.

The body is taken as plain JSON and each field is doubted: servers that call themselves compatible leave fields out,
send `null`, objects for texts, or fields of their own.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ticket_gym.engines.base import RAW_TEXT, REASONING, Completion
from ticket_gym.engines.history import decode_arguments, without_surrogates
from ticket_gym.engines.reader import Style, completion_from_text, read_calls
from ticket_gym.records import Usage
from ticket_gym.types import Message, StopReason, ToolCall

STOPS: Mapping[str, StopReason] = {
    "length": StopReason.LENGTH,
    "max_tokens": StopReason.LENGTH,
    "model_length": StopReason.LENGTH,
    "content_filter": StopReason.REFUSED,
    "safety": StopReason.REFUSED,
    "refusal": StopReason.REFUSED,
    "sensitive": StopReason.REFUSED,
    "model_context_window_exceeded": StopReason.CONTEXT_OVERFLOW,
}
"""Finish reasons after which a message cannot be acted on."""

FAULTS = frozenset({"error", "abort", "insufficient_system_resource", "network_error"})
"""Finish reasons by which a server says that it broke off: what there is of the message is none of the model's."""

_REASONING_KEYS = ("reasoning_content", "reasoning")


def read_payload(payload: Mapping[str, Any], style: Style | None, *, as_text: bool = False) -> Completion | None:
    """Read a response body.

    Args:
        payload: The decoded body.
        style: To read calls that the server has left in the content; None trusts the server.
        as_text: The server knows nothing of tools: all calls are in the content.

    Returns:
        The completion, or None where the body holds no message.
    """
    payload = without_surrogates(payload)
    choices = payload.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    written = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(written, dict) or choice.get("finish_reason") in FAULTS:
        return None
    usage = read_usage(payload.get("usage"))
    stop = STOPS.get(str(choice.get("finish_reason")))
    if written.get("refusal"):
        stop = StopReason.REFUSED
    content, thought = _content(written)
    if as_text:
        read = completion_from_text(content or "", style or "hermes", usage, stop)
        message, calls = read.message, read.calls
    else:
        message, calls = _read_message(content, _calls(written), style)
    if thought:
        message[REASONING] = thought
    if written.get("refusal"):
        message["refusal"] = written["refusal"]
    return Completion(message, calls, stop, usage)


def _read_message(
    content: str | None, calls: Sequence[ToolCall], style: Style | None
) -> tuple[Message, tuple[ToolCall, ...]]:
    """The message with its calls: the server's or, where it found none, those that it left in the content."""
    message: Message = {"role": "assistant", "content": content}
    if not calls and content and style is not None and (reading := read_calls(content, style)).calls:
        calls = reading.calls
        message |= {"content": reading.content or None, RAW_TEXT: content}
        if reading.reasoning:
            message[REASONING] = reading.reasoning
    if calls:
        message["tool_calls"] = [call.to_message() for call in calls]
    return message, tuple(_decoded(call) for call in calls)


def _content(written: Mapping[str, Any]) -> tuple[str | None, str]:
    """Content and reasoning; some servers send the content in pieces, reasoning among them."""
    thoughts = [written[key] for key in _REASONING_KEYS if isinstance(written.get(key), str)]
    content = written.get("content")
    if not isinstance(content, list):
        return content if isinstance(content, str) else None, next(filter(None, thoughts), "")
    pieces = [
        {"text": piece} if isinstance(piece, str) else piece for piece in content if isinstance(piece, str | dict)
    ]
    texts = [piece["text"] for piece in pieces if isinstance(piece.get("text"), str)]
    thoughts.append("".join(_flat(piece["thinking"]) for piece in pieces if piece.get("thinking")))
    return "".join(texts) or None, next(filter(None, thoughts), "")


def _flat(thinking: object) -> str:
    if isinstance(thinking, list):
        return "".join(_flat(piece.get("text", "")) for piece in thinking if isinstance(piece, dict))
    return str(thinking)


def _calls(written: Mapping[str, Any]) -> tuple[ToolCall, ...]:
    """The calls with their arguments as the server wrote them; whatever stands in the list is a call."""
    given = written.get("tool_calls")
    return tuple(_call(call) for call in given) if isinstance(given, list) else ()


def _call(given: object) -> ToolCall:
    function = given.get("function") if isinstance(given, dict) else None
    if not isinstance(given, dict) or not isinstance(function, dict):
        return ToolCall("", json.dumps(given, ensure_ascii=False))
    name, identifier = function.get("name"), given.get("id")
    arguments = function.get("arguments")
    return ToolCall(
        name if isinstance(name, str) else "",
        "" if arguments is None else arguments,
        identifier if isinstance(identifier, str) and identifier else None,
    )


def _decoded(call: ToolCall) -> ToolCall:
    value = decode_arguments(call.arguments) if isinstance(call.arguments, str) else call.arguments
    return ToolCall(call.name, value if isinstance(value, dict) else call.arguments, call.id)


def read_usage(usage: object) -> Usage:
    """Tokens of one message; what a server does not count is 0."""
    counts = usage if isinstance(usage, dict) else {}
    return Usage(
        prompt_tokens=_count(counts, "prompt_tokens"),
        completion_tokens=_count(counts, "completion_tokens"),
        reasoning_tokens=_count(counts.get("completion_tokens_details"), "reasoning_tokens"),
        cached_tokens=_count(counts.get("prompt_tokens_details"), "cached_tokens")
        or _count(counts, "prompt_cache_hit_tokens"),
        model_calls=1,
    )


def _count(counts: object, name: str) -> int:
    value = counts.get(name) if isinstance(counts, dict) else None
    return value if isinstance(value, int) and value > 0 else 0
