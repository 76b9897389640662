"""The exported files: read them as another program would and find the same answers."""

import datetime
import json
from pathlib import Path
from typing import Any

import pytest

from ticket_gym.errors import ConfigurationError, RunWriteError
from ticket_gym.export import export_benchmark
from ticket_gym.session import Session
from ticket_gym.types import LANGUAGES, Language

DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("export")
    export_benchmark(place)
    return place


def read(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def opponents(rows: list[dict[str, Any]], opponent: dict[str, Any]) -> set[str]:
    table = [row for row in rows if row["year"] == opponent["year"]]
    if opponent["kind"] == "top":
        return {row["team"] for row in table[: opponent["n"]]}
    figure = "points" if opponent["kind"] == "points_over" else "goals_scored"
    return {row["team"] for row in table if row[figure] > opponent["x"]}


def answer(place: Path, query: dict[str, Any]) -> list[int]:
    """Solve a query from the files alone."""
    wanted = query["constraints"]
    user = read(place / "users.jsonl")[query["user"]]
    team = user["favourite_team"]
    games = read(place / f"games-{query['season']}.jsonl")
    if wanted["team"]:
        games = [game for game in games if team in (game["home_team"], game["away_team"])]
    if wanted["venue"]:
        games = [game for game in games if game["away_team"] == team]
    if wanted["city"]:
        games = [game for game in games if game["city"] == wanted["city"]]
    if wanted["half"]:
        games = [game for game in games if (game["date"][5:7] <= "06") == (wanted["half"] == 1)]
    if wanted["days"]:
        dates = {game["id"]: datetime.date.fromisoformat(game["date"]) for game in games}
        games = [game for game in games if DAYS[dates[game["id"]].weekday()] in wanted["days"]]
    if wanted["opponent"]:
        named = opponents(read(place / "leaderboards.jsonl"), wanted["opponent"])
        other = "home_team" if wanted["team"] else "away_team"
        games = [game for game in games if game[other if game["away_team"] == team else "away_team"] in named]
    games.sort(key=lambda game: game["price"])
    if wanted["select"] == "most_expensive_affordable":
        games = [game for game in games if game["price"] <= user["balance"]][::-1]
    return sorted(game["id"] for game in games[: None if wanted["select"] == "all" else wanted["count"]])


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_files_alone_give_the_expected_games(folder: Path, language: Language) -> None:
    place = folder / language
    queries = read(place / "queries.jsonl")
    assert len(queries) == 170
    for query in queries[:: 1 if language == "fr" else 5]:
        assert answer(place, query) == query["expected_games"], query
        assert query["solvable"] == bool(query["expected_games"])


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_tools_table_reads_what_the_environment_says(folder: Path, language: Language) -> None:
    place = folder / language
    table = json.loads((place / "tools.json").read_text(encoding="utf-8"))
    tools = {tool["name"]: tool for tool in table["tools"]}
    session = Session(language=language)
    assert [tool["schema"] for tool in table["tools"]] == session.tools
    [query] = [query for query in read(place / "queries.jsonl") if query["id"] == "t08-03"]
    assert session.reset("t08-03") == query["query"]
    listing = tools["list_games"]
    parameters, key = listing["parameters"], listing["result"]
    arguments = {parameters["city"]: query["constraints"]["city"]}
    result = json.loads(session.call(listing["localized"], arguments).text)
    games = {game["id"]: game for game in read(place / f"games-{query['season']}.jsonl")}
    for shown in result[key["games"]]:
        game = games[shown[key["id"]]]
        assert shown[key["home_team"]] == game["home_team"]
        assert shown[key["date"]] == game["date"]
        assert float(shown[key["price"]].split()[0]) == game["price"]
    weekday = tools["get_weekday_from_date"]
    text = session.call(weekday["localized"], {weekday["parameters"]["date"]: "2025-03-01"}).text
    assert json.loads(text)[weekday["result"]["weekday"]] == table["weekdays"]["saturday"]


def test_keys_are_canonical_and_values_localised(folder: Path) -> None:
    for language in LANGUAGES:
        assert set(read(folder / language / "queries.jsonl")[0]["constraints"]) == {
            *("team", "venue", "city", "half", "days", "opponent", "select", "count"),
        }
    names = {read(folder / language / "users.jsonl")[0]["favourite_team"] for language in LANGUAGES}
    assert len(names) == 6


def test_the_same_export_is_the_same_to_the_byte(folder: Path, tmp_path: Path) -> None:
    for file in export_benchmark(tmp_path, ["it"]):
        assert file.read_bytes() == (folder / "it" / file.name).read_bytes()


def test_parquet_holds_the_same_queries(folder: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    [file] = export_benchmark(tmp_path, ["de"], "parquet")
    rows = parquet.read_table(file).to_pylist()
    assert [row["query"] for row in rows] == [row["query"] for row in read(folder / "de" / "queries.jsonl")]
    assert [row["expected_games"] for row in rows] == [
        row["expected_games"] for row in read(folder / "de" / "queries.jsonl")
    ]
    assert json.loads(rows[0]["tools"]) == Session(language="de").tools


def test_bad_requests_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="jsonl or parquet"):
        export_benchmark(tmp_path, ["de"], "csv")  # type: ignore[arg-type]
    (tmp_path / "file").write_text("")
    with pytest.raises(RunWriteError, match="cannot be written"):
        export_benchmark(tmp_path / "file")
