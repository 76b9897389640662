"""The doctor: a server that can do everything, and servers that each lack one thing."""

import json
import unicodedata
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from ticket_gym.doctor import CITY, Check, examine
from ticket_gym.engines import Completion, Request, make_engine
from ticket_gym.errors import ContextOverflowError

Handler = Callable[[str, dict[str, Any]], Any]
Serve = Callable[[Handler], AbstractAsyncContextManager[str]]
Reply = Callable[..., Any]


class Model:
    """A capable model behind a server; a subclass breaks one thing."""

    city = CITY

    def __init__(self, reply: Reply) -> None:
        self.reply = reply

    def __call__(self, path: str, body: dict[str, Any]) -> Any:
        """Answer a request."""
        if path.endswith("/models"):
            return 200, {}, {"object": "list", "data": [{"id": "Qwen/Qwen3-8B"}]}
        system, user, *rest = body["messages"]
        if rest:
            return self.after_result(rest)
        if "KANGOUROU" in str(system["content"]):
            return self.reply("KANGOUROU")
        if "2024" in user["content"]:
            return self.two_calls()
        if "tools" in body:
            return self.one_call()
        return self.draw(body)

    def one_call(self) -> Any:
        """Call the tool that is asked for."""
        return self.reply(None, [("lister_matchs", json.dumps({"ville": self.city}, ensure_ascii=False))])

    def two_calls(self) -> Any:
        """Call it twice."""
        return self.reply(None, [("get_leaderboard", '{"year": 2023}'), ("get_leaderboard", '{"year": 2024}')])

    def after_result(self, rest: list[dict[str, Any]]) -> Any:
        """Answer from the result; a server fails where it cannot decode the arguments of a past call."""
        for call in rest[0]["tool_calls"]:
            assert isinstance(json.loads(call["function"]["arguments"]), dict)
        return self.reply("Au stade Geoffroy-Guichard.")

    def draw(self, body: dict[str, Any]) -> Any:
        """A text that depends on the seed."""
        return self.reply(f"words {body.get('seed')}")


async def check(serve: Serve, server: Model, **options: Any) -> dict[str, Check]:
    """The doctor's findings by name."""
    async with serve(server) as url:
        engine = make_engine("openai", **{"model": "Qwen/Qwen3-8B", "base_urls": (url,), "retries": 0, **options})
        found = await examine(engine)
        await engine.aclose()
    return {check.name: check for check in found}


async def test_a_capable_server_passes_everything(serve: Serve, reply: Reply) -> None:
    found = await check(serve, Model(reply))
    assert list(found) == [
        "lists the model",
        "calls a tool",
        "counts tokens",
        "takes a result",
        "takes two results at once",
        "takes back a broken call",
        "makes two calls at once",
        "keeps the system prompt",
        "honours a seed",
    ]
    assert {name: check.status for name, check in found.items() if check.status != "ok"} == {}


async def test_a_server_that_reads_no_calls_is_told_the_flags(serve: Serve, reply: Reply) -> None:
    class Deaf(Model):
        def one_call(self) -> Any:
            return self.reply("lister_matchs(ville='Saint-Étienne')")

    found = (await check(serve, Deaf(reply)))["calls a tool"]
    assert found.status == "fail"
    assert "--enable-auto-tool-choice --tool-call-parser hermes" in found.remedy and "--jinja" in found.remedy


@pytest.mark.parametrize(
    ("city", "status", "said"),
    [
        (unicodedata.normalize("NFD", CITY), "warn", "decomposed"),
        ("Saint-Ã‰tienne", "fail", "damaged"),
        ("Saint-\\u00c9tienne", "fail", "damaged"),
        ("Saint-?tienne", "fail", "damaged"),
        ("Saint-Etienne", "warn", "it called"),
        ("Lyon", "warn", "it called"),
    ],
)
async def test_a_damaged_accent_is_told_from_a_weak_model(
    serve: Serve, reply: Reply, city: str, status: str, said: str
) -> None:
    model = Model(reply)
    model.city = city
    found = (await check(serve, model))["calls a tool"]
    assert (found.status, said in found.found) == (status, True)


async def test_what_only_makes_scores_worse_is_a_warning(serve: Serve, reply: Reply) -> None:
    class Weak(Model):
        def two_calls(self) -> Any:
            return self.reply(None, [("get_leaderboard", '{"year": 2023}')])

        def __call__(self, path: str, body: dict[str, Any]) -> Any:
            status, headers, answer = super().__call__(path, body)
            answer.pop("usage", None)
            if "KANGOUROU" in str(body.get("messages")):
                return self.reply("Bonjour !")
            return status, headers, answer

        def draw(self, body: dict[str, Any]) -> Any:
            return self.reply("always the same")

    found = await check(serve, Weak(reply), model="other")
    warned = {name for name, check in found.items() if check.status == "warn"}
    assert warned == {
        "lists the model",
        "counts tokens",
        "makes two calls at once",
        "keeps the system prompt",
        "honours a seed",
    }
    assert "Qwen/Qwen3-8B" in found["lists the model"].found
    assert "-o temperature=" in found["honours a seed"].remedy


async def test_a_seed_that_is_ignored_is_seen(serve: Serve, reply: Reply) -> None:
    drawn = iter(range(100))

    class Random(Model):
        def draw(self, body: dict[str, Any]) -> Any:
            return self.reply(f"words {next(drawn)}")

    found = (await check(serve, Random(reply)))["honours a seed"]
    assert (found.status, "the same seed gave two texts" in found.found) == ("warn", True)
    silent = (await check(serve, Model(reply), send_seed=False))["honours a seed"]
    assert (silent.status, "no seed is sent" in silent.found) == ("warn", True)


async def test_a_chat_template_without_results_is_a_failure(serve: Serve, reply: Reply) -> None:
    class NoResults(Model):
        def after_result(self, rest: list[dict[str, Any]]) -> Any:
            return 400, {}, {"error": {"message": "Only user and assistant roles are supported!"}}

    found = (await check(serve, NoResults(reply)))["takes a result"]
    assert (found.status, "Only user and assistant roles" in found.found) == ("fail", True)
    assert "--chat-template" in found.remedy


async def test_a_chat_template_that_takes_one_call_a_message_is_a_failure(serve: Serve, reply: Reply) -> None:
    class OneCall(Model):
        def after_result(self, rest: list[dict[str, Any]]) -> Any:
            if len(rest[0]["tool_calls"]) > 1:
                return 400, {}, {"error": {"message": "This model only supports single tool-calls at once!"}}
            return super().after_result(rest)

    found = await check(serve, OneCall(reply))
    assert {name for name, check in found.items() if check.status == "fail"} == {"takes two results at once"}
    assert "--chat-template" in found["takes two results at once"].remedy


@pytest.mark.parametrize(("kind", "size"), [("vllm", "max_model_len"), ("transformers", "max_context")])
async def test_an_engine_in_this_process_is_mended_by_its_own_options(kind: str, size: str) -> None:
    class Deaf:
        name = "m"
        overflows = False

        def describe(self) -> dict[str, Any]:
            return {"engine": kind}

        async def complete(self, request: Request) -> Completion:
            if self.overflows:
                raise ContextOverflowError("900 tokens do not fit")
            return Completion({"role": "assistant", "content": "?"})

        async def aclose(self) -> None:
            pass

    engine = Deaf()
    remedies = {check.name: check.remedy for check in await examine(engine)}
    assert "-o style=" in remedies["calls a tool"] and "-o chat_template=" in remedies["calls a tool"]
    assert "-o chat_template=" in remedies["keeps the system prompt"]
    engine.overflows = True
    assert f"-o {size}=" in (await examine(engine))[0].remedy


async def test_a_short_context_and_a_cut_off_message_are_named(serve: Serve, reply: Reply) -> None:
    class Short(Model):
        def one_call(self) -> Any:
            return 400, {}, {"error": {"message": "This model's maximum context length is 512 tokens."}}

    class CutOff(Model):
        def one_call(self) -> Any:
            return self.reply("<think>", (), "length")

    assert "--max-model-len" in (await check(serve, Short(reply)))["calls a tool"].remedy
    assert "-o max_tokens=" in (await check(serve, CutOff(reply)))["calls a tool"].remedy


async def test_a_wrong_key_ends_the_examination(serve: Serve, reply: Reply) -> None:
    class Locked(Model):
        def __call__(self, path: str, body: dict[str, Any]) -> Any:
            return 401, {}, {"error": {"message": "no such key"}}

    found = await check(serve, Locked(reply))
    assert list(found) == ["lists the model", "answers"]
    assert found["answers"].status == "fail" and "OPENAI_API_KEY" in found["answers"].found


async def test_text_mode_is_examined_too(serve: Serve, reply: Reply) -> None:
    def call(year: int) -> str:
        return f'<tool_call>\n{{"name": "get_leaderboard", "arguments": {{"year": {year}}}}}\n</tool_call>'

    class Plain(Model):
        def __call__(self, path: str, body: dict[str, Any]) -> Any:
            assert "tools" not in body
            asked = str(body.get("messages", [{}, {}])[-1].get("content"))
            if "Appelle" in asked:
                return self.reply(
                    f'<tool_call>\n{{"name": "lister_matchs", "arguments": {{"ville": "{CITY}"}}}}\n</tool_call>'
                )
            return self.reply(call(2023) + call(2024)) if "2024" in asked else super().__call__(path, body)

        def after_result(self, rest: list[dict[str, Any]]) -> Any:
            assert rest[-1]["role"] == "user" and rest[-1]["content"].startswith("<tool_response>")
            return self.reply("Au stade Geoffroy-Guichard.")

    found = await check(serve, Plain(reply), tool_mode="text")
    assert {name for name, check in found.items() if check.status != "ok"} == set()
