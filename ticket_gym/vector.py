"""Many episodes at once in one process, as a Gymnasium vector environment."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from ticket_gym.env import TicketBenchEnv
from ticket_gym.errors import ConfigurationError

Flags = npt.NDArray[np.bool_]
StepResult = tuple[tuple[str, ...], npt.NDArray[np.float64], Flags, Flags, dict[str, Any]]


class TicketBenchVectorEnv(VectorEnv[tuple[str, ...], Sequence[object], npt.NDArray[Any]]):
    """`num_envs` environments that share worlds, packs and tasks; plays exactly as `SyncVectorEnv` over them would.

    Attributes:
        envs: The environments, without wrappers.
        autoreset_mode: What happens to an environment whose episode has ended.
    """

    def __init__(
        self, num_envs: int = 1, *, autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP, **options: Any
    ) -> None:
        """Make the environments.

        Args:
            num_envs: How many.
            autoreset_mode: `NextStep`: the next step begins a new episode and ignores the action; `SameStep`: the same
                step does, and `final_obs` and `final_info` tell how the last one ended; `Disabled`: only `reset` does,
                with `options={"reset_mask": ...}` for those that have ended.
            **options: Keywords of `TicketBenchEnv`.

        Raises:
            ConfigurationError: A keyword cannot be used.
        """
        if isinstance(num_envs, bool) or not isinstance(num_envs, int) or num_envs < 1:
            raise ConfigurationError(f"num_envs={num_envs!r}: must be an integer from 1")
        try:
            self.autoreset_mode = AutoresetMode(autoreset_mode)
        except ValueError as error:
            modes = ", ".join(mode.value for mode in AutoresetMode)
            raise ConfigurationError(f"autoreset_mode={autoreset_mode!r}: choose one of {modes}") from error
        self.num_envs = num_envs
        self.envs = [TicketBenchEnv(**options) for _ in range(num_envs)]
        first = self.envs[0]
        self.metadata = {**first.metadata, "autoreset_mode": self.autoreset_mode}
        self.render_mode = first.render_mode
        self.single_action_space = first.action_space
        self.single_observation_space = first.observation_space
        self.action_space = batch_space(first.action_space, num_envs)
        self.observation_space = batch_space(first.observation_space, num_envs)
        self._texts = [""] * num_envs
        self._ended: Flags = np.zeros(num_envs, dtype=np.bool_)

    @property
    def tools(self) -> list[dict[str, Any]]:
        """OpenAI function schemas of the five tools."""
        return self.envs[0].tools

    @property
    def system_prompt(self) -> str:
        """The rules of the game, in the language of the requests."""
        return self.envs[0].system_prompt

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[tuple[str, ...], dict[str, Any]]:
        """Begin an episode everywhere, or where `reset_mask` says.

        Args:
            seed: One for each environment, or the first of consecutive ones.
            options: `{"reset_mask": flags}` to reset only some; `{"queries": [id or None, ...]}` for a certain request
                in each (None: drawn); all others go to every environment.

        Raises:
            ConfigurationError: A seed list or an option does not fit.
        """
        rest = dict(options or {})
        chosen = self._mask(rest.pop("reset_mask", None))
        queries: Sequence[str | None] = rest.pop("queries", [None] * self.num_envs)
        self._check_number("options: queries", queries)
        seeds = self._seeds(seed)
        infos: dict[str, Any] = {}
        for place in np.flatnonzero(chosen).tolist():
            query = queries[place]
            named = rest if query is None else {**rest, "query": query}
            self._texts[place], info = self.envs[place].reset(seed=seeds[place], options=named)
            self._ended[place] = False
            infos = self._add_info(infos, info, place)
        return tuple(self._texts), infos

    def step(self, actions: Sequence[object]) -> StepResult:
        """Play one call in each environment.

        Raises:
            ConfigurationError: There is not one action for each environment.
            ResetNeeded: An environment has no episode, or has ended and nothing resets it by itself; none has moved.
        """
        self._check_number("actions", actions)
        if self.autoreset_mode is AutoresetMode.DISABLED and self._ended.any():
            ended = np.flatnonzero(self._ended).tolist()
            raise ResetNeeded(f"environments {ended} have ended: call reset(options={{'reset_mask': ...}}) first")
        rewards = np.zeros(self.num_envs, dtype=np.float64)
        terminations, truncations = (np.zeros(self.num_envs, dtype=np.bool_) for _ in range(2))
        infos: dict[str, Any] = {}
        for place, (env, action) in enumerate(zip(self.envs, actions, strict=True)):
            if self._ended[place]:
                text, info = env.reset()
            else:
                text, rewards[place], terminations[place], truncations[place], info = env.step(action)
                if self.autoreset_mode is AutoresetMode.SAME_STEP and (terminations[place] or truncations[place]):
                    infos = self._add_info(infos, {"final_obs": text, "final_info": info}, place)
                    text, info = env.reset()
            self._texts[place] = text
            infos = self._add_info(infos, info, place)
        if self.autoreset_mode is not AutoresetMode.SAME_STEP:
            self._ended = terminations | truncations
        return tuple(self._texts), rewards, terminations, truncations, infos

    def render(self) -> tuple[str | None, ...]:  # type: ignore[override]
        """What each environment renders."""
        return tuple(env.render() for env in self.envs)

    def _seeds(self, seed: int | Sequence[int | None] | None) -> Sequence[int | None]:
        if seed is None:
            return [None] * self.num_envs
        if isinstance(seed, int | np.integer):
            return [int(seed) + place for place in range(self.num_envs)]
        self._check_number("seed", seed)
        return seed

    def _mask(self, mask: npt.ArrayLike | None) -> Flags:
        if mask is None:
            return np.ones(self.num_envs, dtype=np.bool_)
        flags = np.asarray(mask)
        if flags.shape != (self.num_envs,) or flags.dtype != np.bool_ or not flags.any():
            raise ConfigurationError(
                f"options: reset_mask: must hold one boolean for each of {self.num_envs} environments, not all False"
            )
        return flags

    def _check_number(self, option: str, values: Any) -> None:
        if isinstance(values, str | Mapping) or not hasattr(values, "__len__") or len(values) != self.num_envs:
            raise ConfigurationError(f"{option}: must be a list with one item for each of {self.num_envs} environments")
