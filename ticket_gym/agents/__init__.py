"""Agents: scripted ones, and (with an engine) language models."""

from ticket_gym.agents.base import Agent, Player, Turn
from ticket_gym.agents.llm import ModelAgent
from ticket_gym.agents.noisy import NoisyOracle
from ticket_gym.agents.scripted import CARELESS, SCRIPTS, ScriptedAgent
from ticket_gym.errors import ConfigurationError

__all__ = [
    "AGENTS",
    "CARELESS",
    "SCRIPTS",
    "Agent",
    "ModelAgent",
    "NoisyOracle",
    "Player",
    "ScriptedAgent",
    "Turn",
    "make_agent",
]

AGENTS = (*SCRIPTS, "noisy_oracle:P")
"""Names that `make_agent` knows; P is a probability such as 0.7."""


def make_agent(name: str) -> Agent:
    """An agent without a model, by its name in `AGENTS`.

    Raises:
        ConfigurationError: There is no such agent.
    """
    kind, _, option = name.partition(":")
    if kind != "noisy_oracle":
        if name not in SCRIPTS:
            raise ConfigurationError(f"agent {name!r}: choose one of {', '.join(AGENTS)}")
        return ScriptedAgent(name)
    try:
        p = float(option)
    except ValueError as problem:
        raise ConfigurationError(f"agent {name!r}: say how often it is right, such as noisy_oracle:0.7") from problem
    return NoisyOracle(p, name)
