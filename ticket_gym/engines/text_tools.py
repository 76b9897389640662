"""Tools for a model whose server or chat template knows none: told in the system prompt, called in Hermes style."""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from ticket_gym.engines.base import RAW_TEXT
from ticket_gym.engines.history import sent_arguments
from ticket_gym.engines.reader import split_reasoning
from ticket_gym.types import Message

_MANUAL = """
# Tools

These are the tools that you can use, one JSON schema on each line:
<tools>
{tools}
</tools>

To use a tool, write one JSON object with its name and its arguments between tags, and stop:
<tool_call>
{{"name": "...", "arguments": {{...}}}}
</tool_call>
Its result is sent to you between <tool_response> tags. A message without <tool_call> is your final answer."""


def manual_digest() -> str:
    """Names the wording of the manual, so that runs with another wording are not mixed."""
    return hashlib.sha256(_MANUAL.encode()).hexdigest()


def text_messages(messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> list[Message]:
    """The conversation in plain texts: only the roles `system`, `user` and `assistant`, and no tool calls.

    Args:
        messages: The conversation as recorded; assistant messages hold `RAW_TEXT`.
        tools: OpenAI function schemas.
    """
    plain: list[Message] = []
    for message in messages:
        content = _text(message)
        if message["role"] == "system":
            content = f"{content}\n{_manual(tools)}"
        elif message["role"] == "tool":
            content = f"<tool_response>\n{content}\n</tool_response>"
        role = "user" if message["role"] == "tool" else message["role"]
        if plain and plain[-1]["role"] == role:
            # Many chat templates insist on turns that alternate.
            content = f"{plain.pop()['content']}\n{content}"
        plain.append({"role": role, "content": content})
    return plain


def _text(message: Message) -> str:
    raw = message.get(RAW_TEXT)
    if isinstance(raw, str):
        return split_reasoning(raw)[1].strip()
    calls = message.get("tool_calls")
    texts = [str(message.get("content") or ""), *(_call(call) for call in (calls if isinstance(calls, list) else []))]
    return "\n".join(filter(None, texts))


def _call(call: dict[str, Any]) -> str:
    name, arguments = call["function"]["name"], sent_arguments(call["function"]["arguments"])
    return f'<tool_call>\n{{"name": {json.dumps(name, ensure_ascii=False)}, "arguments": {arguments}}}\n</tool_call>'


def _manual(tools: Sequence[dict[str, Any]]) -> str:
    return _MANUAL.format(tools="\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools))
