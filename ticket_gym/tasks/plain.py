"""The second solver: a plain reading of the request, game by game, as a check on the vectorised one.

It shares no code with that one, day groups included, so that a slip in either shows as a disagreement.
"""

from ticket_gym.request import Constraints, Opponent
from ticket_gym.world import Game, Season, User, World

_DAY_NAMES = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


def satisfies(game: Game, world: World, user: User, wanted: Constraints) -> bool:
    """Whether a game is one that the request is about, whatever its price."""
    return not violated(game, world, user, wanted)


def violated(game: Game, world: World, user: User, wanted: Constraints) -> tuple[str, ...]:
    """Names of the constraints that a game does not satisfy, as the fields of `Constraints`, in their order.

    Where the favourite team does not play, it has no opponent: `opponent` is then judged on the visitors, as for a
    request that names no team, so that such a game is not blamed a second time for the missing favourite.
    """
    names = []
    if wanted.favourite and user.favourite not in (game.home, game.away):
        names.append("favourite")
    if wanted.away and game.away != user.favourite:
        names.append("away")
    if wanted.city is not None and game.home not in wanted.city:
        names.append("city")
    if wanted.half is not None and wanted.half != (1 if game.date.month <= 6 else 2):
        names.append("half")
    if wanted.days is not None and not _is_played_on(game, wanted.days):
        names.append("days")
    if wanted.opponent is not None:
        team = game.home if wanted.favourite and game.away == user.favourite else game.away
        if not _did(team, world, wanted.opponent):
            names.append("opponent")
    return tuple(names)


def solve_plainly(world: World, season: Season, user: User, wanted: Constraints) -> tuple[int, ...]:
    """The bookings that a request should end with.

    Args:
        world: Where the standings are.
        season: The schedule that is played.
        user: Whose team and balance count.
        wanted: The request.

    Returns:
        Sorted ids of the games to be booked. Empty where no game matches, fewer match than are wanted, or the balance
        does not cover the wanted ones together: a request is met in full or not at all.
    """
    matching = [game for game in season.games if satisfies(game, world, user, wanted)]
    if wanted.select == "most_expensive_affordable":
        matching = [game for game in matching if game.price <= user.balance]
    if wanted.count is not None and len(matching) < wanted.count:
        return ()
    by_price = sorted(matching, key=lambda game: game.price, reverse=wanted.select == "most_expensive_affordable")
    # "All" means every match, whatever the count: that is then the least that the request expects to find.
    bought = by_price if wanted.select == "all" else by_price[: wanted.count]
    if sum(game.price for game in bought) > user.balance:
        return ()
    return tuple(sorted(game.id for game in bought))


def _is_played_on(game: Game, days: str) -> bool:
    weekday = game.date.weekday()
    if days == "weekend":
        return weekday in (5, 6)
    if days == "weekdays":
        return weekday not in (5, 6)
    if days == "midweek":
        return weekday in (1, 2, 3)
    # A misspelt name raises here, rather than matching no game and passing for an unsolvable request.
    return weekday == _DAY_NAMES.index(days)


def _did(team: int, world: World, opponent: Opponent) -> bool:
    rows = world.standings[opponent.year]
    if opponent.kind == "top":
        return team in [row.team for row in rows[: opponent.value]]
    [row] = [row for row in rows if row.team == team]
    if opponent.kind == "points_over":
        return row.points > opponent.value
    return row.goals_scored > opponent.value
