"""The environment in numbers: for classical reinforcement learning, without any language model.

An action is one of `ACTIONS`: tools with their arguments filled in from the request and from what has been seen. An
observation is a vector of features of the request, of what is known so far and of the listed page. Everything in it
comes from the structured request and from the results of earlier calls; nothing comes from the expected bookings, and
no feature says that a game is the one to buy. The day of the week of a date is taken from the calendar.
"""

import datetime
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.utils import RecordConstructorArgs

from ticket_gym.codec import Codec
from ticket_gym.errors import ConfigurationError
from ticket_gym.request import DAY_GROUPS, Constraints
from ticket_gym.session import Session
from ticket_gym.tools import PAGE_SIZE
from ticket_gym.types import RESPOND, ToolCall

Features = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Listing:
    """A list of games that can be asked for.

    Attributes:
        mine: Only games of the user's favourite team.
        here: Only games in the city of the request.
        by_price: Ordered by price; otherwise by date.
        descending: From the highest price down.
    """

    mine: bool
    here: bool
    by_price: bool
    descending: bool


LISTINGS: tuple[Listing, ...] = tuple(
    Listing(mine, here, by_price, descending)
    for mine in (False, True)
    for here in (False, True)
    for by_price, descending in ((False, False), (True, False), (True, True))
)

ACTIONS: tuple[str, ...] = (
    "get_user_info",
    *(f"list_games_{number}" for number in range(len(LISTINGS))),
    "next_page",
    "get_leaderboard",
    *(f"buy_{row}" for row in range(PAGE_SIZE)),
    "answer",
)
"""What each number means: `list_games_i` asks for `LISTINGS[i]`, `buy_i` buys the game in row `i` of the page."""

ASK_USER = 0
FIRST_LISTING = 1
NEXT_PAGE = FIRST_LISTING + len(LISTINGS)
ASK_LEADERBOARD = NEXT_PAGE + 1
FIRST_PURCHASE = ASK_LEADERBOARD + 1
ANSWER = FIRST_PURCHASE + PAGE_SIZE

REQUEST_FEATURES = (
    *("favourite", "away", "city", "first_half", "second_half", "days", "opponent"),
    *("cheapest", "most_expensive", "all", "two"),
)
STATUS_FEATURES = (
    *("user_known", "leaderboard_known", "booked", "steps_used"),
    *("listed", "mine", "here", "by_price", "descending", "page", "more_pages"),
)
ROW_FEATURES = ("present", "booked", "affordable", "price", "favourite", "away", "city", "half", "days", "opponent")
"""From -1 (no) over 0 (not known) to 1 (yes, or not asked for), but for the price: relative to the balance."""

CONTEXT_SIZE = len(REQUEST_FEATURES) + len(STATUS_FEATURES)
OBSERVATION_SIZE = CONTEXT_SIZE + PAGE_SIZE * len(ROW_FEATURES)


class NumericTickets(gym.Wrapper[Any, Any, str, Any], RecordConstructorArgs):
    """Plays one call for each numbered action; see `ACTIONS`.

    `action_masks` tells which actions can be played now. An action that cannot is played as the question who the user
    is: it changes nothing and costs a step. The observation is laid out as `REQUEST_FEATURES`, `STATUS_FEATURES` and,
    for each of the ten rows of a page, `ROW_FEATURES`; all values are from -1 to 1.

    Attributes:
        session: The session that is played; for whoever scores, not for whoever plays.
    """

    def __init__(self, env: gym.Env[str, Any]) -> None:
        """Wrap a text environment, itself wrapped or not.

        Raises:
            ConfigurationError: The environment plays no session.
        """
        RecordConstructorArgs.__init__(self)
        gym.Wrapper.__init__(self, env)
        session = getattr(env.unwrapped, "session", None)
        if not isinstance(session, Session):
            raise ConfigurationError(f"{env}: needs an environment of ticket_gym, which plays a session")
        self.session = session
        self._known = _Known(session.codec, Constraints(), 0)
        self.action_space = gym.spaces.Discrete(len(ACTIONS))
        self.observation_space = gym.spaces.Box(-1.0, 1.0, (OBSERVATION_SIZE,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Features, dict[str, Any]]:
        """Begin an episode; `options` are those of the text environment."""
        _, info = self.env.reset(seed=seed, options=options)
        limit = self.session.settings.max_steps
        self._known = _Known(self.session.codec, self.session.playing.constraints, limit)
        return self._known.features(), info

    def step(self, action: int | np.integer[Any]) -> tuple[Features, float, bool, bool, dict[str, Any]]:
        """Play a numbered action.

        Raises:
            ConfigurationError: There is no such number.
        """
        number = int(action)
        if not 0 <= number < len(ACTIONS):
            raise ConfigurationError(f"action {action!r}: must be from 0 to {len(ACTIONS) - 1}")
        if not self._known.mask()[number]:
            number = ASK_USER
        text, reward, terminated, truncated, info = self.env.step(self._known.make_call(number))
        if text:
            self._known.read(number, json.loads(text))
        return self._known.features(), float(reward), terminated, truncated, info

    def action_masks(self) -> npt.NDArray[np.bool_]:
        """Which actions can be played now; shape `(len(ACTIONS),)`, the form that `sb3-contrib` asks for."""
        return self._known.mask()


@dataclass(slots=True)
class _Row:
    """A listed game; names are those of the league."""

    id: int
    home: str
    away: str
    city: str
    date: datetime.date
    price: float


@dataclass(slots=True)
class _Known:
    """What an agent knows in the middle of an episode: the request, and what its calls have told it."""

    codec: Codec
    wanted: Constraints
    max_steps: int
    steps: int = 0
    favourite: str | None = None
    balance: float | None = None
    named: frozenset[str] | None = None
    bookings: list[int] = field(default_factory=list)
    listing: Listing | None = None
    page: int = 0
    pages: int = 0
    rows: list[_Row] = field(default_factory=list)
    checked: list[tuple[float, ...]] = field(default_factory=list)
    """For each row, whether it satisfies each constraint; changes only when something is read."""

    # What can be done

    def mask(self) -> npt.NDArray[np.bool_]:
        """Which actions have all that they need."""
        mask = np.zeros(len(ACTIONS), dtype=np.bool_)
        mask[[ASK_USER, ANSWER]] = True
        for number, listing in enumerate(LISTINGS, FIRST_LISTING):
            mask[number] = (self.favourite is not None or not listing.mine) and (
                self.wanted.city is not None or not listing.here
            )
        mask[NEXT_PAGE] = self.page < self.pages
        mask[ASK_LEADERBOARD] = self.wanted.opponent is not None
        for place, row in enumerate(self.rows):
            mask[FIRST_PURCHASE + place] = row.id not in self.bookings
        return mask

    def make_call(self, number: int) -> ToolCall:
        """The tool call that an action stands for."""
        if number == ANSWER:
            return ToolCall(RESPOND, {"content": str(len(self.bookings))})
        if number == ASK_USER:
            return self._call("get_user_info")
        if number == ASK_LEADERBOARD and self.wanted.opponent is not None:
            return self._call("get_leaderboard", year=self.wanted.opponent.year)
        if number >= FIRST_PURCHASE:
            return self._call("buy_game_ticket", game_id=self.rows[number - FIRST_PURCHASE].id)
        if number == NEXT_PAGE and self.listing is not None:
            return self._list(self.listing, self.page + 1)
        return self._list(LISTINGS[number - FIRST_LISTING], 1)

    def _list(self, listing: Listing, page: int) -> ToolCall:
        orders = self.codec.texts.tools["list_games"].parameters["order_by"].values
        arguments: dict[str, object] = {
            "page": page,
            "order_by": orders["price" if listing.by_price else "date"],
            "descending": listing.descending,
        }
        if listing.mine:
            arguments["team"] = self.favourite
        if listing.here and self.wanted.city is not None:
            arguments["city"] = self.codec.city_name(self.wanted.city)
        return self._call("list_games", **arguments)

    def _call(self, tool: Any, **arguments: object) -> ToolCall:
        named = {self.codec.parameter_name(tool, name): value for name, value in arguments.items()}
        return ToolCall(self.codec.tool_names[tool], named)

    # What results tell

    def read(self, number: int, result: dict[str, Any]) -> None:
        """Take in the result of an action."""
        self.steps += 1
        key = self.codec.texts.keys
        if key["error"] in result:
            return
        if number == ASK_USER:
            self.favourite = result[key["favourite_team"]]
            self.balance = _amount(result[key["balance"]])
        elif number == ASK_LEADERBOARD:
            self.named = self._named_teams(result[key["rows"]])
        elif number >= FIRST_PURCHASE:
            self.bookings.append(result[key["game_id"]])
            self.balance = _amount(result[key["balance"]])
        else:
            if number != NEXT_PAGE:
                self.listing = LISTINGS[number - FIRST_LISTING]
            self.page = result[key["page"]]
            self.pages = result[key["total_pages"]]
            self.rows = [self._row(game) for game in result[key["games"]]]
        if number < FIRST_PURCHASE:
            checks = list(self._checks())
            self.checked = [tuple([check(row) for check in checks]) for row in self.rows]

    def _row(self, game: dict[str, Any]) -> _Row:
        key = self.codec.texts.keys
        return _Row(
            game[key["id"]],
            game[key["home_team"]],
            game[key["away_team"]],
            game[key["city"]],
            datetime.date.fromisoformat(game[key["date"]]),
            _amount(game[key["price"]]),
        )

    def _named_teams(self, rows: list[dict[str, Any]]) -> frozenset[str]:
        """The teams that the request's leaderboard condition names."""
        opponent = self.wanted.opponent
        key = self.codec.texts.keys
        if opponent is None:
            return frozenset()
        if opponent.kind == "top":
            rows = rows[: opponent.value]
        else:
            figure = key["points" if opponent.kind == "points_over" else "goals_scored"]
            rows = [row for row in rows if row[figure] > opponent.value]
        return frozenset(row[key["team"]] for row in rows)

    # Features

    def features(self) -> Features:
        """The observation; shape `(OBSERVATION_SIZE,)`."""
        vector = np.zeros(OBSERVATION_SIZE, dtype=np.float32)
        vector[:CONTEXT_SIZE] = [*self._request_features(), *self._status_features()]
        page = [
            value
            for row, checked in zip(self.rows, self.checked, strict=True)
            for value in self._row_features(row, checked)
        ]
        vector[CONTEXT_SIZE : CONTEXT_SIZE + len(page)] = page
        return vector

    def _request_features(self) -> tuple[float, ...]:
        wanted = self.wanted
        return (
            wanted.favourite,
            wanted.away,
            wanted.city is not None,
            wanted.half == 1,
            wanted.half == 2,
            wanted.days is not None,
            wanted.opponent is not None,
            wanted.select == "cheapest",
            wanted.select == "most_expensive_affordable",
            wanted.select == "all",
            wanted.count == 2,
        )

    def _status_features(self) -> tuple[float, ...]:
        listing = self.listing or Listing(False, False, False, False)
        return (
            self.favourite is not None,
            self.named is not None,
            min(len(self.bookings) / 4, 1.0),
            min(self.steps / max(1, self.max_steps), 1.0),
            self.listing is not None,
            listing.mine,
            listing.here,
            listing.by_price,
            listing.descending,
            self.page / max(1, self.pages),
            self.page < self.pages,
        )

    def _row_features(self, row: _Row, checked: tuple[float, ...]) -> tuple[float, ...]:
        balance = self.balance
        return (
            1.0,
            row.id in self.bookings,
            0.0 if balance is None else _sign(row.price <= balance),
            0.0 if not balance else min(row.price / balance, 2.0) / 2.0,
            *checked,
        )

    def _checks(self) -> Iterator[Callable[[_Row], float]]:
        """For each constraint, whether a row satisfies it: 1, -1, or 0 where that is not known."""
        wanted = self.wanted
        mine = self.favourite
        city = None if wanted.city is None else self.codec.city_name(wanted.city)
        days = None if wanted.days is None else DAY_GROUPS[wanted.days]
        yield _check(wanted.favourite, mine is not None, lambda row: mine in (row.home, row.away))
        yield _check(wanted.away, mine is not None, lambda row: row.away == mine)
        yield _check(city is not None, True, lambda row: row.city == city)
        yield _check(wanted.half is not None, True, lambda row: (1 if row.date.month <= 6 else 2) == wanted.half)
        yield _check(days is not None, True, lambda row: row.date.weekday() in (days or ()))
        named = self.named or frozenset()
        known = self.named is not None and not (wanted.favourite and mine is None)
        yield _check(wanted.opponent is not None, known, lambda row: self._other(row) in named)

    def _other(self, row: _Row) -> str:
        """The team that a leaderboard condition is about."""
        return row.home if self.wanted.favourite and row.away == self.favourite else row.away


def _check(asked: bool, known: bool, holds: Callable[[_Row], bool]) -> Callable[[_Row], float]:
    if not asked:
        return lambda row: 1.0
    return (lambda row: _sign(holds(row))) if known else (lambda row: 0.0)


def _sign(holds: bool) -> float:
    return 1.0 if holds else -1.0


def _amount(text: str) -> float:
    """An amount as a result shows it (`45.50 EUR`), in units of the currency."""
    return float(text.split()[0])
