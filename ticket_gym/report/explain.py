"""Says in words what a request asks for and why an episode failed: from structure, for people, in English."""

from collections.abc import Iterator

from ticket_gym.locale import League, load_locale
from ticket_gym.records import Trajectory
from ticket_gym.report.words import load_words
from ticket_gym.request import WEEKDAYS, Constraints, Opponent, Task
from ticket_gym.tasks import Cause, Diagnosis
from ticket_gym.types import Language, StopReason
from ticket_gym.world import Game, Season, User, World, get_world


class Explainer:
    """Words everything about the requests of one league.

    Attributes:
        league: Whose clubs are meant.
    """

    def __init__(self, league: Language) -> None:
        self.league: League = load_locale(league).league
        self._words = load_words()

    def describe_game(self, task: Task, game_id: int) -> dict[str, object]:
        """What a reader wants to know about a game; a game that does not exist has its id only."""
        game = _season(task).game(game_id)
        if game is None:
            return {"id": game_id}
        home = self.league.teams[game.home]
        return {
            "id": game.id,
            "home": home.name,
            "away": self.league.teams[game.away].name,
            "city": home.city,
            "date": game.date.isoformat(),
            "weekday": self._words.days[WEEKDAYS[game.date.weekday()]],
            "price": self.amount(game.price),
        }

    def amount(self, minor: int) -> str:
        """An amount of minor units with its currency."""
        return f"{minor // 100:,}.{minor % 100:02d} {self.league.currency}"

    def describe_request(self, task: Task) -> list[tuple[str, str]]:
        """The constraints of a request, each as a name and its value, the user's balance last."""
        words, wanted, user = self._words, task.constraints, _user(task)
        team = self.league.teams[user.favourite].name
        lines: list[tuple[str, str]] = []
        if wanted.favourite:
            lines.append(("favourite", team))
        if wanted.away:
            lines.append(("away", words.wanted["away"].format(team=team)))
        if wanted.city is not None:
            lines.append(("city", self._city(wanted)))
        if wanted.half is not None:
            lines.append(("half", words.halves[str(wanted.half)]))
        if wanted.days is not None:
            lines.append(("days", words.days[wanted.days]))
        if wanted.opponent is not None:
            lines.append(("opponent" if wanted.favourite else "visitors", self._opponent(wanted.opponent)))
        number = "one" if wanted.count == 1 else "many"
        lines.append(("select", words.wanted[f"{wanted.select}_{number}"].format(count=wanted.count)))
        lines.append(("balance", self.amount(user.balance)))
        return [(words.constraints[name], text) for name, text in lines]

    def explain(self, task: Task, episode: Trajectory, diagnosis: Diagnosis) -> list[str]:
        """Sentences that say why an episode succeeded or failed."""
        explained = self._words.explained
        if diagnosis.success:
            return [explained["success" if task.solvable else "success_unsolvable"]]
        sentences = list(self._purchases(task, diagnosis))
        if not diagnosis.extra and not diagnosis.missing and episode.stop_reason is not StopReason.ENGINE_ERROR:
            sentences.append(explained["right_but_cut"])
        if episode.stop_reason is not StopReason.RESPONDED:
            text = explained[episode.stop_reason.value]
            sentences.append(text.format(error=episode.error or "no message"))
        endings = (Cause.NOT_AFFORDABLE, Cause.MALFORMED, Cause.GAVE_UP_AT_ERROR)
        return sentences + [explained[cause.value] for cause in endings if cause in diagnosis.causes]

    def _purchases(self, task: Task, diagnosis: Diagnosis) -> Iterator[str]:
        """What is wrong with what was bought, and with what was not."""
        explained = self._words.explained
        if diagnosis.extra and not task.solvable:
            yield explained["unsolvable"]
        for game_id, names in diagnosis.violations:
            game = _season(task).game(game_id)
            if game is not None and names:
                # A team that does not play is no visitor either: once is enough.
                told = [name for name in names if name != "away" or "favourite" not in names]
                reasons = " and ".join(self._violation(task, game, name) for name in told)
                yield explained["violation"].format(game=self.name_game(task, game_id), reasons=reasons)
            else:
                fits = "fits_unsolvable" if not task.solvable else "price" if diagnosis.missing else "extra"
                yield explained[fits].format(game=self.name_game(task, game_id))
        for game_id in diagnosis.missing:
            yield explained["missing"].format(game=self.name_game(task, game_id))

    def name_game(self, task: Task, game_id: int) -> str:
        """A game in a few words."""
        game = _season(task).game(game_id)
        if game is None:
            return f"Game {game_id}"
        teams = self.league.teams
        return (
            f"Game {game.id} ({teams[game.home].name} – {teams[game.away].name}, {game.date.isoformat()}, "
            f"{self.amount(game.price)})"
        )

    def _violation(self, task: Task, game: Game, name: str) -> str:
        words, wanted, user = self._words, task.constraints, _user(task)
        other = game.home if wanted.favourite and game.away == user.favourite else game.away
        if name == "opponent" and wanted.opponent is not None:
            condition = wanted.opponent
            return words.violated[condition.kind].format(
                other=self.league.teams[other].name, value=condition.value, year=condition.year
            )
        return words.violated[name].format(
            team=self.league.teams[user.favourite].name,
            played=self.league.teams[game.home].city,
            city="" if wanted.city is None else self._city(wanted),
            date=game.date.isoformat(),
            half="" if wanted.half is None else words.halves[str(wanted.half)],
            weekday=words.days[WEEKDAYS[game.date.weekday()]],
            days="" if wanted.days is None else words.days[wanted.days],
        )

    def _city(self, wanted: Constraints) -> str:
        return self.league.teams[(wanted.city or (0,))[0]].city

    def _opponent(self, opponent: Opponent) -> str:
        return self._words.wanted[opponent.kind].format(value=opponent.value, year=opponent.year)


def _world(task: Task) -> World:
    return get_world(task.split, task.world)


def _season(task: Task) -> Season:
    return _world(task).seasons[task.season]


def _user(task: Task) -> User:
    return _world(task).users[task.user]
