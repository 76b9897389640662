"""A model of some thirty thousand random weights in the Qwen3 chat format: to check a training loop, not to learn.

It needs no download: the tokenizer is trained on the environment's own text, so that accents, tool schemas and results
take the same way through it as through the real one.
"""

from collections.abc import Iterator, Sequence
from importlib.resources import files
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from ticket_gym.codec import dump, get_codec
from ticket_gym.session import Session
from ticket_gym.types import LANGUAGES, Language

PAD, END = "<|endoftext|>", "<|im_end|>"
CONTROL_TOKENS = (PAD, "<|im_start|>", END)
TAGS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")
VOCABULARY = 1500
CONTEXT = 16_384


def make_tiny_tokenizer(languages: Sequence[Language] = LANGUAGES) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer with the control tokens and the chat template of Qwen3."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(_texts(languages), trainer)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in CONTROL_TOKENS])
    tokenizer.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in TAGS])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=END, pad_token=PAD, clean_up_tokenization_spaces=False
    )
    fast.chat_template = files("trl").joinpath("chat_templates/qwen3.jinja").read_text(encoding="utf-8")
    return fast


def make_tiny_model(tokenizer: Any, seed: int = 0, kind: type[Qwen3ForCausalLM] = Qwen3ForCausalLM) -> Any:
    """A random model for a tokenizer; the same seed gives the same weights."""
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = kind(config)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    return model


def _texts(languages: Sequence[Language]) -> Iterator[str]:
    for language in languages:
        codec = get_codec(language)
        yield codec.system_prompt
        yield from map(dump, codec.schemas)
        session = Session(language=language, split="train")
        for index in range(34):
            yield session.reset(session.source.at(index))
            yield session.call(codec.tool_names["list_games"], {}).text
