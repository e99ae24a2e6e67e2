"""Which snapshot is the one to serve, and when loading another is tried again."""

from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.domain.entities import Collection
from app.services.serving.snapshot import LoadFailure, Snapshot

NOW = datetime(2024, 1, 1, tzinfo=UTC)


def collection(active_version: int | None) -> Collection:
    return cast(Any, SimpleNamespace(active_version=active_version))


def snapshot(active_version: int, failure: LoadFailure | None = None) -> Snapshot:
    return Snapshot(collection(active_version), cast(Any, None), {}, "bundle", load_failure=failure)


CLOCK = 1000.0


@pytest.fixture(autouse=True)
def _stop_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.services.serving.snapshot.time", SimpleNamespace(monotonic=lambda: CLOCK))


def ago(seconds: float) -> LoadFailure:
    return LoadFailure("damaged", CLOCK - seconds)


def test_a_failed_load_is_tried_again_after_a_while() -> None:
    for age, expected in ((0.0, False), (4.9, False), (5.0, True), (600.0, True)):
        assert ago(age).may_retry is expected


def test_a_snapshot_is_settled_while_it_serves_the_active_version() -> None:
    assert snapshot(2).is_settled(collection(2))
    assert not snapshot(2).is_settled(collection(3))


def test_a_stand_in_is_settled_until_the_damaged_bundle_is_to_be_checked_again() -> None:
    for age, expected in ((0.0, True), (59.9, True), (60.0, False), (600.0, False)):
        stand_in = snapshot(2, ago(age))
        assert stand_in.is_settled(collection(2)) is expected
        assert not stand_in.is_settled(collection(1)), "another version was activated"
    checked = replace(stand_in, load_failure=LoadFailure("still damaged", CLOCK))
    assert checked.is_settled(collection(2))
