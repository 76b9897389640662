"""How a world is drawn: clubs, calendars, prices, league tables and balances, as arrays of integers.

Every number comes from `Generator.random()` by comparing, adding, multiplying and sorting: operations that give the
same bits on every platform and in every NumPy, which `exp`, `Generator.poisson` or `Generator.permutation` do not
promise. So a world can be pinned by a hash.
"""

import datetime
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ticket_gym.types import SeasonKind

YEAR = 2025
"""Calendar year of both seasons."""
PAST_YEARS = (2022, 2023, 2024)
"""The years that have standings."""
TEAM_COUNT = 20
USER_COUNT = 20

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_GAMES_A_ROUND = TEAM_COUNT // 2
_ROUNDS = TEAM_COUNT - 1

# Weeks run from Tuesday to Monday: only so does one week hold a midweek round as well as a round from Friday to
# Monday. 2025 obliges: the 25th of these weeks ends on 30 June, so no round is cut by the turn of the half-year.
_FIRST_TUESDAY = datetime.date(YEAR, 1, 7).toordinal()
_WEEKS_OF_HALF = (range(25), range(25, 51))
_OPEN_WEEKS = 19
_BREAK_WEEKS = (10, 22, 23, 24, 25, 26, 34, 39, 50)  # national teams in March, September, October; summer; Christmas
_MIDWEEK_DAYS = (0.50, 0.90)  # cumulative shares: Tuesday, Wednesday; the rest is Thursday
_WEEKEND_DAYS = (0.10, 0.53, 0.90)  # Friday, Saturday, Sunday; the rest is Monday
_FRIDAY = 3
_REST_DAYS = 3

_CHANCES = 15

_PRICE_STEP = 50
_FALLBACK_STEP = 10


class Clubs(NamedTuple):
    """Hidden figures of the 20 clubs, each of shape `(20,)` and within 0 to 1."""

    strength: Floats
    popularity: Floats


class Calendar(NamedTuple):
    """A season's games by date, then home slot; columns of shape `(n,)`."""

    home: Ints
    away: Ints
    day: Ints
    """Proleptic Gregorian ordinals, see `datetime.date.fromordinal`."""


class Table(NamedTuple):
    """A year's standings, first to last; columns of shape `(20,)`."""

    team: Ints
    points: Ints
    wins: Ints
    draws: Ints
    losses: Ints
    goals_scored: Ints
    goals_conceded: Ints


def draw_permutation(rng: np.random.Generator, size: int) -> Ints:
    """A random order of `0 .. size - 1`."""
    return np.argsort(rng.random(size), kind="stable")


def draw_clubs(rng: np.random.Generator) -> Clubs:
    """Spread the clubs over the whole ladder, so that every league has giants and minnows."""
    strength = (draw_permutation(rng, TEAM_COUNT) + rng.random(TEAM_COUNT)) / TEAM_COUNT
    popularity = 0.75 * strength + 0.25 * rng.random(TEAM_COUNT)
    return Clubs(strength, popularity)


def draw_calendar(rng: np.random.Generator, kind: SeasonKind) -> Calendar:
    """Draw who plays whom, where and on which day.

    Args:
        rng: The world's generator.
        kind: `single`: every pair once, 190 games; `double`: home and away, 380 games.

    Returns:
        The games by date, then home slot. A team plays once a round, with at least two free days between two games.
    """
    rounds = _draw_round_robin(rng)
    if kind == "double":
        rounds = np.concatenate([rounds, _draw_return_rounds(rng, rounds)])
    days = _draw_days(rng, rounds)
    home, away, day = rounds[..., 0].ravel(), rounds[..., 1].ravel(), days.ravel()
    order = np.lexsort((home, day))
    return Calendar(home[order], away[order], day[order])


def _draw_round_robin(rng: np.random.Generator) -> Ints:
    """Every pair once: shape (round, game, home and away), by the circle method with teams and rounds shuffled."""
    slots = draw_permutation(rng, TEAM_COUNT)
    turn = draw_permutation(rng, _ROUNDS)[:, None]
    step = np.arange(1, _GAMES_A_ROUND)
    pivot = np.full_like(turn, TEAM_COUNT - 1)
    one = slots[np.hstack([pivot, (turn + step) % _ROUNDS])]
    other = slots[np.hstack([turn, (turn - step) % _ROUNDS])]
    at_home = _draw_home_rounds(rng, one, other)
    one_at_home = np.take_along_axis(at_home, one, axis=1)
    return np.stack([np.where(one_at_home, one, other), np.where(one_at_home, other, one)], axis=-1)


def _draw_home_rounds(rng: np.random.Generator, one: Ints, other: Ints) -> NDArray[np.bool_]:
    """Who is at home: shape (round, team), nine or ten times each, never more than twice in a row.

    19 is prime, so the games of any two rounds of the circle method form one cycle through all 20 teams. Walking along
    it gives every team one home and one away game in these two rounds; the direction is free, and the one with fewer
    teams at home (or away) twice in a row is taken.
    """
    rivals = np.empty((_ROUNDS, TEAM_COUNT), dtype=np.int64)
    np.put_along_axis(rivals, one, other, axis=1)
    np.put_along_axis(rivals, other, one, axis=1)
    at_home = np.zeros((_ROUNDS, TEAM_COUNT), dtype=np.bool_)
    coins = rng.random(_ROUNDS) < 0.5
    for early in range(0, _ROUNDS - 1, 2):
        hosts, late_hosts = _walk(rivals[early].tolist(), rivals[early + 1].tolist())
        at_home[early, hosts] = True
        at_home[early + 1, late_hosts] = True
        repeats = np.count_nonzero(at_home[early] == at_home[early - 1]) if early else _GAMES_A_ROUND
        if repeats > _GAMES_A_ROUND or (repeats == _GAMES_A_ROUND and coins[early]):
            at_home[early : early + 2] ^= True
    before = at_home[-2]
    coins = rng.random(_GAMES_A_ROUND) < 0.5
    at_home[-1, one[-1]] = np.where(before[one[-1]] == before[other[-1]], coins, before[other[-1]])
    at_home[-1, other[-1]] = ~at_home[-1, one[-1]]
    return at_home


def _walk(rivals: list[int], late_rivals: list[int]) -> tuple[list[int], list[int]]:
    """Hosts of two rounds when each team travels to the next one of their common cycle."""
    hosts, late_hosts = [], []
    team = 0
    for _ in range(_GAMES_A_ROUND):
        hosts.append(team)
        late_hosts.append(rivals[team])
        team = late_rivals[rivals[team]]
    return hosts, late_hosts


def _draw_return_rounds(rng: np.random.Generator, rounds: Ints) -> Ints:
    """The same games with home and away swapped, in a slightly different order.

    Rounds move in the twos that balance home and away, and by a few places only: the return match is never soon.
    """
    twos = np.argsort(np.arange(_GAMES_A_ROUND) + 3 * rng.random(_GAMES_A_ROUND), kind="stable")
    order = (2 * twos[:, None] + np.arange(2)).ravel()
    return rounds[order[order < _ROUNDS], :, ::-1]


def _draw_days(rng: np.random.Generator, rounds: Ints) -> Ints:
    """The day of every game: ordinals of shape (round, game)."""
    count = len(rounds)
    midweek = np.arange(0, count - 2, 3) + (3 * rng.random(count // 3)).astype(np.int64)
    draws = rng.random((count, _GAMES_A_ROUND))
    days = _FRIDAY + np.searchsorted(_WEEKEND_DAYS, draws, side="right")
    days[midweek] = np.searchsorted(_MIDWEEK_DAYS, draws[midweek], side="right")
    rows: list[list[int]] = (days + _draw_weeks(rng, count)[:, None]).tolist()
    free = [0] * TEAM_COUNT
    for games, row in zip(rounds.tolist(), rows, strict=True):
        for number, (home, away) in enumerate(games):
            # A midweek round right after a weekend one: who played on Sunday or Monday plays later in the week.
            row[number] = max(row[number], free[home], free[away])
            free[home] = free[away] = row[number] + _REST_DAYS
    return np.array(rows, dtype=np.int64)


def _draw_weeks(rng: np.random.Generator, rounds: int) -> Ints:
    """Ordinal of the Tuesday of every round's week, shape `(rounds,)`, half of the rounds in each half of the year."""
    first = rounds // 2 + (rounds % 2 if rng.random() < 0.5 else 0)
    weeks = []
    for span, share in zip(_WEEKS_OF_HALF, (first, rounds - first), strict=True):
        rank = rng.random(len(span)) + np.array([week in _BREAK_WEEKS for week in span])
        open_weeks = span.start + np.sort(np.argsort(rank, kind="stable")[:_OPEN_WEEKS])
        edges = np.arange(share + 1) * _OPEN_WEEKS // share
        weeks.append(open_weeks[edges[:-1] + (rng.random(share) * np.diff(edges)).astype(np.int64)])
    return _FIRST_TUESDAY + 7 * np.concatenate(weeks)


def draw_prices(rng: np.random.Generator, clubs: Clubs, calendar: Calendar) -> Ints:
    """Draw the price of every game.

    Giants at home are dear, giants as visitors make a game dearer, a weekend adds a little, and a few games
    are in demand beyond all that.

    Returns:
        Minor units, shape `(n,)`, no two alike.
    """
    host, guest = clubs.popularity[calendar.home], clubs.popularity[calendar.away]
    at_weekend = (calendar.day + 6) % 7 >= 5
    luck, demand = rng.random(len(host)), rng.random(len(host))
    sold_out = demand * demand * demand * demand
    price = 2500 * (1 + 1.7 * host * host) * (1 + 1.2 * guest * guest)
    price *= (1 + 0.1 * at_weekend) * (0.6 + 0.8 * luck + 0.9 * sold_out * sold_out)
    wanted = _PRICE_STEP * np.rint(price / _PRICE_STEP).astype(np.int64)
    return _keep_apart(wanted)


def _keep_apart(wanted: Ints) -> Ints:
    """Move each price that is taken already to the nearest free one, by the smaller step."""
    taken: set[int] = set()
    prices = []
    for price in wanted.tolist():
        shift = 0
        while price + shift in taken:
            shift = -shift if shift > 0 else _FALLBACK_STEP - shift
        taken.add(price + shift)
        prices.append(price + shift)
    return np.array(prices, dtype=np.int64)


def draw_tables(rng: np.random.Generator, clubs: Clubs) -> list[Table]:
    """Play a double round robin in each of the past years, while the clubs' strength drifts.

    Returns:
        One table a year, in the order of `PAST_YEARS`.
    """
    strength = clubs.strength
    tables = []
    for _ in PAST_YEARS:
        strength = np.clip(strength + 0.5 * (rng.random(TEAM_COUNT) - 0.5), 0, 1)
        tables.append(_draw_table(rng, strength))
    return tables


def _draw_table(rng: np.random.Generator, strength: Floats) -> Table:
    """Goals of 380 games, added up and put in order."""
    attack = 0.65 + 0.8 * strength * strength + 0.2 * rng.random(TEAM_COUNT)
    leak = 1.32 - 0.6 * strength + 0.2 * (rng.random(TEAM_COUNT) - 0.5)
    at_home = _draw_goals(rng, 1.5 * attack[:, None] * leak)
    away = _draw_goals(rng, 1.15 * attack * leak[:, None])
    wins = (at_home > away).sum(axis=1) + (away > at_home).sum(axis=0)
    losses = (at_home < away).sum(axis=1) + (away < at_home).sum(axis=0)
    draws = 2 * _ROUNDS - wins - losses
    points = 3 * wins + draws
    scored = at_home.sum(axis=1) + away.sum(axis=0)
    conceded = away.sum(axis=1) + at_home.sum(axis=0)
    order = np.lexsort((np.arange(TEAM_COUNT), -scored, conceded - scored, -wins, -points))
    return Table(*(column[order] for column in (np.arange(TEAM_COUNT), points, wins, draws, losses, scored, conceded)))


def _draw_goals(rng: np.random.Generator, expected: Floats) -> Ints:
    """Goals by (host, guest), nobody against itself: so many chances, each taken or missed; nearly Poisson."""
    taken = rng.random((TEAM_COUNT, TEAM_COUNT, _CHANCES)) < expected[..., None] / _CHANCES
    goals: Ints = taken.sum(axis=-1, dtype=np.int64)
    np.fill_diagonal(goals, 0)
    return goals


def draw_balances(rng: np.random.Generator, clubs: Clubs, favourites: Ints, prices: list[Ints]) -> Ints:
    """Draw what each user can spend: minor units, shape `(20,)`.

    Above four fifths of all prices, below the dearest: most games can be paid, the dearest often cannot. Who follows a
    dear club tends to have more, so that everyone can pay some of the own club's games and few can pay them all.

    Args:
        rng: The world's generator.
        clubs: The world's clubs.
        favourites: Team slot of each user, shape `(20,)`.
        prices: Prices of both seasons.
    """
    pool = np.sort(np.concatenate(prices))
    low, high = int(pool[len(pool) * 82 // 100]), int(pool[len(pool) * 993 // 1000])
    rank = np.argsort(np.argsort(clubs.popularity[favourites] + 0.5 * rng.random(USER_COUNT), kind="stable"))
    share = (rank + rng.random(USER_COUNT)) / USER_COUNT
    return low + ((high - low) * share).astype(np.int64)
