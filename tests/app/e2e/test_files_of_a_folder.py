"""Under plain `lrbs serve`, API and worker both know that the files in the data folder are theirs."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.client import Client
from tests.app.e2e.conftest import Server, servers
from tests.app.e2e.refusals import png
from tests.app.e2e.test_crash import NAME, fill
from tests.app.waiting import wait_for

AT_ONCE = {"LRBS_SWEEP_GRACE_SECONDS": "0"}
SECONDS = 60.0


@pytest.fixture
def serve() -> Iterator[Callable[[Path], Server]]:
    """Return a function that serves a folder and waits until the worker beside has looked after it."""
    with servers() as begin:

        def start(folder: Path) -> Server:
            server = begin(folder, ("serve",), **AT_ONCE)
            wait_for(lambda: (folder / ".database").exists())
            return server

        yield start


def pictures(folder: Path) -> list[Path]:
    return [path for path in (folder / "pictures").glob("[!.]*/*") if path.is_file()]


def store_and_delete_a_picture(client: Client, folder: Path) -> None:
    client.create_items("album", [{"id": "p", "modality": "image", "picture": png()}])
    assert client.get_content("album", "p") == png()  # brings it back if a sweep came before its row
    assert len(pictures(folder)) == 1
    client.delete_item("album", "p")
    assert pictures(folder) == []


def test_pictures_are_swept_and_galleries_saved_and_still_after_a_move(
    create_admin_key: Callable[[], str], serve: Callable[[Path], Server], tmp_path: Path
) -> None:
    folder = tmp_path / "data"
    key = create_admin_key()
    server = serve(folder)
    with server.client(key) as client:
        client.create_collection("album", {"image": {"type": "hog-color"}, "text": {"type": "tfidf"}})
        store_and_delete_a_picture(client, folder)
        vector = fill(client)
        for start in (0, 600):
            items = [
                {"id": f"new{n}", "modality": "x", "vector": [n + 1.0] * 8} for n in range(start, start + 600)
            ]
            client.create_items(NAME, items)
        client.search(NAME, "z", "x", vector=vector)
        wait_for(lambda: list((folder / "galleries").glob("[!.]*")))
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(SECONDS) == 0
    assert "another database" not in server.said()

    moved = folder.rename(tmp_path / "moved")
    server = serve(moved)
    with server.client(key) as client:
        store_and_delete_a_picture(client, moved)
    assert "another database" not in server.said()
