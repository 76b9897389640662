"""Dialects that write a call as JSON."""

import re
from collections.abc import Iterator

from ticket_gym.engines.dialects.parts import (
    NO_JSON,
    Part,
    Unreadable,
    as_call,
    broken_call,
    decode,
    first_of,
    meant_as_call,
    skip_space,
    unreadable,
)
from ticket_gym.types import ToolCall

# Hermes, Qwen2.5, Qwen3, SmolLM3: <tool_call>{"name": ..., "arguments": {...}}</tool_call>

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"


def read_hermes(text: str) -> Iterator[Part]:
    """One JSON object between each pair of tags; the last closing tag may be missing when the object is complete."""
    position = 0
    while (start := text.find(_OPEN, position)) >= 0:
        yield from _untagged(text[position:start])
        call, position = _tagged(text, start + len(_OPEN))
        yield call
    yield from _untagged(text[position:])


def _tagged(text: str, start: int) -> tuple[ToolCall | Unreadable, int]:
    try:
        value, end = decode(text, start)
        after = skip_space(text, end)
        if text.startswith(_CLOSE, after):
            return as_call(value, text[start:end]), after + len(_CLOSE)
        if after == len(text):
            return as_call(value, text[start:end]), after
    except NO_JSON:
        pass
    end = first_of(text, (_CLOSE, _OPEN), start)
    return unreadable(text[start:end]), end + len(_CLOSE) if text.startswith(_CLOSE, end) else end


def _untagged(text: str) -> Iterator[Part]:
    """Content, unless a closing tag shows that a call was meant whose opening tag is missing."""
    meant, tag, rest = text.partition(_CLOSE)
    if tag and "{" in meant:
        yield unreadable(meant)
        yield rest
    else:
        yield text


# Llama 3: {"name": ..., "parameters": ...}, bare or after <|python_tag|>, several parted by ";"

_PYTHON_TAG = "<|python_tag|>"
_OBJECT = re.compile(r'\{\s*+"')


def read_llama_json(text: str) -> Iterator[Part]:
    """Objects anywhere in the text that are meant as calls; what `<|python_tag|>` announces must be one."""
    bare, *announced = text.split(_PYTHON_TAG)
    yield from _objects(bare)
    for block in announced:
        parts = list(_objects(block))
        yield from parts if any(not isinstance(part, str) for part in parts) else [unreadable(block)]


def _objects(text: str) -> Iterator[Part]:
    kept = position = 0
    while found := _OBJECT.search(text, position):
        start = found.start()
        try:
            value, position = decode(text, start)
        except NO_JSON:
            if not broken_call(text[start:]):
                break
            yield _between(text[kept:start], kept)
            yield unreadable(text[start:])
            return
        if meant_as_call(value):
            yield _between(text[kept:start], kept)
            yield as_call(value, text[start:position])
            kept = position
    yield _between(text[kept:], kept)


def _between(text: str, kept: int) -> str:
    """Content; between two calls the marks that part them are not."""
    return text.strip(" \t\r\n;,") if kept else text


# xLAM-2 and Granite 3: [{"name": ..., "arguments": {...}}, ...], bare, fenced or after a mark

_LIST = re.compile(r"(?P<mark>(?:```(?:json)?|<\|?tool_call\|?>)\s*+)?(?=\[\s*+[{\]])")
_LIST_END = re.compile(r"\s*+(?:```|</tool_call>|<\|/tool_call\|>)")


def read_xlam(text: str) -> Iterator[Part]:
    """One JSON list of calls; an empty list is none. A list that is not meant as calls is content, as is all around."""
    found = _LIST.search(text)
    if found is None:
        yield text
        return
    calls, end, meant = _listed(text, found.end())
    if not meant:
        yield text
        return
    yield text[: found.start()]
    yield from calls
    closing = _LIST_END.match(text, end) if found["mark"] else None
    yield text[closing.end() if closing else end :]


def _listed(text: str, start: int) -> tuple[list[Part], int, bool]:
    """The elements of the list that begins at `start`, where it ends, and whether any of them is meant as a call.

    From where the list is broken, the rest of the text is one unreadable call.
    """
    parts: list[Part] = []
    meant = False
    position = skip_space(text, start + 1)
    if text.startswith("]", position):
        return parts, position + 1, True
    while True:
        begin = skip_space(text, position)
        try:
            value, end = decode(text, begin)
        except NO_JSON:
            return [*parts, unreadable(text[begin:])], len(text), meant or broken_call(text[begin:])
        meant = meant or meant_as_call(value)
        parts.append(as_call(value, text[begin:end]))
        after = skip_space(text, end)
        if text.startswith("]", after):
            return parts, after + 1, meant
        if not text.startswith(",", after):
            return [*parts[:-1], unreadable(text[begin:])], len(text), meant
        position = after + 1


# Mistral: [TOOL_CALLS][{...}, ...] and, since 2025, [TOOL_CALLS]NAME[ARGS]{...} for each call

_TOOL_CALLS = "[TOOL_CALLS]"
_NAMED_CALL = re.compile(r"\s*+([^\s\[\]{}]++)\s*+(?:\[CALL_ID\]\s*+(\w++)\s*+)?(?:\[ARGS\])?\s*+(?=\{)")


def read_mistral(text: str) -> Iterator[Part]:
    """Both forms; each `[TOOL_CALLS]` begins a list or one named call."""
    content, *blocks = text.split(_TOOL_CALLS)
    yield content
    for block in blocks:
        if block.lstrip().startswith("["):
            calls, end, _ = _listed(block, skip_space(block, 0))
            yield from calls
            yield block[end:]
        else:
            yield from _named(block)


def _named(block: str) -> Iterator[Part]:
    head = _NAMED_CALL.match(block)
    if head is None:
        yield from _one_object(block)
        return
    try:
        arguments, end = decode(block, head.end())
    except NO_JSON:
        yield Unreadable(block.strip(), head[1])
        return
    yield ToolCall(head[1], arguments, head[2])
    yield block[end:]


def _one_object(block: str) -> Iterator[Part]:
    """A single call without its list around it."""
    try:
        value, end = decode(block, 0)
    except NO_JSON:
        yield unreadable(block)
        return
    yield as_call(value, block[:end])
    yield block[end:]
