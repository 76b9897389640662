"""When to ask a server again, how long to wait before, and which of several servers to ask."""

import datetime
import email.utils
import hashlib
import logging
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

log = logging.getLogger(__name__)

_RETRIED = frozenset({408, 409, 425, 429})
_LONGEST_BACKOFF_S = 60.0
_LONGEST_ASKED_S = 600.0
_DOWN_S = 60.0


def is_retried(status: int) -> bool:
    """Whether an HTTP status may be another at the next try."""
    return status in _RETRIED or status >= 500


@dataclass(frozen=True, slots=True)
class Retries:
    """How patient a client is.

    Attributes:
        most: Tries after the first one, at each server.
        backoff_s: Seconds before the first of them; doubled each time up to a minute, and varied by half, so that
            conversations which failed together do not come back together.
    """

    most: int = 6
    backoff_s: float = 1.0

    def wait_s(self, tries: int, headers: Mapping[str, str], rng: random.Random) -> float:
        """Seconds to wait after some failed tries: what the server asks for, or else the backoff."""
        # A server that says "at once" has failed all the same: without a wait, all tries would be gone in a moment.
        if asked := retry_after_s(headers):
            return min(asked, _LONGEST_ASKED_S)
        longest: float = min(self.backoff_s * 2.0 ** min(tries - 1, 30), _LONGEST_BACKOFF_S)
        return longest * rng.uniform(0.5, 1.0)


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Seconds that a server asks to be left alone: `retry-after-ms`, or `retry-after` in seconds or as an HTTP date."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(headers[name]) / unit
        except (KeyError, ValueError):
            continue
        return seconds if 0 <= seconds < float("inf") else None
    try:
        date = email.utils.parsedate_to_datetime(headers["retry-after"])
    except (KeyError, ValueError):
        return None
    now = datetime.datetime.now(date.tzinfo)
    return max(0.0, (date - now).total_seconds())


@dataclass(slots=True)
class Servers:
    """Several servers of the same model; each conversation has its own, so that its prefix stays cached there.

    The server is chosen by rendezvous hashing: it depends on the conversation's name only, and a server that comes or
    goes moves no conversation but its own. A server that cannot be reached is left out for a minute, and each
    conversation that moves because of it is logged as a warning. After the minute one try shows whether it is back.
    """

    urls: Sequence[str]
    _down: dict[str, float] = field(default_factory=dict)

    def ranked(self, conversation: str) -> list[str]:
        """The servers in the order in which the conversation tries them."""
        return sorted(self.urls, key=lambda url: hashlib.sha256(f"{url}\n{conversation}".encode()).digest())

    def choose(self, conversation: str, tried: Sequence[str] = ()) -> str | None:
        """The conversation's server, or None when all have been tried.

        A server that is down is still better than none: it is tried when no other is left.
        """
        left = [url for url in self.ranked(conversation) if url not in tried]
        up = [url for url in left if self._down.get(url, 0.0) <= time.monotonic()]
        return next(iter(up or left), None)

    def is_doubted(self, url: str) -> bool:
        """Whether it has not answered since it was left out, while there are others that may be relied on."""
        return url in self._down and any(other not in self._down for other in self.urls)

    def answered(self, url: str) -> None:
        """Rely on a server again."""
        self._down.pop(url, None)

    def put_down(self, url: str, conversation: str, reason: str) -> None:
        """Leave a server out for a minute."""
        self._down[url] = time.monotonic() + _DOWN_S
        if len(self.urls) > 1:
            log.warning("%s cannot be reached (%s): conversation %s moves to another server", url, reason, conversation)
