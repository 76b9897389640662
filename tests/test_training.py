"""The small model: what is sampled is what is trained, only the model's own tokens, and both stages do learn."""

import dataclasses
import json
import random
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="training needs the extra: pip install 'ticket-gym[train]'")
transformers = pytest.importorskip("transformers", reason="training needs the extra: pip install 'ticket-gym[train]'")

from baselines.small_model.conversation import (  # noqa: E402
    Transcript,
    encode,
    expert_messages,
    prefix_ids,
    results_text,
)
from baselines.small_model.evaluation import Journal  # noqa: E402
from baselines.small_model.grpo import Groups, advantages, reinforce  # noqa: E402
from baselines.small_model.imitation import Imitator  # noqa: E402
from baselines.small_model.learning import make_optimiser, own_log_probs  # noqa: E402
from baselines.small_model.network import Network, Shape, load_network, save_network  # noqa: E402
from baselines.small_model.plan import read_plan  # noqa: E402
from baselines.small_model.play import Limits, Player  # noqa: E402
from baselines.small_model.tokenizer import build_tokenizer  # noqa: E402
from baselines.small_model.training import Training  # noqa: E402
from ticket_gym.errors import ConfigurationError  # noqa: E402
from ticket_gym.request import Task  # noqa: E402
from ticket_gym.session import Session, Settings  # noqa: E402
from ticket_gym.types import Language  # noqa: E402

PLAN = Path(__file__).parents[1] / "baselines" / "configs" / "small_cpu.toml"
TINY = Shape(layers=2, width=32, heads=2, head_size=16, inner=32)
FRENCH = Settings(language="fr", split="train", templates=("t01", "t05"), max_steps=8)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    torch.set_num_threads(1)
    return build_tokenizer(["fr", "en"])


@pytest.fixture(scope="module")
def memorised(tokenizer: Any) -> tuple[Network, Task]:
    """A network that knows one French episode of several calls by heart, and its task."""
    torch.manual_seed(0)
    session = Session(FRENCH)
    task = session.source.at(0)
    network = Network(len(tokenizer), TINY)
    optimiser = make_optimiser(network, 1e-2)
    imitator = Imitator(network, optimiser, tokenizer, session, random.Random(0), 1)
    prefix = prefix_ids(tokenizer, session)
    for _ in range(200):
        imitator.done = 0
        if imitator.imitate(prefix, 0.0) < 0.01:
            break
    return network, task


def test_what_has_to_be_copied_is_one_token(tokenizer: Any) -> None:
    for language in ("fr", "en"):
        codec = Session(language=language).codec
        names = {name for team in codec.clubs.teams for name in (team.name, team.city, team.stadium)}
        for text in (*map(str, range(1, 381)), *names, *codec.tool_names.values()):
            assert len(encode(tokenizer, text)) == 1, text


@pytest.mark.parametrize("language", ["fr", "pt"])
def test_encoding_loses_nothing_and_agrees_with_the_chat_template(tokenizer: Any, language: Language) -> None:
    """Also in a language that the vocabulary was not made from."""
    session = Session(Settings(language=language, split="train"))
    for index in range(17):
        pieces = expert_messages(session, session.source.at(index))
        ids = [token for text, _ in pieces for token in encode(tokenizer, text)]
        assert tokenizer.decode(ids) == "".join(text for text, _ in pieces)
    messages = list(session.messages)
    call = {"name": session.tools[0]["function"]["name"], "arguments": {}}
    messages += [
        {"role": "assistant", "content": None, "tool_calls": [{"type": "function", "function": call}]},
        {"role": "tool", "content": '{"été": 1}'},
    ]
    templated = tokenizer.apply_chat_template(messages, tools=session.tools, tokenize=False, add_generation_prompt=True)
    assert templated.startswith(tokenizer.decode(prefix_ids(tokenizer, session)))
    assert templated.endswith(results_text(['{"été": 1}']))


def test_transformers_loads_the_model_and_computes_the_same(tokenizer: Any, tmp_path: Path) -> None:
    torch.manual_seed(1)
    network = Network(len(tokenizer), TINY)
    save_network(network, tokenizer, tmp_path)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    prefix, rest = torch.randint(0, len(tokenizer), (1, 20)), torch.randint(0, len(tokenizer), (3, 11))
    hidden, _ = load_network(tmp_path).read(rest, network.read(prefix)[1])
    expected = theirs(torch.cat([prefix.expand(3, -1), rest], dim=1)).logits[:, 20:]
    torch.testing.assert_close(network.logits(hidden), expected, rtol=1e-4, atol=1e-4)


def test_loss_falls_on_the_models_own_tokens_only(tokenizer: Any) -> None:
    """Exactly the expert's messages, in each of several episodes of different lengths, padding left out."""
    session = Session(FRENCH)
    tasks = [session.source.at(index) for index in range(4)]
    written = []
    transcripts = []
    for task in tasks:
        transcript = Transcript(task)
        for text, mine in expert_messages(session, task):
            transcript.append(encode(tokenizer, text), own=mine)
        written.append("".join(text for text, mine in expert_messages(session, task) if mine))
        transcripts.append(transcript)
    network = Network(len(tokenizer), TINY)
    log_probs, mask = own_log_probs(network, prefix_ids(tokenizer, session), transcripts)
    for transcript, text, row in zip(transcripts, written, mask, strict=True):
        assert len(transcript.ids) == len(transcript.own)
        own = [token for token, mine in zip(transcript.ids, transcript.own, strict=True) if mine]
        assert tokenizer.decode(own) == text
        assert row.sum() == len(own)
    hidden_ids = torch.tensor(transcripts[0].ids)
    hidden, _ = network.read(torch.tensor([[*prefix_ids(tokenizer, session), *transcripts[0].ids]]))
    places = torch.tensor(transcripts[0].own).nonzero().squeeze(1)
    plain = network.logits(hidden[0, len(prefix_ids(tokenizer, session)) + places - 1]).log_softmax(-1)
    expected = plain.gather(1, hidden_ids[places].unsqueeze(1)).squeeze(1)
    torch.testing.assert_close(log_probs[0, : len(places)], expected, rtol=1e-4, atol=1e-4)


def test_what_was_sampled_is_what_is_trained(tokenizer: Any, memorised: tuple[Network, Task]) -> None:
    """Over several calls, in a language with accents, in one batch with episodes that go differently."""
    network, task = memorised
    others = [Session(FRENCH).source.at(index) for index in range(1, 6)]
    player = Player(network, tokenizer, FRENCH, Limits(message=40, episode=700))
    played = player.play([task, *others, task], 1.0, 3)
    own = [token for token, mine in zip(played[0].ids, played[0].own, strict=True) if mine]
    assert own.count(tokenizer.eos_token_id) >= 3, "the episode that was learnt has several messages"
    log_probs, mask = own_log_probs(network, prefix_ids(tokenizer, Session(FRENCH)), played)
    for transcript, row, places in zip(played, log_probs, mask, strict=True):
        assert len(transcript.ids) == len(transcript.own) == len(transcript.log_probs)
        torch.testing.assert_close(row[places > 0], torch.tensor(transcript.own_log_probs), rtol=1e-3, atol=1e-3)


def test_an_episode_learnt_by_heart_is_played_and_rewarded(tokenizer: Any, memorised: tuple[Network, Task]) -> None:
    network, task = memorised
    transcript = Player(network, tokenizer, FRENCH).play([task], 0.0, 0)[0]
    assert transcript.reward == 1.0
    expected = "".join(text for text, _ in expert_messages(Session(FRENCH), task))
    assert tokenizer.decode(transcript.ids) == expected


def test_two_steps_of_grpo_make_what_was_rewarded_likelier(tokenizer: Any, memorised: tuple[Network, Task]) -> None:
    network = Network(len(tokenizer), TINY)
    network.load_state_dict(memorised[0].state_dict())
    prefix = prefix_ids(tokenizer, Session(FRENCH))
    groups = Groups(tasks=1, size=4, minibatch=4)
    optimiser = make_optimiser(network, 1e-3)
    played = Player(network, tokenizer, FRENCH, Limits(message=40)).play([memorised[1]] * 4, 2.0, 5)
    for transcript, reward in zip(played, (1.0, 0.0, 0.0, 1.0), strict=True):
        transcript.reward = reward

    def likelihood() -> list[float]:
        log_probs, mask = own_log_probs(network, prefix, played)
        means: list[float] = ((log_probs * mask).sum(1) / mask.sum(1)).tolist()
        return means

    before = likelihood()
    for _ in range(2):
        assert reinforce(network, optimiser, prefix, played, groups, random.Random(0)) == 1
    after = likelihood()
    change = [new - old for new, old in zip(after, before, strict=True)]
    assert change[0] + change[3] > change[1] + change[2]


def test_a_group_that_went_alike_teaches_nothing(tokenizer: Any, memorised: tuple[Network, Task]) -> None:
    network, task = memorised
    before = {name: value.clone() for name, value in network.state_dict().items()}
    played = Player(network, tokenizer, FRENCH).play([task] * 4, 0.0, 0)
    groups = Groups(tasks=1, size=4)
    optimiser = make_optimiser(network, 1e-2)
    assert reinforce(network, optimiser, prefix_ids(tokenizer, Session(FRENCH)), played, groups, random.Random(0)) == 0
    assert all(torch.equal(before[name], value) for name, value in network.state_dict().items())
    assert advantages(torch.tensor([[1.0, 0.0, 0.0, 0.0]])).tolist()[0][0] == pytest.approx(3**0.5)


def test_a_training_that_was_broken_off_goes_on(tokenizer: Any, tmp_path: Path) -> None:
    """All stages, two GRPO steps; a run in two parts writes the same lines as one in one part."""
    plan = read_plan(PLAN)
    plan = dataclasses.replace(
        plan,
        shape=TINY,
        templates=("t01", "t05"),
        limits=Limits(message=8, episode=300),
        drills=dataclasses.replace(plan.drills, updates=1, batch=2),
        imitation=dataclasses.replace(plan.imitation, updates=1, batch=2),
        groups=Groups(tasks=2, size=2),
        evaluation=dataclasses.replace(plan.evaluation, tasks=4, every=1),
        reinforcement=dataclasses.replace(plan.reinforcement, templates=("t01", "t05"), iterations=2),
    )
    short = dataclasses.replace(plan, reinforcement=dataclasses.replace(plan.reinforcement, iterations=1))
    for name, plans in (("whole", [plan]), ("parts", [short, plan])):
        for part in plans:
            Training(part, 0, tokenizer, tmp_path / name, Journal(tmp_path / f"{name}.jsonl")).run()
    whole, parts = (_sampled_scores(tmp_path / f"{name}.jsonl") for name in ("whole", "parts"))
    assert list(whole) == [("start", 0), ("sft", 1), ("grpo", 1), ("grpo", 2)]
    assert whole == parts
    weights = [load_network(tmp_path / name / "grpo-0002").state_dict() for name in ("whole", "parts")]
    assert all(torch.equal(value, weights[1][key]) for key, value in weights[0].items())
    other = dataclasses.replace(plan, imitation=dataclasses.replace(plan.imitation, rate=1.0))
    with pytest.raises(ConfigurationError, match="another plan"):
        Training(other, 0, tokenizer, tmp_path / "whole", Journal(tmp_path / "whole.jsonl"))


def _sampled_scores(path: Path) -> dict[tuple[str, int], list[Any]]:
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    fields = ("tasks", "pass_hat_1", "low", "high", "solvable_only", "by_template")
    return {
        (line["stage"], line["step"]): [line[field] for field in fields]
        for line in lines
        if line["decoding"] == "sampled"
    }


def test_one_step_of_sft_on_any_model_trains_the_experts_messages(tmp_path: Path) -> None:
    pytest.importorskip("trl", reason="the tiny model's chat template comes with TRL: pip install 'ticket-gym[train]'")
    from baselines import tiny_model, train_sft

    tokens = tiny_model.make_tiny_tokenizer(["pt"])
    session = Session(Settings(language="pt", split="train", templates=("t05",)))
    messages = train_sft.expert_conversation(session, 0)
    examples = list(train_sft.make_examples(tokens, session, messages))
    own = [message for message in messages if message["role"] == "assistant"]
    assert len(examples) == len(own)
    for example, message in zip(examples, own, strict=True):
        assert len(example.ids) == len(example.labels)
        text = tokens.decode([label for label in example.labels if label != train_sft.IGNORED])
        calls: Any = message.get("tool_calls")
        said = calls[0]["function"]["name"] if calls else message["content"]
        assert str(said) in text and text.endswith(tokens.eos_token) and text.count(tokens.eos_token) == 1
    model = tiny_model.make_tiny_model(tokens)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.5)
    first = train_sft.update(model, optimiser, examples[:2])
    assert train_sft.update(model, optimiser, examples[:2]) < first


def test_sft_of_the_shipped_model_leaves_a_model_that_can_be_loaded_and_asked(tmp_path: Path) -> None:
    from baselines import train_sft
    from ticket_gym.engines.local_options import TransformersOptions
    from ticket_gym.engines.transformers_engine import TransformersEngine

    start = Path(__file__).parents[1] / "assets" / "models" / "small-en"
    command = ["--model", str(start), "--templates", "t08", "--updates", "1", "--batch", "2", "--rate", "1e-4"]
    train_sft.main([*command, "--out", str(tmp_path)])
    [line] = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    assert line["loss"] < 1, "it knows this template"
    kinds = [transformers.AutoModelForCausalLM.from_pretrained(path).state_dict() for path in (start, tmp_path)]
    assert any(not torch.equal(value.float(), kinds[1][name].float()) for name, value in kinds[0].items())
    engine = TransformersEngine(TransformersOptions(str(tmp_path), style="hermes"))
    assert engine.describe()["context"] == 2048


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--longest", "100", "the shortest of the last episode has"),
        ("--batch", "0", "from 1"),
        ("--warm-up", "0", "from 1"),
    ],
)
def test_sft_options_that_leave_nothing_to_learn_are_refused(
    option: str, value: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("trl", reason="the tiny model's chat template comes with TRL: pip install 'ticket-gym[train]'")
    from baselines import train_sft

    with pytest.raises(SystemExit):
        train_sft.main(["--model", "tiny", "--out", str(tmp_path), option, value])
    assert message in capsys.readouterr().err
