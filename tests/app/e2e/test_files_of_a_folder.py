"""Under plain `lrbs serve`, API and worker both know that the files in the data folder are theirs."""

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.app.e2e.conftest import Server
from tests.app.e2e.refusals import png
from tests.app.e2e.test_crash import NAME, fill
from tests.app.waiting import wait_for

AT_ONCE = {"LRBS_SWEEP_GRACE_SECONDS": "0"}
SECONDS = 60.0


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[[Path], Server]]:
    """Return a function that serves a folder and waits until the worker beside has looked after it."""
    started: list[Server] = []

    def start(folder: Path) -> Server:
        server = Server(folder, ("serve",), **AT_ONCE)
        started.append(server)
        server.wait_until_ready()
        wait_for(lambda: (folder / ".database").exists())
        return server

    yield start
    for server in started:
        server.end()


def pictures(folder: Path) -> list[Path]:
    return [path for path in (folder / "pictures").glob("[!.]*/*") if path.is_file()]


def store_and_delete_a_picture(client: httpx.Client, folder: Path) -> None:
    item = {"item": json.dumps({"id": "p", "modality": "image"})}
    client.post(
        "/v1/collections/album/items", data=item, files={"picture": ("p.png", png())}
    ).raise_for_status()
    assert len(pictures(folder)) == 1
    client.delete("/v1/collections/album/items/p").raise_for_status()
    assert pictures(folder) == []


def test_pictures_are_swept_and_galleries_saved_and_still_after_a_move(
    run_lrbs: Callable[..., str], serve: Callable[[Path], Server], tmp_path: Path
) -> None:
    folder = tmp_path / "data"
    headers = {"Authorization": f"Bearer {run_lrbs('keys', 'create', '--scope', 'admin').strip()}"}
    server = serve(folder)
    with httpx.Client(base_url=server.url, headers=headers, trust_env=False, timeout=SECONDS) as client:
        sides = {"image": {"encoder": {"type": "hog-color"}}, "text": {"encoder": {"type": "tfidf"}}}
        client.post("/v1/collections", json={"name": "album", "modalities": sides}).raise_for_status()
        store_and_delete_a_picture(client, folder)
        vector = fill(client)
        for start in (0, 600):
            items = [
                {"id": f"new{n}", "modality": "x", "vector": [n + 1.0] * 8} for n in range(start, start + 600)
            ]
            client.post(f"/v1/collections/{NAME}/items", json={"items": items}).raise_for_status()
        search = f"/v1/collections/{NAME}/search/z-to-x"
        client.post(search, json={"vector": vector}).raise_for_status()
        wait_for(lambda: list((folder / "galleries").glob("[!.]*")))
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(SECONDS) == 0
    assert "another database" not in server.said()

    moved = folder.rename(tmp_path / "moved")
    server = serve(moved)
    with httpx.Client(base_url=server.url, headers=headers, trust_env=False, timeout=SECONDS) as client:
        store_and_delete_a_picture(client, moved)
    assert "another database" not in server.said()
