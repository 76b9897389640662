"""What the trained model does with what it was not trained on, and what agents without a model score."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from transformers import PreTrainedTokenizerBase

from baselines.small_model.evaluation import Journal, Line, score, score_transcripts
from baselines.small_model.network import Network
from baselines.small_model.plan import Plan
from baselines.small_model.play import Player
from ticket_gym.agents import ScriptedAgent
from ticket_gym.rollout import play_episode
from ticket_gym.session import Session, Settings
from ticket_gym.tasks import TEMPLATES
from ticket_gym.types import LANGUAGES, Language

SCRIPTED = ("do_nothing", "oracle", "expert")


def add_scripted(journal: Journal, plan: Plan) -> None:
    """Score agents without a model on the tasks of the learning curve."""
    settings = plan.settings("validation")
    session = Session(settings)
    tasks = [session.source.at(index) for index in range(plan.evaluation.tasks)]
    for name in SCRIPTED:
        if journal.has(agent=name):
            continue
        agent = ScriptedAgent(name)
        successes = [asyncio.run(play_episode(session, agent, task)).success for task in tasks]
        journal.add({"agent": name, **_about(settings), **score(tasks, successes)})


def add_transfer(
    journal: Journal, plan: Plan, seed: int, network: Network, tokenizer: PreTrainedTokenizerBase, tasks: int
) -> None:
    """Score a trained model, taking the likeliest tokens, on templates and on languages that it was not trained on.

    Args:
        journal: Where the scores go.
        plan: What the model was trained on.
        seed: Of the training.
        network: The model.
        tokenizer: Of the model.
        tasks: How many of each template.
    """
    trained = plan.settings("validation")
    played = plan.reinforcement.templates
    unseen = tuple(name for name in TEMPLATES if name not in (*plan.templates, *played))
    only_imitated = tuple(name for name in plan.templates if name not in played)
    cells: list[tuple[Language, Sequence[str]]] = [(plan.language, only_imitated), (plan.language, unseen)]
    cells += [(language, played) for language in LANGUAGES if language != plan.language]
    cells = [cell for cell in cells if cell[1]]
    for language, templates in cells:
        settings = replace(trained, language=language, templates=tuple(templates))
        if journal.has(agent="model", seed=seed, **_about(settings)):
            continue
        source = Session(settings).source
        chosen = [source.at(index) for index in range(tasks * len(templates))]
        line: Line = {"agent": "model", "seed": seed, **_about(settings), "decoding": "greedy"}
        transcripts = Player(network, tokenizer, settings, plan.limits).play(chosen, 0.0, 0)
        journal.add({**line, **score_transcripts(transcripts)})


def _about(settings: Settings) -> Line:
    return {"language": settings.language, "templates": list(settings.templates or TEMPLATES)}
