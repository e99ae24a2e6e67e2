"""What has happened to each collection in this process, whether its snapshot is in memory or not."""

from __future__ import annotations

import threading

from app.services.serving.snapshot import LoadFailure


class ServingHistory:
    """Loads, failures and given up indexes of this process, by the collections' identity."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failures: dict[int, LoadFailure] = {}
        self._loaded: set[int] = set()
        self._given_up: dict[int, dict[tuple[str, str], str]] = {}

    def record_load(self, collection_id: int) -> None:
        """Record that a collection was brought up to date."""
        with self._lock:
            self._loaded.add(collection_id)
            self._failures.pop(collection_id, None)

    def record_failure(self, collection_id: int, failure: LoadFailure) -> None:
        """Record that it could not be."""
        with self._lock:
            self._failures[collection_id] = failure

    def record_given_up(self, collection_id: int, bundle: str, modality: str, reason: str) -> None:
        """Record that this process searches a gallery of a model exactly from now on, and why."""
        with self._lock:
            before = self._given_up.get(collection_id, {})
            self._given_up[collection_id] = {**before, (bundle, modality): reason}

    def given_up(self, collection_id: int, bundle: str) -> dict[str, str]:
        """Return why galleries of a model are searched exactly, by modality."""
        reasons = self._given_up.get(collection_id, {})
        return {modality: reason for (of_bundle, modality), reason in reasons.items() if of_bundle == bundle}

    def last_failure(self, collection_id: int) -> LoadFailure | None:
        """Return why the last load failed; None when it succeeded."""
        return self._failures.get(collection_id)

    def was_loaded(self, collection_id: int) -> bool:
        """Return whether a collection was loaded once, even if it is no longer in memory."""
        return collection_id in self._loaded

    def collection_ids(self) -> set[int]:
        """Return the collections of which anything is recorded."""
        with self._lock:
            return {*self._failures, *self._loaded, *self._given_up}

    def forget(self, collection_id: int) -> None:
        """Drop everything about a deleted collection."""
        with self._lock:
            self._failures.pop(collection_id, None)
            self._loaded.discard(collection_id)
            self._given_up.pop(collection_id, None)
