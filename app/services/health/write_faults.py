"""Why writes are rejected, or soon will be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path


class WriteFaults:
    """Looks for faults of the disks, the database and the object store, without writing.

    Parameters
    ----------
    paths : mapping of str to Path
        Files and folders that are written to, by their names in messages.
    fault_of_disk : callable
        Returns why writes to a path fail or soon will; None if no fault is known.
    fault_of_database : callable
        Returns why the database rejects writes; None if it does not.
    fault_of_store : callable
        Returns why the object store cannot be used; None if it can, or if there is none.
    """

    def __init__(
        self,
        paths: Mapping[str, Path],
        fault_of_disk: Callable[[Path], str | None],
        fault_of_database: Callable[[], str | None],
        fault_of_store: Callable[[], str | None],
    ) -> None:
        self._paths = paths
        self._fault_of_disk = fault_of_disk
        self._fault_of_database = fault_of_database
        self._fault_of_store = fault_of_store

    def find(self) -> list[str]:
        """Return the faults as messages; raises OSError, DatabaseUnavailableError."""
        faults: dict[str | None, str] = {}
        for name, path in self._paths.items():
            # Usually all are on one disk, whose fault is reported once.
            faults.setdefault(self._fault_of_disk(path), name)
        refusals = [self._fault_of_database(), self._fault_of_store()]
        of_disks = [f"{name} is {fault}" for fault, name in faults.items() if fault is not None]
        return [*(refusal for refusal in refusals if refusal is not None), *of_disks]
