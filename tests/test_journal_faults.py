"""Run folders on full and failing disks, and between two writers: clear errors, and nothing written is lost."""

import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

import ticket_gym
from ticket_gym.errors import RunLockedError, RunMismatchError, RunWriteError
from ticket_gym.journal import RunFolder
from ticket_gym.records import ModelInfo, RunConfig, Trajectory
from ticket_gym.types import StopReason

ROOT = Path(ticket_gym.__file__).parents[1]
QUERIES = tuple(f"t{number:02}-01" for number in range(1, 18))
CONFIG = RunConfig(
    benchmark={"version": "v0", "digest": "abc"},
    split="test",
    languages=("fr",),
    queries=QUERIES,
    trials=3,
    max_steps=50,
    model=ModelInfo(name="x"),
    agent={"agent": "x"},
    prompt_digest="def",
    versions={},
)


def episode(query: int = 1, trial: int = 0, size: int = 10) -> Trajectory:
    """A record with so many characters of three bytes each."""
    return Trajectory(
        language="fr",
        tool_language="fr",
        league="fr",
        split="test",
        query_id=QUERIES[query - 1],
        template=QUERIES[query - 1][:3],
        trial=trial,
        seed=7,
        reward=1.0,
        success=True,
        stop_reason=StopReason.RESPONDED,
        messages=[{"role": "user", "content": "票" * size}],
        calls=[],
        bookings=[3],
        steps=1,
    )


def write(path: Path, *episodes: Trajectory) -> None:
    """Write episodes into a run folder."""
    with RunFolder.open(path, CONFIG) as folder:
        for one in episodes:
            folder.append(one)


PREFACE = f"""
import json, os, subprocess, sys
from pathlib import Path
sys.path[:0] = [{str(ROOT)!r}, {str(Path(__file__).parent)!r}]
from test_journal_faults import CONFIG, episode, write
from ticket_gym.errors import RunLockedError, RunWriteError
from ticket_gym.journal import EPISODES_FILE, LOCK_FILE, RunFolder
run = Path(sys.argv[1])
"""


def run_python(*scripts: str, path: Path, prefix: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run scripts as one process, with the folder and this module's names at hand."""
    code = PREFACE + "".join(map(textwrap.dedent, scripts))
    return subprocess.run(
        [*prefix, sys.executable, "-c", code, path], capture_output=True, text=True, timeout=60, check=False
    )


# Two writers


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that is writing to the folder."""
    code = PREFACE + 'folder = RunFolder.open(run, CONFIG)\nprint("held", flush=True)\nsys.stdin.read()\n'
    with subprocess.Popen(
        [sys.executable, "-c", code, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_second_writer_is_refused_until_the_first_is_gone(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    """The message names the process; a killed one holds nothing."""
    with pytest.raises(RunLockedError, match=f"process {holder.pid} on .+ is writing"):
        RunFolder.open(tmp_path, CONFIG)
    assert list(RunFolder.read(tmp_path).episodes()) == []
    holder.kill()
    holder.wait()
    write(tmp_path, episode(1))


def test_the_same_process_is_refused_too_and_closing_frees_the_folder(tmp_path: Path) -> None:
    """Also after an opening that failed."""
    with RunFolder.open(tmp_path, CONFIG) as folder:
        with pytest.raises(RunLockedError, match=f"process {os.getpid()} "):
            RunFolder.open(tmp_path, CONFIG)
        folder.append(episode(1))
    with pytest.raises(RunMismatchError):
        RunFolder.open(tmp_path, CONFIG.model_copy(update={"seed": 1}))
    folder.close()
    write(tmp_path, episode(2))


def test_the_lock_of_windows_refuses_as_well(tmp_path: Path) -> None:
    """Played with a stand-in for its locking functions; there too the holder can be named."""
    script = """
        import errno, types
        held = set()
        def locking(handle, mode, count):
            place = (os.fstat(handle).st_ino, os.lseek(handle, 0, os.SEEK_CUR))
            if place in held:
                raise PermissionError(errno.EACCES, "Permission denied")
            held.add(place)
        sys.modules["msvcrt"] = types.SimpleNamespace(locking=locking, LK_NBLCK=2)
        del sys.modules["ticket_gym.journal.lock"]
        sys.platform = "win32"
        from ticket_gym.journal.lock import FolderLock
        sys.platform = "linux"
        FolderLock(run / LOCK_FILE)
        try:
            FolderLock(run / LOCK_FILE)
        except RunLockedError as problem:
            print(problem, os.getpid() == json.loads((run / LOCK_FILE).read_text())["pid"])
    """
    result = run_python(script, path=tmp_path)
    assert "is writing to this run folder" in result.stdout and result.stdout.endswith("True\n"), result.stderr


# Disks


FILL = """
    folder = RunFolder.open(run, CONFIG)
    written = 0
    try:
        for trial in range(3):
            for query in range(1, 18):
                folder.append(episode(query, trial, size=2000))
                written += 1
    except RunWriteError as problem:
        print(problem)
    lines = (run / EPISODES_FILE).read_bytes()
    print("intact", lines.count(b"\\n") == written > 0 and lines.endswith(b"\\n"))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="file size limits are a POSIX feature")
def test_a_line_that_fits_only_in_part_is_taken_back(tmp_path: Path) -> None:
    """A real partial write, brought about by a limit on file sizes; the run then goes on where it was."""
    limit = """
    import resource, signal
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, resource.RLIM_INFINITY))
    """
    result = run_python(limit, FILL, path=tmp_path)
    assert "the run folder cannot be written: File too large" in result.stdout, result.stderr
    assert "same command continues the run" in result.stdout
    assert result.stdout.endswith("intact True\n")
    with RunFolder.open(tmp_path, CONFIG) as folder:
        assert folder.notices == ()
        assert 0 < len(folder.recorded) < 51
        folder.append(episode(17, 2))


@pytest.fixture
def namespace() -> tuple[str, ...]:
    """A command prefix under which file systems can be mounted; they vanish with it."""
    prefix = ("unshare", "--user", "--map-root-user", "--mount")
    if not shutil.which("unshare") or subprocess.run([*prefix, "true"], check=False, capture_output=True).returncode:
        pytest.skip("needs a system that lets file systems be mounted")
    return prefix


def test_a_full_disk_loses_nothing(tmp_path: Path, namespace: tuple[str, ...]) -> None:
    """A real one of 200 kB; once there is room again, the run is completed."""
    script = """
    def mount(*arguments):
        subprocess.run(["mount", *arguments, run], check=True)

    mount("-t", "tmpfs", "-o", "size=200k", "tmpfs")
    """
    after = """
    folder.close()
    mount("-o", "remount,size=2m")
    with RunFolder.open(run, CONFIG) as folder:
        print(folder.notices, len(folder.recorded) == written)
    """
    result = run_python(script, FILL, after, path=tmp_path, prefix=namespace)
    assert "the run folder cannot be written: No space left on device" in result.stdout, result.stderr
    assert result.stdout.endswith("intact True\n() True\n"), result.stderr


def test_a_disk_too_full_to_begin_says_so(tmp_path: Path, namespace: tuple[str, ...]) -> None:
    """And leaves no half-written configuration that would be in the way later."""
    script = """
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", run], check=True)
    (run / "ballast").write_bytes(bytes(12_000))
    try:
        RunFolder.open(run, CONFIG)
    except RunWriteError as problem:
        print(problem)
    (run / "ballast").unlink()
    RunFolder.open(run, CONFIG).close()
    print(RunFolder.read(run).config.seed)
    """
    result = run_python(script, path=tmp_path, prefix=namespace)
    assert "No space left on device" in result.stdout and result.stdout.endswith("\n0\n"), result.stderr


def test_a_read_only_disk_is_told_and_still_read(tmp_path: Path, namespace: tuple[str, ...]) -> None:
    """For a folder that exists and for one that would have to be made."""
    script = """
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", run], check=True)
    write(run / "old", episode(1))
    subprocess.run(["mount", "-o", "remount,ro", run], check=True)
    for name in ("old", "new"):
        try:
            RunFolder.open(run / name, CONFIG)
        except RunWriteError as problem:
            print(problem)
    print(len(list(RunFolder.read(run / "old").episodes())))
    """
    result = run_python(script, path=tmp_path, prefix=namespace)
    assert result.stdout.count("cannot be written: Read-only file system") == 2, result.stderr
    assert result.stdout.endswith("\n1\n")


def test_a_disk_that_fails_when_synced_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some file systems tell of a full disk only then."""

    def fail(handle: int) -> None:
        raise OSError(28, "No space left on device")

    folder = RunFolder.open(tmp_path, CONFIG)
    folder.append(episode(1))
    monkeypatch.setattr("ticket_gym.journal.folder.SYNC_SECONDS", 0.0)
    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(RunWriteError, match="No space left"):
        folder.append(episode(2))
    with pytest.raises(RunWriteError, match="No space left"):
        folder.close()
    monkeypatch.undo()
    with RunFolder.open(tmp_path, CONFIG) as folder:
        assert len(folder.recorded) == 2
