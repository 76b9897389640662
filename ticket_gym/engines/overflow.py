"""How servers say that a conversation no longer fits the model's context window.

There is no common code for it, and the wordings change; each is here by the part of it that carries the meaning.
"""

import re

CODES = frozenset({"context_length_exceeded", "exceed_context_size_error", "string_above_max_length"})
"""Values of `code` or `type` in an error body."""

WORDINGS: tuple[tuple[str, str], ...] = (
    ("vLLM, OpenAI, DeepSeek", r"maximum context length (is|of)"),
    ("vLLM", r"longer than the maximum model length"),
    ("vLLM", r"context length is only \d+"),
    ("vLLM", r"exceeds? the (model's )?(maximum|max) (model|context|sequence) (length|len)"),
    ("OpenAI", r"exceeds the context window"),
    ("llama.cpp", r"exceeds the available context size"),
    ("SGLang", r"longer than the model's context length"),
    ("SGLang", r"exceeds the model's maximum context length"),
    ("TGI, Together", r"`inputs` (tokens \+ `max_new_tokens` must be <=|must have less than \d+ tokens)"),
    ("Anthropic", r"prompt is too long"),
    ("Anthropic", r"input length and `max_tokens` exceed context limit"),
    ("Bedrock", r"input is too long for requested model"),
    ("Mistral", r"too large for model with \d+ maximum context length"),
    ("Gemini", r"input token count .{0,40}exceeds the maximum number of tokens"),
    ("Ollama", r"(input|prompt) (length )?exceeds (the )?(maximum )?context"),
    ("LM Studio", r"(context the overflows|greater than the context length)"),
    ("xAI", r"maximum prompt length is \d+"),
    ("Cohere", r"total number of tokens in the prompt cannot exceed"),
    ("Groq", r"reduce the length of the messages or completion"),
)
"""Whose wording it is, and a pattern that finds it in a message in lower case."""

_WORDINGS = re.compile("|".join(f"(?:{pattern})" for _, pattern in WORDINGS))


def is_context_overflow(message: str, *codes: object) -> bool:
    """Whether an error says that the conversation is too long.

    Args:
        message: The error as the server or the library words it.
        *codes: Its `code` and `type`, where it has any.
    """
    return any(code in CODES for code in codes if isinstance(code, str)) or bool(_WORDINGS.search(message.lower()))
