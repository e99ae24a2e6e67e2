import contextlib
from pathlib import Path

import pytest

from tests.conftest import miss
from tests.faults.cluster import PostgresCluster, find_postgres
from tests.faults.neighbours import campaign
from tests.faults.phases import JUDGED, QUIET
from tests.faults.prober import OWN, PROBES, SEARCH

ITEMS = 3000
HANG_SECONDS = 20.0
"""A probe that took so long was held up; a busy machine alone makes nobody wait for so long."""


@pytest.mark.parametrize("database", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def test_a_large_collection_and_strangers_leave_a_small_one_alone(database: str, tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        url = ""
        if database == "postgres":
            if find_postgres() is None:
                miss("postgres", "there is no initdb")
            url = stack.enter_context(contextlib.closing(PostgresCluster())).url
        report = campaign(ITEMS, 1.5, tmp_path, url, most_probe_seconds=HANG_SECONDS)
    assert report.tally.violations == []
    assert report.tally["searches of big answered with 200"] > 0
    assert report.tally["attacks answered with 401"] > 0
    for phase in (QUIET, *JUDGED, "attack"):
        assert all(report.seconds(kind, phase) for kind in (SEARCH, *PROBES)), report.lines()
    assert any(what == OWN for what, *_ in report.samples), "what was written is searched, too"
