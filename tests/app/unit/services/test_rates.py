import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from app.services import access as rates
from app.services.access import CallFile

_COUNTING = """
import sys
from pathlib import Path
from app.services.access import CallFile

file = CallFile(Path(sys.argv[1]))
file.add("before", 1)
print("ready", flush=True)
sys.stdin.readline()
print(sum(file.add("key", 200) is None for _ in range(100)), flush=True)
while True:
    file.add("other", 1 << 30)
"""
"""Counts a burst when told to, and goes on counting until it is killed."""


def allowed(file: CallFile, caller: str, limit: int, times: int) -> int:
    return sum(file.add(caller, limit) is None for _ in range(times))


def test_processes_pass_no_more_calls_than_the_limit_and_one_that_is_killed_stops_none(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-c", _COUNTING, str(tmp_path / "calls")]
    processes = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(4)
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        assert sum(int(process.stdout.readline()) for process in processes if process.stdout) == 200
        file = CallFile(tmp_path / "calls")
        for number, process in enumerate(processes):  # most of the time one of them holds the lock
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            assert allowed(file, f"another {number}", 3, 5) == 3
        assert allowed(file, "key", 200, 5) == 0
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def test_a_call_counts_for_a_minute_and_not_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000_000.9
    monkeypatch.setattr("time.time", lambda: now)
    file, beside = CallFile(tmp_path / "calls"), CallFile(tmp_path / "calls")
    assert allowed(file, "a", 3, 2) == 2
    now += 30.2
    assert allowed(beside, "a", 3, 2) == 1
    assert file.add("a", 3) == pytest.approx(60 - 30.2, abs=0.002)
    assert file.add("b", 3) is None
    now += 29.79
    assert file.add("a", 3) == pytest.approx(0.01, abs=0.002)
    token, counts = beside.counts()
    assert token == file.counts()[0]
    assert {caller: count.calls for caller, count in counts.items()} == {"a": 3, "b": 1}
    assert counts["a"].age_seconds == pytest.approx(59.99, abs=0.002)
    now += 0.02
    assert file.counts()[1]["a"].calls == 1
    assert allowed(beside, "a", 3, 3) == 2
    now += 3600.0
    assert file.counts()[1] == {}
    assert allowed(file, "a", 3, 5) == 3
    now -= 7200.0  # the clock was set back: nobody is locked out until it is that late again
    assert allowed(file, "a", 3, 5) == 3


def test_the_file_has_a_bounded_size_however_many_call(tmp_path: Path) -> None:
    file = CallFile(tmp_path / "calls")
    for number in range(300):
        assert file.add(f"address {number}" + "long" * (number % 2 * 20), 1) is None
    assert all(file.add(f"address {number}", 1) is not None for number in range(0, 300, 2))
    assert (tmp_path / "calls").stat().st_size <= 4 << 20
    assert len(file.counts()[1]) == 300


def test_where_the_file_cannot_be_made_a_process_counts_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "elsewhere").write_bytes(b"of somebody")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for place in (tmp_path / "missing" / "calls", tmp_path, tmp_path / "link"):
        file = CallFile(place)
        assert allowed(file, "a", 3, 5) == 3
        assert str(place) in caplog.text
    assert (tmp_path / "elsewhere").read_bytes() == b"of somebody"


def test_a_disk_that_becomes_full_refuses_no_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = CallFile(tmp_path / "calls")
    assert allowed(file, "a", 3, 2) == 2
    usual, on_disk = os.pwrite, file._descriptor

    def write(descriptor: int, data: bytes, offset: int) -> int:
        if descriptor == on_disk:
            raise OSError(errno.ENOSPC, "No space left on device")
        return usual(descriptor, data, offset)

    monkeypatch.setattr(os, "pwrite", write)
    assert allowed(file, "a", 3, 5) == 3, "it counts again from nothing, in memory"
    monkeypatch.setattr(rates, "_LOOK_SECONDS", 0.0)
    file._look_at = 0.0
    assert allowed(file, "a", 3, 5) == 0, "and goes on there as long as the disk is full"
    monkeypatch.setattr(os, "pwrite", usual)
    beside = CallFile(tmp_path / "calls")
    assert allowed(file, "b", 3, 2) == allowed(beside, "b", 3, 1) + 1 == 2
    assert allowed(file, "b", 3, 5) == allowed(beside, "b", 3, 5) == 0, "together again, once there is room"


def test_a_file_that_is_removed_or_emptied_is_begun_again_by_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rates, "_LOOK_SECONDS", 0.0)
    file, beside = CallFile(tmp_path / "calls"), CallFile(tmp_path / "calls")
    for lose in (Path.unlink, lambda path: os.truncate(path, 0)):
        assert allowed(file, "a", 3, 2) + allowed(beside, "a", 3, 5) == 3
        lose(tmp_path / "calls")
        (token, counts), (same, _) = beside.counts(), file.counts()
        assert token == same != 32 * "\0"
        assert counts == {}
    assert allowed(file, "a", 3, 2) + allowed(beside, "a", 3, 5) == 3


def test_what_is_no_file_of_calls_is_begun_again(tmp_path: Path) -> None:
    (tmp_path / "calls").write_bytes(b"\xff" * 10_000)
    file = CallFile(tmp_path / "calls")
    assert allowed(file, "a", 3, 5) == 3
    assert {caller: count.calls for caller, count in file.counts()[1].items()} == {"a": 3}


def test_a_process_that_stands_still_with_the_lock_delays_no_call_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, beside = CallFile(tmp_path / "calls"), CallFile(tmp_path / "calls")
    assert allowed(beside, "a", 3, 1) == 1
    monkeypatch.setattr(rates, "_LONGEST_WAIT_SECONDS", 0.01)
    with rates._lock(file._get_descriptor()):
        assert allowed(beside, "a", 3, 5) == 2
