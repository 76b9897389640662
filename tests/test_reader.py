"""The reader of tool calls in text: a corpus of outputs of every style, and what holds for any text at all."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ticket_gym.engines import STYLES, VLLM_PARSERS, Style, read_calls, style_for
from ticket_gym.engines.history import sent_arguments, sent_messages
from ticket_gym.engines.text_tools import text_messages
from ticket_gym.errors import ConfigurationError
from ticket_gym.session import Session

CORPUS: list[dict[str, Any]] = [
    json.loads(line)
    for line in (Path(__file__).parent / "data" / "tool_call_corpus.jsonl").read_text("utf-8").splitlines()
]

MARKS = (
    *("<tool_call>", "</tool_call>", "<function=f>", "</function>", "<parameter=p>", "</parameter>"),
    *("<|python_tag|>", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "```json", "```", "<think>", "</think>", "<|im_end|>"),
    *("<|channel|>", "commentary to=functions.f", "<|message|>", "<|call|>", "<|start|>", "<|end|>", "analysis"),
    *('{"name": "f", "arguments": {}}', '{"name": "f"', '"arguments": {"a": ', "[f(a=1)]", "f(", "[", "]", "{", "}"),
    *(",", ";", '"', "'", "\\", "\\ud800", "é", "\n", " ", "1e999", "NaN", "[" * 3000, '{"a":' * 3000),
)


@pytest.mark.parametrize("row", CORPUS, ids=[row["id"] for row in CORPUS])
def test_the_corpus_is_read_as_annotated(row: dict[str, Any]) -> None:
    reading = read_calls(row["text"], row["style"])
    assert [{"name": call.name, "arguments": call.arguments} for call in reading.calls] == row["calls"]
    assert reading.content == row["content"]
    assert list(reading.malformed) == row["malformed"]
    assert reading.reasoning == row["reasoning"]


def test_every_style_has_good_and_broken_calls_and_an_answer_in_the_corpus() -> None:
    for style in STYLES:
        rows = [row for row in CORPUS if row["style"] == style]
        assert any(row["malformed"] for row in rows), style
        assert any(len(row["calls"]) > len(row["malformed"]) for row in rows), style
    assert VLLM_PARSERS.keys() == set(STYLES)


@pytest.mark.parametrize("row", [row for row in CORPUS if row["malformed"]], ids=lambda row: row["id"])
def test_a_broken_call_is_answered_with_an_error_and_changes_nothing(row: dict[str, Any]) -> None:
    session = Session(language="en")
    session.reset("t01-01")
    reading = read_calls(row["text"], row["style"])
    for position in reading.malformed:
        call = reading.calls[position]
        for name in session.codec.tool_names.values() if call.name else ("",):
            assert session.call(name, call.arguments).error is not None
    assert session.bookings == ()


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(STYLES), st.lists(st.sampled_from(MARKS) | st.text(max_size=8), max_size=12).map("".join))
def test_any_text_is_read_and_can_be_recorded_and_sent(style: Style, text: str) -> None:
    reading = read_calls(text, style)
    assert set(reading.malformed) <= set(range(len(reading.calls)))
    for call in reading.calls:
        message = json.loads(json.dumps(call.to_message(), ensure_ascii=False, allow_nan=False).encode())
        assert isinstance(json.loads(sent_arguments(message["function"]["arguments"])), dict)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.text(min_size=1), st.text() | st.integers() | st.booleans() | st.none(), max_size=4))
def test_whatever_stands_in_the_arguments_comes_out_of_a_well_formed_call(arguments: dict[str, Any]) -> None:
    written = json.dumps({"name": "f", "arguments": arguments}, ensure_ascii=False)
    texts: dict[Style, str] = {
        "hermes": f"Bon.\n<tool_call>\n{written}\n</tool_call>",
        "llama_json": f"Bon. {written}",
        "xlam": f"Bon. [{written}]",
        "mistral": f"Bon.[TOOL_CALLS]f[ARGS]{json.dumps(arguments, ensure_ascii=False)}</s>",
    }
    for style, text in texts.items():
        # A text that ends the reasoning, or another call's mark, is not an argument any more.
        if any(mark in written for mark in ("</think>", "[/THINK]", "[TOOL_CALLS]", "<|python_tag|>")):
            continue
        reading = read_calls(text, style)
        assert (reading.content, [call.arguments for call in reading.calls]) == ("Bon.", [arguments]), style


@pytest.mark.parametrize(
    ("model", "style"),
    [
        ("Qwen/Qwen3-8B", "hermes"),
        ("Qwen/Qwen2.5-72B-Instruct", "hermes"),
        ("Qwen/Qwen3-Coder-30B-A3B-Instruct", "qwen3_xml"),
        ("Salesforce/Llama-xLAM-2-8b-fc-r", "xlam"),
        ("openai/gpt-oss-20b", "harmony"),
        ("NousResearch/Hermes-3-Llama-3.1-8B", "hermes"),
        ("meta-llama/Llama-3.1-8B-Instruct", "llama_json"),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", "pythonic"),
        ("mistralai/Ministral-8B-Instruct-2410", "mistral"),
        ("mistralai/Magistral-Small-2507", "mistral"),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", "hermes"),
    ],
)
def test_the_family_of_a_model_gives_its_style(model: str, style: Style) -> None:
    assert style_for(model) == style


def test_an_unknown_family_or_style_is_an_error_that_names_the_styles() -> None:
    with pytest.raises(ConfigurationError, match=r"'gpt-5'.*hermes"):
        style_for("gpt-5")
    with pytest.raises(ConfigurationError, match="choose one of hermes"):
        read_calls("", "json")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("written", "sent"),
    [
        ('{"ville": "Saint-Étienne"}', '{"ville": "Saint-Étienne"}'),
        ('{"a":1 }', '{"a":1 }'),
        ("", "{}"),
        ("null", "{}"),
        (r'"{\"a\": \"é\"}"', '{"a": "é"}'),
        ('{"a": ', r'{"_raw": "{\"a\": "}'),
        ("[1]", '{"_raw": "[1]"}'),
        ("5", '{"_raw": "5"}'),
        ('{"a": NaN}', r'{"_raw": "{\"a\": NaN}"}'),
    ],
)
def test_arguments_are_sent_as_an_object_that_any_server_can_decode(written: str, sent: str) -> None:
    assert sent_arguments(written) == sent


def test_what_is_sent_leaves_the_record_as_it_is() -> None:
    call = {"id": "a", "type": "function", "function": {"name": "acheter un billet", "arguments": '{"'}}
    recorded: list[dict[str, object]] = [
        {"role": "user", "content": "é"},
        {"role": "assistant", "content": None, "tool_calls": [call], "reasoning_content": "hm", "raw_text": "x"},
    ]
    before = json.dumps(recorded)
    sent = sent_messages(recorded)
    assert json.dumps(recorded) == before
    function = {"name": "acheter_un_billet", "arguments": r'{"_raw": "{\""}'}
    assert sent[1] == {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "a", "type": "function", "function": function}],
    }
    assert sent_messages(recorded, "reasoning")[1]["reasoning"] == "hm"


def test_text_mode_tells_the_tools_and_alternates_turns() -> None:
    session = Session(language="fr")
    session.reset("t01-01")
    call = '<tool_call>\n{"name": "a", "arguments": {}}\n</tool_call>'
    played: list[dict[str, object]] = [
        {"role": "assistant", "content": None, "tool_calls": [], "raw_text": f"<think>x</think>\n{call}"},
        {"role": "tool", "tool_call_id": "1", "content": "é1"},
        {"role": "tool", "tool_call_id": "2", "content": "é2"},
    ]
    plain = text_messages([*session.messages, *played], session.tools)
    assert [message["role"] for message in plain] == ["system", "user", "assistant", "user"]
    assert all(name in str(plain[0]["content"]) for name in session.codec.tool_names.values())
    assert plain[2]["content"] == call
    assert plain[3]["content"] == "<tool_response>\né1\n</tool_response>\n<tool_response>\né2\n</tool_response>"
