"""SeaweedFS, an S3 server that a package brings, of a run's own."""

import contextlib
import importlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sysconfig
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

import httpx

BUCKET, ABSENT = "lrbs", "absent"
"""Names of a bucket that is there, and of one that is not; a service may use both."""
PROGRAM = Path(sysconfig.get_path("scripts")) / "weed"
STRANGER = ("stranger", "secret of the stranger")
"""The key of somebody without access to the bucket, and its secret."""
_KEY, _SECRET = "lrbs", "secret of lrbs"
_ACTIONS = ("Read", "Write", "List")
"""What a service needs: it makes no bucket."""
_SERVERS = ("master", "volume", "filer", "s3", "admin")
"""Parts of the process; each has a second port, for gRPC."""
_START_SECONDS = 60.0


class ObjectStore:
    """Starts a server with one bucket in a folder of its own; it listens at 0.0.0.0 for isolated hosts."""

    def __init__(self, address: str = "127.0.0.1") -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="lrbs-objects-"))
        ports = _free_ports(2 * len(_SERVERS))
        self._ports = dict(zip(_SERVERS, ports[::2], strict=True))
        self._rpc_ports = dict(zip(_SERVERS, ports[1::2], strict=True))
        self._address = address
        self.endpoint = self.endpoint_at("127.0.0.1")
        allowed = [f"{action}:{bucket}" for action in _ACTIONS for bucket in (BUCKET, ABSENT)]
        lrbs = _identity("lrbs", (_KEY, _SECRET), *allowed)
        identities = [lrbs, _identity("stranger", STRANGER, "Admin:elsewhere")]
        (self._folder / "identities.json").write_text(json.dumps({"identities": identities}))
        self.files: Any = importlib.import_module("s3fs").S3FileSystem(
            key=_KEY,
            secret=_SECRET,
            client_kwargs={"endpoint_url": self.endpoint},
            use_listings_cache=False,
            skip_instance_cache=True,
        )
        """The library's file system on it, with the rights of the service."""
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def endpoint_at(self, host: str) -> str:
        """Return its URL for those to whom this machine has that address."""
        return f"http://{host}:{self._ports['s3']}"

    def start(self) -> None:
        """Start it, also after it was killed, and wait until it takes objects."""
        # Names of keys in the environment would be those of one more identity, which may do everything.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        environment["WEED_MASTER_VOLUME_GROWTH_COPY_1"] = "1"  # the usual seven files take a while
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command(), cwd=self._folder, env=environment, stdout=log, stderr=log
            )
        deadline = time.monotonic() + _START_SECONDS
        while not self._takes_objects():
            assert self._process.poll() is None, self._log()
            assert time.monotonic() < deadline, self._log()
            time.sleep(0.05)

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to use it."""
        return {
            "AWS_ACCESS_KEY_ID": _KEY,
            "AWS_SECRET_ACCESS_KEY": _SECRET,
            "AWS_ENDPOINT_URL": self.endpoint,
        }

    def make_place(self) -> str:
        """Return the URL of a folder that nothing else uses."""
        return f"s3://{BUCKET}/{uuid.uuid4().hex[:12]}/files"

    def fall_silent(self) -> None:
        """Take connections, and answer none."""
        self._signal(signal.SIGSTOP)
        assert self._process is not None
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WNOWAIT)  # until each thread has stopped

    def speak_again(self) -> None:
        """Answer again, also what came meanwhile."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it by SIGKILL; what it has taken stays."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        for port in (*self._ports.values(), *self._rpc_ports.values()):
            for path in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):  # it has no option for each of them
                path.unlink()

    def recover(self) -> None:
        """Have it answer again, whatever was done to it."""
        assert self._process is not None
        if self._process.poll() is None:
            self.speak_again()
        else:
            self.start()

    def remove(self) -> None:
        """End it and remove its folder."""
        self.kill()
        shutil.rmtree(self._folder)

    def _command(self) -> list[str]:
        options = {
            "dir": ".",
            "ip": "127.0.0.1",
            "ip.bind": self._address,
            "bucket": BUCKET,
            "s3.config": "identities.json",
            "s3.iam": "false",
            "s3.autoCreateBucket": "false",
            "s3.port.iceberg": "0",
            "s3.port.lance": "0",
            "master.telemetry": "false",
            "master.volumeSizeLimitMB": "64",
            "volume.max": "100",
            "webdav": "false",
            "admin.ui": "false",
            **{f"{name}.port": str(port) for name, port in self._ports.items()},
            **{f"{name}.port.grpc": str(port) for name, port in self._rpc_ports.items()},
        }
        return [str(PROGRAM), "-logtostderr=true", "mini", *(f"-{name}={options[name]}" for name in options)]

    def _takes_objects(self) -> bool:
        with contextlib.suppress(httpx.TransportError, OSError):
            if httpx.get(f"{self.endpoint}/healthz", trust_env=False, verify=False, timeout=5.0).is_success:
                self.files.pipe_file(f"{BUCKET}/.ready", b"")
                return True
        return False

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        os.kill(self._process.pid, number)

    def _log(self) -> str:
        return (self._folder / "log").read_text(errors="replace")[-4000:]


def _identity(name: str, key: tuple[str, str], *actions: str) -> dict[str, Any]:
    credentials = [{"accessKey": key[0], "secretKey": key[1]}]
    return {"name": name, "credentials": credentials, "actions": actions}


def _free_ports(count: int) -> list[int]:
    """Return ports that are free: all are taken before the first one is given up."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
