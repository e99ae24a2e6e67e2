"""An S3 server of a package, of a run's own."""

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

    def end(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
