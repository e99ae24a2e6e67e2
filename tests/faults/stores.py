"""Where a service under test keeps its files, as the checks see it."""

from __future__ import annotations

import importlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import httpx

from tests.faults.processes import free_port

_BUCKET = "lrbs"
_KEYS = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "us-east-1"}
_LOOKS = 600


class Store(Protocol):
    """Files by kind: pictures, models, galleries."""

    def names(self, kind: str) -> set[str]:
        """Return the names of what is stored."""
        ...

    def bundle(self, name: str) -> Path:
        """Return the folder of a model, on this machine."""
        ...

    def settings(self, gateway: str) -> dict[str, str]:
        """Return the settings of a process that sees this machine as `gateway`."""
        ...


class FolderStore(Store):
    """The data folder.

    Parameters
    ----------
    folder : Path
        The folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def names(self, kind: str) -> set[str]:
        folder = self._folder / kind
        if kind == "pictures":
            return {path.name for path in folder.rglob("*") if path.is_file()}
        return {path.name for path in folder.glob("*") if path.name != ".trash"}

    def bundle(self, name: str) -> Path:
        return self._folder / "models" / name

    def settings(self, gateway: str) -> dict[str, str]:
        return {}


class S3Store(Store):
    """A bucket of an object store.

    Parameters
    ----------
    port : int
        Where it listens, on this machine.
    copies : Path
        For what the checks read.
    """

    def __init__(self, port: int, copies: Path) -> None:
        self._port = port
        self._copies = copies
        options = {name.lower(): value for name, value in _KEYS.items() if name != "AWS_DEFAULT_REGION"}
        self._client: Any = importlib.import_module("boto3").client(
            "s3", endpoint_url=f"http://127.0.0.1:{port}", region_name=_KEYS["AWS_DEFAULT_REGION"], **options
        )
        self._client.create_bucket(Bucket=_BUCKET)

    def names(self, kind: str) -> set[str]:
        part = -1 if kind == "pictures" else 0
        keys = (key.removeprefix(f"{kind}/") for key in self._keys(f"{kind}/"))
        return {key.split("/")[part] for key in keys if not key.startswith(".")}

    def bundle(self, name: str) -> Path:
        folder = self._copies / name
        for key in self._keys(f"models/{name}/"):
            file = folder / key.removeprefix(f"models/{name}/")
            file.parent.mkdir(parents=True, exist_ok=True)
            self._client.download_file(_BUCKET, key, str(file))
        return folder

    def settings(self, gateway: str) -> dict[str, str]:
        address = {"AWS_ENDPOINT_URL": f"http://{gateway}:{self._port}"}
        return {**_KEYS, **address, "LRBS_STORAGE_URL": f"s3://{_BUCKET}"}

    def _keys(self, prefix: str) -> list[str]:
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=_BUCKET, Prefix=prefix)
        return [entry["Key"] for page in pages for entry in page.get("Contents", [])]


@contextmanager
def s3_store() -> Iterator[S3Store]:
    """Yield an empty object store in a process of its own; isolated hosts reach it, too."""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "0.0.0.0", "-p", str(port)]
    with (
        tempfile.TemporaryDirectory(prefix="lrbs-copies-") as copies,
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process,
    ):
        try:
            _wait_for(f"http://127.0.0.1:{port}/moto-api/")
            yield S3Store(port, Path(copies))
        finally:
            process.kill()


def _wait_for(url: str) -> None:
    for _ in range(_LOOKS):
        try:
            httpx.get(url, trust_env=False)
        except httpx.TransportError:
            time.sleep(0.1)
        else:
            return
    raise TimeoutError(f"{url} does not answer")
