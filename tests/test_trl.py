"""TRL: the environment class, the data set, and what is trained on when TRL plays real tokenised rollouts."""

import importlib.util
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ticket_gym.adapters.trl import TicketEnvironment, environment_factory, training_dataset
from ticket_gym.agents import SCRIPTS
from ticket_gym.codec import get_codec
from ticket_gym.errors import ConfigurationError
from ticket_gym.session import Session
from ticket_gym.types import LANGUAGES, Language
from ticket_gym.wrappers import RewardOptions

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT))

needs_trl = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("trl", "peft", "datasets")),
    reason="needs the extra `train`: pip install ticket-gym[train]",
)
# Warnings of TRL and transformers, most of them about each other's next versions, are theirs.
others_warnings = pytest.mark.filterwarnings("default")


def tools_of(environment: TicketEnvironment) -> list[Callable[..., str]]:
    """The tools as TRL 1.16 collects them: public functions of the class, by attribute name."""
    members = inspect.getmembers(type(environment), predicate=inspect.isfunction)
    names = [name for name, _ in members if name not in ("reset", "get_reward") and not name.startswith("_")]
    return [getattr(environment, name) for name in names]


def start(task: str = "train-0-0", **options: Any) -> TicketEnvironment:
    environment = environment_factory(**options)()
    assert environment.reset(task=task) is None
    return environment


def play(environment: TicketEnvironment, task: str, script: str = "oracle") -> int:
    """Play a script through the environment's tools, by their localised names; how many calls it took."""
    settings = environment._settings
    codec = settings.codec()
    calls = SCRIPTS[script](codec, settings.source().get(task).constraints, 0)
    count = 0
    try:
        call = next(calls)
        while True:
            count += 1
            assert isinstance(call.arguments, dict)
            call = calls.send(getattr(environment, call.name)(**call.arguments))
    except StopIteration:
        return count


def error_code(text: str, language: Language) -> str | None:
    key = get_codec(language).texts.keys
    code: str | None = json.loads(text).get(key["error"], {}).get(key["code"])
    return code


# The environment class


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_oracle_is_rewarded_and_doing_nothing_is_not(language: Language) -> None:
    environment = start(language=language)
    play(environment, "train-0-0")
    assert environment.get_reward() == 1.0
    environment.reset(task="train-0-0")
    assert environment.get_reward() == 0.0


def test_after_the_end_nothing_counts_any_more() -> None:
    environment = start(language="fr")
    play(environment, "train-0-0")
    reward = environment.get_reward()
    answer = environment.acheter_billet(id_match=1)
    assert error_code(answer, "fr") == "episode_over"
    assert environment.get_reward() == reward == 1.0


def test_the_step_limit_ends_an_episode() -> None:
    environment = start(max_steps=2)
    answers = [error_code(environment.get_user_info(), "en") for _ in range(3)]
    assert answers == [None, None, "episode_over"]


def test_whatever_is_passed_is_answered_as_in_an_evaluation() -> None:
    environment = start(language="pt")
    session = Session(language="pt", split="train")
    session.reset("train-0-0")
    for arguments in ({}, {"id_jogo": "x"}, {"self": 1}, {"ano": 2022}, {"id_jogo": {"a": [1]}}, {"id_jogo": "999999"}):
        assert environment.comprar_ingresso(**arguments) == session.call("comprar_ingresso", arguments).text


def test_reset_begins_anew_and_instances_do_not_share_state() -> None:
    kind = environment_factory("en")
    first, second = kind(), kind()
    for environment in (first, second):
        environment.reset(task="train-0-0")
    first.buy_game_ticket(game_id=1)
    untouched = second.get_user_info()
    assert first.get_user_info() != untouched
    first.reset(task="train-0-0")
    assert first.get_user_info() == untouched


def test_rows_that_do_not_fit_are_refused() -> None:
    environment = environment_factory("en")()
    with pytest.raises(ConfigurationError, match="no column 'task'"):
        environment.reset(prompt=[])
    with pytest.raises(ConfigurationError, match="another request"):
        environment.reset(task="train-0-0", prompt=[{"role": "user", "content": "Une place, s'il vous plaît."}])
    with pytest.raises(ConfigurationError, match="call reset"):
        environment.get_reward()
    with pytest.raises(ConfigurationError, match="for measuring"):
        environment_factory("en", split="test")
    with pytest.raises(AttributeError, match="no tool 'obter_dados_usuario'"):
        environment.obter_dados_usuario()


def test_reward_options_reach_the_reward() -> None:
    environment = start(reward=RewardOptions(call_cost=0.01, shaping=True))
    calls = play(environment, "train-0-0")
    assert environment.get_reward() == pytest.approx(1 - 0.01 * calls)


# What TRL makes of it


@needs_trl
@others_warnings
@pytest.mark.parametrize("tool_language", LANGUAGES)
def test_schemas_are_those_of_the_evaluation_to_the_byte(tool_language: Language) -> None:
    from transformers.utils import get_json_schema

    environment = environment_factory("pt", tool_language=tool_language)()
    schemas = [get_json_schema(tool) for tool in tools_of(environment)]
    assert json.dumps(schemas) == json.dumps(get_codec("pt", tool_language).schemas)


@needs_trl
@others_warnings
def test_data_set_names_tasks_and_holds_no_gold() -> None:
    rows = training_dataset("train", "de", ["t05", "t10"], n=30, seed=3)
    assert rows.column_names == ["prompt", "task", "template", "environment"]
    assert rows["template"][:4] == ["t05", "t10", "t05", "t10"]
    assert len(set(rows["task"])) == 30
    session = Session(language="de", split="train", seed=3)
    environment = environment_factory("de", seed=3)()
    for row in rows:
        session.reset(row["task"])
        assert row["prompt"] == session.messages
        environment.reset(**row)
    assert training_dataset("train", "de", ["t05", "t10"], n=10, seed=3, first=20).to_list() == rows.to_list()[20:]
    with pytest.raises(ConfigurationError, match="for measuring"):
        training_dataset("test", "de")


# Real tokenised rollouts

TEMPLATES = ["t01", "t05", "t13"]
FAREWELL = "C'est réglé : vos billets vous attendent — à bientôt à Saint-Étienne !"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """One GRPO step in French with a model whose sampling is scripted: it says what the oracle would say.

    Its words are sampled character by character, which no tokenizer would choose, so that ids that went through text
    and back would not be the same.
    """
    import torch
    from transformers import Qwen3ForCausalLM
    from trl import GRPOConfig, GRPOTrainer

    from baselines.tiny_model import make_tiny_model, make_tiny_tokenizer

    tokenizer = make_tiny_tokenizer(["fr"])
    session = Session(language="fr", split="train", templates=TEMPLATES)
    tasks = [session.source.at(index) for index in range(len(TEMPLATES))]
    constraints = {session.reset(task): task.constraints for task in tasks}
    sampled: dict[tuple[str, int], list[int]] = {}

    class Scripted(Qwen3ForCausalLM):
        def generate(self, input_ids: Any, attention_mask: Any, **others: Any) -> Any:
            replies = []
            for ids, mask in zip(input_ids, attention_mask, strict=True):
                request, results = read_conversation(tokenizer.decode(ids[mask.bool()]))
                reply = sample_by_character(tokenizer, next_message(constraints[request], results))
                sampled[request, len(results)] = reply
                replies.append(torch.tensor(reply))
            padded = torch.nn.utils.rnn.pad_sequence(replies, batch_first=True, padding_value=tokenizer.pad_token_id)
            return torch.cat([input_ids, padded], dim=1)

    trainer = GRPOTrainer(
        model=make_tiny_model(tokenizer, kind=Scripted),
        args=GRPOConfig(
            output_dir=str(tmp_path_factory.mktemp("grpo")),
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            num_generations=2,
            per_device_train_batch_size=2 * len(TEMPLATES),
            max_steps=1,
            max_completion_length=16_000,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            chat_template_kwargs={"enable_thinking": False},
        ),
        train_dataset=training_dataset("train", "fr", TEMPLATES, n=len(TEMPLATES)),
        processing_class=tokenizer,
        environment_factory=environment_factory("fr"),
    )
    batches: list[dict[str, Any]] = []
    compute_loss = trainer.compute_loss

    def remember(model: Any, inputs: dict[str, Any], **others: Any) -> Any:
        batches.append(inputs)
        return compute_loss(model, inputs, **others)

    trainer.compute_loss = remember
    trainer.train()
    yield {"trainer": trainer, "batch": batches[0], "sampled": sampled, "tokenizer": tokenizer}


def read_conversation(text: str) -> tuple[str, list[str]]:
    """The request and the results so far, from a rendered conversation."""
    [request, *_] = re.findall(r"<\|im_start\|>user\n(.*?)<\|im_end\|>", text, re.DOTALL)
    return request, re.findall(r"<tool_response>\n(.*?)\n</tool_response>", text, re.DOTALL)


def next_message(wanted: Any, results: list[str]) -> str:
    """What the oracle would say after these results."""
    play = SCRIPTS["oracle"](get_codec("fr"), wanted, 0)
    try:
        call = next(play)
        for result in results:
            call = play.send(result)
    except StopIteration:
        return FAREWELL
    written = json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False)
    return f"Voyons voir, sans délai…\n<tool_call>\n{written}\n</tool_call>"


def sample_by_character(tokenizer: Any, text: str) -> list[int]:
    pieces = re.split(r"(</?tool_call>)", text)
    units = [unit for piece in pieces for unit in ([piece] if piece.startswith(("<tool", "</tool")) else piece)]
    ids = [token for unit in units for token in tokenizer.encode(unit)]
    assert ids != tokenizer.encode(text)
    return [*ids, tokenizer.eos_token_id]


def rows_of(trained: dict[str, Any]) -> Iterator[tuple[str, list[int], list[int]]]:
    """Request, completion ids and mask of the model's own tokens, for each rollout that was trained on."""
    batch = trained["batch"]
    for number in range(len(batch["completion_ids"])):
        prompt = batch["prompt_ids"][number][batch["prompt_mask"][number].bool()]
        request, _ = read_conversation(trained["tokenizer"].decode(prompt))
        kept = batch["completion_mask"][number].bool()
        yield request, batch["completion_ids"][number][kept].tolist(), batch["tool_mask"][number][kept].tolist()


@needs_trl
@others_warnings
def test_prompts_are_those_of_the_evaluation_to_the_token(trained: dict[str, Any]) -> None:
    from ticket_gym.engines.base import Request
    from ticket_gym.engines.prompting import Prompter

    prompter = Prompter(trained["tokenizer"], "hermes", {"enable_thinking": False})
    session = Session(language="fr", split="train", templates=TEMPLATES)
    expected = []
    for index in range(len(TEMPLATES)):
        session.reset(session.source.at(index))
        expected.append(list(prompter.prompt_ids(Request(session.messages, session.tools))))
    batch = trained["batch"]
    shown = [ids[mask.bool()].tolist() for ids, mask in zip(batch["prompt_ids"], batch["prompt_mask"], strict=True)]
    assert sorted(shown) == sorted(expected * 2)


@needs_trl
@others_warnings
def test_what_was_sampled_is_what_is_trained_on(trained: dict[str, Any]) -> None:
    turns = []
    for request, ids, mask in rows_of(trained):
        assert len(ids) == len(mask)
        replies = [reply for (about, _), reply in sorted(trained["sampled"].items()) if about == request]
        own = [token for token, is_own in zip(ids, mask, strict=True) if is_own]
        assert own == [token for reply in replies for token in reply]
        turns.append(len(replies))
    assert len(turns) == 2 * len(TEMPLATES)
    assert min(turns) >= 3


@needs_trl
@others_warnings
def test_results_stand_between_unchanged_and_untrained(trained: dict[str, Any]) -> None:
    tokenizer = trained["tokenizer"]
    session = Session(language="fr", split="train", templates=TEMPLATES)
    tasks = [session.source.at(index) for index in range(len(TEMPLATES))]
    by_request = {session.reset(task): task for task in tasks}
    accents = ""
    for request, ids, mask in rows_of(trained):
        shown = tokenizer.decode([token for token, is_own in zip(ids, mask, strict=True) if not is_own])
        session.reset(by_request[request])
        expected = []
        play = SCRIPTS["oracle"](session.codec, session.playing.constraints, 0)
        try:
            call = next(play)
            while True:
                expected.append(session.call(call.name, call.arguments).text)
                call = play.send(expected[-1])
        except StopIteration:
            pass
        assert re.findall(r"<tool_response>\n(.*?)\n</tool_response>", shown, re.DOTALL) == expected
        accents += shown
    assert re.search("[éèçâ]", accents)


@needs_trl
@others_warnings
def test_the_rollouts_were_rewarded_by_the_environment(trained: dict[str, Any]) -> None:
    [log] = [log for log in trained["trainer"].state.log_history if "reward" in log]
    assert log["reward"] == 1.0
    assert log["tools/failure_frequency"] == 0.0


@needs_trl
@others_warnings
def test_loss_falls_on_the_models_own_tokens_only(trained: dict[str, Any]) -> None:
    """The gradient of TRL's loss points where that of the log-probabilities of the masked tokens points."""
    import torch

    trainer = trained["trainer"]
    # One rollout is enough, and quick.
    batch = {
        name: value[:1] if isinstance(value, torch.Tensor) and value.dim() else value
        for name, value in trained["batch"].items()
    }
    model = trainer.accelerator.unwrap_model(trainer.model)
    inputs = {**batch, "advantages": torch.ones_like(batch["advantages"])}

    def gradient(loss: Any) -> Any:
        model.zero_grad()
        loss.backward()
        return torch.cat([weights.grad.flatten() for weights in model.parameters()])

    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    seen = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)

    def expected(mask: Any) -> Any:
        logits = model(input_ids=ids, attention_mask=seen).logits[:, batch["prompt_ids"].size(1) - 1 : -1]
        chosen = logits.log_softmax(-1).gather(2, batch["completion_ids"].unsqueeze(2)).squeeze(2)
        return gradient(-(chosen * mask).sum())

    trained_on = gradient(trainer.compute_loss(model, inputs))
    own = expected(batch["completion_mask"] * batch["tool_mask"])
    everything = expected(batch["completion_mask"])
    assert torch.cosine_similarity(trained_on, own, dim=0) > 0.9999
    assert torch.cosine_similarity(trained_on, everything, dim=0) < 0.99
