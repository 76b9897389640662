"""The benchmark as plain files, for programs that do not use this package.

Values are localised, keys are canonical English; amounts are decimal numbers in the league's currency.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from ticket_gym.codec import Codec, get_codec
from ticket_gym.errors import ConfigurationError, RunWriteError
from ticket_gym.request import DAY_GROUPS, WEEKDAYS, Constraints, Opponent, Task
from ticket_gym.tasks import Benchmark, get_benchmark
from ticket_gym.tools import PARAMETERS, RESULT_KEYS
from ticket_gym.types import LANGUAGES, SEASON_KINDS, Language
from ticket_gym.world import Season, World

Format = Literal["jsonl", "parquet"]


def export_benchmark(folder: Path, languages: Iterable[Language] = LANGUAGES, form: Format = "jsonl") -> list[Path]:
    """Write the benchmark in each language.

    Args:
        folder: Where; made if it does not exist. Files of the same names are replaced.
        languages: Which languages.
        form: `jsonl`: a folder a language with queries, users, games, leaderboards and tools; `parquet`: one table
            of queries a language.

    Returns:
        The files written.

    Raises:
        ConfigurationError: Unknown format, or `parquet` without pyarrow.
        RunWriteError: The folder cannot be written.
    """
    if form not in ("jsonl", "parquet"):
        raise ConfigurationError(f"format {form!r}: choose jsonl or parquet")
    benchmark = get_benchmark()
    write = _write_jsonl if form == "jsonl" else _write_parquet
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return [file for language in languages for file in write(folder, benchmark, get_codec(language))]
    except OSError as error:
        raise RunWriteError(f"{folder}: cannot be written: {error}") from error


def _write_jsonl(folder: Path, benchmark: Benchmark, codec: Codec) -> Iterator[Path]:
    place = folder / codec.language
    place.mkdir(exist_ok=True)
    world = benchmark.world
    tables: dict[str, Iterable[dict[str, Any]]] = {
        "queries": (query_row(codec, task) for task in benchmark.tasks),
        "users": user_rows(codec, world),
        **{f"games-{kind}": game_rows(codec, world.seasons[kind]) for kind in SEASON_KINDS},
        "leaderboards": leaderboard_rows(codec, world),
    }
    for name, rows in tables.items():
        file = place / f"{name}.jsonl"
        file.write_text("".join(_json(row) + "\n" for row in rows), encoding="utf-8")
        yield file
    file = place / "tools.json"
    file.write_text(json.dumps(tools_table(codec), ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
    yield file


def _write_parquet(folder: Path, benchmark: Benchmark, codec: Codec) -> Iterator[Path]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ConfigurationError("format parquet needs pyarrow: pip install 'ticket-gym[eval]'") from error
    common = {"language": codec.language, "system_prompt": codec.system_prompt, "tools": _json(codec.schemas)}
    rows = [{**query_row(codec, task), **common} for task in benchmark.tasks]
    file = folder / f"{codec.language}.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), file)
    yield file


def query_row(codec: Codec, task: Task) -> dict[str, Any]:
    """One query with its annotation."""
    return {
        "id": task.id,
        "template": task.template,
        "season": task.season,
        "user": task.user,
        "query": codec.render_request(task),
        "constraints": constraints_row(codec, task.constraints),
        "expected_games": list(task.expected),
        "solvable": task.solvable,
    }


def constraints_row(codec: Codec, wanted: Constraints) -> dict[str, Any]:
    """A structured request; a constraint that it lacks is None, and so is `count` where every match is wanted."""
    return {
        "team": "favourite" if wanted.favourite else None,
        "venue": "away" if wanted.away else None,
        "city": None if wanted.city is None else codec.city_name(wanted.city),
        "half": wanted.half,
        "days": None if wanted.days is None else [WEEKDAYS[day] for day in DAY_GROUPS[wanted.days]],
        "opponent": None if wanted.opponent is None else _opponent_row(wanted.opponent),
        "select": wanted.select,
        "count": wanted.count,
    }


def _opponent_row(opponent: Opponent) -> dict[str, Any]:
    figure = "n" if opponent.kind == "top" else "x"
    return {"kind": opponent.kind, figure: opponent.value, "year": opponent.year}


def user_rows(codec: Codec, world: World) -> Iterator[dict[str, Any]]:
    """The users, with their favourite teams and balances."""
    for user in world.users:
        yield {
            "id": user.id,
            "name": codec.clubs.users[user.id],
            "favourite_team": codec.clubs.teams[user.favourite].name,
            "balance": user.balance / 100,
        }


def game_rows(codec: Codec, season: Season) -> Iterator[dict[str, Any]]:
    """The games of a season, by id."""
    teams = codec.clubs.teams
    for game in season.games:
        yield {
            "id": game.id,
            "home_team": teams[game.home].name,
            "away_team": teams[game.away].name,
            "city": teams[game.home].city,
            "stadium": teams[game.home].stadium,
            "date": game.date.isoformat(),
            "price": game.price / 100,
        }


def leaderboard_rows(codec: Codec, world: World) -> Iterator[dict[str, Any]]:
    """The standings of all years, first team first."""
    for year, rows in world.standings.items():
        for row in rows:
            yield {
                "year": year,
                "team": codec.clubs.teams[row.team].name,
                "points": row.points,
                "wins": row.wins,
                "draws": row.draws,
                "losses": row.losses,
                "goals_scored": row.goals_scored,
                "goals_conceded": row.goals_conceded,
            }


def tools_table(codec: Codec) -> Mapping[str, Any]:
    """The tools with the localised form of every name and key, and the localised weekdays."""
    tools = [
        {
            "name": tool,
            "localized": codec.tool_names[tool],
            "parameters": {name: codec.parameter_name(tool, name) for name in PARAMETERS[tool]},
            "result": {key: codec.texts.keys[key] for key in RESULT_KEYS[tool]},
            "schema": schema,
        }
        for tool, schema in zip(PARAMETERS, codec.schemas, strict=True)
    ]
    return {"tools": tools, "weekdays": dict(codec.texts.weekdays)}


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
