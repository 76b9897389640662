"""How model families write tool calls: each dialect takes a text apart into content, calls and unreadable calls.

A dialect yields the parts in the order of the text and loses none of it but its own marks. It never guesses: a call is
taken only when the whole of it is there and is well formed, and what was plainly meant as a call but is not is yielded
as `Unreadable`. A call in JSON is an object with a `name` and at most one of `arguments` and `parameters`, besides
`id` and `type`.
"""

from ticket_gym.engines.dialects.json_calls import read_hermes, read_llama_json, read_mistral, read_xlam
from ticket_gym.engines.dialects.markup_calls import harmony_reasoning, read_harmony, read_pythonic, read_qwen3_xml
from ticket_gym.engines.dialects.parts import NO_JSON, Dialect, Part, Unreadable, no_constant

DIALECTS: dict[str, Dialect] = {
    "hermes": read_hermes,
    "qwen3_xml": read_qwen3_xml,
    "llama_json": read_llama_json,
    "xlam": read_xlam,
    "mistral": read_mistral,
    "pythonic": read_pythonic,
    "harmony": read_harmony,
}
"""Every dialect by name."""

__all__ = ["DIALECTS", "NO_JSON", "Dialect", "Part", "Unreadable", "harmony_reasoning", "no_constant"]
