"""Imitation of the scripted expert by any causal language model, in plain PyTorch; run it where the checkout is.

    pip install "ticket-gym[train]"
    python -m baselines.train_sft --model Qwen/Qwen3-0.6B --languages en pt --out runs/sft-0.6b
    python -m baselines.train_sft --model tiny --updates 2 --out runs/sft-tiny   # random weights, no download

Every message of the expert is an example of its own: the conversation before it exactly as the model's chat template
puts it when the model is to answer, then the message. Loss falls on the tokens of the message alone, and these are
encoded apart from the prompt, as a model writes them. The output folder holds `log.jsonl` and, at the end, the model.
"""

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from baselines.tiny_model import make_tiny_model, make_tiny_tokenizer
from ticket_gym.agents import SCRIPTS
from ticket_gym.agents.scripted import ScriptedPlayer
from ticket_gym.errors import ConfigurationError
from ticket_gym.session import Session, Settings
from ticket_gym.tasks import TEMPLATES, Stream
from ticket_gym.types import LANGUAGES, Message

IGNORED = -100
"""Label of a token on which no loss falls."""

PATIENCE = 50
"""Episodes in a row whose messages are all too long before it is said that nothing can be learnt from them."""


@dataclass(frozen=True, slots=True)
class Example:
    """One message of the expert.

    Attributes:
        ids: Tokens of the conversation and of the message.
        labels: The message's tokens at its places, `IGNORED` before. As long as `ids`.
    """

    ids: list[int]
    labels: list[int]


def expert_conversation(session: Session, index: int, script: str = "expert") -> list[Message]:
    """The messages of an episode as a script plays it.

    Args:
        session: Whose task is played.
        index: Which task of its stream.
        script: Who plays; the expert makes few calls, the oracle looks at every page.

    Raises:
        ConfigurationError: The script did not do what was asked for, so that it should not be imitated.
    """
    session.reset(session.source.at(index))
    messages = list(session.messages)
    player = ScriptedPlayer(SCRIPTS[script](session.codec, session.playing.constraints, index))
    reply = player.next_call(None)
    while not isinstance(reply, str):
        messages.append({"role": "assistant", "content": None, "tool_calls": [reply.to_message()]})
        result = session.call(reply.name, reply.arguments).text
        messages.append({"role": "tool", "tool_call_id": reply.id, "content": result})
        reply = player.next_call(result)
    if not session.success:
        raise ConfigurationError(
            f"script {script!r} fails at task {session.playing.id}: choose the expert or the oracle"
        )
    return [*messages, {"role": "assistant", "content": reply}]


def make_examples(tokenizer: Any, session: Session, messages: Sequence[Message]) -> Iterator[Example]:
    """An example for each message of the assistant.

    Raises:
        ConfigurationError: The chat template writes a message otherwise than as a continuation of its prompt.
    """
    for place, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        before = _render(tokenizer, session, messages[:place], answer=True)
        whole = _render(tokenizer, session, messages[: place + 1], answer=False)
        if not whole.startswith(before):
            raise ConfigurationError("the chat template does not continue its own generation prompt: try another model")
        end = whole.rfind(tokenizer.eos_token)
        own = whole[len(before) : end + len(tokenizer.eos_token)] if end >= len(before) else whole[len(before) :]
        prompt = tokenizer(before, add_special_tokens=False)["input_ids"]
        target = tokenizer(own, add_special_tokens=False)["input_ids"]
        yield Example([*prompt, *target], [IGNORED] * len(prompt) + target)


def _render(tokenizer: Any, session: Session, messages: Sequence[Message], *, answer: bool) -> str:
    plain = [_with_objects(message) for message in messages]
    text: str = tokenizer.apply_chat_template(
        plain, tools=session.tools, tokenize=False, add_generation_prompt=answer, enable_thinking=False
    )
    return text


def _with_objects(message: Message) -> Message:
    """Chat templates want arguments as objects, where the API has them as text."""
    calls = message.get("tool_calls")
    if not isinstance(calls, list):
        return {**message, "content": message["content"] or ""}
    decoded = [
        {**call, "function": {**call["function"], "arguments": json.loads(call["function"]["arguments"])}}
        for call in calls
    ]
    return {**message, "content": "", "tool_calls": decoded}


def stream_examples(tokenizer: Any, sessions: Sequence[Session], script: str, longest: int) -> Iterator[Example]:
    """Examples without end, from one language after another; those that are too long are left out.

    Raises:
        ConfigurationError: In one of the languages nothing is short enough.
    """
    in_vain = dict.fromkeys(sessions, 0)
    for index in count():
        for session in sessions:
            examples = list(make_examples(tokenizer, session, expert_conversation(session, index, script)))
            fitting = [example for example in examples if len(example.ids) <= longest]
            in_vain[session] = 0 if fitting else in_vain[session] + 1
            if in_vain[session] == PATIENCE:
                shortest = min(len(example.ids) for example in examples)
                raise ConfigurationError(
                    f"--longest {longest}: no example of {PATIENCE} episodes in {session.settings.language} is so "
                    f"short; the shortest of the last episode has {shortest} tokens"
                )
            yield from fitting


def update(model: Any, optimiser: torch.optim.Optimizer, examples: Sequence[Example]) -> float:
    """One update on some examples; returns the loss for each token of the expert's."""
    tokens = sum(label != IGNORED for example in examples for label in example.labels)
    total = 0.0
    optimiser.zero_grad()
    # One at a time: examples differ much in length, and their gradients add up all the same.
    for example in examples:
        ids = torch.tensor([example.ids], device=model.device)
        labels = torch.tensor([example.labels], device=model.device)
        logits = model(input_ids=ids).logits[:, :-1].float()
        loss = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), labels[:, 1:].flatten(), ignore_index=IGNORED, reduction="sum"
        )
        torch.autograd.backward(loss / tokens)
        total += float(loss.detach())
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimiser.step()
    return total / tokens


def train(options: argparse.Namespace) -> None:
    """Train as the options say and save the model."""
    torch.manual_seed(options.seed)
    sessions = [Session(settings) for settings in _settings(options)]
    if options.model == "tiny":
        tokenizer: Any = make_tiny_tokenizer(options.languages)
        model = make_tiny_model(tokenizer, options.seed)
    else:
        kind = torch.bfloat16 if torch.cuda.is_available() else torch.float32
        try:
            tokenizer = AutoTokenizer.from_pretrained(options.model)
            model = AutoModelForCausalLM.from_pretrained(options.model, dtype=kind)
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"--model {options.model}: cannot be loaded: {error}") from error
    model.to("cuda" if torch.cuda.is_available() else "cpu").train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=options.rate, weight_decay=0.0)
    examples = stream_examples(tokenizer, sessions, options.script, options.longest)
    options.out.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    with (options.out / "log.jsonl").open("w", encoding="utf-8") as log:
        for number in range(1, options.updates + 1):
            for group in optimiser.param_groups:
                group["lr"] = options.rate * min(1.0, number / options.warm_up)
            loss = update(model, optimiser, list(islice(examples, options.batch)))
            line = {"update": number, "loss": round(loss, 5), "wall_s": round(time.perf_counter() - start, 1)}
            log.write(json.dumps(line) + "\n")
            log.flush()
    model.save_pretrained(options.out)
    tokenizer.save_pretrained(options.out)


def _settings(options: argparse.Namespace) -> Iterator[Settings]:
    stream = Stream(paraphrases=options.paraphrases)
    for language in options.languages:
        yield Settings(
            language=language, split="train", seed=options.seed, templates=tuple(options.templates), stream=stream
        )


def from_one(text: str) -> int:
    """An integer from 1, for the command line."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text}: must be an integer from 1")
    return number


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the options and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a hub name, a folder, or `tiny`")
    parser.add_argument("--out", type=Path, required=True, help="folder of the log and the trained model")
    parser.add_argument("--languages", nargs="+", choices=LANGUAGES, default=["en"])
    parser.add_argument("--templates", nargs="+", choices=list(TEMPLATES), default=list(TEMPLATES))
    parser.add_argument("--script", choices=("expert", "oracle"), default="expert", help="who is imitated")
    parser.add_argument("--paraphrases", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--updates", type=from_one, default=200)
    parser.add_argument("--batch", type=from_one, default=16, help="messages of one update")
    parser.add_argument("--longest", type=from_one, default=8192, help="longer examples are left out (tokens)")
    parser.add_argument("--rate", type=float, default=1e-5)
    parser.add_argument("--warm-up", type=from_one, default=10, help="updates over which the rate rises")
    parser.add_argument("--seed", type=int, default=0, help="of the stream of tasks")
    options = parser.parse_args(arguments)
    try:
        train(options)
    except ConfigurationError as error:
        parser.exit(2, f"{error}\n")


if __name__ == "__main__":
    main()
