"""Hosts of one service: each with its own path to the data, and, where asked, with its own network."""

from __future__ import annotations

import contextlib
import secrets
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

NETWORK = "10.211.0.0/16"
"""Of isolated hosts; each has a pair of addresses in it, one of them on this side."""
_COUNT = 2


@dataclass(frozen=True)
class Host:
    """Where processes run."""

    name: str
    data_dir: Path  # as this host sees it
    address: str = "127.0.0.1"  # where its servers listen
    gateway: str = "127.0.0.1"  # where it finds what runs on the machine itself
    prefix: tuple[str, ...] = ()  # runs a command there


@contextlib.contextmanager
def hosts(folder: Path, are_isolated: bool, is_shared: bool) -> Iterator[list[Host]]:
    """Yield two hosts, each with a data folder at a path of its own, which may be shared.
    Isolated ones have networks and names of their own, as containers have, which takes the rights of root."""
    shared = folder / "shared"
    shared.mkdir(parents=True)
    made = []
    with contextlib.ExitStack() as stack:
        for number in range(_COUNT):
            name = f"host-{number}"
            data_dir = folder / name / "data"
            data_dir.parent.mkdir()
            if is_shared:
                data_dir.symlink_to(shared)
            else:
                data_dir.mkdir()
            if are_isolated:
                made.append(stack.enter_context(_isolated(name, data_dir, number)))
            else:
                made.append(Host(name, data_dir))
        yield made


@contextlib.contextmanager
def _isolated(name: str, data_dir: Path, number: int) -> Iterator[Host]:
    space = f"lrbs{secrets.token_hex(3)}"
    outer, inner = f"{space}o", f"{space}i"
    gateway, address = f"10.211.{number}.1", f"10.211.{number}.2"
    _run("ip", "netns", "add", space)
    try:
        _run("ip", "link", "add", outer, "type", "veth", "peer", "name", inner, "netns", space)
        _run("ip", "address", "add", f"{gateway}/30", "dev", outer)
        _run("ip", "link", "set", outer, "up")
        inside = ("ip", "netns", "exec", space)
        _run(*inside, "ip", "address", "add", f"{address}/30", "dev", inner)
        _run(*inside, "ip", "link", "set", inner, "up")
        _run(*inside, "ip", "link", "set", "lo", "up")
        rename = ("unshare", "--uts", "sh", "-c", 'hostname "$0"; exec "$@"', name)
        yield Host(name, data_dir, address, gateway, (*inside, *rename))
    finally:
        _run("ip", "netns", "delete", space)  # its end of the pair goes with it, and so does the other


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
