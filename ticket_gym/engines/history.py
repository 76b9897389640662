"""What a model is sent of the recorded conversation: the same rules for every engine.

The record keeps each assistant message as the model wrote it. What is sent differs in three points only, each of which
would break the next request on some server:

- Arguments that are no JSON object. Servers decode the arguments of past calls before they fill the chat template, and
  fail on what they cannot decode. Empty ones become `{}`, a JSON object inside a JSON text becomes that object, and
  everything else becomes `{"_raw": TEXT}`, so that the model still sees what it wrote.
- Function names outside `^[a-zA-Z0-9_-]{1,64}$`, which hosted APIs refuse: other characters become `_`, and no name
  at all becomes `unreadable_call`.
- Keys of the record alone (reasoning, raw text) are left out, unless the reasoning is asked for by its key.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

from ticket_gym.engines.base import RAW_TEXT, REASONING
from ticket_gym.engines.dialects import NO_JSON, no_constant
from ticket_gym.types import Message

UNREADABLE_NAME = "unreadable_call"
RAW_ARGUMENTS = "_raw"

_RECORD_KEYS = (REASONING, RAW_TEXT)
_DEEPEST = 100
TOO_DEEP = "[nested too deeply]"


def sent_messages(messages: Sequence[Message], reasoning_key: str | None = None) -> list[Message]:
    """The conversation as it is sent.

    Args:
        messages: The conversation as recorded; it is not changed.
        reasoning_key: Key under which the model's earlier reasoning is sent back, for chat templates that decide
            themselves how much of it stays; None to send none.
    """
    return [_sent(message, reasoning_key) if message["role"] == "assistant" else message for message in messages]


def _sent(message: Message, reasoning_key: str | None) -> Message:
    sent = {key: value for key, value in message.items() if key not in _RECORD_KEYS}
    if reasoning_key is not None and message.get(REASONING):
        sent[reasoning_key] = message[REASONING]
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        sent["tool_calls"] = [_sent_call(call) for call in calls]
    return sent


def _sent_call(call: dict[str, Any]) -> dict[str, Any]:
    function = call["function"]
    return {
        "id": call["id"],
        "type": "function",
        "function": {"name": _sent_name(function["name"]), "arguments": sent_arguments(function["arguments"])},
    }


def _sent_name(name: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:64] or UNREADABLE_NAME


def sent_arguments(text: str) -> str:
    """Arguments as they are sent: always the text of a JSON object, left alone where it is one already."""
    value = decode_arguments(text)
    if isinstance(value, dict):
        return text
    if isinstance(value, str) and isinstance(inner := decode_arguments(value), dict):
        return json.dumps(inner, ensure_ascii=False)
    if not text.strip() or text.strip() == "null":
        return "{}"
    return json.dumps({RAW_ARGUMENTS: text}, ensure_ascii=False)


def decode_arguments(text: str) -> object:
    """Arguments decoded where they are strict JSON (no `NaN`, which few servers can read), else the text itself."""
    try:
        return without_surrogates(json.loads(text, parse_constant=no_constant))
    except NO_JSON:
        return text


def without_surrogates(value: Any, depth: int = _DEEPEST) -> Any:
    """JSON data that can be written: half of a surrogate pair becomes U+FFFD, as UTF-8 has no word for it.

    What is nested deeper than any stack is sure to hold becomes `TOO_DEEP`; no tool takes nested values anyway.
    """
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if not isinstance(value, list | dict):
        return value
    if not depth:
        return TOO_DEEP
    if isinstance(value, list):
        return [without_surrogates(item, depth - 1) for item in value]
    return {without_surrogates(key): without_surrogates(item, depth - 1) for key, item in value.items()}
