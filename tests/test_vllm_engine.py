"""The vLLM engine with the small model of this project: real vLLM, real weights. Runs only where vLLM is installed."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

pytest.importorskip("vllm", reason="needs vLLM: pip install 'ticket-gym[vllm]'")

from transformers import AutoTokenizer

from ticket_gym.agents import ModelAgent
from ticket_gym.engines import Engine, Request, make_engine
from ticket_gym.errors import ContextOverflowError
from ticket_gym.records import Trajectory
from ticket_gym.rollout import play_episode
from ticket_gym.session import Session, Settings
from ticket_gym.types import StopReason

MODEL = Path(__file__).parents[1] / "assets" / "models" / "small-en"

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module", autouse=True)
def cpu_settings() -> Any:
    """What vLLM for CPUs is told by its environment; nothing of it concerns a GPU."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
        yield


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model's chat template, with a line more at its beginning."""
    path = tmp_path_factory.mktemp("template") / "template.jinja"
    path.write_text("{{- '\\n' }}" + (MODEL / "chat_template.jinja").read_text("utf-8"), encoding="utf-8")
    return path


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(template: Path) -> AsyncIterator[Engine]:
    """One engine for all tests, because it takes long to start; nothing comes from the model's generation config."""
    engine = make_engine(
        "vllm",
        model=str(MODEL),
        style="hermes",
        chat_template=str(template),
        dtype="float32",
        enforce_eager=True,
        max_num_seqs=8,
        engine_args={"generation_config": "vllm"},
        temperature=1,
    )
    yield engine
    await engine.aclose()


def _request(more: str = "") -> Request:
    session = Session(language="en")
    session.reset("t01-01")
    system, user = session.messages
    return Request([system, {**user, "content": f"{user['content']}{more}"}], session.tools)


async def test_a_given_template_is_the_one_that_is_rendered(engine: Engine, template: Path) -> None:
    request = _request()
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    for given, is_rendered in ((template.read_text("utf-8"), True), (None, False)):
        text = tokenizer.apply_chat_template(
            list(request.messages),
            tools=list(request.tools),
            chat_template=given,
            tokenize=False,
            add_generation_prompt=True,
        )
        size = len(tokenizer.encode(text, add_special_tokens=False))
        assert ((await engine.complete(request)).usage.prompt_tokens == size) is is_rendered


async def _play(engine: Engine, first_seed: int) -> list[Trajectory]:
    """Sixteen episodes side by side."""
    settings = Settings(language="en", split="validation", templates=("t01", "t08"))
    tasks = [Session(settings).source.at(index) for index in range(16)]
    agent = ModelAgent(engine)
    return await asyncio.gather(
        *(play_episode(Session(settings), agent, task, seed=first_seed + number) for number, task in enumerate(tasks))
    )


async def test_seeds_decide_what_is_written(engine: Engine) -> None:
    first, again, other = [
        [[message.get("content") for message in episode.messages] for episode in await _play(engine, seed)]
        for seed in (0, 0, 1000)
    ]
    assert first == again != other


async def test_a_conversation_that_is_too_long_is_a_context_overflow(engine: Engine) -> None:
    with pytest.raises(ContextOverflowError, match="2048"):
        await engine.complete(_request(" please" * 3000))


async def test_episodes_are_played_side_by_side_and_use_the_prefix_cache(engine: Engine) -> None:
    played = await _play(engine, 0)
    assert all(episode.stop_reason is StopReason.RESPONDED for episode in played)
    assert sum(episode.success for episode in played) >= 8
    assert all(episode.usage.model_calls >= 3 for episode in played if episode.success)
    assert sum(episode.usage.cached_tokens for episode in played) > 0
