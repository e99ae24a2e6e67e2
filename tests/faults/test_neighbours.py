from pathlib import Path

import pytest

from tests.conftest import miss
from tests.faults.cluster import PostgresCluster, find_postgres
from tests.faults.neighbours import campaign
from tests.faults.phases import JUDGED, QUIET, Report
from tests.faults.prober import OWN, PROBES, SEARCH

ITEMS = 3000
HANG_SECONDS = 20.0
"""A probe that took so long was held up; a busy machine alone makes nobody wait for so long."""


def judge(report: Report) -> None:
    assert report.tally.violations == []
    assert report.tally["searches of big answered with 200"] > 0
    assert report.tally["attacks answered with 401"] > 0
    for phase in (QUIET, *JUDGED, "attack"):
        assert all(report.seconds(kind, phase) for kind in (SEARCH, *PROBES)), report.lines()
    assert any(what == OWN for what, *_ in report.samples), "what was written is searched, too"


def test_a_large_collection_and_strangers_leave_a_small_one_alone_on_sqlite(tmp_path: Path) -> None:
    judge(campaign(ITEMS, 1.5, tmp_path, most_probe_seconds=HANG_SECONDS))


@pytest.mark.postgres
def test_a_large_collection_and_strangers_leave_a_small_one_alone_on_postgres(tmp_path: Path) -> None:
    if find_postgres() is None:
        miss("postgres", "there is no initdb")
    cluster = PostgresCluster()
    try:
        judge(campaign(ITEMS, 1.5, tmp_path, cluster.url, most_probe_seconds=HANG_SECONDS))
    finally:
        cluster.remove()
