"""Hosts whose clocks differ share jobs, keys and files: the database's clock decides."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from app.bootstrap import Services, build
from app.domain.entities import KeyBounds, Modality
from app.domain.names import Scope
from app.settings import Settings
from app.storage.folders import LocalFolder
from app.storage.pictures_and_bundles import Blobs
from tests.app.closing import close
from tests.app.waiting import wait_for
from tests.conftest import ROOT, miss

pytestmark = pytest.mark.postgres
MODALITIES = (Modality("image", {"type": "hog-color"}), Modality("text", {"type": "tfidf"}))
LEASE_SECONDS = 600.0
ON_ANOTHER_HOST = """
import json, select, sys
from datetime import UTC, datetime

from app.bootstrap import build
from app.domain.entities import KeyBounds
from app.domain.entities import Modality
from app.domain.names import Scope
from app.domain.errors import ServiceError
from app.settings import Settings

url, folder, secret, expired, past, future = sys.argv[1:]
services = build(Settings(database_url=url, data_dir=folder, sweep_grace_seconds=600.0))


def outcome(call, *arguments, **named):
    try:
        return call(*arguments, **named)
    except ServiceError as error:
        return str(error)


def create(expires_at):
    bounds = KeyBounds(expires_at=datetime.fromisoformat(expires_at))
    return outcome(services.access.create, Scope.SEARCH, bounds=bounds)


said = {"clock": datetime.now(UTC).isoformat()}
said["taken over"] = []
for _ in range(2):  # the first only gives notice
    with services.database.write() as work:
        said["taken over"].append(work.jobs.claim("other", 0.01, 3) is not None)
    select.select([], [], [], 0.05)  # faketime breaks Python's sleep
said["refused"] = [
    isinstance(outcome(services.access.require, shown, Scope.SEARCH), str) for shown in (secret, expired)
]
services.access.record_use()
said["made expired"] = create(past)
created = create(future)
said["made"] = created[0].created_at.isoformat()
collection = services.catalogue.create("other", [Modality(name, {"type": "vector"}) for name in "xz"])
said["collection"] = collection.created_at.isoformat()
with services.database.write() as work:
    work.jobs.enqueue(work.collections.get("other"), {})
    said["claimed"] = work.jobs.claim("other", 600.0, 3).collection
said["swept"] = services.garbage_collector.sweep(any_share=True)
print(json.dumps(said))
"""


@pytest.fixture
def services(migrated_postgres_url: str, tmp_path: Path) -> Iterator[Services]:
    built = build(Settings(database_url=migrated_postgres_url, data_dir=tmp_path / "data"))
    yield built
    close(built)


def run_elsewhere(shift: str, *arguments: str) -> dict[str, Any]:
    """Run what another host does whose clock is wrong; times of files are those of the shared storage."""
    faketime = shutil.which("faketime")
    if faketime is None:
        miss("faketime", "faketime is not installed")
    command = [faketime, "--exclude-monotonic", "-f", shift, sys.executable, "-c", ON_ANOTHER_HOST]
    environment = {**os.environ, "NO_FAKE_STAT": "1"}
    done = subprocess.run(
        [*command, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def is_over(services: Services, moment: datetime) -> bool:
    with services.database.read() as work:
        return work.now() > moment


@pytest.mark.parametrize("hours", [5, -5])
def test_a_host_with_a_wrong_clock_takes_no_lease_and_ends_no_key(services: Services, hours: int) -> None:
    services.catalogue.create("album", MODALITIES)
    with services.database.write() as work:
        began = work.now()
        work.jobs.enqueue(work.collections.get("album"), {})
        held = work.jobs.claim("here", LEASE_SECONDS, 3)
    assert held is not None
    in_an_hour = began + timedelta(hours=1)
    key, secret = services.access.create(Scope.SEARCH, bounds=KeyBounds(expires_at=in_an_hour))
    with services.database.read() as work:
        soon = work.now() + timedelta(seconds=3)
    _, expired = services.access.create(Scope.SEARCH, bounds=KeyBounds(expires_at=soon))
    # The rows of these pictures are about to be written.
    pictures = Blobs(LocalFolder(services.settings.data_dir / "pictures"))
    stored = {pictures.put(bytes([number])) for number in range(3)}
    settings = services.settings
    arguments = settings.database_url, str(settings.data_dir), secret, expired
    past = began - timedelta(minutes=1)
    wait_for(lambda: is_over(services, soon))
    said = run_elsewhere(f"{hours:+}h", *arguments, past.isoformat(), in_an_hour.isoformat())
    shifted = datetime.fromisoformat(said["clock"]) - datetime.now(UTC)
    assert abs(shifted - timedelta(hours=hours)) < timedelta(minutes=5)
    assert said["taken over"] == [False, False]
    assert said["refused"] == [False, True]
    assert "is in the past" in said["made expired"]
    assert said["claimed"] == "other"
    assert (said["swept"], set(pictures.names())) == (0, stored)
    for _ in range(2):
        with services.database.write() as work:
            assert work.jobs.claim("here", 0.01, 3) is None, "the other host's lease is over too soon"
        time.sleep(0.05)
    with services.database.write() as work:
        ended = work.now()
        work.jobs.check(held)
        (used,) = (found.last_used_at for found in work.keys.list() if found.id == key.id)
    assert used is not None
    for moment in (used, *(datetime.fromisoformat(said[name]) for name in ("made", "collection"))):
        assert began <= moment <= ended
