"""The transformers engine with a tiny model of random weights, made here: real library, real generation."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the transformers extra: pip install 'ticket-gym[transformers]'")
transformers = pytest.importorskip("transformers", reason="needs the transformers extra")

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers  # noqa: E402

from ticket_gym.agents import ModelAgent  # noqa: E402
from ticket_gym.engines import Completion, Request, Sampling, TransformersOptions, make_engine  # noqa: E402
from ticket_gym.engines.batches import shared_length  # noqa: E402
from ticket_gym.engines.prompting import Sampled  # noqa: E402
from ticket_gym.engines.seeded_draw import SeededDraw  # noqa: E402
from ticket_gym.engines.transformers_engine import TransformersEngine  # noqa: E402
from ticket_gym.errors import ConfigurationError, ContextOverflowError, EngineError, EngineSetupError  # noqa: E402
from ticket_gym.rollout import play_episode  # noqa: E402
from ticket_gym.session import Session  # noqa: E402
from ticket_gym.types import Language, StopReason  # noqa: E402

TEMPLATE = Path(__file__).parents[1] / "baselines" / "configs" / "smollm2_tools.jinja"
CONTEXT = 8192
END = "<|im_end|>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model folder as the hub has them: byte tokens, two layers, random weights."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE({letter: number for number, letter in enumerate(alphabet)}, []))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in ("<|im_start|>", END)])
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=inner, eos_token=END, pad_token=END)
    tokenizer.chat_template = TEMPLATE.read_text(encoding="utf-8")
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=CONTEXT,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.eos_token_id,
    )
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config)
    # Freshly made weights say nothing but noise; larger ones make the next token depend on what came before.
    for weights in model.parameters():
        weights.data.mul_(3.0)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    path = tmp_path_factory.mktemp("tiny")
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return str(path)


def _engine(folder: str, **options: Any) -> Any:
    return make_engine(
        "transformers", **{"model": folder, "style": "hermes", "device": "cpu", "max_tokens": 12, **options}
    )


def _request(text: str, seed: int = 0) -> Request:
    messages: Any = [{"role": "system", "content": "Vous achetez des billets."}, {"role": "user", "content": text}]
    return Request(messages, Session(language="fr").tools[:1], seed)


async def _texts(engine: Any, requests: list[Request]) -> list[str]:
    done: list[Completion] = await asyncio.gather(*(engine.complete(request) for request in requests))
    return [str(completion.message["raw_text"]) for completion in done]


async def test_episodes_in_two_languages_are_played_side_by_side(folder: str) -> None:
    engine = _engine(folder, max_batch=4)
    agent = ModelAgent(engine)
    languages: tuple[Language, ...] = ("fr", "de")
    played = await asyncio.gather(
        *(
            play_episode(Session(language=language, max_steps=2), agent, f"t0{n}-01", seed=n)
            for language in languages
            for n in range(1, 4)
        )
    )
    await engine.aclose()
    assert len(played) == 6
    for episode in played:
        assert episode.stop_reason in {StopReason.RESPONDED, StopReason.LENGTH, StopReason.MAX_STEPS}
        assert 0 < episode.usage.completion_tokens <= 12 * episode.usage.model_calls


async def test_continuous_batching_writes_what_batches_write(folder: str) -> None:
    requests = [_request(f"Match {number} à Saint-Étienne ?" + " Merci." * number) for number in range(5)]
    texts = []
    for batching in ("static", "continuous"):
        engine = _engine(folder, batching=batching, temperature=0, max_batch=2)
        texts.append(await _texts(engine, requests))
        texts.append(await _texts(engine, requests[:1]))
        assert engine.describe()["batching"] == batching
        await engine.aclose()
    assert texts[0] == texts[2]
    assert texts[1] == texts[3] == texts[0][:1]


@pytest.mark.parametrize("sampling", [{"temperature": 0.7}, {"temperature": 0, "repetition_penalty": 1.1}, {}], ids=str)
def test_continuous_batching_refuses_to_draw(folder: str, sampling: dict[str, float]) -> None:
    with pytest.raises(EngineSetupError, match="batching='static'"):
        _engine(folder, batching="continuous", **sampling)


async def test_closing_ends_what_continuous_batching_has_under_way(folder: str) -> None:
    engine = _engine(folder, batching="continuous", temperature=0, max_tokens=4000)
    asked = asyncio.create_task(engine.complete(_request("Bonjour")))
    await asyncio.sleep(0.5)
    await engine.aclose()
    with pytest.raises(EngineError, match="closed"):
        await asked


async def test_a_seed_gives_the_same_message_in_any_batch(folder: str) -> None:
    engine = _engine(folder)
    asked = "Un billet pour Saint-Étienne, s'il vous plaît."
    (alone,) = await _texts(engine, [_request(asked, seed=7)])
    others = [_request("?" * size, seed=size) for size in (1, 30, 200)]
    together = await _texts(engine, [others[0], _request(asked, seed=7), *others[1:], _request(asked, seed=8)])
    await engine.aclose()
    assert together[1] == alone
    assert together[-1] != alone


async def test_the_kept_beginning_changes_no_message(folder: str) -> None:
    texts = []
    for kept in (True, False):
        engine = _engine(folder, prefix_cache=kept)
        first = await _texts(engine, [_request("Un billet." * n, seed=n) for n in (1, 5, 9)])
        again = await engine.complete(_request("Deux billets.", seed=1))
        texts.append([*first, again.message["raw_text"]])
        assert (again.usage.cached_tokens > 0) is kept
        await engine.aclose()
    assert texts[0] == texts[1]


async def test_temperature_zero_is_the_greedy_search_of_the_library(folder: str) -> None:
    engine = _engine(folder, temperature=0)
    request = _request("Un billet.")
    completion = await engine.complete(request)
    await engine.aclose()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    prompt = tokenizer.apply_chat_template(
        list(request.messages),
        tools=list(request.tools),
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    )
    output = model.generate(**prompt, do_sample=False, max_new_tokens=12)
    assert completion.usage.prompt_tokens == prompt["input_ids"].shape[1]
    assert completion.message["raw_text"] == tokenizer.decode(output[0, prompt["input_ids"].shape[1] :])


async def test_the_next_turn_goes_on_with_the_sampled_ids(folder: str) -> None:
    engine = _engine(folder)
    request = _request("Un billet.")
    completion = await engine.complete(request)
    ids = list(request.memory["token_ids"])
    messages = [*request.messages, completion.message, {"role": "tool", "tool_call_id": "1", "content": "é"}]
    later = Request(messages, request.tools, 1, memory=request.memory)
    following = await engine.complete(later)
    await engine.aclose()
    assert later.memory["token_ids"][: len(ids)] == ids
    assert following.usage.prompt_tokens > len(ids)


@pytest.mark.parametrize("batching", ["static", "continuous"])
async def test_limits_are_told_apart(folder: str, batching: str) -> None:
    engine = _engine(folder, batching=batching, temperature=0, max_tokens=5)
    cut = await engine.complete(_request("Un billet."))
    room = cut.usage.prompt_tokens + 3
    await engine.aclose()
    assert (cut.stop, cut.usage.completion_tokens) == (StopReason.LENGTH, 5)

    engine = _engine(folder, batching=batching, temperature=0, max_tokens=5, max_context=room)
    full = await engine.complete(_request("Un billet."))
    assert (full.stop, full.usage.completion_tokens) == (StopReason.CONTEXT_OVERFLOW, 3)
    with pytest.raises(ContextOverflowError, match=str(room)):
        await engine.complete(_request("Un billet pour le match le moins cher."))
    await engine.aclose()


async def test_rows_with_less_room_end_earlier_than_others(folder: str) -> None:
    short, long = _request("?"), _request("?" * 8)
    engine = _engine(folder, max_tokens=10)
    size = (await engine.complete(long)).usage.prompt_tokens
    await engine.aclose()
    engine = _engine(folder, max_tokens=10, max_context=size + 3)
    done = await asyncio.gather(engine.complete(_request("?")), engine.complete(_request("?" * 8)))
    await engine.aclose()
    assert [completion.usage.completion_tokens for completion in done] == [10, 3]
    assert [completion.stop for completion in done] == [StopReason.LENGTH, StopReason.CONTEXT_OVERFLOW]
    assert short.messages != long.messages


async def test_what_could_change_a_score_is_described(folder: str, tmp_path: Path) -> None:
    copied = transformers.AutoModelForCausalLM.from_pretrained(folder)
    copied.generation_config.update(do_sample=True, temperature=0.6, top_k=20, max_new_tokens=9)
    copied.save_pretrained(tmp_path)
    transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(tmp_path)
    engine = _engine(str(tmp_path), top_p=0.9, max_tokens=None, model_args={"attn_implementation": "eager"})
    described = engine.describe()
    await engine.aclose()
    assert described["sampling"] == {"temperature": 0.6, "top_k": 20, "top_p": 0.9, "max_tokens": 9}
    assert described["model_args"] == {"attn_implementation": "eager"}
    assert described["dtype"] == "float32"
    assert described["style"] == "hermes"
    assert len(described["chat_template_sha256"]) == 64
    json.dumps(described)


RESPONSES = {
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {
        "content": {"close": END},
        "tool_calls": {
            "open": "<tool_call>",
            "close": "</tool_call>",
            "content": "json",
            "repeats": True,
            "transform": {"type": "function", "function": "{content}"},
        },
    },
}
"""How the library's own parser is told to read a tokenizer's messages."""


async def test_messages_can_be_read_by_the_tokenizer(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EngineSetupError, match="reader=style"):
        _engine(folder, reader="tokenizer")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.response_template = RESPONSES
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    options = TransformersOptions(folder, style="hermes", reader="tokenizer", device="cpu")
    engine = TransformersEngine(options, model, tokenizer)

    async def read(text: str) -> Completion:
        sampled = Sampled(tokenizer.encode(text, add_special_tokens=False))
        monkeypatch.setattr(engine._batches, "generate", lambda rows: [sampled])
        return await engine.complete(_request("?"))

    good = await read('<tool_call>{"name": "lister_matchs", "arguments": {"ville": "Nîmes"}}</tool_call>' + END)
    broken = await read('<tool_call>{"name": "lister_matchs", "arguments": {</tool_call>' + END)
    odd = [await read(f"<tool_call>{text}</tool_call>{END}") for text in ('{"ville": 1}', '{"name": 5}', "[]", '"x"')]
    await engine.aclose()
    assert [[call.name for call in one.calls] for one in odd] == [[""]] * 4, "answered with an error"
    assert [(call.name, call.arguments) for call in good.calls] == [("lister_matchs", {"ville": "Nîmes"})]
    assert [call.name for call in broken.calls] == ["lister_matchs"], "what it refuses is read by our reader"
    assert isinstance(broken.calls[0].arguments, str)


async def test_nobody_waits_for_ever(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = _engine(folder)
    faults: dict[str, int] = {}
    monkeypatch.setattr(engine._batches, "generate", lambda rows: faults["a fault of ours"])
    with pytest.raises(KeyError, match="a fault of ours"):
        await engine.complete(_request("?"))
    monkeypatch.undo()
    waiting = asyncio.ensure_future(engine.complete(_request("?")))
    await asyncio.sleep(0)
    await engine.aclose()
    with pytest.raises(EngineError, match="closed"):
        await waiting


def test_a_missing_model_is_told(tmp_path: Path) -> None:
    with pytest.raises(EngineSetupError, match="nowhere"):
        _engine(str(tmp_path / "nowhere"))
    with pytest.raises(ConfigurationError, match="max_batch"):
        _engine("x", max_batch=0)


def _drawn(logits: Any, seeds: list[int], **sampling: Any) -> Any:
    rows = logits.repeat(len(seeds), 1)
    draw = SeededDraw([[0]] * len(seeds), seeds, [5] * len(seeds), 0, Sampling(**sampling))
    return draw(torch.zeros(len(seeds), 1, dtype=torch.long), rows).argmax(-1)


def test_tokens_are_drawn_with_their_probabilities() -> None:
    logits = torch.tensor([[2.0, 1.0, 0.0, -1.0, -torch.inf]])
    drawn = _drawn(logits, list(range(6000)))
    shares = torch.bincount(drawn, minlength=5) / 6000
    expected = logits.softmax(-1)[0]
    # Four standard errors of a share of 6,000 draws.
    assert torch.all((shares - expected).abs() <= 4 * (expected * (1 - expected) / 6000).sqrt() + 1e-9)
    assert shares[4] == 0


@pytest.mark.parametrize(
    ("sampling", "allowed"),
    [({"top_k": 2}, {0, 1}), ({"top_p": 0.6}, {0}), ({"min_p": 0.3}, {0, 1}), ({"temperature": 0}, {0})],
)
def test_options_bound_what_is_drawn(sampling: dict[str, Any], allowed: set[int]) -> None:
    drawn = _drawn(torch.tensor([[2.0, 1.0, 0.0, -1.0]]), list(range(300)), **sampling)
    assert set(drawn.tolist()) == allowed


def test_the_repetition_penalty_is_that_of_the_library_without_the_padding() -> None:
    scores = torch.tensor([[1.0, -1.0, 0.5, 2.0]])
    prompt = [1, 3]
    padded = torch.tensor([[0, 1, 3]])
    draw = SeededDraw([prompt], [0], [5], 0, Sampling(temperature=0, repetition_penalty=2.0))
    expected = transformers.RepetitionPenaltyLogitsProcessor(2.0)(torch.tensor([prompt]), scores.clone())
    assert torch.equal(draw._penalised(padded, scores), expected)


@pytest.mark.parametrize(
    ("prompts", "length"),
    [([[1, 2, 3], [1, 2, 4], [1, 2]], 2), ([[1]], 1), ([[1, 2], [2, 2]], 0), ([[5, 6], [5, 6]], 2)],
)
def test_the_shared_beginning(prompts: list[list[int]], length: int) -> None:
    assert shared_length(prompts) == length
