"""The `ticket-gym` command."""

import sys

from ticket_gym.errors import RunInterruptedError, TicketGymError

USAGE_ERROR = 2
"""Exit status for what the person at the keyboard can mend."""


def main() -> None:
    """Run the command. What a person can mend is told in one line, without a traceback."""
    try:
        from ticket_gym.cli.app import app
    except ImportError as error:
        sys.exit(f"The command needs {error.name}, which is not installed: pip install 'ticket-gym[eval]'")
    try:
        app()
    except RunInterruptedError as stopped:
        print(stopped, file=sys.stderr)
        sys.exit(128 + stopped.signal)
    except TicketGymError as error:
        print(f"Error: {error}", file=sys.stderr)
        sys.exit(USAGE_ERROR)
