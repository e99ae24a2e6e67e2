"""Which version stands in for a damaged one, and when loading is tried again."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

from app.answers import Activation
from app.domain.entities import Collection
from app.services.serving.fallback import FallbackPolicy
from app.services.serving.snapshot import LoadFailure, Snapshot

NOW = datetime(2024, 1, 1, tzinfo=UTC)


@dataclass
class Clock:
    seconds: float = 1000.0

    def __call__(self) -> float:
        return self.seconds


def collection(active_version: int | None) -> Collection:
    return cast(Any, SimpleNamespace(active_version=active_version))


def snapshot(active_version: int, failure: LoadFailure | None = None) -> Snapshot:
    return Snapshot(collection(active_version), cast(Any, None), {}, "bundle", load_failure=failure)


def versions(*numbers: int) -> list[Any]:
    return [SimpleNamespace(version=number) for number in numbers]


def history(*numbers: int) -> list[Activation]:
    return [Activation(number, None, NOW, "test", None) for number in numbers]


def test_a_failed_load_is_tried_again_after_a_while() -> None:
    clock = Clock()
    policy = FallbackPolicy(retry_seconds=5.0, clock=clock)
    assert policy.may_retry(None)
    failure = policy.record("no disk")
    assert failure == LoadFailure("no disk", 1000.0)
    for later, expected in ((0.0, False), (4.9, False), (5.0, True), (600.0, True)):
        clock.seconds = 1000.0 + later
        assert policy.may_retry(failure) is expected


def test_a_snapshot_is_settled_while_it_serves_the_active_version() -> None:
    clock = Clock()
    policy = FallbackPolicy(clock=clock)
    served = snapshot(2)
    assert policy.is_settled(served, collection(2))
    assert not policy.is_settled(served, collection(3))
    clock.seconds += 1e9
    assert policy.is_settled(served, collection(2))


def test_a_stand_in_is_settled_until_the_damaged_bundle_is_to_be_checked_again() -> None:
    clock = Clock()
    policy = FallbackPolicy(recheck_seconds=60.0, clock=clock)
    stand_in = snapshot(2, policy.record("damaged"))
    for later, expected in ((0.0, True), (59.9, True), (60.0, False), (600.0, False)):
        clock.seconds = 1000.0 + later
        assert policy.is_settled(stand_in, collection(2)) is expected
        assert not policy.is_settled(stand_in, collection(1)), "another version was activated"
    checked = replace(stand_in, load_failure=policy.record("still damaged"))
    assert policy.is_settled(checked, collection(2))


def test_the_versions_that_served_last_stand_in_first() -> None:
    policy = FallbackPolicy()
    existing = versions(1, 2, 3, 4, 5)
    stand_ins = policy.stand_ins(existing[4], existing, history(5, 2, 5, 4, 2, 1, 5))
    assert [version.version for version in stand_ins] == [2, 4, 1], "3 never served"


def test_a_version_that_is_gone_does_not_stand_in() -> None:
    policy = FallbackPolicy()
    existing = versions(3, 1)
    assert [found.version for found in policy.stand_ins(existing[0], existing, history(3, 2, 1))] == [1]
    assert list(policy.stand_ins(existing[0], existing, history(3))) == []
