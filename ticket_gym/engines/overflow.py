"""How servers say that a conversation no longer fits the model's context window.

There is no common code for it, and the wordings change; each is here by the part of it that carries the meaning.
"""

import re

CODES = frozenset(
    {
        "context_length_exceeded",
        "exceed_context_size_error",
        "model_context_window_exceeded",
        "model_max_prompt_tokens_exceeded",
        "tokens_limit_reached",
    }
)
"""Values of `code` or `type` in an error body."""

WORDINGS: tuple[tuple[str, str], ...] = (
    ("vLLM, OpenAI, Azure, DeepSeek, OpenRouter", r"maximum context length (is|of)"),
    ("vLLM", r"longer than the maximum model length"),
    ("vLLM", r"context length is only \d+"),
    ("vLLM, SGLang", r"exceeds? (the )?(model's )?(maximum|max)[ _](model|context|sequence)[ _](length|len)"),
    ("OpenAI", r"exceeds the context window"),
    ("OpenAI, Azure", r"input tokens exceed the configured limit"),
    ("OpenAI", r"invalid 'messages\[\d+\]\S*': string too long"),
    ("llama.cpp", r"exceeds the available context size"),
    ("llama.cpp", r"context size has been exceeded"),
    ("llama-cpp-python", r"requested tokens \(\d+\) exceed context window"),
    ("SGLang, Together", r"longer than the model's context length"),
    ("SGLang, OpenRouter", r"input length .{0,40}exceeds the maximum allowed (input )?length"),
    ("TGI, Together", r"`inputs` (tokens \+ `max_new_tokens` must be <=|must have less than \d+ tokens)"),
    ("Anthropic, Fireworks", r"prompt is too long"),
    ("Anthropic", r"input length and `max_tokens` exceed context limit"),
    ("Bedrock", r"input is too long for requested model"),
    ("Mistral", r"too large for model with \d+ maximum context length"),
    ("Gemini", r"input token count .{0,40}exceeds the maximum number of tokens"),
    ("Ollama", r"(input|prompt) (length )?exceeds (the )?(maximum )?context"),
    ("Ollama", r"prompt too long; exceeded (max )?context length"),
    ("LM Studio", r"(context the overflows|greater than the context length)"),
    ("xAI", r"maximum prompt length is \d+"),
    ("Cohere", r"total number of tokens in the prompt cannot exceed"),
    ("Groq, Cerebras", r"reduce the length of the messages or completion"),
    ("GitHub Copilot", r"prompt token count of \d+ exceeds the limit of \d+"),
    ("Moonshot", r"exceeded model token limit"),
    ("MiniMax", r"context window exceeds limit"),
    ("DashScope", r"range of input length should be"),
    ("Zhipu", r"prompt exceeds max length"),
    ("LiteLLM", r"contextwindowexceedederror"),
)
"""Whose wording it is, and a pattern that finds it in a message in lower case."""

_WORDINGS = re.compile("|".join(f"(?:{pattern})" for _, pattern in WORDINGS))
_WINDOW = re.compile(r"maximum context length (?:is|of) (\d{1,12})")
_ASKED_FOR = re.compile(
    r"max(?:_completion)?_tokens'? is too large: (\d{1,12})"
    r"|(\d{1,12}) (?:tokens )?(?:in|for) the (?:completion|output)"
)


def is_context_overflow(message: str, *codes: object) -> bool:
    """Whether an error says that the conversation is too long.

    A limit of output tokens that would not fit an empty context window either is none: no conversation would fit.

    Args:
        message: The error as the server or the library words it.
        *codes: Its `code` and `type`, where it has any.
    """
    text = message.lower()
    if _output_alone_is_too_long(text):
        return False
    return any(code in CODES for code in codes if isinstance(code, str)) or bool(_WORDINGS.search(text))


def _output_alone_is_too_long(text: str) -> bool:
    window, asked_for = _WINDOW.search(text), _ASKED_FOR.search(text)
    if window is None or asked_for is None:
        return False
    return int(asked_for[1] or asked_for[2]) >= int(window[1])
