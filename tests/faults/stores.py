"""Where a service under test keeps its files, as the checks see it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from tests.object_store import BUCKET, ObjectStore


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
    """The data folder."""

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
    """A bucket of an object store that nothing else uses; `copies` is for what the checks read."""

    def __init__(self, server: ObjectStore, copies: Path) -> None:
        self._server = server
        self._copies = copies

    def names(self, kind: str) -> set[str]:
        part = -1 if kind == "pictures" else 0
        return {key.split("/")[part] for key in self._keys(kind) if not key.startswith(".")}

    def bundle(self, name: str) -> Path:
        folder = self._copies / name
        for key in self._keys(f"models/{name}"):
            file = folder / key
            file.parent.mkdir(parents=True, exist_ok=True)
            self._server.files.get_file(f"{BUCKET}/models/{name}/{key}", str(file))
        return folder

    def settings(self, gateway: str) -> dict[str, str]:
        environment = {**self._server.environment, "AWS_ENDPOINT_URL": self._server.endpoint_at(gateway)}
        return {**environment, "LRBS_STORAGE_URL": f"s3://{BUCKET}"}

    def _keys(self, prefix: str) -> list[str]:
        start = f"{BUCKET}/{prefix}/"
        return [key.removeprefix(start) for key in self._server.files.find(start) if key.startswith(start)]


@contextmanager
def s3_store(is_open: bool) -> Iterator[S3Store]:
    """Yield an empty object store in a process of its own; isolated hosts reach one that is open."""
    server = ObjectStore("0.0.0.0" if is_open else "127.0.0.1")
    try:
        with tempfile.TemporaryDirectory(prefix="lrbs-copies-") as copies:
            yield S3Store(server, Path(copies))
    finally:
        server.remove()
