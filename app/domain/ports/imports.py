"""Imports that are stored in several transactions and seen all at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from app.domain.entities import Collection, Counts, Item, RunningImport


class PlannedWrite(Protocol):
    """What has to be written of some items."""

    @property
    def counts(self) -> Counts:
        """What it does to them."""
        ...


class ImportRepository(Protocol):
    """At most one import is being stored into a collection; who holds its lock may begin one."""

    def running(self, collection: Collection) -> RunningImport | None:
        """Return the one that keeps writers out of a collection."""
        ...

    def begin(self, collection: Collection, import_id: str, size: int, lease_seconds: float) -> RunningImport:
        """Begin one in a locked collection that has none running, or take up the one that has this id.

        An attempt to begin it may have been stored although its answer was lost.
        """
        ...

    def plan(self, collection: Collection, items: Sequence[Item], revision: int) -> PlannedWrite:
        """Compare items with the stored ones; no other writer may change the collection until `write`."""
        ...

    def write(self, running: RunningImport, planned: PlannedWrite, lease_seconds: float) -> None:
        """Write a part where no reader sees it yet, and renew the lease.

        Raises CollectionNotFoundError when the collection is gone, ImportLostError when the import was
        silent for longer than its lease and somebody else began to remove it.
        """
        ...

    def renew(self, running: RunningImport, lease_seconds: float) -> bool:
        """Renew the lease; return whether it is published already. Raises what `write` raises."""
        ...

    def publish(self, running: RunningImport) -> None:
        """Let readers see all of it, in a locked collection; raises what `write` raises."""
        ...

    def abandon(self, running: RunningImport) -> None:
        """Give one up that is not published: what it wrote may be removed."""
        ...

    def clean(self, import_id: str, max_rows: int, max_bytes: int) -> bool:
        """Remove some rows of what an import left; return whether nothing remains to be removed.

        Of one that is still being stored nothing is.

        Parameters
        ----------
        import_id : str
            Which one.
        max_rows, max_bytes : int
            Most rows, and about as many bytes of texts and features; one row is removed in any case.
        """
        ...

    def leftover_ids(self) -> list[str]:
        """Return the ids of imports with leftovers: abandoned, silent, or published and not cleaned up after.

        One that is published is left to its own process as long as its lease lasts.
        """
        ...
