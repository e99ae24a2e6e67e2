"""Real processes on a disk that is full or read-only: what they say, what they still serve, and the way back.

A small file system is mounted where that is allowed; elsewhere a limit on the size of files stands in for it.
"""

import errno
import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.bootstrap import build
from app.domain.names import Scope
from app.settings import DATABASE_FILE, Settings
from solver.datasets import make_low_rank_pairs
from tests.app.e2e.conftest import ROOT, Server, servers
from tests.app.e2e.refusals import check_problem, png
from tests.app.integration.conftest import PARAMETERS, Pairs
from tests.app.waiting import wait_for

SIZE = 96 << 20
IMAGES = {"image": {"encoder": {"type": "hog-color"}}, "text": {"encoder": {"type": "tfidf"}}}
RETRAIN = {"method": "lrbs", "alpha": 1e-3, "scaling": "standard", "max_iter": 20}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, empty and small."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if done.returncode:
        pytest.skip(f"a file system cannot be mounted here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Return a function that starts `lrbs serve`, whose log lies on another disk than its data."""
    with servers() as start:
        yield lambda data, *options, **settings: start(
            tmp_path / "logs", ("serve", *options), LRBS_DATA_DIR=str(data), **settings
        )


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A data folder with a trained collection `a` and an empty one for pictures, and an admin key."""
    folder = tmp_path_factory.mktemp("prepared") / "data"
    services = build(Settings(data_dir=folder, database_url=""))
    services.schema.set_up()
    vectors = make_low_rank_pairs(60, 50, n_features_x=8, n_features_z=6, n_classes=3, random_state=3)
    pairs = Pairs(services, vectors)
    pairs.fill("a")
    pairs.train("a")
    pairs.client().post("/v1/collections", json={"name": "b", "modalities": IMAGES}).raise_for_status()
    _, secret = services.access.create(Scope.ADMIN)
    services.database.engine.dispose()
    return folder, secret


@pytest.fixture
def fill(prepared: tuple[Path, str]) -> Callable[..., str]:
    """Return a function that makes a copy of that folder, with its database where it is to be."""

    def copy(folder: Path, database: Path | None = None) -> str:
        shutil.copytree(prepared[0], folder)
        if database is not None:
            shutil.move(folder / DATABASE_FILE, database)
        return prepared[1]

    return copy


def fill_up(disk: Path) -> Path:
    ballast = disk / "ballast"
    with ballast.open("wb") as stream:
        while (room := os.statvfs(disk)).f_bfree:
            end = os.fstat(stream.fileno()).st_size
            try:
                os.posix_fallocate(stream.fileno(), end, room.f_frsize * room.f_bfree)
            except OSError as error:  # the server took some of the room meanwhile
                if error.errno != errno.ENOSPC:
                    raise
    return ballast


def client_of(server: Server, secret: str) -> httpx.Client:
    headers = {"Authorization": f"Bearer {secret}"}
    return httpx.Client(base_url=server.url, headers=headers, trust_env=False, timeout=60.0)


def write(client: httpx.Client) -> httpx.Response:
    items = [{"modality": "x", "vector": [float(n)] * 8} for n in range(500)]
    return client.post("/v1/collections/a/items", json={"items": items})


def write_picture(client: httpx.Client) -> httpx.Response:
    return client.post("/v1/collections/b/items", files={"picture": png(400, 400)})


def check_only_reads_work(client: httpx.Client, kind: str, told: str) -> None:
    """See that writes are refused for a reason, that readiness tells it, and that searches are answered."""
    for refused in (write(client), write_picture(client)):
        assert check_problem(refused, 507, "nothing was stored")["type"] == f"/problems/{kind}"
    wait_for(lambda: told in client.get("/readyz").json().get("reason", ""))
    assert client.get("/readyz").status_code == 200
    hits = client.post("/v1/collections/a/search/z-to-x", json={"item_id": "z00", "k": 5}).json()["hits"]
    assert len(hits) == 5


def check_all_works(client: httpx.Client) -> None:
    assert write(client).status_code == 201
    assert write_picture(client).status_code == 201
    wait_for(lambda: client.get("/readyz").json() == {"status": "ready"})


def test_a_full_disk_is_told_while_searches_go_on(
    disk: Path, fill: Callable[..., str], serve: Callable[..., Server]
) -> None:
    data = disk / "data"
    secret = fill(data)
    server = serve(data)
    with client_of(server, secret) as client:
        assert client.get("/readyz").json() == {"status": "ready"}
        ballast = fill_up(disk)
        # Before anybody has tried to write.
        wait_for(lambda: "the data folder is full" in client.get("/readyz").json().get("reason", ""))
        check_only_reads_work(client, "storage-full", "the data folder is full")
        assert not list((data / "pictures").rglob(".new-*")), "a picture that was not stored takes room"
        ballast.unlink()
        check_all_works(client)


def make_read_only(disk: Path) -> None:
    # What was killed beside a server may take a moment to end, and until then keeps its files open.
    command = ["mount", "-o", "remount,ro", str(disk)]
    wait_for(lambda: subprocess.run(command, capture_output=True).returncode == 0)


def test_a_read_only_disk_serves_searches(
    disk: Path, fill: Callable[..., str], serve: Callable[..., Server]
) -> None:
    data = disk / "data"
    secret = fill(data)
    serve(data).end()  # as a machine that crashed, and whose disk is mounted to look at it
    make_read_only(disk)
    with client_of(serve(data), secret) as client:
        check_only_reads_work(client, "storage-read-only", "the data folder is read-only")


def test_a_database_that_sqlite_cannot_open_on_a_read_only_disk_is_not_called_busy(
    disk: Path, tmp_path: Path, fill: Callable[..., str]
) -> None:
    fill(disk / "data")
    make_read_only(disk)
    server = Server(tmp_path / "logs", ("serve",), LRBS_DATA_DIR=str(disk / "data"))
    assert server.process.wait(60.0) == 1
    assert "error: the database file cannot be opened" in server.said()


def test_files_that_may_not_grow_are_told_while_searches_go_on(
    tmp_path: Path, fill: Callable[..., str], serve: Callable[..., Server]
) -> None:
    secret = fill(tmp_path / "data")
    server = serve(tmp_path / "data", "--no-worker")
    with client_of(server, secret) as client:
        unlimited = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (512, unlimited[1]))
        check_only_reads_work(client, "storage-full", "the last write was refused: no space is left")
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, unlimited)
        check_all_works(client)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A database that is not on the disk of the data folder."""
    return tmp_path / "elsewhere.sqlite3"


def retrain(client: httpx.Client) -> Callable[[], dict[str, Any]]:
    """Ask for a retrain; return what asks for its job."""
    path = client.post("/v1/admin/collections/a/retrain", json=RETRAIN).headers["Location"]
    return lambda: dict(client.get(path).json())


def test_a_finished_model_waits_for_room(
    elsewhere: Path, disk: Path, fill: Callable[..., str], serve: Callable[..., Server]
) -> None:
    secret = fill(disk / "data", elsewhere)
    server = serve(disk / "data", LRBS_DATABASE_URL=f"sqlite:///{elsewhere}", LRBS_JOB_RETRY_SECONDS="60")
    with client_of(server, secret) as client:
        ballast = fill_up(disk)
        job = retrain(client)
        wait_for(lambda: "no space is left" in job()["progress"].get("waiting", ""))
        ballast.unlink()
        wait_for(lambda: job()["state"] == "succeeded")
        assert job()["attempts"] == 1
        assert client.get("/v1/collections/a").json()["active_version"] == 2


def test_a_job_that_finds_no_room_ends_and_says_so(
    elsewhere: Path, disk: Path, fill: Callable[..., str], serve: Callable[..., Server]
) -> None:
    secret = fill(disk / "data", elsewhere)
    settings = {"LRBS_JOB_ATTEMPTS": "2", "LRBS_JOB_RETRY_SECONDS": "0.1"}
    with client_of(
        serve(disk / "data", LRBS_DATABASE_URL=f"sqlite:///{elsewhere}", **settings), secret
    ) as client:
        fill_up(disk)
        job = retrain(client)
        wait_for(lambda: job()["state"] == "failed")
        assert "after 2 attempts: no space is left" in job()["error"]
        assert not list((disk / "data" / "models").glob(".partial-*"))


def test_a_trainer_whose_files_may_not_grow_says_so(tmp_path: Path, fill: Callable[..., str]) -> None:
    settings = Settings(data_dir=tmp_path / "data", database_url="", job_retry_seconds=0.1)
    fill(settings.data_dir)
    services = build(settings)
    order = {
        "settings": settings.model_dump(mode="json"),
        "collection": "a",
        "parameters": asdict(PARAMETERS),
    }
    limited = (
        "import os, resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512))\n"
        "os.execv(sys.executable, [sys.executable, '-m', 'app.worker.trainer'])"
    )
    with services.database.read() as work:  # the files beside a SQLite database are there while it is open
        assert work.collections.get("a").active_version == 1
        process = subprocess.Popen(
            [sys.executable, "-c", limited],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        with process, process.stdin, process.stdout:
            process.stdin.write(json.dumps(order) + "\n")
            process.stdin.flush()
            told = [json.loads(line) for line in process.stdout]
    services.database.engine.dispose()
    assert told[-1]["failure"]["reason"].startswith("no space is left")
    assert told[-1]["failure"]["may_pass"]
