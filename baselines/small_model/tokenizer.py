"""A tokenizer made from the environment's own text: what has to be copied is one token.

A small model copies a token by attending to it; a club's name in five pieces, or a match id in three, has to be copied
by a chain of such steps, which did not form in the time that a CPU has. Hence each id, name, month, tool name and
stretch of JSON between two values is a token of its own, in every language, and anything else falls back to characters
and bytes, so that every text can be encoded.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from ticket_gym.agents import SCRIPTS
from ticket_gym.agents.scripted import ScriptedPlayer
from ticket_gym.codec import Codec, get_codec
from ticket_gym.session import Session
from ticket_gym.tasks import TEMPLATES
from ticket_gym.types import Language

CHAT_TEMPLATE = Path(__file__).with_name("chat_template.jinja")
CONTEXT = 2048
"""Longest conversation in tokens."""

PAD, START, END = "<|pad|>", "<|im_start|>", "<|im_end|>"
ROLES = ("system", "user", "assistant", "tool")
TAGS = ("<tools>", "</tools>", "<tool_call>", "</tool_call>")

NUMBERS = [str(number) for number in (*range(1000), *range(2020, 2031))]
MONTHS = [f"2025-{month:02d}" for month in range(1, 13)]
DAYS = [f"-{day:02d}" for day in range(1, 32)]
CENTS = [f".{cents:02d}" for cents in range(100)]

EPISODES = 12
"""Episodes of each template that are looked at for their words, in each language."""


def build_tokenizer(languages: Iterable[Language]) -> PreTrainedTokenizerFast:
    """The tokenizer for these languages; a pure function of the language packs."""
    codecs = [get_codec(language) for language in languages]
    names = sorted({name for codec in codecs for name in _names(codec)}, key=lambda name: (-len(name), name))
    splitter = pre_tokenizers.Split(Regex(_pattern(names)), behavior="isolated")
    pieces = dict.fromkeys([*ROLES, *names, *NUMBERS, *MONTHS, *DAYS, *CENTS])
    for codec in codecs:
        for text in _texts(codec):
            pieces.update(dict.fromkeys(piece for piece, _ in splitter.pre_tokenize_str(text)))
    characters = sorted({character for piece in pieces for character in piece})
    fixed = [PAD, START, END, *TAGS, *(f"<0x{byte:02X}>" for byte in range(256))]
    vocabulary = dict.fromkeys([*fixed, *characters, *pieces])
    tokenizer = Tokenizer(
        models.BPE(
            vocab={piece: number for number, piece in enumerate(vocabulary)},
            merges=[],
            byte_fallback=True,
            ignore_merges=True,
        )
    )
    tokenizer.pre_tokenizer = splitter
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens([AddedToken(tag, special=True, normalized=False) for tag in (PAD, START, END)])
    tokenizer.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in TAGS])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END,
        pad_token=PAD,
        clean_up_tokenization_spaces=False,
        chat_template=CHAT_TEMPLATE.read_text(encoding="utf-8"),
        model_max_length=CONTEXT,
    )


def _names(codec: Codec) -> set[str]:
    """Everything that a league and its calendar call by name."""
    clubs = codec.clubs
    teams = {text for team in clubs.teams for text in (team.name, team.city, team.stadium)}
    return teams | set(clubs.users) | set(codec.texts.weekdays.values())


def _pattern(names: Sequence[str]) -> str:
    """Where a text is cut, as alternatives in order of precedence."""
    name = r"(?<!\w)(?:" + "|".join(map(re.escape, names)) + r")(?!\w)"
    between_values = r'(?: [A-Z]{3})?\[?["\]}]*(?:, )?[\[{]*"[a-z_]+": "?'
    dates = r"\d{4}-\d{2}|-\d{2}(?!\d)"
    numbers = r"\.\d{2}(?!\d)|\d{1,4}"
    words = r"(?! " + name + r") ?[\p{L}\p{M}_]+"
    return "|".join([between_values, name, dates, numbers, words, " ", r"\n+", r"[^\s\p{L}\p{M}\d]+"])


def _texts(codec: Codec) -> Iterator[str]:
    """A little of everything that is said in the environment, both ways."""
    session = Session(language=codec.language, split="train")
    yield session.system_prompt
    for schema in session.tools:
        yield json.dumps(schema, ensure_ascii=False)
    yield from codec.texts.errors.values()
    yield from codec.texts.expected.values()
    for index in range(EPISODES * len(TEMPLATES)):
        yield from _episode_texts(session, index)


def _episode_texts(session: Session, index: int) -> Iterator[str]:
    task = session.source.at(index)
    yield session.reset(task)
    player = ScriptedPlayer(SCRIPTS["expert"](session.codec, task.constraints, 0))
    reply = player.next_call(None)
    while not isinstance(reply, str):
        yield json.dumps({"name": reply.name, "arguments": reply.arguments}, ensure_ascii=False)
        result = session.call(reply.name, reply.arguments).text
        yield result
        reply = player.next_call(result)
