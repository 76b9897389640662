"""What several tests need: a scripted chat-completions server on a real loopback socket, and played runs."""

import asyncio
import contextlib
import inspect
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from ticket_gym.agents import Agent, make_agent
from ticket_gym.agents.scripted import play_oracle
from ticket_gym.codec import Codec, get_codec
from ticket_gym.journal import RunFolder
from ticket_gym.plan import make_config
from ticket_gym.request import Constraints
from ticket_gym.runner import play
from ticket_gym.session import Session
from ticket_gym.tasks import get_benchmark
from ticket_gym.types import LANGUAGES, ToolCall

Response = tuple[int, dict[str, str], Any]
"""Status, headers and body; a body of bytes is sent as it is, any other as JSON."""
Handler = Callable[[str, dict[str, Any]], Response | Awaitable[Response]]
"""Takes the path and the decoded body (with the request's headers under `_headers`)."""
Serve = Callable[[Handler], AbstractAsyncContextManager[str]]

MakeRun = Callable[..., Path]
"""Takes an agent, or the name of one, and options of `make_config`; returns the folder of the run."""


@pytest.fixture(scope="session")
def make_run(tmp_path_factory: pytest.TempPathFactory) -> MakeRun:
    """`make_run("oracle", languages=["fr"])` plays a run and returns its folder."""

    def make(agent: Agent | str, **options: Any) -> Path:
        player = make_agent(agent) if isinstance(agent, str) else agent
        config = make_config(player, **options)
        folder = tmp_path_factory.mktemp("run")
        # In a thread of its own, for a browser that is driven synchronously keeps this one's event loop.
        with RunFolder.open(folder, config) as journal, ThreadPoolExecutor(1) as thread:
            thread.submit(play, config, player, journal).result()
        return folder

    return make


@pytest.fixture
def serve() -> Serve:
    """Lets a handler answer, for as long as the block after `async with` lasts; the address ends in `/v1`."""
    return _serve


@contextlib.asynccontextmanager
async def _serve(handler: Handler) -> AsyncIterator[str]:
    connections: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections.add(task)
        task.add_done_callback(connections.discard)
        with contextlib.suppress(asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            while True:
                path, body = await _read(reader)
                answer = handler(path, body)
                writer.write(_http(*(await answer if inspect.isawaitable(answer) else answer)))
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0, backlog=256)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    finally:
        server.close()
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)


async def _read(reader: asyncio.StreamReader) -> tuple[str, dict[str, Any]]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
    content = await reader.readexactly(int(headers.get("content-length", "0")))
    return head[0].split()[1], {**(json.loads(content) if content else {}), "_headers": headers}


def _http(status: int, headers: dict[str, str], body: Any) -> bytes:
    content = body if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False).encode()
    lines = {"content-type": "application/json", "content-length": str(len(content)), **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"HTTP/1.1 {status} -\r\n{head}\r\n".encode() + content


@pytest.fixture(scope="session")
def oracle() -> Handler:
    """Answers as a perfect model would, from the conversation alone and the same for any number of them at once.

    It reads what was asked by looking the request's text up, and plays the conversation again up to the last result.
    """
    asked: dict[tuple[str, str], tuple[Codec, Constraints]] = {}
    for language in LANGUAGES:
        session = Session(language=language)
        for task in get_benchmark().tasks:
            text = session.codec.render_request(task)
            asked[session.system_prompt, text] = (get_codec(language), task.constraints)

    def answer(path: str, body: dict[str, Any]) -> Response:
        system, user, *played = body["messages"]
        play = play_oracle(*asked[system["content"], user["content"]], 0)
        results = [message["content"] for message in played if message["role"] == "tool"]
        try:
            call = next(play)
            for result in results:
                call = play.send(result)
        except StopIteration as end:
            return 200, {}, completion(f"{end.value} ✓")
        return 200, {}, completion(None, [_wire_call(call, f"call_{len(results)}")], "tool_calls")

    return answer


def _wire_call(call: ToolCall, identifier: str) -> dict[str, Any]:
    return {**call.to_message(), "id": identifier}


@pytest.fixture
def reply() -> Callable[..., Response]:
    """Makes a response: `reply(content, calls, finish_reason, **message_fields)`; a call is `(name, arguments, id)`."""

    def make(
        content: Any, calls: Sequence[tuple[Any, ...]] = (), finish_reason: str = "stop", **fields: Any
    ) -> Response:
        wire = [
            {
                "id": call[2] if len(call) > 2 else f"id{number}",
                "type": "function",
                "function": {"name": call[0], "arguments": call[1]},
            }
            for number, call in enumerate(calls)
        ]
        body = completion(content, wire, finish_reason)
        body["choices"][0]["message"] |= fields
        return 200, {}, body

    return make


def completion(content: Any, calls: list[dict[str, Any]] | None = None, finish_reason: str = "stop") -> dict[str, Any]:
    """A chat completion's body."""
    message = {"role": "assistant", "content": content, **({"tool_calls": calls} if calls else {})}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 0,
        "model": "scripted",
        "choices": [{"index": 0, "finish_reason": finish_reason, "message": message}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12},
    }
