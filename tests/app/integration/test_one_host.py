"""A SQLite database on a file system that several hosts can mount is used by the processes of one of them."""

import subprocess
import sys
from pathlib import Path

import pytest

from app.storage.one_host import hold, hold_for_this_host, kind_of_file_system
from tests.conftest import ROOT

MOUNTS = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
40 27 0:44 / /srv rw,relatime - nfs4 server:/export rw,vers=4.2
41 40 0:45 / /srv/my\\040disk rw,relatime - xfs /dev/sdb1 rw
42 27 0:46 / /mnt rw - ext4 /dev/sdc1 rw
43 27 0:47 / /mnt rw - cifs //server/share rw
"""
HOLDER = """
import sys
from pathlib import Path
from app.storage.one_host import hold
held = hold(Path(sys.argv[1]), sys.argv[2], f"host of {sys.argv[2]}")
print("holding", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/srv/lrbs/lrbs.sqlite3", "nfs4"),
        ("/srv/my disk/lrbs.sqlite3", "xfs"),
        ("/srvother/lrbs.sqlite3", "ext4"),
        ("/mnt/lrbs.sqlite3", "cifs"),
    ],
)
def test_the_file_system_of_a_file_is_the_last_one_mounted_above_it(path: str, kind: str) -> None:
    assert kind_of_file_system(Path(path), MOUNTS) == kind


def test_a_file_system_of_this_host_alone_needs_no_lock(tmp_path: Path) -> None:
    assert hold_for_this_host(tmp_path / "lrbs.sqlite3") is None
    assert list(tmp_path.iterdir()) == []


def test_processes_of_one_host_share_a_database_and_those_of_another_wait_for_their_end(
    tmp_path: Path,
) -> None:
    file = tmp_path / "lrbs.sqlite3"
    command = [sys.executable, "-c", HOLDER, str(file), "first"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"holding\n"
        beside = hold(file, "first", "host of first")
        with pytest.raises(OSError, match=r"in use by host 'host of first': only PostgreSQL"):
            hold(file, "second", "host of second")
        beside.close()
        process.kill()
    second = hold(file, "second", "host of second")
    with pytest.raises(OSError, match="host of second"):
        hold(file, "first", "host of first")
    second.close()
    hold(file, "first", "host of first").close()
