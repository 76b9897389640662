"""From a conversation to token ids and back, for engines that hold the model themselves.

A turn's prompt is what the model has seen and written so far, id by id, and only what is new is rendered and tokenised:
text that was sampled as one run of ids is never tokenised again into another. Where a turn cannot be continued (the
chat template drops the reasoning of earlier messages, which was sampled; the history was changed) the conversation is
rendered anew, and counted.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from ticket_gym.engines.base import RAW_TEXT, REASONING, Completion, Request
from ticket_gym.engines.history import sent_messages
from ticket_gym.engines.reader import Style, completion_from_text
from ticket_gym.errors import EngineError, EngineSetupError
from ticket_gym.records import Usage
from ticket_gym.types import Message, StopReason

PRESENT = datetime(2025, 1, 1)
"""The date that a chat template is told: that of the system prompts, so that no prompt changes by the day."""
_REASONING_KEYS = ("reasoning_content", "reasoning", "thinking")
"""What chat templates call a message's reasoning."""
_MARK = "zqxmarkzqx"
"""A text that no template holds, to see where a message ends up."""
_IDS, _SEEN = "token_ids", "seen_messages"


class Tokenizer(Protocol):
    """What is needed of a Hugging Face tokenizer."""

    eos_token_id: int | None
    chat_template: Any

    def apply_chat_template(self, conversation: list[Message], **options: Any) -> Any:
        """The conversation as text."""

    def encode(self, text: str, **options: Any) -> list[int]:
        """The ids of a text."""

    def decode(self, token_ids: Sequence[int], **options: Any) -> Any:
        """The text of ids."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """What a model generated in one turn.

    Attributes:
        ids: Token ids, the one that ended the message included.
        cut: Whether a limit ended it: the token limit, or the end of the context window.
        context_full: Whether that limit was the end of the context window.
        cached_tokens: How many of the prompt's tokens came from a prefix cache.
    """

    ids: Sequence[int]
    cut: bool = False
    context_full: bool = False
    cached_tokens: int = 0


Read = Callable[[Request, Sequence[int], str, Usage, StopReason | None], Completion | None]
"""Reads a generated text, given the request and its prompt, in a way of its own, or leaves it to our reader by None."""


class Prompter:
    """Turns conversations into prompts for one model, and what it generates into messages.

    Attributes:
        continued: Turns whose prompt was continued id by id.
        rendered_anew: Later turns that had to be rendered and tokenised as a whole.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        style: Style,
        template_options: dict[str, Any] | None = None,
        stop_ids: Sequence[int] = (),
        read: Read | None = None,
        chat_template: str | None = None,
    ) -> None:
        """Look at the chat template.

        Args:
            tokenizer: The model's; its chat template must render tools.
            style: How the model writes tool calls.
            template_options: Further values for the chat template, such as `enable_thinking`.
            stop_ids: Ids that end a message; the tokenizer's own end is always one.
            read: Reads messages before our own reader is asked.
            chat_template: A template in place of the tokenizer's own, which stays as it is.

        Raises:
            EngineSetupError: The template is missing, ignores the tools or the system prompt, or fails.
        """
        own_end = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
        self._tokenizer = tokenizer
        self._template = chat_template
        self._style = style
        self._options = template_options or {}
        self.stop_ids = tuple(dict.fromkeys([*own_end, *stop_ids]))
        self._read = read
        self._check_template()
        self._reasoning_key, self._keeps_reasoning = self._look_for_reasoning()
        self.continued = 0
        self.rendered_anew = 0

    def describe(self) -> dict[str, Any]:
        """What of it could change a score."""
        kept = "kept" if self._keeps_reasoning else "rendered anew without the reasoning of earlier messages"
        return {
            "style": self._style,
            "chat_template_sha256": template_digest(self._template or self._tokenizer.chat_template),
            "chat_template_options": self._options,
            "chat_template_date": PRESENT.date().isoformat(),
            "stop_token_ids": list(self.stop_ids),
            "history": f"token ids appended; reasoning {kept}",
        }

    def prompt_ids(self, request: Request) -> list[int]:
        """The prompt of a turn.

        Raises:
            EngineError: The chat template refuses the conversation.
        """
        seen = request.memory.get(_SEEN, 0)
        if seen == 0:
            return self._encode(self._render(request.messages, request.tools))
        ids = self._continue(request, seen)
        if ids is None:
            self.rendered_anew += 1
            return self._encode(self._render(request.messages, request.tools))
        self.continued += 1
        return ids

    def completion(self, request: Request, prompt: Sequence[int], sampled: Sampled) -> Completion:
        """Read what was generated, and note it in the request's memory for the next turn."""
        text = self._tokenizer.decode(list(sampled.ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
        usage = Usage(
            prompt_tokens=len(prompt),
            completion_tokens=len(sampled.ids),
            cached_tokens=sampled.cached_tokens,
            model_calls=1,
        )
        stop = _stop(sampled)
        completion = self._read(request, prompt, text, usage, stop) if self._read is not None else None
        completion = completion or completion_from_text(text, self._style, usage, stop)
        request.memory[_IDS] = [*prompt, *sampled.ids]
        request.memory[_SEEN] = len(request.messages) + 1
        request.memory[RAW_TEXT] = text
        return self._counted(completion)

    def _counted(self, completion: Completion) -> Completion:
        reasoning = completion.message.get(REASONING)
        if not isinstance(reasoning, str):
            return completion
        usage = completion.usage.model_copy(update={"reasoning_tokens": len(self._encode(reasoning))})
        return Completion(completion.message, completion.calls, completion.stop, usage)

    # Continuing a conversation

    def _continue(self, request: Request, seen: int) -> list[int] | None:
        """The ids so far and those of what is new, or None where the template would have told another story."""
        if len(request.messages) <= seen or seen < 1:
            return None
        last = request.messages[seen - 1]
        if last.get("role") != "assistant" or last.get(RAW_TEXT) != request.memory[RAW_TEXT]:
            return None
        if last.get(REASONING) and not self._keeps_reasoning:
            return None
        ids: list[int] = request.memory[_IDS]
        found = self._end_of_message(request, seen, ids[-1])
        if found is None:
            return None
        end_id, new_text = found
        kept = ids[:-1] if ids[-1] in self.stop_ids else ids
        return [*kept, *self._encode_after(end_id, new_text)]

    def _end_of_message(self, request: Request, seen: int, last_id: int) -> tuple[int, str] | None:
        """Which id ends the last message for the template, and the text that follows it."""
        text = self._render(request.messages, request.tools)
        marked = [*request.messages[:seen], {**request.messages[seen], "content": _MARK}, *request.messages[seen + 1 :]]
        place = self._render(marked, request.tools).find(_MARK)
        for end_id in dict.fromkeys([*(i for i in self.stop_ids if i == last_id), *self.stop_ids]):
            end = str(self._tokenizer.decode([end_id], skip_special_tokens=False))
            start = text.rfind(end, 0, place) if place >= 0 else -1
            if start >= 0:
                return end_id, text[start + len(end) :]
        return None

    def _encode_after(self, end_id: int, text: str) -> list[int]:
        """The end and the ids of what follows, tokenised together: some tokenizers treat the start of a text apart."""
        end = str(self._tokenizer.decode([end_id], skip_special_tokens=False))
        ids = self._encode(end + text)
        return ids if ids[:1] == [end_id] else [end_id, *self._encode(text)]

    # The chat template

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False))

    def _render(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]], open_turn: bool = True) -> str:
        sent = _for_template(sent_messages(messages, self._reasoning_key))
        try:
            return self._apply(sent, tools, open_turn)
        except _template_error() as problem:
            # Some templates allow one call a message, or no content beside reasoning. When a conversation is
            # continued, its earlier messages come from the ids, so that leaving these out loses nothing.
            single = [_plainer(message) for message in sent]
            try:
                return self._apply(single, tools, open_turn)
            except _template_error():
                raise EngineError(f"the chat template refuses the conversation: {problem}") from problem

    def _apply(self, messages: list[Message], tools: Sequence[dict[str, Any]], open_turn: bool) -> str:
        options = {"strftime_now": PRESENT.strftime, **self._options}
        if self._template is not None:
            # Set on the tokenizer it might not arrive: vLLM's hands its work on to copies of itself.
            options["chat_template"] = self._template
        return str(
            self._tokenizer.apply_chat_template(
                messages, tools=list(tools) or None, tokenize=False, add_generation_prompt=open_turn, **options
            )
        )

    def _check_template(self) -> None:
        if not (self._template or self._tokenizer.chat_template):
            raise EngineSetupError("the model has no chat template: give one that renders tools (chat_template)")
        messages: list[Message] = [{"role": "system", "content": _MARK}, {"role": "user", "content": "?"}]
        try:
            text = self._apply(messages, [_probe_tool()], open_turn=True)
        except _template_error() as problem:
            raise EngineSetupError(
                f"the chat template fails on a system prompt, a request and tools: {problem}"
            ) from problem
        for needed, what in ((_MARK, "the system prompt"), ("zqxtool", "the tools")):
            if needed not in text:
                raise EngineSetupError(f"the chat template leaves out {what}: give one that renders it (chat_template)")

    def _look_for_reasoning(self) -> tuple[str | None, bool]:
        """What the template calls reasoning, and whether that of an earlier message stays when a tool has answered."""
        call = {"id": "1", "type": "function", "function": {"name": "zqxtool", "arguments": {}}}
        start: list[Message] = [{"role": "user", "content": "?"}]
        for key in _REASONING_KEYS:
            thought: Message = {"role": "assistant", "content": "", key: _MARK, "tool_calls": [call]}
            answer: Message = {"role": "tool", "tool_call_id": "1", "name": "zqxtool", "content": "!"}
            try:
                if _MARK in self._apply(_for_template([*start, thought, answer]), [_probe_tool()], open_turn=True):
                    return key, True
                if _MARK in self._apply(_for_template([*start, thought]), [_probe_tool()], open_turn=False):
                    return key, False
            except _template_error():
                continue
        return None, False


def _stop(sampled: Sampled) -> StopReason | None:
    if sampled.context_full:
        return StopReason.CONTEXT_OVERFLOW
    return StopReason.LENGTH if sampled.cut else None


def template_digest(template: str | dict[str, str]) -> str:
    """SHA-256 of a chat template, or of all of them where a tokenizer has several."""
    text = template if isinstance(template, str) else json.dumps(template, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _for_template(messages: Sequence[Message]) -> list[Message]:
    """Messages as templates want them: content a text, arguments an object, ids that the narrowest of them takes."""
    ids: dict[object, str] = {}
    return [_message_for_template(message, ids) for message in messages]


def _message_for_template(message: Message, ids: dict[object, str]) -> Message:
    ready = {**message, "content": message.get("content") or ""}
    calls = message.get("tool_calls")
    if isinstance(calls, list) and calls:
        ready["tool_calls"] = [_call_for_template(call, ids) for call in calls]
    else:
        ready.pop("tool_calls", None)
    if "tool_call_id" in message:
        ready["tool_call_id"] = _short_id(message["tool_call_id"], ids)
    return ready


def _call_for_template(call: dict[str, Any], ids: dict[object, str]) -> dict[str, Any]:
    arguments = call["function"]["arguments"]
    if isinstance(arguments, str):
        arguments = json.loads(arguments)
    return {
        "id": _short_id(call["id"], ids),
        "type": "function",
        "function": {"name": call["function"]["name"], "arguments": arguments},
    }


def _short_id(given: object, ids: dict[object, str]) -> str:
    """Nine letters and digits, which is what Mistral's templates insist on and no other minds."""
    return ids.setdefault(given, f"call{len(ids) + 1:05d}")


def _plainer(message: Message) -> Message:
    plain = {key: value for key, value in message.items() if key not in _REASONING_KEYS}
    calls = message.get("tool_calls")
    return {**plain, "tool_calls": calls[:1]} if isinstance(calls, list) else plain


def _probe_tool() -> dict[str, Any]:
    parameters = {"type": "object", "properties": {}}
    return {"type": "function", "function": {"name": "zqxtool", "description": "?", "parameters": parameters}}


def _template_error() -> type[Exception]:
    from jinja2 import TemplateError

    return TemplateError
