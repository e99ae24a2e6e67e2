"""A file of which the processes of one host may use at a time: a SQLite database on a network file system."""
# Processes that have such a database open share memory, which hosts do not: two of them would destroy it. So
# each process holds a lock on a small file of its host beside the database, and starts only where nothing
# holds that of another one. The locks are those of `flock`, which network file systems pass on to their
# server.

from __future__ import annotations

import errno
import fcntl
import socket
from pathlib import Path
from typing import BinaryIO

_MOUNTS = Path("/proc/self/mountinfo")
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_SHARED = frozenset(
    [
        *("afs", "beegfs", "ceph", "cifs", "glusterfs", "gfs2", "gpfs", "lustre", "nfs", "nfs4", "ocfs2"),
        *("smb3", "virtiofs", "fuse.ceph", "fuse.glusterfs", "fuse.juicefs", "fuse.s3fs", "fuse.sshfs"),
    ]
)
"""Kinds of file systems that several hosts can mount."""


def hold_for_this_host(file: Path) -> BinaryIO | None:
    """Keep processes of other hosts from a file until the result is closed; raises OSError if one of theirs
    holds it."""
    # None, and nothing is done, where other hosts cannot reach the file system, or where it takes no writes.
    if not is_within_reach_of_others(file):
        return None
    try:
        # Containers of one machine have names of their own, but share its memory.
        name = socket.gethostname()
        return hold(file, _BOOT.read_text(encoding="ascii").strip() if _BOOT.is_file() else name, name)
    except OSError as error:
        if error.errno in (errno.EROFS, errno.EACCES):
            return None
        raise


def is_within_reach_of_others(path: Path) -> bool:
    """Return whether other hosts can have the file system of a path, too, as far as its kind shows."""
    return _MOUNTS.is_file() and kind_of_file_system(path, _MOUNTS.read_text(encoding="utf-8")) in _SHARED


def hold(file: Path, host: str, name: str) -> BinaryIO:
    """Return a lock on a file for a host, named for people in the folder of the file; raises OSError if
    another host holds it."""
    folder = file.with_name(f"{file.name}-hosts")
    folder.mkdir(parents=True, exist_ok=True)
    own = (folder / host).open("a+b")
    fcntl.flock(own, fcntl.LOCK_SH)
    if not own.tell():
        own.write(name.encode())
        own.flush()
    for other in folder.iterdir():
        if other.name != host and _is_held(other):
            own.close()
            holder = other.read_text(encoding="utf-8", errors="replace")
            raise OSError(
                errno.EBUSY,
                f"this SQLite database is in use by host {holder!r}: "
                "only PostgreSQL (LRBS_DATABASE_URL) serves several hosts",
                str(file),
            )
    return own


def kind_of_file_system(path: Path, mounts: str) -> str:
    """Return the kind of the file system that a path lies on, as in the lines of ``/proc/self/mountinfo``."""
    kind, longest = "", -1
    place = path.resolve()
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        mounted = Path(before.split()[4].encode().decode("unicode_escape"))  # a space is \040
        # Of several on one place the last one is seen.
        if place.is_relative_to(mounted) and len(mounted.parts) >= longest:
            kind, longest = after.split()[0], len(mounted.parts)
    return kind


def _is_held(file: Path) -> bool:
    with file.open("r+b") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
