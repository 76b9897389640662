"""How far a run has come, as it is shown."""

import io

from rich.console import Console

from ticket_gym.display import ProgressDisplay
from ticket_gym.runner import Progress

PROGRESS = Progress(total=100, done=40, successes=10, errors=2, tokens=12_345, played=30, elapsed_s=15.0)


def test_without_a_terminal_there_are_lines_now_and_then_and_a_last_one() -> None:
    """Not one for each episode."""
    output = io.StringIO()
    with ProgressDisplay(Console(file=output, width=60), line_seconds=3600) as display:
        for done in range(41):
            display(Progress(total=100, done=done))
        display(PROGRESS)
    assert output.getvalue().splitlines() == [
        "0/100 episodes · ",
        "40/100 episodes · 25.0% success · 2 engine errors · 12.3 k tokens · 2.0/s · 0:30 left",
    ]


def test_with_a_terminal_there_is_a_bar() -> None:
    """With the same figures."""
    output = io.StringIO()
    with ProgressDisplay(Console(file=output, force_terminal=True, width=160)) as display:
        display(PROGRESS)
    assert "40/100" in output.getvalue()
    assert "25.0% success · 2 engine errors · 12.3 k tokens · 2.0/s · 0:30 left" in output.getvalue()
