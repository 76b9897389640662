"""The only loop: an agent plays one episode of a session."""

import datetime
import time
from dataclasses import dataclass, field

from ticket_gym.agents import Agent, Turn
from ticket_gym.errors import ContextOverflowError, EngineError
from ticket_gym.records import CallRecord, Trajectory, Usage
from ticket_gym.request import Task
from ticket_gym.session import Observation, Session
from ticket_gym.types import RESPOND, Message, StopReason, ToolCall


async def play_episode(
    session: Session, agent: Agent, task: str | Task, *, trial: int = 0, seed: int = 0
) -> Trajectory:
    """Play one episode to its end.

    Args:
        session: Where it is played; its present episode is given up.
        agent: Who plays.
        task: What is played.
        trial: Number of the trial, from 0.
        seed: This trial's own seed.

    Returns:
        The record of the episode. What the engine could not do is in it as `engine_error`, without a reward.
    """
    started_at = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    start = time.perf_counter()
    session.reset(task)
    log = _Log(list(session.messages))
    error = None
    try:
        await _play(session, agent, seed, log)
    except ContextOverflowError:
        session.finish(StopReason.CONTEXT_OVERFLOW)
    except EngineError as problem:
        error = str(problem)
        session.finish(StopReason.ENGINE_ERROR)
    return _record(session, log, trial, seed, error, started_at, time.perf_counter() - start)


@dataclass(slots=True)
class _Log:
    messages: list[Message]
    calls: list[CallRecord] = field(default_factory=list)
    usages: list[Usage] = field(default_factory=list)


async def _play(session: Session, agent: Agent, seed: int, log: _Log) -> None:
    player = agent.start(session, seed)
    while not session.done:
        turn = await player.turn(log.messages)
        log.messages.append(turn.message)
        log.usages.append(turn.usage)
        if turn.stop is not None:
            session.finish(turn.stop)
        elif turn.calls:
            for call in turn.calls:
                _play_call(session, call, log)
        else:
            _answer(session, turn, log)


def _play_call(session: Session, call: ToolCall, log: _Log) -> None:
    """Play a call; what comes after the end of the episode is answered too, but no longer recorded as played."""
    over = session.done
    observation = session.call(call.name, call.arguments)
    if not over:
        log.calls.append(_call_record(call, observation))
    log.messages.append({"role": "tool", "tool_call_id": call.id, "content": observation.text})


def _answer(session: Session, turn: Turn, log: _Log) -> None:
    content = turn.message.get("content")
    call = ToolCall(RESPOND, {"content": content if isinstance(content, str) else ""}, "answer")
    log.calls.append(_call_record(call, session.call(call.name, call.arguments)))


def _call_record(call: ToolCall, observation: Observation) -> CallRecord:
    return CallRecord(
        id=call.id or "",
        name=call.name,
        tool=observation.tool,
        arguments=call.arguments,
        error=observation.error,
        repairs=observation.repairs,
    )


def _record(
    session: Session, log: _Log, trial: int, seed: int, error: str | None, started_at: str, wall_s: float
) -> Trajectory:
    task = session.playing
    codec = session.codec
    broken_off = session.stop_reason is StopReason.ENGINE_ERROR
    return Trajectory(
        language=codec.language,
        tool_language=codec.tool_language,
        league=codec.league,
        split=task.split,
        query_id=task.id,
        template=task.template,
        trial=trial,
        seed=seed,
        reward=None if broken_off else session.reward,
        success=session.success and not broken_off,
        stop_reason=session.stop_reason or StopReason.ENGINE_ERROR,
        messages=log.messages,
        calls=log.calls,
        bookings=list(session.bookings),
        steps=session.steps,
        usage=sum_usage(log.usages),
        error=error,
        started_at=started_at,
        wall_s=round(wall_s, 6),
    )


def sum_usage(usages: list[Usage]) -> Usage:
    """Tokens of several turns together."""
    return Usage(**{name: sum(getattr(usage, name) for usage in usages) for name in Usage.model_fields})
