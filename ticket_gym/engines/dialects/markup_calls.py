"""Dialects that write a call in tags, in Python, or in channels."""

import ast
import json
import re
import warnings
from collections.abc import Iterator

from ticket_gym.engines.dialects.parts import NO_JSON, Part, Unreadable, first_of, no_constant, unreadable
from ticket_gym.types import ToolCall

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"

# Qwen3-Coder and Qwen3.5: <tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>

_XML_CALL = re.compile(r"<function=|<tool_call>")
_XML_FUNCTION = re.compile(r"\s*+<function=([^<>\s]++)>(.*)</function>\s*+", re.DOTALL)
_XML_PARAMETER = re.compile(r"\s*+<parameter=([^<>\s]++)>(.*?)</parameter>\s*+", re.DOTALL)
_XML_LITERAL = re.compile(r"-?(?:0|[1-9]\d{0,17})|true|false|null")


def read_qwen3_xml(text: str) -> Iterator[Part]:
    """Tags instead of JSON. They carry no types: an integer, `true`, `false` or `null` is taken as such."""
    position = 0
    while found := _XML_CALL.search(text, position):
        yield text[position : found.start()]
        tagged = found[0].startswith(_OPEN)
        start = found.start() + len(_OPEN) if tagged else found.start()
        close = _CLOSE if tagged else "</function>"
        end = first_of(text, (close,), start)
        position = end + len(close) if end < len(text) else end
        yield _xml_call(text[start : end if tagged else position])
    yield text[position:]


def _xml_call(source: str) -> ToolCall | Unreadable:
    function = _XML_FUNCTION.fullmatch(source)
    if function is None:
        named = re.search(r"<function=([^<>\s]+)", source)
        return Unreadable(source.strip(), named[1]) if named else unreadable(source)
    name, body = function[1], function[2]
    arguments: dict[str, object] = {}
    position = 0
    while parameter := _XML_PARAMETER.match(body, position):
        value = parameter[2].removeprefix("\n").removesuffix("\n")
        arguments[parameter[1]] = json.loads(value) if _XML_LITERAL.fullmatch(value) else value
        position = parameter.end()
    return ToolCall(name, arguments) if not body[position:].strip() else Unreadable(source.strip(), name)


# Llama 4, ToolACE and others: [f(a=1, b="x"), g()]

_PYTHONIC = re.compile(r"\[\s*+([A-Za-z_][\w.]*+)\(")
_PYTHON_NAMES = {"true": True, "false": False, "null": None}


def read_pythonic(text: str) -> Iterator[Part]:
    """The whole text is a Python list of calls with literal keyword arguments; any other text is content."""
    source = text.strip().removeprefix("<|python_start|>").removesuffix("<|python_end|>").strip()
    begun = _PYTHONIC.match(source)
    if begun is None:
        yield text
        return
    parsed = _python(source)
    if not isinstance(parsed, ast.List):
        yield Unreadable(source, begun[1])
        return
    for element in parsed.elts:
        yield _python_call(element, ast.get_source_segment(source, element) or source)


def _python(source: str) -> ast.expr | None:
    with warnings.catch_warnings():
        # A wrong escape in a model's string is no matter for whoever runs this.
        warnings.simplefilter("ignore", SyntaxWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            return ast.parse(source, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def _python_call(element: ast.expr, source: str) -> ToolCall | Unreadable:
    name = ast.unparse(element.func) if isinstance(element, ast.Call) else ""
    if not isinstance(element, ast.Call) or element.args or any(keyword.arg is None for keyword in element.keywords):
        return Unreadable(source, name)
    try:
        return ToolCall(name, {str(keyword.arg): _python_value(keyword.value) for keyword in element.keywords})
    except (ValueError, TypeError):
        return Unreadable(source, name)


def _python_value(node: ast.expr) -> object:
    if isinstance(node, ast.Name) and node.id in _PYTHON_NAMES:
        return _PYTHON_NAMES[node.id]
    value = ast.literal_eval(node)
    # Python literals that JSON has no word for (bytes, sets, complex numbers) could not be recorded.
    json.dumps(value, allow_nan=False)
    return value


# GPT-OSS: <|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{...}<|call|>

_HARMONY_MARK = re.compile(r"(<\|(?:start|message|end|call|return)\|>)")
_RECIPIENT = re.compile(r"to=(?:functions\.)?([^\s<]+)")


def read_harmony(text: str) -> Iterator[Part]:
    """Messages with a recipient are calls; the others are content (the analysis channel is taken out beforehand)."""
    for header, body in _harmony_messages(text):
        recipient = _RECIPIENT.search(header)
        if recipient is None:
            yield header if body is None else body
        elif body is None:
            # In plain text "to=" is no recipient; in a header that breaks off it is.
            yield Unreadable(header, recipient[1]) if "<|" in header else header
        else:
            yield _harmony_call(recipient[1], body.strip())


def _harmony_call(name: str, body: str) -> ToolCall | Unreadable:
    try:
        return ToolCall(name, json.loads(body, parse_constant=no_constant) if body else None)
    except NO_JSON:
        return Unreadable(body, name)


def _harmony_messages(text: str) -> Iterator[tuple[str, str | None]]:
    """Header and body of each message; the body is None where no `<|message|>` follows the header."""
    header, body = "", None
    for piece in _HARMONY_MARK.split(text):
        if piece == "<|message|>" and body is None:
            body = ""
        elif _HARMONY_MARK.fullmatch(piece):
            if header.strip() or body is not None:
                yield header, body
            header, body = "", None
        elif body is None:
            header += piece
        else:
            body += piece
    if header.strip() or body is not None:
        yield header, body


def harmony_reasoning(text: str) -> tuple[str, str]:
    """The analysis channel, and the text without it."""
    thoughts: list[str] = []
    rest: list[str] = []
    for header, body in _harmony_messages(text):
        if body is not None and "<|channel|>analysis" in header and not _RECIPIENT.search(header):
            thoughts.append(body.strip())
        else:
            rest.append(header if body is None else f"{header}<|message|>{body}<|end|>")
    return "\n".join(thoughts), "".join(rest)
