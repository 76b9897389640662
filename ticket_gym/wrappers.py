"""Reward choices. The environment pays 1 or 0 at the end; whoever trains may add to that here, and only here.

Two additions are wrappers for Gymnasium, and `RewardOptions` gives the same to whatever plays a `Session` itself:

- **Potential-based shaping** adds `F(s, s') = gamma * Phi(s') - Phi(s)` to each step (Ng, Harada and Russell, "Policy
  invariance under reward transformations", ICML 1999): which policy is best does not change. `Phi` is 0 at the end of
  an episode, cut off or not, as the invariance of episodes needs it (Grzes, "Reward shaping in episodic reinforcement
  learning", AAMAS 2017).
- **A cost per call** does change which policy is best: of two that succeed, the shorter one.

An agent never sees a potential: it is computed from the structured request and the bookings, beside the observations.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import gymnasium as gym
from gymnasium.utils import RecordConstructorArgs

from ticket_gym.errors import ConfigurationError
from ticket_gym.request import Constraints, Task
from ticket_gym.session import Session
from ticket_gym.tasks.plain import violated
from ticket_gym.world import get_world

Potential = Callable[[Session], float]
"""How far an episode has come, judged from the session; whatever it returns at the end counts as 0."""

Obs = TypeVar("Obs")
Act = TypeVar("Act")


def booking_potential(session: Session) -> float:
    """How much of the request the bookings meet: 1 when exactly met, 0 with nothing booked, less for wrong bookings.

    An expected game counts 1, any other one minus the share of the request's constraints that it violates (of which
    the price or, in its place, the number asked for is one); the sum is divided by the number of expected games.
    """
    task = session.playing
    credit = sum(1.0 if game in task.expected else -_violated_share(task, game) for game in session.bookings)
    return credit / max(1, len(task.expected))


def _violated_share(task: Task, game_id: int) -> float:
    """Share of the constraints that a game violates which should not have been bought; above 0, at most 1."""
    world = get_world(task.split, task.world)
    game = world.seasons[task.season].games[game_id - 1]
    names = violated(game, world, world.users[task.user], task.constraints)
    # A game that passes every filter and still is not wanted can only fail the last constraint: which ones, how many.
    return max(1, len(names)) / (_filter_count(task.constraints) + 1)


def _filter_count(wanted: Constraints) -> int:
    conditions = (wanted.city, wanted.half, wanted.days, wanted.opponent)
    return wanted.favourite + wanted.away + sum(condition is not None for condition in conditions)


def shaping_term(before: float, after: float, gamma: float) -> float:
    """`F(s, s') = gamma * Phi(s') - Phi(s)` (Ng, Harada and Russell 1999, theorem 1)."""
    return gamma * after - before


class PotentialShaping(gym.Wrapper[Obs, Act, Obs, Act], RecordConstructorArgs):
    """Adds the shaping term to each step's reward; `info["shaping"]` holds it."""

    def __init__(self, env: gym.Env[Obs, Act], gamma: float = 1.0, potential: Potential = booking_potential) -> None:
        """Wrap an environment of this package, itself wrapped or not.

        Args:
            env: The environment.
            gamma: The discount of the learner; with another one the invariance is lost.
            potential: How far an episode has come.

        Raises:
            ConfigurationError: The environment plays no session, or gamma is not from 0 to 1.
        """
        RecordConstructorArgs.__init__(self, gamma=gamma, potential=potential)
        gym.Wrapper.__init__(self, env)
        self._session = _session_of(env)
        self._gamma = _check_gamma(gamma)
        self._measure = potential
        self._potential = 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Obs, dict[str, Any]]:
        """Begin an episode."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._potential = self._measure(self._session)
        return observation, info

    def step(self, action: Act) -> tuple[Obs, float, bool, bool, dict[str, Any]]:
        """Play a step and add its shaping term."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        potential = 0.0 if terminated or truncated else self._measure(self._session)
        term = shaping_term(self._potential, potential, self._gamma)
        self._potential = potential
        return observation, float(reward) + term, terminated, truncated, {**info, "shaping": term}


class CallCost(gym.Wrapper[Obs, Act, Obs, Act], RecordConstructorArgs):
    """Takes a little off the reward for each call, the final answer included."""

    def __init__(self, env: gym.Env[Obs, Act], cost: float = 0.01) -> None:
        """Wrap an environment.

        Args:
            env: The environment.
            cost: What a call costs; an episode of as many calls as `1 / cost` pays no better than doing nothing.

        Raises:
            ConfigurationError: The cost is negative or no number.
        """
        RecordConstructorArgs.__init__(self, cost=cost)
        gym.Wrapper.__init__(self, env)
        self._cost = _check_cost(cost)

    def step(self, action: Act) -> tuple[Obs, float, bool, bool, dict[str, Any]]:
        """Play a step and take off its cost."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, float(reward) - self._cost, terminated, truncated, info


@dataclass(frozen=True, slots=True)
class RewardOptions:
    """How an episode is paid where it is scored as a whole, as in GRPO; by default by its sparse reward alone.

    Attributes:
        shaping: Add the shaping terms of `booking_potential`. Summed over a whole episode they are the same for every
            rollout of a task (minus the potential at its beginning), so that a method which only compares returns
            within a task cannot see them; they help one that credits single steps.
        call_cost: What each call costs.
        partial_credit: Weight of `booking_potential` at the end. Unlike shaping this changes which policy is best: it
            pays for half-met requests, to begin with where a model never succeeds.
    """

    shaping: bool = False
    call_cost: float = 0.0
    partial_credit: float = 0.0

    def __post_init__(self) -> None:
        """Check the numbers.

        Raises:
            ConfigurationError: A number cannot be used.
        """
        _check_cost(self.call_cost)
        if not (math.isfinite(self.partial_credit) and self.partial_credit >= 0):
            raise ConfigurationError(f"partial_credit={self.partial_credit!r}: must be a number from 0")


class RewardMeter:
    """Adds up the return of one episode of a session, call by call, as `RewardOptions` pay it; undiscounted."""

    def __init__(self, session: Session, options: RewardOptions) -> None:
        """Begin with the session's present episode, before its first call."""
        self._session = session
        self._options = options
        self._additions = 0.0
        self._potential = booking_potential(session)

    def count_call(self) -> None:
        """Take note of a call that has just been played."""
        self._additions -= self._options.call_cost
        if self._options.shaping:
            potential = booking_potential(self._session)
            self._additions += shaping_term(self._potential, potential, 1.0)
            self._potential = potential

    def total(self) -> float:
        """The return, as if the episode ended here."""
        total = float(self._session.success) + self._additions
        if self._options.shaping:
            total += shaping_term(self._potential, 0.0, 1.0)
        if self._options.partial_credit:
            total += self._options.partial_credit * booking_potential(self._session)
        return total


def _session_of(env: gym.Env[Any, Any]) -> Session:
    session = getattr(env.unwrapped, "session", None)
    if not isinstance(session, Session):
        raise ConfigurationError(f"{env}: shaping needs an environment of ticket_gym, which plays a session")
    return session


def _check_gamma(gamma: float) -> float:
    if not 0 <= gamma <= 1:
        raise ConfigurationError(f"gamma={gamma!r}: must be from 0 to 1")
    return gamma


def _check_cost(cost: float) -> float:
    if not (math.isfinite(cost) and cost >= 0):
        raise ConfigurationError(f"call cost {cost!r}: must be a number from 0")
    return cost
