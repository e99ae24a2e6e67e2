"""An S3 server of a package, of a run's own."""

import os
import signal
import socket
import subprocess
import sys
import time
import uuid

import httpx

_START_SECONDS = 30.0


class ObjectStore:
    """Starts a server that keeps objects in its memory."""

    def __init__(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self.endpoint = f"http://127.0.0.1:{self._port}"
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from moto.server import main; main()", "-p", str(self._port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + _START_SECONDS
        while not self._answers():
            assert self._process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def _answers(self) -> bool:
        try:
            return httpx.get(self.endpoint, trust_env=False, timeout=5.0).is_success
        except httpx.TransportError:
            return False

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to use it."""
        return {
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.endpoint,
        }

    def make_bucket(self) -> str:
        """Return the URL of a new bucket."""
        name = f"lrbs-{uuid.uuid4().hex[:12]}"
        httpx.put(f"{self.endpoint}/{name}", trust_env=False).raise_for_status()
        return f"s3://{name}/files"

    def check_keys(self, after: int = 0) -> None:
        """Refuse who has no right to what is asked, as other stores do, after some requests of anyone's."""
        url = f"{self.endpoint}/moto-api/reset-auth"
        httpx.post(url, content=str(after).encode(), trust_env=False).raise_for_status()

    def fall_silent(self) -> None:
        """Take connections, and answer none."""
        os.kill(self._process.pid, signal.SIGSTOP)

    def speak_again(self) -> None:
        """Answer again, also what came meanwhile."""
        os.kill(self._process.pid, signal.SIGCONT)

    def end(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
