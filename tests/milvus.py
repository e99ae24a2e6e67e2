"""A server of Milvus Lite, of a run's own."""

import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_START_SECONDS = 30.0


class MilvusServer:
    """Starts a server in a folder of its own."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="lrbs-milvus-"))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"
        self.start()

    def start(self) -> None:
        """Start it, also after it was killed."""
        command = (sys.executable, "-m", "milvus_lite", "server", "--data-dir", str(self._folder / "data"))
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--port", str(self._port)], stdout=log, stderr=subprocess.STDOUT
            )
        deadline = time.monotonic() + _START_SECONDS
        while True:
            with socket.socket() as attempt:
                if attempt.connect_ex(("127.0.0.1", self._port)) == 0:
                    return
            assert self._process.poll() is None, (self._folder / "log").read_text()
            assert time.monotonic() < deadline, (self._folder / "log").read_text()
            time.sleep(0.1)

    def kill(self) -> None:
        """End it by SIGKILL."""
        self._process.kill()
        self._process.wait()

    def remove(self) -> None:
        """End it and remove its folder."""
        self.kill()
        shutil.rmtree(self._folder)
