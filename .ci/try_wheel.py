"""Try an installed wheel: all assets are there, and all six environments play a query.

Run it with the core dependencies only, outside the checkout, and with `python -I`, so that only the installed package
can be found: `python -I try_wheel.py CHECKOUT/assets`.
"""

import sys
from pathlib import Path

import gymnasium as gym

import ticket_gym
from ticket_gym.agents import ScriptedAgent

LANGUAGES = ("pt", "fr", "de", "es", "it", "en")


def check_assets(source: Path, installed: Path) -> int:
    """Compare the two folders file by file, hidden files aside.

    Returns:
        The number of files.

    Raises:
        SystemExit: A file is missing or differs.
    """
    files = [path for path in source.rglob("*") if path.is_file() and not path.name.startswith(".")]
    for path in files:
        copy = installed / path.relative_to(source)
        if not copy.is_file() or copy.read_bytes() != path.read_bytes():
            raise SystemExit(f"not in the wheel as it is in the checkout: {path.relative_to(source)}")
    return len(files)


def play(language: str) -> float:
    """Play one query of `language` to its end with the scripted expert, through the environment.

    Returns:
        The reward.

    Raises:
        SystemExit: The episode does not begin or end as it must.
    """
    env = gym.make(f"ticket_gym:TicketBench-{language}-v0")
    observation, info = env.reset(options={"query": "t07-01"})
    player = ScriptedAgent("expert").start(env.unwrapped.session, seed=0)  # type: ignore[attr-defined]
    call, reward, terminated, truncated = player.next_call(None), 0.0, False, False
    while not (terminated or truncated):
        answer = {"name": "respond", "arguments": {"content": call}}
        action = answer if isinstance(call, str) else call.to_action()
        observation, step_reward, terminated, truncated, info = env.step(action)
        reward = float(step_reward)
        if not terminated:
            call = player.next_call(observation)
    env.close()
    if reward != 1.0 or truncated or not info["success"]:
        raise SystemExit(f"{language}: {reward=} {terminated=} {truncated=} {info=}")
    return reward


def main() -> None:
    """Check the installed package against the assets folder named on the command line."""
    package = Path(ticket_gym.__file__).resolve().parent
    if not package.is_relative_to(Path(sys.prefix).resolve()):
        raise SystemExit(f"not the installed package: {package}")
    print(f"{check_assets(Path(sys.argv[1]), package / 'assets')} asset files as in the checkout")
    for language in LANGUAGES:
        print(f"TicketBench-{language}-v0: reward {play(language)}")


if __name__ == "__main__":
    main()
