"""The run folder: nothing written is lost, nothing damaged is read, nobody writes beside somebody else."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ticket_gym
from ticket_gym.errors import RunError, RunMismatchError
from ticket_gym.journal import CONFIG_FILE, EPISODES_FILE, LOCK_FILE, TOO_DEEP, TORN_FILE, Cell, RunFolder
from ticket_gym.records import CallRecord, ModelInfo, RunConfig, Trajectory, Usage
from ticket_gym.types import StopReason

ROOT = Path(ticket_gym.__file__).parents[1]
CONFIG = RunConfig(
    benchmark={"version": "v0", "digest": "abc"},
    split="test",
    languages=("fr", "en"),
    queries=tuple(f"t{number:02}-01" for number in range(1, 18)),
    trials=3,
    max_steps=50,
    model=ModelInfo(name="modèle"),
    agent={"agent": "x", "sampling": {"temperature": 0.7}, "stop": ("a", "b")},
    prompt_digest="def",
    versions={"python": "3.11.1", "numpy": "2.0"},
)
TEXT = "Où ça? Ça va 🎫 العربية"


def episode(query: int = 1, trial: int = 0, stop: StopReason = StopReason.RESPONDED, **other: Any) -> Trajectory:
    """A record with text in many scripts."""
    fields: dict[str, Any] = {
        "language": "fr",
        "tool_language": "fr",
        "league": "fr",
        "split": "test",
        "query_id": f"t{query:02}-01",
        "template": f"t{query:02}",
        "trial": trial,
        "seed": 7,
        "reward": None if stop is StopReason.ENGINE_ERROR else 1.0,
        "success": stop is not StopReason.ENGINE_ERROR,
        "stop_reason": stop,
        "messages": [{"role": "user", "content": TEXT}],
        "calls": [CallRecord(id="1", name="réserver", tool=None, arguments={"é": [1, 2.5, None]})],
        "bookings": [3],
        "steps": 1,
        "usage": Usage(prompt_tokens=5),
    }
    return Trajectory(**{**fields, **other})


def write(path: Path, *episodes: Trajectory) -> bytes:
    """Write episodes; what the journal then holds."""
    with RunFolder.open(path, CONFIG) as folder:
        for one in episodes:
            folder.append(one)
    return (path / EPISODES_FILE).read_bytes()


def test_what_is_written_is_read_back_and_readable(tmp_path: Path) -> None:
    """Both files are literal UTF-8, and hold what went in."""
    written = [episode(1), episode(2, reward=0.0, success=False)]
    content = write(tmp_path / "a" / "run", *written)
    folder = RunFolder.read(tmp_path / "a" / "run")
    assert list(folder.episodes()) == written
    assert folder.config.model_dump(mode="json") == CONFIG.model_dump(mode="json")
    assert folder.notices == ()
    assert content.count(b"\n") == 2
    assert TEXT in content.decode() and "réserver" in content.decode()
    assert '  "name": "modèle"' in (folder.path / CONFIG_FILE).read_text(encoding="utf-8")
    for line in content.splitlines():
        assert {"language", "query_id", "trial", "seed", "reward", "usage", "schema_version"} <= set(json.loads(line))


TRICKY: dict[str, Any] = {"a": [1], "calls": [{"x": '],"calls":['}], "messages": [{}], "b": '],"calls":[]'}


@pytest.mark.parametrize(
    "one",
    [
        episode(1),
        episode(1, messages=[], calls=[]),
        episode(1, messages=[TRICKY, {"content": json.dumps(TRICKY)}]),
        episode(1, calls=[CallRecord(id='],"calls":[', name="x", tool=None, arguments=TRICKY)]),
        episode(1, calls=[CallRecord(id="1", name=json.dumps(TRICKY), tool=None, arguments=[TRICKY, [TRICKY]])]),
    ],
    ids=["plain", "empty", "in messages", "in arguments", "deeper in arguments"],
)
@pytest.mark.parametrize("separators", [None, (", ", ": ")], ids=["as written", "formatted anew"])
def test_conversations_can_be_left_out_and_nothing_else_changes(
    tmp_path: Path, one: Trajectory, separators: tuple[str, str] | None
) -> None:
    """Even where a model wrote what looks like the record's own keys."""
    content = write(tmp_path, one)
    if separators:
        (tmp_path / EPISODES_FILE).write_text(json.dumps(json.loads(content), separators=separators) + "\n")
    assert list(RunFolder.read(tmp_path).episodes(messages=False)) == [one.model_copy(update={"messages": []})]


def test_a_line_torn_at_any_byte_is_set_aside_and_played_again(tmp_path: Path) -> None:
    """Also within a character of several bytes, and where only the line's end is missing."""
    whole = write(tmp_path, episode(1), episode(2))
    first = whole.index(b"\n") + 1
    within_text = range(whole.index("🎫".encode(), first) - 3, whole.index("العربية".encode(), first) + 6)
    cuts = sorted({*range(first + 1, len(whole), 40), *within_text, len(whole) - 2, len(whole) - 1})
    set_aside = b""
    for cut in cuts:
        (tmp_path / EPISODES_FILE).write_bytes(whole[:cut])
        with RunFolder.open(tmp_path, CONFIG) as folder:
            assert list(folder.recorded) == [Cell("fr", "t01-01", 0)]
            assert len(folder.notices) == 1
            assert f"cut off after {cut - first} bytes" in folder.notices[0] and TORN_FILE in folder.notices[0]
            folder.append(episode(2))
        set_aside += whole[first:cut] + b"\n"
        assert (tmp_path / EPISODES_FILE).read_bytes() == whole
    assert (tmp_path / TORN_FILE).read_bytes() == set_aside


def test_a_torn_only_line_leaves_an_empty_journal(tmp_path: Path) -> None:
    """The first line of all may be the torn one, and longer than any block that is read at once."""
    whole = write(tmp_path, episode(1, messages=[{"role": "user", "content": "é" * 100_000}]))
    (tmp_path / EPISODES_FILE).write_bytes(whole[:-20])
    with RunFolder.open(tmp_path, CONFIG) as folder:
        assert not folder.recorded
    assert (tmp_path / EPISODES_FILE).read_bytes() == b""
    assert (tmp_path / TORN_FILE).read_bytes() == whole[:-20] + b"\n"


def test_reading_leaves_a_torn_line_out_says_so_and_changes_nothing(tmp_path: Path) -> None:
    """A reader may be looking on while a line is being written."""
    whole = write(tmp_path, episode(1), episode(2))
    (tmp_path / EPISODES_FILE).write_bytes(whole[:-7])
    folder = RunFolder.read(tmp_path)
    assert [one.query_id for one in folder.episodes()] == ["t01-01"]
    assert "cut off" in folder.notices[0]
    assert (tmp_path / EPISODES_FILE).read_bytes() == whole[:-7]
    assert not (tmp_path / TORN_FILE).exists()


@pytest.mark.parametrize(
    "damage",
    [
        lambda line: line[: len(line) // 2],
        lambda line: b"",
        lambda line: b"\0" * len(line),
        lambda line: line.replace("ç".encode(), b"\xff\xfe"),
        lambda line: line.replace(b'"steps":1', b'"steps":"many"'),
        lambda line: line.replace(b'"steps":1', b'"steps":1,"extra":1'),
        lambda line: line.replace(b'"seed":7,', b""),
        lambda line: line + line,
        lambda line: b"[]",
    ],
    ids=["half", "empty", "zeros", "encoding", "type", "unknown field", "missing field", "two in one", "other JSON"],
)
def test_damage_in_the_middle_is_an_error_that_names_the_line(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    """Neither reading nor continuing goes on as if nothing had happened, and nothing is changed."""
    lines = write(tmp_path, episode(1), episode(2), episode(3)).splitlines()
    content = b"\n".join([lines[0], damage(lines[1]), lines[2]]) + b"\n"
    (tmp_path / EPISODES_FILE).write_bytes(content)
    with pytest.raises(RunError, match=r"episodes\.jsonl, line 2: damaged"):
        list(RunFolder.read(tmp_path).episodes())
    with pytest.raises(RunError, match="line 2: damaged"):
        RunFolder.open(tmp_path, CONFIG)
    assert (tmp_path / EPISODES_FILE).read_bytes() == content


def test_damage_stops_before_a_torn_line_is_touched(tmp_path: Path) -> None:
    """A folder that cannot be continued is left exactly as it was found."""
    whole = write(tmp_path, episode(1), episode(2))
    (tmp_path / EPISODES_FILE).write_bytes(b"?" + whole[:-5])
    with pytest.raises(RunError, match="line 1"):
        RunFolder.open(tmp_path, CONFIG)
    assert (tmp_path / EPISODES_FILE).read_bytes() == b"?" + whole[:-5]
    assert not (tmp_path / TORN_FILE).exists()


def test_only_the_last_record_of_a_broken_off_episode_is_read(tmp_path: Path) -> None:
    """Its earlier lines stay in the file."""
    failed = episode(1, stop=StopReason.ENGINE_ERROR, error="down")
    content = write(tmp_path, failed, episode(2, stop=StopReason.ENGINE_ERROR), failed, episode(1))
    assert content.count(b"\n") == 4
    read = list(RunFolder.read(tmp_path).episodes())
    assert [(one.query_id, one.stop_reason.value) for one in read] == [
        ("t01-01", "responded"),
        ("t02-01", "engine_error"),
    ]
    with RunFolder.open(tmp_path, CONFIG) as folder:
        assert {cell.query_id: known.engine_error for cell, known in folder.recorded.items()} == {
            "t01-01": False,
            "t02-01": True,
        }


@pytest.mark.parametrize("second", [episode(1), episode(1, stop=StopReason.ENGINE_ERROR)])
def test_a_second_record_is_refused_in_writing_and_reading(tmp_path: Path, second: Trajectory) -> None:
    """An episode that was played to its end counts once."""
    with RunFolder.open(tmp_path, CONFIG) as folder:
        folder.append(episode(1))
        with pytest.raises(RunError, match="language fr, query t01-01, trial 0"):
            folder.append(second)
    with open(tmp_path / EPISODES_FILE, "a", encoding="utf-8") as file:
        file.write(second.model_dump_json() + "\n")
    with pytest.raises(RunError, match=r"line 2: a second record .*query t01-01"):
        list(RunFolder.read(tmp_path).episodes())


@pytest.mark.parametrize("other", [{"query": 18}, {"trial": 3}, {"trial": -1}, {"language": "de"}])
def test_an_episode_of_another_run_is_refused(tmp_path: Path, other: dict[str, Any]) -> None:
    """Lines that were copied from elsewhere are never scored."""
    write(tmp_path)
    (tmp_path / EPISODES_FILE).write_text(episode(**other).model_dump_json() + "\n", encoding="utf-8")
    with pytest.raises(RunError, match="line 1: an episode that this run does not hold"):
        list(RunFolder.read(tmp_path).episodes())


CHANGES: dict[str, Any] = {
    "benchmark": {"version": "v0", "digest": "other"},
    "split": "train",
    "stream_seed": 1,
    "languages": ("fr", "en", "it"),
    "tool_language": "en",
    "league": "pt",
    "queries": CONFIG.queries[:-1],
    "trials": 4,
    "seed": 5,
    "max_steps": 20,
    "require_response": True,
    "model": ModelInfo(name="modèle", size_b=8.0),
    "agent": {"agent": "x", "sampling": {"temperature": 1.0}, "stop": ["a", "b"]},
    "prompt_digest": "new",
}


def test_every_field_of_the_configuration_is_guarded() -> None:
    """A new field must be added to the changes above."""
    assert set(CHANGES) == set(RunConfig.model_fields) - {"schema_version", "versions"}


@pytest.mark.parametrize("field", CHANGES)
def test_a_changed_configuration_is_refused_with_what_differs(tmp_path: Path, field: str) -> None:
    """The message names just the field, with both values; the folder stays as it was."""
    write(tmp_path, episode(1))
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir() if file.name != LOCK_FILE}
    with pytest.raises(RunMismatchError) as caught:
        RunFolder.open(tmp_path, CONFIG.model_copy(update={field: CHANGES[field]}))
    lines = str(caught.value).splitlines()[1:]
    assert len(lines) == 1 and lines[0].strip().startswith(field)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir() if file.name != LOCK_FILE} == before


def test_differences_are_told_down_to_the_single_option(tmp_path: Path) -> None:
    """Of a long list only what is missing is shown."""
    write(tmp_path)
    changed = CONFIG.model_copy(update={"agent": CHANGES["agent"], "queries": CHANGES["queries"], "seed": 5})
    with pytest.raises(RunMismatchError) as caught:
        RunFolder.open(tmp_path, changed)
    message = str(caught.value)
    assert "agent.sampling.temperature: 0.7 in the folder, 1.0 now" in message
    assert "seed: 0 in the folder, 5 now" in message
    assert 'queries: 17 values, among them ["t17-01"] in the folder, 16 values now' in message
    assert "agent.stop" not in message


def test_other_package_versions_are_told_but_not_refused(tmp_path: Path) -> None:
    """They are the only thing that may differ."""
    write(tmp_path, episode(1))
    with RunFolder.open(tmp_path, CONFIG.model_copy(update={"versions": {"python": "3.12.0", "vllm": "1"}})) as folder:
        told = "\n".join(folder.notices)
        assert len(folder.recorded) == 1
    assert 'versions.python: "3.11.1" in the folder, "3.12.0" now' in told
    assert 'versions.numpy: "2.0" in the folder, nothing now' in told
    assert 'versions.vllm: nothing in the folder, "1" now' in told
    assert RunFolder.read(tmp_path).config.versions == CONFIG.versions


@pytest.mark.parametrize("extra", [{}, {"unknown": 1}])
@pytest.mark.parametrize("name", [CONFIG_FILE, EPISODES_FILE])
def test_records_of_a_newer_version_are_told_from_damaged_ones(
    tmp_path: Path, name: str, extra: dict[str, int]
) -> None:
    """Whether or not the newer version added fields."""
    write(tmp_path, episode(1))
    content = json.loads((tmp_path / name).read_text(encoding="utf-8"))
    (tmp_path / name).write_text(json.dumps({**content, "schema_version": 2, **extra}) + "\n", encoding="utf-8")
    with pytest.raises(RunError, match=r"schema version 2, while this ticket_gym reads version 1"):
        list(RunFolder.read(tmp_path).episodes())
    with pytest.raises(RunError, match="schema version 2"):
        RunFolder.open(tmp_path, CONFIG)


def test_what_is_no_run_folder_is_refused(tmp_path: Path) -> None:
    """With a message that says what is missing."""
    with pytest.raises(RunError, match=r"there is no run\.json"):
        RunFolder.read(tmp_path / "none")
    (tmp_path / "file").write_text("x")
    with pytest.raises(RunError, match="this is a file"):
        RunFolder.open(tmp_path / "file", CONFIG)
    write(tmp_path / "run", episode(1))
    (tmp_path / "run" / CONFIG_FILE).write_text("{")
    with pytest.raises(RunError, match=r"run\.json: damaged"):
        RunFolder.open(tmp_path / "run", CONFIG)
    (tmp_path / "run" / CONFIG_FILE).unlink()
    with pytest.raises(RunError, match=r"episodes but no run\.json"):
        RunFolder.open(tmp_path / "run", CONFIG)
    assert (tmp_path / "run" / EPISODES_FILE).read_bytes()


# What models write


def nested(depth: int) -> Any:
    """A list in a list in a list."""
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        ("a\ud800b", "a\ufffdb"),
        ("\ud83c\udfab", "🎫"),
        ({"\udfff": ["\ud800"]}, {"\ufffd": ["\ufffd"]}),
        (math.nan, None),
        (10**400, 10**400),
        ("\0\x1b\u2028", "\0\x1b\u2028"),
        (nested(90), nested(90)),
    ],
    ids=["lone surrogate", "pair of surrogates", "within", "nan", "huge", "controls", "deep"],
)
def test_whatever_a_model_writes_is_kept_or_replaced(tmp_path: Path, value: Any, stored: Any) -> None:
    """The run goes on and its journal stays readable."""
    calls = [CallRecord(id="1", name="x", tool=None, arguments=value)]
    one = episode(1, messages=[{"role": "assistant", "content": value}], calls=calls)
    write(tmp_path, one, episode(2))
    read = list(RunFolder.read(tmp_path).episodes())
    assert read[0].calls[0].arguments == stored
    assert read[0].messages[0]["content"] == stored
    assert len(read) == 2


@pytest.mark.parametrize("depth", [110, 190, 220, 260, 100_000])
def test_nesting_beyond_what_can_be_read_is_cut(tmp_path: Path, depth: int) -> None:
    """Depths that writers take and readers refuse would make a journal unreadable."""
    calls = [CallRecord.model_construct(id="1", name="x", tool=None, arguments=nested(depth))]
    write(tmp_path, episode(1).model_copy(update={"calls": calls}))
    assert TOO_DEEP in str(next(RunFolder.read(tmp_path).episodes()).calls[0].arguments)


def test_surrogates_are_replaced_wherever_text_of_others_stands(tmp_path: Path) -> None:
    """Names of tools that models make up, and what engines say about their errors."""
    calls = [CallRecord(id="1\ud800", name="a\ud800", tool=None)]
    write(tmp_path, episode(1, calls=calls, error="\udfff"))
    read = next(RunFolder.read(tmp_path).episodes())
    assert (read.calls[0].id, read.calls[0].name, read.error) == ("1\ufffd", "a\ufffd", "\ufffd")
