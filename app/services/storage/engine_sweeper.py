"""Galleries of a vector engine that no model version has any more."""

from __future__ import annotations

from app.domain.ports import Database
from app.domain.ports.engine import VectorEngine


class EngineSweeper:
    """Removes them.

    Parameters
    ----------
    database : Database
        The source of truth.
    engine : VectorEngine
        Where the galleries are.
    """

    def __init__(self, database: Database, engine: VectorEngine) -> None:
        self._database = database
        self._engine = engine

    def sweep(self) -> int:
        """Remove the galleries of bundles that no version refers to; return how many."""
        keys = self._engine.keys()  # before what is used: a gallery is made after its version
        with self._database.read() as work:
            used = work.models.used_bundles(sorted({key.bundle for key in keys}))
        unused = [key for key in keys if key.bundle not in used]
        for key in unused:
            self._engine.drop(key)
        return len(unused)
