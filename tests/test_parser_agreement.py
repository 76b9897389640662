"""Our reader and vLLM's own parsers on the same outputs: they agree, or the difference and its reason are on record.

Runs only where vLLM is installed. The corpus is that of the reader. Reasoning and end marks are taken off first, as a
server does before its tool parser sees the text. Harmony has no counterpart: vLLM reads it from token ids of GPT-OSS's
own vocabulary, which is not part of any package.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("vllm", reason="needs vLLM: pip install 'ticket-gym[vllm]'")

from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.tool_parsers import ToolParserManager

from ticket_gym.engines import read_calls
from ticket_gym.engines.reader import split_reasoning

DATA = Path(__file__).parent / "data"
PARSERS = {
    "hermes": "hermes",
    "llama_json": "llama3_json",
    "mistral": "mistral",
    "pythonic": "pythonic",
    "qwen3_xml": "qwen3_coder",
    "xlam": "xlam",
}
"""Our style and vLLM's parser for it."""
MARKS = ("<tool_call>", "</tool_call>", "<|python_tag|>", "[TOOL_CALLS]", "[ARGS]", "<|im_end|>")
END_MARKS = re.compile(r"(?:\s*(?:<\|im_end\|>|<\|eot_id\|>|<\|eom_id\|>|</s>))+\s*$")


def _rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / name).read_text("utf-8").splitlines()]


CORPUS = [row for row in _rows("tool_call_corpus.jsonl") if row["style"] in PARSERS]
DIFFERENCES = {row["id"]: row for row in _rows("parser_differences.jsonl")}


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    """Some tokenizer with the tool marks, which the parsers insist on; they read the text, not the ids."""
    inner = Tokenizer(
        models.BPE({letter: n for n, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}, [])
    )
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.add_special_tokens([AddedToken(mark, special=True, normalized=False) for mark in MARKS])
    return PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<|im_end|>")


def native(row: dict[str, Any], tokenizer: PreTrainedTokenizerFast) -> dict[str, Any]:
    """What vLLM's parser makes of a text: the content, and the calls with their arguments decoded."""
    tools = [
        {"type": "function", "function": {"name": name}} for name in {call["name"] for call in row["calls"]} - {""}
    ]
    request = ChatCompletionRequest(model="m", messages=[{"role": "user", "content": "?"}], tools=tools or None)
    parser = ToolParserManager.get_tool_parser(PARSERS[row["style"]])(tokenizer, request.tools)
    text = END_MARKS.sub("", split_reasoning(row["text"], row["style"])[1])
    found = parser.extract_tool_calls(text, request=request)
    calls = [
        {"name": call.function.name, "arguments": _decoded(call.function.arguments)} for call in found.tool_calls or ()
    ]
    return {"content": (found.content or "").strip(), "calls": calls}


def _decoded(arguments: str) -> Any:
    """Arguments decoded, or their text; NaN as a text, because it is not equal to itself."""
    try:
        return json.loads(arguments, parse_constant=str) or {}
    except ValueError:
        return arguments


def ours(row: dict[str, Any]) -> dict[str, Any]:
    """The same from our reader; a call that cannot be read has its text in the place of the arguments."""
    reading = read_calls(row["text"], row["style"])
    return {
        "content": reading.content,
        "calls": [{"name": call.name, "arguments": call.arguments or {}} for call in reading.calls],
    }


@pytest.mark.parametrize("row", CORPUS, ids=lambda row: row["id"])
def test_both_read_the_same_or_the_difference_is_on_record(
    row: dict[str, Any], tokenizer: PreTrainedTokenizerFast
) -> None:
    found = native(row, tokenizer)
    recorded = DIFFERENCES.get(row["id"])
    if recorded is None:
        assert found == ours(row)
    else:
        assert found == recorded["native"]
        assert found != ours(row), "they agree now: take it off the record"


def test_every_recorded_difference_has_a_reason_and_a_text() -> None:
    assert all(row["reason"] for row in DIFFERENCES.values())
    assert DIFFERENCES.keys() <= {row["id"] for row in CORPUS}
