"""What serves while a model cannot be loaded, and when loading it is tried again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from app.answers import Activation
from app.domain.entities import Collection, ModelVersion
from app.services.serving.snapshot import LoadFailure, Snapshot

RECHECK_SECONDS = 60.0
"""A damaged bundle is checked again after this time: reading all of it more often would disturb searches."""
RETRY_SECONDS = 5.0
"""A failed load is tried again after this time, rather than by every search."""


class FallbackPolicy:
    """Decides which version stands in for a damaged one, and when to try again; keeps no state."""

    # Where the active version's bundle is damaged, an earlier version stands in: the one that this process
    # served until then, or, in a process that starts, the one that served last and is whole. After
    # `recheck_seconds` the active bundle is checked again; a load that failed is tried again after
    # `retry_seconds`. The database still names the active version: only people, or a retrain, change that.

    def __init__(
        self,
        recheck_seconds: float = RECHECK_SECONDS,
        retry_seconds: float = RETRY_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.recheck_seconds = recheck_seconds
        self.retry_seconds = retry_seconds
        self._clock = clock

    def record(self, reason: str) -> LoadFailure:
        """Return a failure that happened now."""
        return LoadFailure(reason, self._clock())

    def may_retry(self, failure: LoadFailure | None) -> bool:
        """Return whether to load, given the last failure, if there was one."""
        return failure is None or self._age(failure) >= self.retry_seconds

    def is_settled(self, snapshot: Snapshot, collection: Collection) -> bool:
        """Return whether a snapshot's model is the one to serve: that of the active version, or of one that
        stands in for it and whose time to check the active one again has not come."""
        failure = snapshot.load_failure
        return snapshot.collection.active_version == collection.active_version and (
            failure is None or self._age(failure) < self.recheck_seconds
        )

    def stand_ins(
        self, active: ModelVersion, versions: Iterable[ModelVersion], history: Sequence[Activation]
    ) -> Iterator[ModelVersion]:
        """Yield the versions that may stand in for the active one: those that served before, latest first (as
        the history is)."""
        by_number = {version.version: version for version in versions if version.version != active.version}
        for number in dict.fromkeys(entry.version for entry in history):
            if number in by_number:
                yield by_number[number]

    def _age(self, failure: LoadFailure) -> float:
        return self._clock() - failure.failed_at
