"""The rules of the conversation, played against a scripted server: what is recorded, what is sent, what ends it."""

import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from ticket_gym.agents import ModelAgent
from ticket_gym.engines import make_engine
from ticket_gym.errors import EngineSetupError
from ticket_gym.journal import MemoryJournal
from ticket_gym.plan import make_config
from ticket_gym.records import Trajectory
from ticket_gym.rollout import play_episode
from ticket_gym.runner import run
from ticket_gym.session import Session
from ticket_gym.types import StopReason

Handler = Callable[[str, dict[str, Any]], Any]
Serve = Callable[[Handler], AbstractAsyncContextManager[str]]
Reply = Callable[..., Any]

CITY = "Saint-Étienne"


class Script:
    """Answers with one response after another and keeps what it was sent."""

    def __init__(self, *responses: Any) -> None:
        self._responses = iter(responses)
        self.sent: list[dict[str, Any]] = []

    def __call__(self, path: str, body: dict[str, Any]) -> Any:
        """The next response."""
        self.sent.append(body)
        return next(self._responses)


async def play(serve: Serve, script: Script, **options: Any) -> Trajectory:
    """One French episode against a script."""
    async with serve(script) as url:
        engine = make_engine("openai", **{"model": "m", "base_urls": (url,), "retries": 0, **options})
        try:
            return await play_episode(Session(language="fr"), ModelAgent(engine), "t07-01", seed=5)
        finally:
            await engine.aclose()


async def test_the_request_holds_prompt_wish_tools_and_a_seed_of_its_own(serve: Serve, reply: Reply) -> None:
    script = Script(reply(None, [("lister_matchs", "{}")]), reply("Fini."))
    await play(serve, script, temperature=0.5, top_k=20, max_tokens=64, extra_body={"chat_template_kwargs": {"a": 1}})
    session = Session(language="fr")
    session.reset("t07-01")
    first, second = script.sent
    assert first["messages"] == session.messages
    assert first["tools"] == session.tools
    sampling = {key: first[key] for key in ("model", "temperature", "top_k", "max_tokens", "chat_template_kwargs")}
    assert sampling == {
        "model": "m",
        "temperature": 0.5,
        "top_k": 20,
        "max_tokens": 64,
        "chat_template_kwargs": {"a": 1},
    }
    assert 0 <= first["seed"] < 2**31 and first["seed"] != second["seed"]
    assert not {"top_p", "min_p", "tool_choice", "parallel_tool_calls"} & first.keys()


async def test_a_message_without_a_call_is_the_answer(serve: Serve, reply: Reply) -> None:
    episode = await play(serve, Script(reply("Aucun match ne convient.")))
    assert episode.stop_reason is StopReason.RESPONDED
    assert episode.messages[-1] == {"role": "assistant", "content": "Aucun match ne convient."}
    assert [call.arguments for call in episode.calls] == [{"content": "Aucun match ne convient."}]


@pytest.mark.parametrize("content", ["", None])
async def test_an_empty_message_is_an_empty_answer(serve: Serve, reply: Reply, content: str | None) -> None:
    episode = await play(serve, Script(reply(content)))
    assert (episode.stop_reason, episode.steps) == (StopReason.RESPONDED, 1)
    assert episode.calls[0].arguments == {"content": ""}


async def test_results_are_literal_and_the_model_sees_its_own_words(serve: Serve, reply: Reply) -> None:
    arguments = f'{{ "ville":"{CITY}" }}'
    script = Script(reply("Je cherche.", [("lister_matchs", arguments, "a1")]), reply("Fini."))
    episode = await play(serve, script)
    assistant, result = script.sent[1]["messages"][2:]
    assert assistant["content"] == "Je cherche."
    assert assistant["tool_calls"][0]["function"] == {"name": "lister_matchs", "arguments": arguments}
    assert (result["role"], result["tool_call_id"]) == ("tool", "a1")
    assert CITY in result["content"] and "\\u" not in result["content"]
    assert episode.calls[0].repairs == ()
    assert episode.usage.model_calls == 2 and episode.usage.prompt_tokens == 20


async def test_several_calls_are_played_in_order_each_with_its_id(serve: Serve, reply: Reply) -> None:
    calls = [("obtenir_classement", '{"annee": 2023}', "x"), ("obtenir_infos_utilisateur", "{}", "y")]
    script = Script(reply(None, calls), reply("Fini."))
    episode = await play(serve, script)
    assert [(call.tool, call.id) for call in episode.calls[:2]] == [("get_leaderboard", "x"), ("get_user_info", "y")]
    results = [message for message in script.sent[1]["messages"] if message["role"] == "tool"]
    assert [message["tool_call_id"] for message in results] == ["x", "y"]
    session = Session(language="fr")
    session.reset("t07-01")
    assert results[0]["content"] == session.call("obtenir_classement", {"annee": 2023}).text


async def test_missing_and_repeated_ids_are_replaced_by_fresh_ones(serve: Serve, reply: Reply) -> None:
    twice = [("obtenir_infos_utilisateur", "{}", "same"), ("obtenir_infos_utilisateur", "{}", "same")]
    script = Script(
        reply(None, twice), reply(None, [("obtenir_infos_utilisateur", "{}", None), *twice]), reply("Fini.")
    )
    episode = await play(serve, script)
    ids = [call.id for call in episode.calls[:-1]]
    assert len(set(ids)) == 5 and ids[0] == "same"
    assert all(len(identifier) == 9 and identifier.isalnum() for identifier in ids[1:])
    sent = [call["id"] for message in script.sent[2]["messages"] for call in message.get("tool_calls", ())]
    answered = [message["tool_call_id"] for message in script.sent[2]["messages"] if message["role"] == "tool"]
    assert sent == answered == ids


@pytest.mark.parametrize("broken", ['{"ville": "Lyon"', "[1, 2]", "Lyon", '{"ville": NaN'])
async def test_a_broken_call_is_answered_and_sent_back_in_a_form_that_decodes(
    serve: Serve, reply: Reply, broken: str
) -> None:
    script = Script(reply(None, [("lister_matchs", broken)]), reply("Fini."))
    episode = await play(serve, script)
    assert episode.calls[0].error == "malformed_call"
    assert episode.calls[0].arguments == broken
    assert episode.messages[2]["tool_calls"][0]["function"]["arguments"] == broken
    sent = script.sent[1]["messages"][2]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(sent) == {"_raw": broken}
    assert "malformed_call" in script.sent[1]["messages"][3]["content"]


async def test_an_unknown_tool_is_answered_and_its_name_sent_back_as_servers_accept_it(
    serve: Serve, reply: Reply
) -> None:
    script = Script(reply(None, [("rembourser un billet", "{}"), ("", "{}")]), reply("Fini."))
    episode = await play(serve, script)
    assert [call.error for call in episode.calls[:2]] == ["unknown_tool", "malformed_call"]
    assert [call.name for call in episode.calls[:2]] == ["rembourser un billet", ""]
    sent = [call["function"]["name"] for call in script.sent[1]["messages"][2]["tool_calls"]]
    assert sent == ["rembourser_un_billet", "unreadable_call"]


@pytest.mark.parametrize("call", [None, "x", {"id": "1"}, {"function": None}, {"function": {"name": 5}}])
async def test_whatever_a_server_lists_as_a_call_is_answered(serve: Serve, reply: Reply, call: Any) -> None:
    odd = reply(None)
    odd[2]["choices"][0]["message"]["tool_calls"] = [call]
    script = Script(odd, reply("Fini."))
    episode = await play(serve, script)
    assert episode.calls[0].error == "malformed_call"
    assert episode.stop_reason is StopReason.RESPONDED


async def test_arguments_that_a_server_has_decoded_already_are_taken(serve: Serve, reply: Reply) -> None:
    script = Script(reply(None, [("lister_matchs", {"ville": CITY})]), reply("Fini."))
    episode = await play(serve, script)
    assert (episode.calls[0].error, episode.calls[0].repairs) == (None, ())
    assert json.loads(script.sent[1]["messages"][2]["tool_calls"][0]["function"]["arguments"]) == {"ville": CITY}


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning"])
async def test_reasoning_is_recorded_and_not_sent_back(serve: Serve, reply: Reply, key: str) -> None:
    script = Script(reply(None, [("lister_matchs", "{}")], **{key: "D'abord…"}), reply("Fini."))
    episode = await play(serve, script)
    assert episode.messages[2]["reasoning_content"] == "D'abord…"
    assert script.sent[1]["messages"][2].keys() == {"role", "content", "tool_calls"}


async def test_reasoning_is_sent_back_where_the_template_wants_it(serve: Serve, reply: Reply) -> None:
    script = Script(reply(None, [("lister_matchs", "{}")], reasoning="D'abord…"), reply("Fini."))
    await play(serve, script, reasoning_key="reasoning")
    assert script.sent[1]["messages"][2]["reasoning"] == "D'abord…"


async def test_a_call_that_the_server_could_not_read_does_not_end_the_episode(serve: Serve, reply: Reply) -> None:
    """Some servers hand a broken call over as content: the same text must score as it does with our own reader."""
    content = 'Bon.\n<tool_call>\n{"name": "lister_matchs", "arguments": {"page": 1,}}\n</tool_call>'
    script = Script(reply(content), reply("Fini."))
    episode = await play(serve, script, model="Qwen/Qwen3-8B")
    assert [call.error for call in episode.calls] == ["malformed_call", None]
    assert episode.messages[2]["content"] == "Bon." and episode.messages[2]["raw_text"] == content
    trusting = await play(serve, Script(reply(content)), model="Qwen/Qwen3-8B", style="none")
    assert trusting.stop_reason is StopReason.RESPONDED and trusting.steps == 1


async def test_text_mode_plays_without_any_tool_support(serve: Serve, reply: Reply) -> None:
    call = f'<tool_call>\n{{"name": "lister_matchs", "arguments": {{"ville": "{CITY}"}}}}\n</tool_call>'
    script = Script(reply(call), reply("Fini."))
    episode = await play(serve, script, tool_mode="text")
    assert [(played.tool, played.error) for played in episode.calls] == [("list_games", None), (None, None)]
    assert "tools" not in script.sent[1]
    assert [message["role"] for message in script.sent[1]["messages"]] == ["system", "user", "assistant", "user"]
    assert script.sent[1]["messages"][2]["content"] == call


async def test_text_mode_keeps_reasoning_apart_wherever_the_server_puts_it(serve: Serve, reply: Reply) -> None:
    call = '<tool_call>\n{"name": "lister_matchs", "arguments": {}}\n</tool_call>'
    script = Script(reply(f"<think>\nun\n</think>\n{call}"), reply(call, reasoning="deux"), reply("Fini."))
    episode = await play(serve, script, tool_mode="text")
    said = [message for message in episode.messages if message["role"] == "assistant"]
    assert [message.get("reasoning_content") for message in said] == ["un", "deux", None]
    assert [message["content"] for message in script.sent[2]["messages"] if message["role"] == "assistant"] == [
        call
    ] * 2


async def test_a_message_cut_off_at_the_limit_ends_the_episode_and_its_calls_are_not_played(
    serve: Serve, reply: Reply
) -> None:
    half = [("acheter_billet", '{"id_match": 1}'), ("acheter_billet", '{"id_match": 1')]
    episode = await play(serve, Script(reply(None, half, "length")))
    assert (episode.stop_reason, episode.steps, episode.bookings) == (StopReason.LENGTH, 0, [])
    assert len(episode.messages[-1]["tool_calls"]) == 2


@pytest.mark.parametrize(
    ("most", "stop"),
    [(None, StopReason.LENGTH), (2, StopReason.LENGTH), (3, StopReason.CONTEXT_OVERFLOW)],
)
async def test_a_message_that_ends_before_its_own_limit_has_filled_the_context(
    serve: Serve, reply: Reply, most: int | None, stop: StopReason
) -> None:
    episode = await play(serve, Script(reply("Je cherche", (), "length")), max_tokens=most)
    assert episode.usage.completion_tokens == 2
    assert episode.stop_reason is stop


@pytest.mark.parametrize(
    ("finish_reason", "fields"),
    [("content_filter", {}), ("sensitive", {}), ("stop", {"refusal": "I cannot help with that."})],
)
async def test_a_refusal_is_no_answer(serve: Serve, reply: Reply, finish_reason: str, fields: dict[str, str]) -> None:
    episode = await play(serve, Script(reply(None, (), finish_reason, **fields)))
    assert (episode.stop_reason, episode.steps) == (StopReason.REFUSED, 0)
    assert episode.messages[-1].get("refusal") == fields.get("refusal")


@pytest.mark.parametrize("code", ["content_filter", "invalid_prompt", "data_inspection_failed"])
async def test_a_refused_prompt_is_a_refusal(serve: Serve, code: str) -> None:
    error = {"error": {"code": code, "message": "The prompt was filtered."}}
    episode = await play(serve, Script((400, {}, error)))
    assert episode.stop_reason is StopReason.REFUSED


async def test_a_full_context_is_the_agents_failure_and_keeps_what_was_played(serve: Serve, reply: Reply) -> None:
    error = {"error": {"message": "This model's maximum context length is 4096 tokens.", "type": "BadRequestError"}}
    episode = await play(serve, Script(reply(None, [("lister_matchs", "{}")]), (400, {}, error)))
    assert episode.stop_reason is StopReason.CONTEXT_OVERFLOW
    assert (episode.reward, episode.steps, episode.error) == (0.0, 1, None)
    assert episode.messages[-1]["role"] == "tool"


async def test_a_message_that_filled_the_context_is_told_from_one_that_was_too_long(serve: Serve, reply: Reply) -> None:
    episode = await play(serve, Script(reply("Je", (), "model_context_window_exceeded")))
    assert (episode.stop_reason, episode.steps) == (StopReason.CONTEXT_OVERFLOW, 0)


@pytest.mark.parametrize("depth", [600, 950, 5000])
@pytest.mark.parametrize("place", ["text", "content", "object"])
async def test_arguments_of_any_depth_are_answered(serve: Serve, reply: Reply, place: str, depth: int) -> None:
    arguments = '{"ville": ' + "[" * depth + "]" * depth + "}"
    if place == "content":
        odd = reply(f'<tool_call>{{"name": "lister_matchs", "arguments": {arguments}}}</tool_call>')
    else:
        odd = reply(None, [("lister_matchs", arguments)])
    body = json.dumps(odd[2])
    if place == "object":
        body = body.replace(json.dumps(arguments), arguments)
    script = Script((200, {}, body.encode()), reply("Fini."))
    # An object that is too deep for the client's JSON reader makes the whole answer none: it is asked for again.
    episode = await play(serve, script, model="Qwen/Qwen3-8B", retries=1, backoff_s=0.001)
    assert episode.stop_reason is StopReason.RESPONDED
    assert {call.error for call in episode.calls[:-1]} <= {"invalid_argument", "malformed_call", "unexpected_argument"}


@pytest.mark.parametrize("reason", ["error", "abort", "insufficient_system_resource", "network_error"])
async def test_a_message_that_the_server_broke_off_is_asked_for_again(serve: Serve, reply: Reply, reason: str) -> None:
    episode = await play(serve, Script(reply("Fi", (), reason), reply("Fini.")), retries=1, backoff_s=0.001)
    assert [message["content"] for message in episode.messages[2:]] == ["Fini."]


async def test_an_error_in_the_place_of_a_choice_is_read(serve: Serve) -> None:
    error = {"code": 400, "message": "This endpoint's maximum context length is 4096 tokens."}
    choice = {"finish_reason": "error", "error": error, "message": {"role": "assistant", "content": ""}}
    episode = await play(serve, Script((200, {}, {"choices": [choice]})))
    assert episode.stop_reason is StopReason.CONTEXT_OVERFLOW


async def test_content_in_pieces_is_put_together(serve: Serve, reply: Reply) -> None:
    pieces = [{"type": "text", "text": "Nî"}, "mes", None, {"type": "image"}]
    assert (await play(serve, Script(reply(pieces)))).messages[-1]["content"] == "Nîmes"


async def test_a_server_that_fails_leaves_an_episode_without_a_score(serve: Serve, reply: Reply) -> None:
    script = Script(reply(None, [("lister_matchs", "{}")]), (500, {}, {"error": {"message": "out of memory"}}))
    episode = await play(serve, script)
    assert (episode.stop_reason, episode.reward) == (StopReason.ENGINE_ERROR, None)
    assert episode.error is not None and "out of memory" in episode.error


async def test_half_a_surrogate_pair_can_be_recorded_and_sent_back(serve: Serve, reply: Reply) -> None:
    wire = reply("x", [("lister_matchs", r'{"ville": "\ud83d"}')])
    broken = json.dumps(wire[2]).replace('"content": "x"', r'"content": "\ud83d"').encode()
    script = Script((200, {}, broken), reply("Fini."))
    episode = await play(serve, script)
    assert episode.stop_reason is StopReason.RESPONDED
    assert "�" in episode.model_dump_json()


async def test_a_wrong_key_stops_the_run_instead_of_failing_each_episode(serve: Serve) -> None:
    asked = 0

    def refuse(path: str, body: dict[str, Any]) -> Any:
        nonlocal asked
        asked += 1
        return 401, {}, {"error": {"message": "Incorrect API key", "code": "invalid_api_key"}}

    async with serve(refuse) as url:
        agent = ModelAgent(make_engine("openai", model="m", base_urls=(url,)))
        config = make_config(agent, languages=("fr",), trials=1)
        journal = MemoryJournal()
        with pytest.raises(EngineSetupError, match=r"refuses the key.*OPENAI_API_KEY"):
            await run(config, agent, journal, concurrency=4)
        await agent.engine.aclose()
    assert asked <= 4 and not journal.episodes
