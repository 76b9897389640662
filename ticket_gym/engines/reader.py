"""The one reader of tool calls in a model's raw text, so that the same text scores the same whatever engine made it.

Servers disagree about a call that is not well formed: some hand it over as content, which would end the episode as an
answer; some fail. Here nothing is dropped and nothing is guessed. The text falls into reasoning, content and calls; a
call that cannot be read stays a call, with its name as far as that can be read and its text in the place of the
arguments, so that the session answers it with an error and the model can try again. Calls inside the reasoning are
thoughts, not calls.
"""

import re
from dataclasses import dataclass
from typing import Literal, get_args

from ticket_gym.engines.base import RAW_TEXT, REASONING, Completion
from ticket_gym.engines.dialects import DIALECTS, Unreadable, harmony_reasoning
from ticket_gym.engines.history import without_surrogates
from ticket_gym.errors import ConfigurationError
from ticket_gym.records import Usage
from ticket_gym.types import Message, StopReason, ToolCall

Style = Literal["hermes", "qwen3_xml", "llama_json", "xlam", "mistral", "pythonic", "harmony"]
STYLES: tuple[Style, ...] = get_args(Style)
"""How a model family writes its calls; see `ticket_gym.engines.dialects`."""

FAMILIES: tuple[tuple[str, Style], ...] = (
    (r"gpt-?oss", "harmony"),
    (r"xlam", "xlam"),
    (r"hermes", "hermes"),
    (r"toolace|llama-?4", "pythonic"),
    (r"qwen-?3(\.\d+)?-?coder|qwen-?3\.[5-9]", "qwen3_xml"),
    (r"granite-?3", "xlam"),
    (r"qwen|qwq|smollm|granite", "hermes"),
    (r"llama", "llama_json"),
    (r"m[ai][a-z]*stral|mixtral|devstral|codestral", "mistral"),
)
"""Patterns of model names and their styles; the first that is found decides, so the narrower stand first."""

VLLM_PARSERS: dict[Style, str] = {
    "hermes": "hermes",
    "qwen3_xml": "qwen3_coder",
    "llama_json": "llama3_json",
    "xlam": "xlam",
    "mistral": "mistral",
    "pythonic": "pythonic",
    "harmony": "openai",
}
"""Which `--tool-call-parser` of vLLM's server reads each style."""

# Marks of reasoning; some chat templates write the opening one into the prompt, so that only the closing one is seen.
_REASONING_MARKS = (("<think>", "</think>"), ("[THINK]", "[/THINK]"))
_END_MARKS = ("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|eot|>", "<|endoftext|>", "<|end_of_text|>", "</s>")


@dataclass(frozen=True, slots=True)
class Reading:
    """What a model's text says.

    Attributes:
        content: Text around the calls, without surrounding space; the answer, where there is no call.
        calls: In the order of the text, the unreadable ones among them.
        malformed: Positions in `calls` of those that cannot be read.
        reasoning: What the model thought before it wrote, or None.
    """

    content: str
    calls: tuple[ToolCall, ...] = ()
    malformed: tuple[int, ...] = ()
    reasoning: str | None = None


def style_for(model: str) -> Style:
    """The style of a model's family, by its name or path.

    Raises:
        ConfigurationError: No family is known by that name.
    """
    for pattern, style in FAMILIES:
        if re.search(pattern, model.lower().replace("_", "-")):
            return style
    raise ConfigurationError(
        f"model {model!r}: it is not known how this family writes tool calls; name one of {', '.join(STYLES)}"
    )


def read_calls(text: str, style: Style) -> Reading:
    """Read a model's whole message.

    Args:
        text: As it was generated, special tokens included where the tool marks are such.
        style: How the model writes calls.

    Raises:
        ConfigurationError: There is no such style.
    """
    if style not in DIALECTS:
        raise ConfigurationError(f"style={style!r}: choose one of {', '.join(STYLES)}")
    reasoning, text = split_reasoning(text, style)
    content: list[str] = []
    calls: list[ToolCall] = []
    malformed: list[int] = []
    for part in DIALECTS[style](_without_end(text)):
        if isinstance(part, str):
            content.append(part.strip())
        elif isinstance(part, Unreadable):
            malformed.append(len(calls))
            calls.append(ToolCall(without_surrogates(part.name), part.text))
        else:
            calls.append(ToolCall(*without_surrogates([part.name, part.arguments, part.id])))
    return Reading("\n".join(filter(None, content)), tuple(calls), tuple(malformed), reasoning or None)


def _without_end(text: str) -> str:
    """The text without the tokens that end a message."""
    text = text.rstrip()
    while (mark := next((mark for mark in _END_MARKS if text.endswith(mark)), None)) is not None:
        text = text.removesuffix(mark).rstrip()
    return text


def split_reasoning(text: str, style: Style = "hermes") -> tuple[str, str]:
    """What comes before the closing mark of reasoning, and the rest; reasoning that never ends takes all of it."""
    if style == "harmony":
        return harmony_reasoning(text)
    for opening, closing in _REASONING_MARKS:
        thought, mark, rest = text.partition(closing)
        if mark:
            return thought.strip().removeprefix(opening).strip(), rest
        if text.lstrip().startswith(opening):
            return text.strip().removeprefix(opening).strip(), ""
    return "", text


def completion_from_text(text: str, style: Style, usage: Usage, stop: StopReason | None = None) -> Completion:
    """A completion for an engine that gets raw text from its model.

    Args:
        text: As it was generated.
        style: How the model writes calls.
        usage: Tokens of this message.
        stop: `LENGTH`, where the text was cut off.
    """
    reading = read_calls(text, style)
    message: Message = {"role": "assistant", "content": reading.content or (None if reading.calls else "")}
    if reading.calls:
        message["tool_calls"] = [call.to_message() for call in reading.calls]
    if reading.reasoning:
        message[REASONING] = reading.reasoning
    message[RAW_TEXT] = text
    return Completion(message, reading.calls, stop, usage)
