"""Transactions."""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import Protocol

from app.domain.entities import Installation
from app.domain.ports.imports import ImportRepository
from app.domain.ports.jobs import JobQueue
from app.domain.ports.repositories import (
    CallRepository,
    CollectionRepository,
    EncodedContentRepository,
    FeedbackRepository,
    InstallationRepository,
    ItemRepository,
    KeyRepository,
    ModelRepository,
)


class UnitOfWork(Protocol):
    """One transaction and the repositories that work in it."""

    @property
    def collections(self) -> CollectionRepository:
        """Collections."""
        ...

    @property
    def items(self) -> ItemRepository:
        """Items."""
        ...

    @property
    def feedback(self) -> FeedbackRepository:
        """Feedback."""
        ...

    @property
    def encoded(self) -> EncodedContentRepository:
        """Features by other encoders than those that the items have."""
        ...

    @property
    def models(self) -> ModelRepository:
        """Model versions."""
        ...

    @property
    def jobs(self) -> JobQueue:
        """Jobs."""
        ...

    @property
    def imports(self) -> ImportRepository:
        """Imports."""
        ...

    @property
    def keys(self) -> KeyRepository:
        """Keys."""
        ...

    @property
    def installation(self) -> InstallationRepository:
        """What the database says of itself."""
        ...

    @property
    def calls(self) -> CallRepository:
        """Calls of late."""
        ...

    def now(self) -> datetime:
        """Return the time by the database's clock, UTC: clocks of hosts may differ."""
        ...


class Database(Protocol):
    """Opens transactions."""

    def write(self) -> AbstractContextManager[UnitOfWork]:
        """Open a transaction that commits at the end of the block and rolls back on an exception."""
        ...

    def read(self, patience_seconds: float | None = None) -> AbstractContextManager[UnitOfWork]:
        """Open a transaction that only reads, from one consistent state.

        Parameters
        ----------
        patience_seconds : float, optional
            How long a statement may take, where the database can limit it; longer ones raise
            DatabaseUnavailableError.
        """
        ...

    def change_mark(self) -> Hashable | None:
        """Return a mark that is the same as an earlier one only if nothing was committed in between.

        It costs microseconds and waits for nothing. None where only a transaction shows it, or where the
        database does not answer.
        """
        ...


class DatabaseSchema(Protocol):
    """The tables of the database, which may be missing or of another release."""

    def is_empty(self, patience_seconds: float | None = None) -> bool:
        """Return whether there is no database, or one without a schema; parameters as for `is_current`."""
        ...

    def is_current(self, patience_seconds: float | None = None) -> bool:
        """Return whether the schema is the one this code expects.

        Parameters
        ----------
        patience_seconds : float, optional
            How long a statement may take, where the database can limit it.

        Raises
        ------
        DatabaseUnavailableError
            If the database does not answer.
        """
        ...

    def is_newer(self, patience_seconds: float | None = None) -> bool:
        """Return whether a later release made the schema; parameters as for `is_current`."""
        ...

    def upgrade(self) -> None:
        """Bring the schema up to date, and create a missing database; raises SchemaOutdatedError."""
        ...


class DatabaseCopies(Protocol):
    """Copies of the database in folders, which a database of the other kind can be filled from, too."""

    def write(self, folder: Path) -> Installation:
        """Write a consistent copy into a folder while others read and write; return what the copy says."""
        ...

    def read(self, folder: Path) -> Installation | None:
        """Return what the copy in a folder says of itself; None without one of the current schema."""
        ...

    def is_unused(self) -> bool:
        """Return whether the database, which has the current schema, holds nothing yet."""
        ...

    def restore(self, folder: Path) -> None:
        """Fill the database, which must be unused, with the copy in a folder, in one transaction."""
        ...
