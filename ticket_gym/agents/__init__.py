"""Agents: scripted ones, and (with an engine) language models."""

from ticket_gym.agents.base import Agent, Player, Turn, call_message
from ticket_gym.agents.scripted import CARELESS, SCRIPTS, ScriptedAgent

__all__ = ["CARELESS", "SCRIPTS", "Agent", "Player", "ScriptedAgent", "Turn", "call_message"]
