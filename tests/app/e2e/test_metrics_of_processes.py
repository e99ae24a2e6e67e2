"""Several server processes tell the same metrics, whichever of them is asked."""

import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from app.bootstrap import build
from app.domain.names import Scope
from app.settings import Settings
from solver.datasets import SyntheticPairs, make_low_rank_pairs
from tests.app.e2e.conftest import Server
from tests.app.e2e.test_processes import asked_afresh, children_of, wait_for
from tests.app.integration.conftest import Pairs

SETTLED = (
    "lrbs_served_version",
    "lrbs_revision_lag",
    "lrbs_index_items",
    "lrbs_index_recall",
    "lrbs_damaged",
)


@pytest.fixture
def data() -> SyntheticPairs:
    return make_low_rank_pairs(12, 12, n_features_x=3, n_features_z=3, n_classes=2, random_state=1)


@pytest.fixture
def key(tmp_path: Path, data: SyntheticPairs, copy_migrated: Callable[[Path], None]) -> Iterator[str]:
    """A key of a service with a whole collection and one whose only bundle is damaged."""
    copy_migrated(tmp_path / "data")
    services = build(Settings(data_dir=tmp_path / "data", database_url=""))
    pairs = Pairs(services, data)
    models = tmp_path / "data" / "models"
    before: set[Path] = set()
    for name in ("whole", "damaged"):
        before = set(models.rglob("*.faiss"))
        pairs.fill(name)
        pairs.train(name)
    for path in set(models.rglob("*.faiss")) - before:
        path.write_bytes(b"no index")
    yield services.access.create(Scope.ADMIN)[1]
    services.database.engine.dispose()


def told(url: str) -> dict[str, float]:
    lines = [line for line in asked_afresh(url, "/metrics").text.splitlines() if not line.startswith("#")]
    found = {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}
    return {name: value for name, value in found.items() if name.startswith(SETTLED)}


def all_tell(url: str, expected: dict[str, float]) -> bool:
    """Return whether whoever is asked tells the same, and this of it."""
    answers = [told(url) for _ in range(8)]
    return all(one == answers[0] and expected.items() <= one.items() for one in answers)


def test_whichever_process_is_asked_tells_of_all(
    start_server: Callable[..., Server], key: str, data: SyntheticPairs
) -> None:
    server = start_server("--no-worker", "--processes", "2")
    headers = {"Authorization": f"Bearer {key}"}
    processes = wait_for(lambda: len(found := children_of(server.process.pid)) == 2 and found)
    for _ in range(20):
        asked_afresh(server.url, "/readyz")
    expected = {
        'lrbs_served_version{collection="whole"}': 1,
        'lrbs_revision_lag{collection="whole"}': 0,
        'lrbs_index_items{collection="whole",modality="x"}': 12,
        "lrbs_damaged_bundles_total": 2,  # each of them met it
    }
    wait_for(lambda: all_tell(server.url, expected))
    item = {"id": "new", "modality": "x", "vector": data.X[0].tolist()}
    path = "/v1/collections/whole"
    url = f"{server.url}{path}/items"
    httpx.post(url, json={"items": [item]}, headers=headers, trust_env=False, timeout=60).raise_for_status()
    query = {"vector": data.Z[0].tolist()}

    def is_found_by_all() -> bool:
        for _ in range(8):  # over connections of their own, which either process takes
            search = f"{server.url}{path}/search/z-to-x"
            httpx.post(
                search, json=query, headers=headers, trust_env=False, verify=False, timeout=60
            ).raise_for_status()
        return all_tell(server.url, {'lrbs_index_items{collection="whole",modality="x"}': 13})

    wait_for(is_found_by_all)

    httpx.delete(f"{server.url}{path}", headers=headers, trust_env=False, timeout=60).raise_for_status()
    wait_for(lambda: not any("whole" in name for _ in range(8) for name in told(server.url)))

    ended = min(processes)
    environment = Path(f"/proc/{ended}/environ").read_bytes().decode()
    found = re.search(r"PROMETHEUS_MULTIPROC_DIR=([^\0]+)", environment)
    assert found is not None
    folder = Path(found[1])
    wait_for(lambda: (folder / f"collections_{ended}.json").exists())
    os.kill(ended, signal.SIGKILL)
    wait_for(lambda: len(children_of(server.process.pid) - {ended}) == 2)
    left = {path.name for path in folder.glob(f"*_{ended}.*")}
    assert left <= {f"counter_{ended}.db", f"histogram_{ended}.db"}, "what it counted stays"
