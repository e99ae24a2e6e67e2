"""Processes of the command line: started, killed, started again, and found by the mark they carry."""

from __future__ import annotations

import contextlib
import os
import random
import re
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import httpx

from tests.faults.hosts import Host
from tests.faults.tally import Tally

ROOT = Path(__file__).parents[2]
MARK = "LRBS_FAULTS_RUN"
_READY_LOOKS = 2000
_DATABASE_AWAY = "error: the database does not answer or is busy: try again"
_PORTS = (18000, 30000)  # below those that the kernel gives to clients, so that a port stays ours


def free_port() -> int:
    """Return a port that nothing listens on."""
    for port in random.SystemRandom().sample(range(*_PORTS), 200):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError("no free port found")


def children_of(process: int) -> list[int]:
    """Return the children of a process, of all its threads."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{process}/task").iterdir():
            with contextlib.suppress(OSError):
                found += map(int, (task / "children").read_text().split())
    return found


def command_line(process: int) -> str:
    """Return the command of a process; nothing when it is gone or only waits to be reaped."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def state_of(process: int) -> str:
    """Return the command of a process, what it does, and where in the kernel it waits."""
    with contextlib.suppress(OSError):
        status = Path(f"/proc/{process}/status").read_text()
        waiting = Path(f"/proc/{process}/wchan").read_text()
        states = re.findall(r"^(?:State|PPid|Threads):.*", status, re.MULTILINE)
        return f"{command_line(process)!r}, {', '.join(states)}, {waiting or 'nowhere'}"
    return "gone by now"


def marked(mark: str) -> set[int]:
    """Return every living process that was started with a mark in its environment."""
    wanted, found = f"{MARK}={mark}".encode(), set()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                if wanted in (folder / "environ").read_bytes().split(b"\0"):
                    found.add(int(folder.name))
    return found


def descendants_of(process: int) -> set[int]:
    """Return all processes below one."""
    found: set[int] = set()
    for child in children_of(process):
        found |= {child} | descendants_of(child)
    return found


class Program(NamedTuple):
    """The interpreter and the checkout of the code that is run."""

    python: str = sys.executable
    root: Path = ROOT

    def command(self, *arguments: str) -> list[str]:
        """Return a command of ``lrbs``."""
        return [self.python, "-m", "app.cli", *arguments]


THIS = Program()


class Managed:
    """A command of ``lrbs`` that is started again whenever it ends, until it is stopped; `log` has all its
    lives."""

    def __init__(
        self,
        name: str,
        arguments: tuple[str, ...],
        environment: Mapping[str, str],
        log: Path,
        port: int | None = None,
        host: Host | None = None,
        program: Program = THIS,
    ) -> None:
        address, prefix = ("127.0.0.1", ()) if host is None else (host.address, host.prefix)
        self.name = name
        self.url = f"http://{address}:{port}"
        self.lives = 0
        """Number of starts; what a process promises holds within one life."""
        self.unasked: list[str] = []
        """Ends that nobody asked for, with what was said last."""
        self.refused_starts = 0
        """Ends at the very start because the database was away: whoever starts it tries again."""
        self._command = [*prefix, *program.command(*arguments)]
        self._root = program.root
        listening = {} if port is None else {"LRBS_PORT": str(port), "LRBS_HOST": address}
        self._environment = {**environment, **listening}
        self._log = log
        self._killed: set[int] = set()
        self._stopping = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._keep, name=name, daemon=True)

    @property
    def pid(self) -> int:
        """Process of the present life."""
        return 0 if self._process is None else self._process.pid

    def start(self) -> None:
        """Begin the first life."""
        self._thread.start()

    def kill(self) -> bool:
        """Kill the present life; the next begins at once. Return whether there was one."""
        process = self._process
        if process is None or process.poll() is not None:
            return False
        self._killed.add(process.pid)
        process.kill()
        return True

    def stop(self) -> int | None:
        """Ask it to end and wait for that; returns its exit status."""
        self._stopping.set()
        if self._process is None:
            return None
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(60.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            self.unasked.append(f"{self.name} did not end within a minute of SIGTERM")
        self._thread.join(10.0)
        return self._process.returncode

    def _keep(self) -> None:
        while not self._stopping.is_set():
            with self._log.open("ab") as log:
                said_before = log.tell()
                self._process = subprocess.Popen(
                    self._command,
                    cwd=self._root,
                    env=dict(self._environment),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            self.lives += 1
            status = self._process.wait()
            if self._process.pid not in self._killed and not self._stopping.is_set():
                lines = self._log.read_bytes()[said_before:].decode(errors="replace").strip().splitlines()
                if _is_refused_start(status, lines):
                    self.refused_starts += 1
                else:
                    last = " | ".join(lines[-3:])
                    self.unasked.append(f"{self.name} ended by itself with {status}: {last}")
                time.sleep(0.5)


def _is_refused_start(status: int, lines: list[str]) -> bool:
    """Return whether a process has said, before it began to work, that it cannot without the database."""
    has_begun = any("serves on" in line or "Traceback" in line for line in lines)
    return status == 1 and not has_begun and lines[-1:] == [_DATABASE_AWAY]


def environment_of(data_dir: Path, database_url: str, mark: str, **settings: str) -> dict[str, str]:
    """Return the settings of every process of a run: one server process each, where not set otherwise."""
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("LRBS_")},
        "LRBS_DATA_DIR": str(data_dir),
        "LRBS_DATABASE_URL": database_url,
        "LRBS_PROCESSES": "1",
        "PYTHONUNBUFFERED": "1",
        "PYTHONFAULTHANDLER": "1",  # a process that crashes by itself says where
        "PYTHONPATH": str(ROOT),
        MARK: mark,
        **settings,
    }


def run_lrbs(environment: Mapping[str, str], *arguments: str, program: Program = THIS) -> str:
    """Run a command to its end and return what it printed."""
    command = program.command(*arguments)
    done = subprocess.run(command, cwd=program.root, env=dict(environment), capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"lrbs {' '.join(arguments)}: {done.stdout}{done.stderr}")
    return done.stdout.strip()


def prepare(environment: Mapping[str, str], program: Program = THIS) -> str:
    """Bring a database to the current schema and return an admin key."""
    run_lrbs(environment, "db", "upgrade", program=program)
    return run_lrbs(environment, "keys", "create", "--scope", "admin", program=program).split()[-1]


class Service(NamedTuple):
    """A service that runs, and an admin key."""

    url: str
    key: str


@contextlib.contextmanager
def serving(folder: Path, tally: Tally, database_url: str = "", program: Program = THIS) -> Iterator[Service]:
    """Serve with a worker beside it; SQLite without a database URL. Ends that nobody asked for are
    violations."""
    data = folder / "data"
    data.mkdir(parents=True)
    url = database_url or f"sqlite:///{data / 'lrbs.sqlite3'}"
    environment = environment_of(data, url, secrets.token_hex(8), PYTHONPATH=str(program.root))
    key = prepare(environment, program)
    server = Managed("api", ("serve",), environment, folder / "api.log", free_port(), program=program)
    server.start()
    try:
        wait_until_ready([server.url])
        yield Service(server.url, key)
    finally:
        server.stop()
        for line in server.unasked:
            tally.violation(line)


def wait_until_ready(urls: list[str]) -> None:
    """Wait until every server is ready; raises TimeoutError with what it said last."""
    for url in urls:
        said = "nothing"
        # Looks, not seconds: where everything stands still for a while, nobody is late.
        for _ in range(_READY_LOOKS):
            try:
                # Not verifying what is not encrypted spares each look the certificates.
                answer = httpx.get(f"{url}/readyz", trust_env=False, verify=False, timeout=30.0)
                said = re.sub(r"\s+", " ", answer.text)
                if answer.status_code == 200:
                    break
            except httpx.TransportError as error:
                said = repr(error)
            time.sleep(0.1)
        else:
            raise TimeoutError(f"{url} is not ready after {_READY_LOOKS} looks: {said}")
