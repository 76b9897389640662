"""The OpenAI-compatible client, over real sockets: the whole path, retries, errors, several servers."""

import asyncio
import datetime
import email.utils
import json
import logging
import random
import re
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from ticket_gym.agents import ModelAgent
from ticket_gym.engines import ENGINES, Completion, Request, make_engine
from ticket_gym.engines.chat_api import ChatApiEngine
from ticket_gym.engines.options import ChatApiOptions
from ticket_gym.engines.overflow import WORDINGS, is_context_overflow
from ticket_gym.engines.payload import read_usage
from ticket_gym.engines.retries import Retries, Servers, retry_after_s
from ticket_gym.errors import ConfigurationError, ContextOverflowError, EngineError, EngineSetupError
from ticket_gym.journal import MemoryJournal
from ticket_gym.plan import make_config
from ticket_gym.runner import run

Handler = Callable[[str, dict[str, Any]], Any]
Serve = Callable[[Handler], AbstractAsyncContextManager[str]]
Reply = Callable[..., Any]


async def test_a_perfect_model_scores_1_over_all_1020_queries(serve: Serve, oracle: Handler) -> None:
    async with serve(oracle) as url:
        agent = ModelAgent(make_engine("openai", model="oracle", base_urls=(url,), concurrency=64))
        config = make_config(agent, trials=1)
        journal = MemoryJournal()
        progress = await run(config, agent, journal, concurrency=64)
        await agent.engine.aclose()
    assert (progress.total, progress.done, progress.successes) == (1020, 1020, 1020)


async def ask(url: str | tuple[str, ...], conversation: str = "c", **options: Any) -> Completion:
    """One small request."""
    urls = (url,) if isinstance(url, str) else url
    engine = make_engine("openai", **{"model": "m", "base_urls": urls, "backoff_s": 0.001, **options})
    try:
        return await engine.complete(Request([{"role": "user", "content": "é"}], (), 3, conversation))
    finally:
        await engine.aclose()


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504, 529])
async def test_a_passing_failure_is_tried_again(serve: Serve, reply: Reply, status: int) -> None:
    responses = iter([(status, {}, {"error": {"message": "busy"}}), (status, {}, b"<html>"), reply("ok")])
    async with serve(lambda path, body: next(responses)) as url:
        assert (await ask(url)).message["content"] == "ok"


async def test_tries_end_and_the_error_says_what_the_server_said(serve: Serve, reply: Reply) -> None:
    asked: list[str] = []

    def busy(path: str, body: dict[str, Any]) -> Any:
        asked.append(path)
        return 503, {}, {"error": {"message": "the model is loading"}}

    async with serve(busy) as url:
        with pytest.raises(EngineSetupError, match=r"the model is loading.*after 3 tries.*is the server running"):
            await ask(url, retries=2)
    assert asked == ["/v1/chat/completions"] * 3


@pytest.mark.parametrize(
    ("headers", "least_s"), [({"retry-after": "0.3"}, 0.3), ({"retry-after-ms": "200", "retry-after": "9"}, 0.2)]
)
async def test_the_wait_that_the_server_asks_for_is_kept(
    serve: Serve, reply: Reply, headers: dict[str, str], least_s: float
) -> None:
    responses = iter([(429, headers, {}), reply("ok")])
    asked: list[float] = []

    def answer(path: str, body: dict[str, Any]) -> Any:
        asked.append(time.monotonic())
        return next(responses)

    async with serve(answer) as url:
        await ask(url)
    assert least_s <= asked[1] - asked[0] < 8


def test_retry_after_is_read_in_all_its_forms() -> None:
    soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=30)
    dated = retry_after_s({"retry-after": email.utils.format_datetime(soon, usegmt=True)})
    assert dated is not None and 25 < dated <= 30
    assert retry_after_s({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}) == 0
    assert retry_after_s({"retry-after": "2"}) == 2
    assert retry_after_s({"retry-after-ms": "1500"}) == 1.5
    assert [retry_after_s({"retry-after": odd}) for odd in ("soon", "-1", "nan", "inf", "")] == [None] * 5


def test_the_backoff_doubles_up_to_a_minute_and_varies() -> None:
    retries, rng = Retries(backoff_s=1.0), random.Random(0)
    waits = {retries.wait_s(1, {"retry-after": "0"}, rng) for _ in range(50)}
    assert min(waits) >= 0.5, "a server that says 0 would use all tries up at once"
    for tries, longest in ((1, 1), (2, 2), (3, 4), (6, 32), (7, 60), (500, 60)):
        waits = {retries.wait_s(tries, {}, rng) for _ in range(50)}
        assert longest / 2 <= min(waits) < max(waits) <= longest


@pytest.mark.parametrize(
    ("status", "error", "wanted", "said"),
    [
        (401, {"message": "no such key"}, EngineSetupError, r"refuses the key.*no such key.*OPENAI_API_KEY"),
        (403, {"message": "not your model"}, EngineSetupError, r"refuses the key"),
        (402, {"message": "pay"}, EngineSetupError, r"no credit"),
        (429, {"message": "quota", "code": "insufficient_quota"}, EngineSetupError, r"no credit"),
        (404, {"message": "model not found"}, EngineSetupError, r"'m'.*/v1.*model not found"),
        (400, {"message": "Unsupported parameter: seed"}, EngineSetupError, r"seed.*left out"),
        (422, {"message": [{"loc": ["seed"]}]}, EngineSetupError, r"loc.*seed"),
        (400, {"message": "x", "code": "context_length_exceeded"}, ContextOverflowError, r"x"),
        (500, {"message": "the request exceeds the available context size"}, ContextOverflowError, r"context size"),
    ],
)
async def test_a_failure_that_would_stay_is_not_tried_again(
    serve: Serve, status: int, error: dict[str, Any], wanted: type[Exception], said: str
) -> None:
    asked: list[str] = []

    def fail(path: str, body: dict[str, Any]) -> Any:
        asked.append(path)
        return status, {}, {"error": error}

    async with serve(fail) as url:
        with pytest.raises(wanted, match=said):
            await ask(url)
    assert len(asked) == 1


async def test_a_refused_request_is_one_conversations_matter_once_others_were_answered(
    serve: Serve, reply: Reply
) -> None:
    responses = iter([reply("ok"), (400, {}, {"error": {"message": "bad template"}})])
    async with serve(lambda path, body: next(responses)) as url:
        engine = ChatApiEngine(ChatApiOptions("m", (url,)))
        request = Request([{"role": "user", "content": "x"}])
        await engine.complete(request)
        with pytest.raises(EngineError, match="bad template"):
            await engine.complete(request)
        await engine.aclose()


@pytest.mark.parametrize(
    "body", [b"not json", b"[]", {"choices": []}, {"choices": None}, {"error": {"message": "x", "code": 503}}, {}]
)
async def test_an_answer_without_a_message_is_tried_again(serve: Serve, reply: Reply, body: Any) -> None:
    responses = iter([(200, {}, body), reply("ok")])
    async with serve(lambda path, _: next(responses)) as url:
        assert (await ask(url)).message["content"] == "ok"


async def test_a_page_in_place_of_an_error_is_told_in_short(serve: Serve) -> None:
    page = b"<html><h1>Bad\n Gateway</h1>" + b"x" * 9000
    async with serve(lambda path, body: (500, {"content-type": "text/html"}, page)) as url:
        with pytest.raises(EngineSetupError, match="<h1>Bad Gateway</h1>") as told:
            await ask(url, retries=0)
    assert len(str(told.value)) < 1000


def test_an_engine_serves_one_event_loop_after_another() -> None:
    engine = ChatApiEngine(ChatApiOptions("m", ("http://127.0.0.1:9/v1",), concurrency=1, retries=0))

    async def ask_twice() -> list[Any]:
        request = Request([{"role": "user", "content": "x"}])
        return await asyncio.gather(*(engine.complete(request) for _ in range(3)), return_exceptions=True)

    for _ in range(2):
        assert {type(failure) for failure in asyncio.run(ask_twice())} == {EngineSetupError}


async def test_a_server_that_hangs_is_given_up_and_tried_again(serve: Serve, reply: Reply) -> None:
    asked = 0

    async def hang_once(path: str, body: dict[str, Any]) -> Any:
        nonlocal asked
        asked += 1
        if asked == 1:
            await asyncio.sleep(60)
        return reply("ok")

    async with serve(hang_once) as url:
        assert (await ask(url, timeout_s=1.0)).message["content"] == "ok"


async def test_no_server_at_all_stops_the_run(serve: Serve) -> None:
    async with serve(lambda path, body: (200, {}, {})) as url:
        pass
    with pytest.raises(EngineSetupError, match="is the server running"):
        await ask(url, retries=1)


async def test_no_more_requests_than_allowed_are_under_way(serve: Serve, reply: Reply) -> None:
    under_way = most = 0

    async def count(path: str, body: dict[str, Any]) -> Any:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.02)
        under_way -= 1
        return reply("ok")

    async with serve(count) as url:
        engine = ChatApiEngine(ChatApiOptions("m", (url,), concurrency=3))
        await asyncio.gather(*(engine.complete(Request([{"role": "user", "content": "x"}])) for _ in range(12)))
        await engine.aclose()
    assert most == 3


def test_conversations_share_the_servers_and_stay_where_they_are_when_one_more_comes() -> None:
    urls = ("http://a/v1", "http://b/v1", "http://c/v1")
    names = [f"fr/t{i:02}/{j}" for i in range(30) for j in range(30)]
    three = {name: Servers(urls).choose(name) for name in names}
    assert all(250 < count < 350 for count in Counter(three.values()).values())
    four = {name: Servers((*urls, "http://d/v1")).choose(name) for name in names}
    assert {four[name] for name in names if four[name] != three[name]} == {"http://d/v1"}


async def test_a_conversation_stays_on_one_server_and_moves_only_with_a_warning(
    serve: Serve, reply: Reply, caplog: pytest.LogCaptureFixture
) -> None:
    seen: dict[str, set[str]] = {}

    def server(name: str) -> Handler:
        def answer(path: str, body: dict[str, Any]) -> Any:
            seen.setdefault(body["messages"][0]["content"], set()).add(name)
            return reply(name)

        return answer

    async with serve(server("b")) as second:
        async with serve(server("a")) as first:
            engine = ChatApiEngine(ChatApiOptions("m", (first, second), retries=1, backoff_s=0.001))
            for name in [f"c{number}" for number in range(12)] * 2:
                await engine.complete(Request([{"role": "user", "content": name}], conversation=name))
            moved = next(name for name, servers in seen.items() if servers == {"a"})
        assert {frozenset(servers) for servers in seen.values()} == {frozenset("a"), frozenset("b")}
        with caplog.at_level(logging.WARNING):
            answer = await engine.complete(Request([{"role": "user", "content": moved}], conversation=moved))
        await engine.aclose()
    assert answer.message["content"] == "b"
    assert f"conversation {moved} moves to another server" in caplog.text


@pytest.mark.parametrize("status", [None, 502, 503, 504])
async def test_a_server_that_stays_away_is_knocked_at_once_a_minute(
    serve: Serve, reply: Reply, monkeypatch: pytest.MonkeyPatch, status: int | None
) -> None:
    monkeypatch.setattr("ticket_gym.engines.retries._DOWN_S", 0.0)
    asked: list[str] = []
    is_back = False

    def away(path: str, body: dict[str, Any]) -> Any:
        asked.append(path)
        if is_back:
            return reply("a")
        if status is None:
            raise ConnectionResetError
        return status, {}, b"<html>no upstream</html>"

    async with serve(away) as first, serve(lambda path, body: reply("b")) as second:
        engine = ChatApiEngine(ChatApiOptions("m", (first, second), retries=2, backoff_s=0.001))
        name = next(name for name in map(str, range(99)) if Servers((first, second)).choose(name) == first)
        request = Request([{"role": "user", "content": "x"}], conversation=name)
        counts = []
        for minute in range(4):
            is_back = minute == 3
            asked.clear()
            counts.append(((await engine.complete(request)).message["content"], len(asked)))
        assert not engine._servers.is_doubted(first)
        await engine.aclose()
    assert counts == [("b", 3), ("b", 1), ("b", 1), ("a", 1)]


def test_usage_is_counted_with_reasoning_and_cached_tokens() -> None:
    usage = read_usage(
        {
            "prompt_tokens": 100,
            "completion_tokens": 30,
            "completion_tokens_details": {"reasoning_tokens": 20},
            "prompt_tokens_details": {"cached_tokens": 64},
        }
    )
    assert (usage.prompt_tokens, usage.completion_tokens) == (100, 30)
    assert (usage.reasoning_tokens, usage.cached_tokens, usage.model_calls) == (20, 64, 1)
    assert read_usage({"prompt_tokens": 5, "prompt_cache_hit_tokens": 3}).cached_tokens == 3
    assert read_usage({"prompt_tokens": None, "prompt_tokens_details": None}).prompt_tokens == 0
    assert read_usage(None).model_calls == 1


OVERFLOWS: list[dict[str, str]] = [
    json.loads(line)
    for line in (Path(__file__).parent / "data" / "context_overflows.jsonl").read_text("utf-8").splitlines()
]


@pytest.mark.parametrize("row", OVERFLOWS, ids=[row["server"] for row in OVERFLOWS])
def test_every_wording_of_a_full_context_is_known(row: dict[str, str]) -> None:
    assert is_context_overflow(row["message"]) is (row["overflow"] == "yes")


def test_a_code_says_it_too_but_not_one_that_any_long_text_gets() -> None:
    assert is_context_overflow("Request body too large", "tokens_limit_reached", None)
    assert not is_context_overflow("tools[0].function.description: too long", "string_above_max_length", None)
    assert not is_context_overflow("Please slow down", "rate_limit_exceeded", "tokens")


def test_every_pattern_is_needed_by_a_wording() -> None:
    messages = [row["message"].lower() for row in OVERFLOWS if row["overflow"] == "yes"]
    for server, pattern in WORDINGS:
        assert any(re.search(pattern, message) for message in messages), (server, pattern)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"model": ""}, "model"),
        ({"base_urls": ("localhost:8000",)}, r"base_urls=.*http://localhost:8000/v1"),
        ({"base_urls": ()}, "base_urls"),
        ({"concurrency": 0}, "concurrency=0"),
        ({"timeout_s": 0}, "timeout_s=0"),
        ({"retries": -1}, "retries=-1"),
        ({"style": "json"}, r"style='json'.*hermes"),
        ({"tool_mode": "xml"}, r"tool_mode='xml'.*native"),
        ({"temperature": -1}, r"temperature=-1"),
        ({"temperature": float("inf")}, r"temperature=inf"),
        ({"temperature": "hot"}, r"temperature='hot': must be a valid number"),
        ({"top_k": 1.5}, r"top_k=1.5"),
        ({"concurrency": "many"}, r"concurrency='many': must be a valid integer"),
        ({"send_seed": "no"}, r"send_seed='no': must be a valid boolean"),
        ({"extra_body": 5}, r"extra_body=5"),
        ({"sampling": {"temperature": 1}}, r"sampling="),
        ({"top_p": 0}, "top_p=0"),
        ({"temprature": 1}, r"no option temprature.*temperature"),
        ({"api_key_env": "NO_SUCH_KEY_HERE"}, "NO_SUCH_KEY_HERE is not set"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        make_engine("openai", **{"model": "m", "base_urls": ("http://localhost:1/v1",), **options})


def test_an_unknown_engine_is_named() -> None:
    with pytest.raises(ConfigurationError, match=f"'tgi': choose one of {', '.join(ENGINES)}"):
        make_engine("tgi")


def test_a_hosted_api_needs_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ConfigurationError, match="OPENAI_API_KEY is not set"):
        make_engine("openai", model="m")


async def test_the_key_comes_from_the_environment_and_is_never_described(
    serve: Serve, reply: Reply, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "s3cret")
    seen: list[str] = []

    def answer(path: str, body: dict[str, Any]) -> Any:
        seen.append(body["_headers"]["authorization"])
        return reply("ok")

    async with serve(answer) as url:
        await ask(url, api_key_env="MY_KEY")
        description = make_engine("openai", model="m", base_urls=(url,), api_key_env="MY_KEY").describe()
    assert seen == ["Bearer s3cret"]
    assert "s3cret" not in json.dumps(description)


def test_the_description_holds_what_could_change_a_score_and_no_more() -> None:
    base: dict[str, Any] = {"model": "Qwen/Qwen3-8B", "base_urls": ("http://a/v1",)}
    described = make_engine("openai", **base).describe()
    assert (described["reader"], described["sampling"]) == ("hermes", {})
    for option, value in (
        ("temperature", 0.7),
        ("tool_mode", "text"),
        ("style", "none"),
        ("send_seed", False),
        ("reasoning_key", "reasoning"),
        ("extra_body", {"chat_template_kwargs": {"enable_thinking": False}}),
        ("server", "vLLM 0.32, bf16"),
        ("max_tokens_key", "max_completion_tokens"),
    ):
        assert make_engine("openai", **base, **{option: value}).describe() != described, option
    patient = {**base, "base_urls": ("http://b/v1",), "concurrency": 5, "retries": 1, "timeout_s": 9.0}
    assert make_engine("openai", **patient).describe() == described
