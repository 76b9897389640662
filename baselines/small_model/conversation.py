"""The protocol as text and as tokens: the pieces that the chat template puts together, one at a time.

A conversation is only ever appended to, and what a model has sampled stays as the tokens that it sampled: encoding its
text anew could cut it differently, and then another message would be trained than the one that was written.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from transformers import PreTrainedTokenizerBase

from baselines.small_model.tokenizer import END, START
from ticket_gym.agents import SCRIPTS
from ticket_gym.agents.scripted import ScriptedPlayer
from ticket_gym.request import Task
from ticket_gym.session import Session
from ticket_gym.types import ToolCall

ASSISTANT = f"{START}assistant\n"


def request_text(request: str) -> str:
    """The user's turn, up to where the model's first message begins."""
    return f"{START}user\n{request}{END}\n{ASSISTANT}"


def results_text(results: Iterable[str]) -> str:
    """What follows a message with calls, up to where the model's next message begins."""
    return "\n" + "".join(f"{START}tool\n{result}{END}\n" for result in results) + ASSISTANT


def reply_text(reply: ToolCall | str) -> str:
    """A message of the model: a call, or the final answer."""
    if isinstance(reply, str):
        return reply + END
    arguments = json.dumps(reply.arguments, ensure_ascii=False)
    return f'<tool_call>\n{{"name": "{reply.name}", "arguments": {arguments}}}\n</tool_call>{END}'


def encode(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """Tokens of a piece of conversation."""
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids


def prefix_ids(tokenizer: PreTrainedTokenizerBase, session: Session) -> list[int]:
    """System prompt and tool schemas as the chat template writes them: what all episodes of a language begin with."""
    return _prefix_ids(tokenizer, session.system_prompt, json.dumps(session.tools, ensure_ascii=False))


@lru_cache(maxsize=64)
def _prefix_ids(tokenizer: PreTrainedTokenizerBase, system_prompt: str, tools: str) -> list[int]:
    messages = [{"role": "system", "content": system_prompt}]
    text: Any = tokenizer.apply_chat_template(messages, tools=json.loads(tools), tokenize=False)
    return encode(tokenizer, text)


@dataclass(slots=True)
class Transcript:
    """One episode after the common prefix, token by token.

    Attributes:
        task: What was played.
        ids: All tokens, in order.
        own: Whether the model wrote the token; only these are trained. As long as `ids`.
        log_probs: What the sampler gave each token; 0 for those that the model did not write. As long as `ids` when
            the episode was sampled, empty when it was written by a script.
        reward: 1.0 or 0.0, once the episode is over.
    """

    task: Task
    ids: list[int] = field(default_factory=list)
    own: list[bool] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    reward: float = 0.0

    @property
    def own_log_probs(self) -> list[float]:
        """What the sampler gave each of the model's own tokens."""
        return [value for value, own in zip(self.log_probs, self.own, strict=True) if own]

    def append(self, ids: list[int], *, own: bool) -> None:
        """Add tokens to the end."""
        self.ids += ids
        self.own += [own] * len(ids)


def expert_messages(session: Session, task: Task) -> list[tuple[str, bool]]:
    """An episode as the expert plays it: pieces of text, and whether the expert wrote them."""
    pieces = [(request_text(session.reset(task)), False)]
    player = ScriptedPlayer(SCRIPTS["expert"](session.codec, task.constraints, 0))
    reply = player.next_call(None)
    while not isinstance(reply, str):
        pieces.append((reply_text(reply), True))
        result = session.call(reply.name, reply.arguments).text
        pieces.append((results_text([result]), False))
        reply = player.next_call(result)
    return [*pieces, (reply_text(reply), True)]
