"""Prompts as token ids that only grow: with small chat templates that show what real ones do."""

import json
import re
from collections.abc import Sequence
from typing import Any

import pytest

jinja2 = pytest.importorskip("jinja2", reason="chat templates need jinja2 (the eval extra)")

from jinja2.sandbox import ImmutableSandboxedEnvironment  # noqa: E402

from ticket_gym.engines import Request  # noqa: E402
from ticket_gym.engines.prompting import Prompter, Sampled  # noqa: E402
from ticket_gym.errors import EngineError, EngineSetupError  # noqa: E402
from ticket_gym.types import Message, StopReason  # noqa: E402

SPECIAL = ("<|im_start|>", "<|im_end|>", "<|end|>", "<think>", "</think>", "Évian")

HEAD = (
    "<|im_start|>system\n{{ messages[0].content if messages[0].role == 'system' }}"
    "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}<|im_end|>\n"
)
OTHERS = "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
CALLS = (
    '{% for c in m.tool_calls or [] %}<tool_call>{"name": "{{ c.function.name }}", '
    '"arguments": {{ c.function.arguments | tojson }}}</tool_call>{% endfor %}'
)
LOOP = "{% for m in messages %}{% if m.role == 'assistant' %}<|im_start|>assistant\n"
TAIL = (
    "{% elif m.role != 'system' %}" + OTHERS + "{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

PLAIN = HEAD + LOOP + "{{ m.content }}" + CALLS + "<|im_end|>\n" + TAIL
KEEPS_REASONING = (
    HEAD
    + LOOP
    + "{% if loop.last or m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}"
    + "{{ m.content }}"
    + CALLS
    + "<|im_end|>\n"
    + TAIL
)
DROPS_REASONING = KEEPS_REASONING.replace("loop.last or m.reasoning_content", "loop.last and m.reasoning_content")
ONE_CALL_ONLY = PLAIN.replace(
    CALLS, "{% if m.tool_calls and m.tool_calls | length > 1 %}{{ raise('one call only') }}{% endif %}" + CALLS
)
NARROW_IDS = PLAIN.replace(
    CALLS, "{% for c in m.tool_calls or [] %}{{ raise('id') if c.id | length != 9 }}{% endfor %}" + CALLS
)

TOOLS = [{"type": "function", "function": {"name": "buscar", "description": "?", "parameters": {"type": "object"}}}]
START: list[Message] = [
    {"role": "system", "content": "Você compra ingressos."},
    {"role": "user", "content": "Um jogo em Évian, por favor."},
]


class SmallTokenizer:
    """One id for each character, and one for each of a few longer texts."""

    eos_token_id: int | None = SPECIAL.index("<|im_end|>")

    def __init__(self, chat_template: str) -> None:
        self.chat_template: Any = chat_template
        self._pattern = re.compile("|".join(re.escape(text) for text in SPECIAL) + "|.", re.DOTALL)

    def apply_chat_template(self, conversation: list[Message], **options: Any) -> str:
        """The conversation as text."""
        environment = ImmutableSandboxedEnvironment()
        environment.globals["raise"] = _raise
        environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
        template = options.pop("chat_template", self.chat_template)
        return str(environment.from_string(template).render(messages=conversation, **options))

    def encode(self, text: str, **options: Any) -> list[int]:
        """The ids of a text."""
        return [SPECIAL.index(t) if t in SPECIAL else 100 + ord(t) for t in self._pattern.findall(text)]

    def decode(self, token_ids: Sequence[int], **options: Any) -> str:
        """The text of ids."""
        return "".join(SPECIAL[i] if i < 100 else chr(i - 100) for i in token_ids)


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)


class Conversation:
    """Plays turns against a prompter with given texts in the model's place."""

    def __init__(self, template: str, **options: Any) -> None:
        self.tokenizer = SmallTokenizer(template)
        self.prompter = Prompter(self.tokenizer, "hermes", **options)
        self.messages = [*START]
        self.memory: dict[str, Any] = {}
        self.prompt: list[int] = []

    def turn(self, written: str | Sequence[int]) -> Message:
        """Let the model write something."""
        request = Request(list(self.messages), TOOLS, memory=self.memory)
        self.prompt = self.prompter.prompt_ids(request)
        ids = self.tokenizer.encode(written) if isinstance(written, str) else list(written)
        completion = self.prompter.completion(request, self.prompt, Sampled(ids))
        calls = [{**call, "id": f"given-{n}"} for n, call in enumerate(_calls(completion.message), len(self.messages))]
        message = {**completion.message, **({"tool_calls": calls} if calls else {})}
        self.messages.append(message)
        return message

    def answer(self, *results: str) -> None:
        """Give the results of the last message's calls."""
        calls = _calls(self.messages[-1])
        for call, result in zip(calls, results, strict=True):
            self.messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})

    def next_prompt(self) -> list[int]:
        """The prompt of the turn that comes now."""
        return self.prompter.prompt_ids(Request(list(self.messages), TOOLS, memory=self.memory))

    def text(self, ids: Sequence[int]) -> str:
        """The text of ids."""
        return self.tokenizer.decode(ids)


def _calls(message: Message) -> list[dict[str, Any]]:
    calls = message.get("tool_calls")
    return calls if isinstance(calls, list) else []


CALL = '<tool_call>{"name": "buscar", "arguments": {"time": "São João"}}</tool_call>'


def test_a_continued_prompt_is_what_the_template_renders() -> None:
    talk = Conversation(PLAIN)
    for number in range(3):
        talk.turn(CALL + "<|im_end|>")
        talk.answer(f"resultado {number} – é")
    whole = talk.tokenizer.apply_chat_template(talk.messages[:2], tools=TOOLS, add_generation_prompt=True)
    for number in range(3):
        whole += f"{CALL}<|im_end|>\n<|im_start|>tool\nresultado {number} – é<|im_end|>\n<|im_start|>assistant\n"
    assert talk.text(talk.next_prompt()) == whole
    assert talk.prompter.rendered_anew == 0


def test_sampled_ids_are_kept_as_they_were_sampled() -> None:
    talk = Conversation(PLAIN)
    spelled = [100 + ord(letter) for letter in '<tool_call>{"name":"buscar","arguments":{"time":"Évian"}}</tool_call>']
    sampled = [*spelled, *talk.tokenizer.encode("<|im_end|>")]
    talk.turn(sampled)
    first = talk.prompt
    talk.answer("nada")
    assert talk.next_prompt()[: len(first) + len(sampled)] == [*first, *sampled]
    assert talk.tokenizer.encode(talk.text(spelled)) != spelled, "the test must be able to fail"


def test_reasoning_that_the_template_keeps_is_continued() -> None:
    talk = Conversation(KEEPS_REASONING)
    message = talk.turn("<think>primeiro eu</think>" + CALL + "<|im_end|>")
    assert message["reasoning_content"] == "primeiro eu"
    talk.answer("nada")
    assert "primeiro eu" in talk.text(talk.next_prompt())
    assert talk.prompter.rendered_anew == 0


def test_a_template_that_renders_its_last_message_in_another_way_is_continued() -> None:
    talk = Conversation(KEEPS_REASONING)
    talk.turn(CALL + "<|im_end|>")
    talk.answer("nada")
    assert talk.text(talk.next_prompt()).endswith(
        f"{CALL}<|im_end|>\n<|im_start|>tool\nnada<|im_end|>\n<|im_start|>assistant\n"
    )


def test_reasoning_that_the_template_drops_is_not_kept_by_the_ids() -> None:
    talk = Conversation(DROPS_REASONING)
    assert "rendered anew" in talk.prompter.describe()["history"]
    talk.turn("<think>primeiro eu</think>" + CALL + "<|im_end|>")
    talk.answer("nada")
    assert "primeiro eu" not in talk.text(talk.next_prompt())
    assert talk.prompter.rendered_anew == 1
    talk.turn(CALL + "<|im_end|>")
    talk.answer("nada")
    talk.next_prompt()
    assert talk.prompter.continued == 1, "a message without reasoning is continued all the same"


@pytest.mark.parametrize("template", [PLAIN, ONE_CALL_ONLY, NARROW_IDS], ids=["plain", "one call only", "narrow ids"])
def test_two_calls_in_a_message_get_both_results(template: str) -> None:
    talk = Conversation(template)
    talk.turn(CALL + "\n" + CALL + "<|im_end|>")
    talk.answer("um", "dois")
    end = "<|im_end|>\n<|im_start|>tool\num<|im_end|>\n<|im_start|>tool\ndois<|im_end|>\n<|im_start|>assistant\n"
    assert talk.text(talk.next_prompt()).endswith(CALL + "\n" + CALL + end)


@pytest.mark.parametrize(
    "broken",
    ['<tool_call>{"name": "buscar", "arguments": {"time": </tool_call>', "<tool_call>{{{</tool_call>", "<tool_call>"],
)
def test_a_broken_call_does_not_break_the_next_prompt(broken: str) -> None:
    talk = Conversation(PLAIN)
    message = talk.turn(broken + "<|im_end|>")
    assert len(_calls(message)) == 1
    talk.answer('{"error": "malformed_call"}')
    prompt = talk.text(talk.next_prompt())
    assert broken + "<|im_end|>\n<|im_start|>tool\n" in prompt
    assert prompt.endswith('{"error": "malformed_call"}<|im_end|>\n<|im_start|>assistant\n')


def test_a_message_that_another_token_ended_is_ended_as_the_template_does() -> None:
    talk = Conversation(PLAIN, stop_ids=[SPECIAL.index("<|end|>")])
    talk.turn(CALL + "<|end|>")
    talk.answer("nada")
    assert f"{CALL}<|im_end|>\n<|im_start|>tool\nnada" in talk.text(talk.next_prompt())


def test_the_end_of_message_inside_a_result_is_no_end() -> None:
    talk = Conversation(PLAIN)
    talk.turn(CALL + "<|im_end|>")
    talk.answer("a <|im_end|> b")
    assert talk.text(talk.next_prompt()).endswith(
        f"{CALL}<|im_end|>\n<|im_start|>tool\na <|im_end|> b<|im_end|>\n<|im_start|>assistant\n"
    )


def test_a_changed_history_is_rendered_anew() -> None:
    talk = Conversation(PLAIN)
    talk.turn(CALL + "<|im_end|>")
    talk.answer("nada")
    talk.messages[2] = {"role": "assistant", "content": "outra coisa"}
    assert "outra coisa" in talk.text(talk.next_prompt())
    assert talk.prompter.rendered_anew == 1


def test_why_a_message_was_cut_is_told() -> None:
    talk = Conversation(PLAIN)
    request = Request(talk.messages, TOOLS)
    read = [
        talk.prompter.completion(request, [1, 2], Sampled([100], cut, full)).stop
        for cut, full in ((False, False), (True, False), (True, True))
    ]
    assert read == [None, StopReason.LENGTH, StopReason.CONTEXT_OVERFLOW]


def test_tokens_are_counted() -> None:
    talk = Conversation(KEEPS_REASONING)
    request = Request(talk.messages, TOOLS)
    ids = talk.tokenizer.encode("<think>abc</think>sim<|im_end|>")
    usage = talk.prompter.completion(request, [1, 2], Sampled(ids, cached_tokens=1)).usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.reasoning_tokens, usage.cached_tokens) == (2, 9, 3, 1)


@pytest.mark.parametrize(
    ("template", "said"),
    [
        (None, "no chat template"),
        (PLAIN.replace("{{ t | tojson }}", ""), "leaves out the tools"),
        (PLAIN.replace("messages[0].content if", "'' if"), "leaves out the system prompt"),
        ("{{ raise('System role not supported') }}", "System role not supported"),
    ],
)
def test_a_template_that_does_not_serve_is_told_at_the_start(template: Any, said: str) -> None:
    with pytest.raises(EngineSetupError, match=said):
        Prompter(SmallTokenizer(template), "hermes")


def test_a_template_that_refuses_a_conversation_is_an_engine_error() -> None:
    talk = Conversation(PLAIN.replace("{{ m.role }}", "{{ raise('no such role') if m.role == 'tool' else m.role }}"))
    talk.turn(CALL + "<|im_end|>")
    talk.answer("nada")
    with pytest.raises(EngineError, match="no such role"):
        talk.next_prompt()


def test_a_template_that_tells_the_date_tells_that_of_the_system_prompt() -> None:
    talk = Conversation(PLAIN + "{{ strftime_now('%d %b %Y') }}")
    assert talk.text(talk.next_prompt()).endswith("01 Jan 2025")
    assert talk.prompter.describe()["chat_template_date"] == "2025-01-01"


def test_a_given_template_is_the_one_that_is_rendered_and_recorded() -> None:
    talk, other = Conversation(PLAIN, chat_template=PLAIN + "given"), Conversation(PLAIN + "given")
    assert talk.text(talk.next_prompt()).endswith("given")
    assert talk.tokenizer.chat_template == PLAIN
    assert talk.prompter.describe() == other.prompter.describe()


def test_template_options_reach_the_template_and_the_record() -> None:
    talk = Conversation(PLAIN + "{{ mood }}", template_options={"mood": "calm"})
    assert talk.text(talk.next_prompt()).endswith("calm")
    described = talk.prompter.describe()
    assert described["chat_template_options"] == {"mood": "calm"}
    assert described["chat_template_sha256"] != Conversation(PLAIN).prompter.describe()["chat_template_sha256"]
