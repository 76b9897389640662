"""An agent whose true score is known: what estimators and intervals are tested against."""

import math
import random
from collections.abc import Mapping
from typing import Any

from ticket_gym.agents.scripted import Desk, Play, ScriptedPlayer, choose_games, play_oracle
from ticket_gym.codec import Codec
from ticket_gym.errors import ConfigurationError
from ticket_gym.request import Constraints
from ticket_gym.session import Session


class NoisyOracle:
    """Right with a known probability, independently in each trial; otherwise surely wrong.

    Wrong means: buys nothing where something should be bought, and one ticket where nothing should be.
    """

    def __init__(self, p: float | Mapping[str, float], name: str = "noisy_oracle") -> None:
        """Choose the probabilities.

        Args:
            p: Probability of being right, one for all queries or one for each query id.
            name: How the agent is called in tables.

        Raises:
            ConfigurationError: A probability is none.
        """
        for value in p.values() if isinstance(p, Mapping) else (p,):
            if not (math.isfinite(value) and 0 <= value <= 1):
                raise ConfigurationError(f"{name}: {value!r} is no probability; choose one from 0 to 1")
        self.name = name
        self._p = p

    def describe(self) -> dict[str, Any]:
        """The probabilities are all there is."""
        return {"agent": "noisy_oracle", "p": dict(self._p) if isinstance(self._p, Mapping) else self._p}

    def start(self, session: Session, seed: int) -> ScriptedPlayer:
        """A player for the session's episode; the trial's seed decides whether it is right.

        Raises:
            ConfigurationError: There is no probability for this query.
        """
        task = session.playing
        p = self._p.get(task.id) if isinstance(self._p, Mapping) else self._p
        if p is None:
            raise ConfigurationError(f"{self.name}: no probability is given for query {task.id}")
        right = random.Random(seed).random() < p
        wanted = task.constraints
        return ScriptedPlayer(play_oracle(session.codec, wanted, seed) if right else play_wrong(session.codec, wanted))


def play_wrong(codec: Codec, wanted: Constraints) -> Play:
    """Works out what is right and does something else."""
    desk = Desk(codec)
    chosen, balance = yield from choose_games(desk, codec, wanted)
    if any(game.price <= balance for game in chosen):
        return "0"
    by_price = codec.texts.tools["list_games"].parameters["order_by"].values["price"]
    cheapest, _ = yield from desk.page(1, {"order_by": by_price})
    yield from desk.buy(cheapest[0])
    return "1"
