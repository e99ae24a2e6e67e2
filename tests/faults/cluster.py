"""A PostgreSQL cluster of our own, with durable commits, that may be killed and started again."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from tests.faults.hosts import NETWORK
from tests.faults.processes import children_of, command_line, free_port

_START_SECONDS = 120


def find_postgres() -> Path | None:
    """Return the folder of the newest initdb; None when there is no PostgreSQL."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if found:
        return found[-1].parent
    on_path = shutil.which("initdb")
    return None if on_path is None else Path(on_path).resolve().parent


class PostgresCluster:
    """One cluster in a folder of its own; everything it acknowledged is on disk (fsync stays on).
    With `is_open` isolated hosts reach it."""

    def __init__(self, is_open: bool = False) -> None:
        programs = find_postgres()
        if programs is None:
            raise FileNotFoundError("there is no initdb: PostgreSQL is not installed")
        self._programs = programs
        self._folder = Path(tempfile.mkdtemp(prefix="lrbs-cluster-"))
        self._data = self._folder / "data"
        self._port = free_port()
        self._listen = "*" if is_open else "127.0.0.1"
        self.url = self.url_from("127.0.0.1")
        if os.geteuid() == 0:
            shutil.chown(self._folder, "postgres")
        initdb = ["initdb", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8"]
        self._run(*initdb, "-D", str(self._data))
        if is_open:
            with (self._data / "pg_hba.conf").open("a", encoding="utf-8") as rules:
                rules.write(f"host all all {NETWORK} trust\n")
        self.start()

    def url_from(self, gateway: str) -> str:
        """Return the address for those who see this machine as `gateway`."""
        return f"postgresql+psycopg://postgres@{gateway}:{self._port}/postgres"

    def start(self) -> None:
        """Start the server and wait until it takes connections, after recovery where it was killed."""
        options = f"-p {self._port} -c listen_addresses={self._listen} -c unix_socket_directories="
        log, wait = str(self._folder / "log"), str(_START_SECONDS)
        self._run("pg_ctl", "-D", str(self._data), "-l", log, "-w", "-t", wait, "-o", options, "start")

    def kill(self) -> None:
        """Kill the postmaster and all of its children at one moment, as the loss of the machine would."""
        postmaster = self._postmaster()
        os.kill(postmaster, signal.SIGSTOP)  # so that it has no child that we do not see
        doomed = [postmaster, *children_of(postmaster)]
        for process in doomed:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        deadline = time.monotonic() + _START_SECONDS
        # The next server refuses to start while a child of the last one lives.
        while any(Path(f"/proc/{process}/cmdline").exists() and command_line(process) for process in doomed):
            if time.monotonic() > deadline:
                raise TimeoutError("killed PostgreSQL processes do not end")
            time.sleep(0.02)
        # Where nobody reaps orphans a dead postmaster keeps its number, and the next one would not start.
        (self._data / "postmaster.pid").unlink(missing_ok=True)

    def backends(self) -> list[int]:
        """Return the processes that serve a connection."""
        children = children_of(self._postmaster())
        return [child for child in children if re.search(r"\d\(\d+\)", command_line(child))]

    def close(self) -> None:
        """Stop the server and remove the folder."""
        with contextlib.suppress(RuntimeError, FileNotFoundError):
            self._run("pg_ctl", "-D", str(self._data), "-m", "immediate", "-w", "stop")
        shutil.rmtree(self._folder, ignore_errors=True)

    def _postmaster(self) -> int:
        return int((self._data / "postmaster.pid").read_text(encoding="utf-8").split()[0])

    def _run(self, program: str, *arguments: str) -> None:
        # The server refuses to run as root.
        owner = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        # Without DEVNULL the server would hold our output open for as long as it runs.
        done = subprocess.run(
            [*owner, str(self._programs / program), *arguments],
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        if done.returncode:
            log = self._folder / "log"
            said = log.read_text(encoding="utf-8", errors="replace")[-2000:] if log.exists() else ""
            raise RuntimeError(f"{program} ended with {done.returncode}: {said}")
