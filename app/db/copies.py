"""Copies of a database: a SQLite file of the same schema, whichever database it is made of, or the rows of
another database, which takes its place."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import sqlalchemy as sa

from app.db.models import Base, CallCountsRow, CollectionRow, ImportRow, InstallationRow, JobRow
from app.db.schema import DatabaseSchema
from app.db.session import READ_ONLY, Database, UnitOfWork, make_engine, translate_errors
from app.db.sqlite_file import file_of
from app.domain.entities import Installation, JobState
from app.domain.errors import DatabaseUnavailableError, InvalidFieldError

_ROWS = 500  # rows in memory at the same time: with long texts and features some ten megabytes
_INSTALLATION: sa.Table = Base.metadata.tables[InstallationRow.__tablename__]
_KEPT = [table for table in Base.metadata.sorted_tables if table.name != CallCountsRow.__tablename__]
"""What is worth a copy: counts of calls are over after a minute."""
_MOVED = [table for table in _KEPT if table is not _INSTALLATION]
_COLLECTIONS: sa.Table = Base.metadata.tables[CollectionRow.__tablename__]
_JOBS: sa.Table = Base.metadata.tables[JobRow.__tablename__]
_PART = "part"
"""The point of a database with a part of the rows of another: no folder has it, so no file is removed."""
_COPY_LOCK = 0x4C524343
Counts: TypeAlias = dict[str, dict[str, int]]
"""Numbers of rows by table and collection, whose name is empty for rows of none."""
Note: TypeAlias = Callable[[str, int, int], None]  # of the table being copied, the rows done, and all rows


@dataclass(eq=False)
class DatabaseCopies:
    """Copies of a SQL database; a copy of SQLite has its file of that name."""

    _engine: sa.Engine
    _file_name: str

    def write(self, folder: Path) -> Installation:
        """Write a consistent copy into a folder while others read and write; return what the copy says."""
        file = folder / self._file_name
        if self._engine.dialect.name == "sqlite":
            copy_sqlite(self._engine, file)
        else:
            copy = make_engine(f"sqlite:///{file.resolve()}")
            try:
                DatabaseSchema(copy).upgrade()
                _copy_rows(self._engine, copy)
            finally:
                copy.dispose()
        return self._installation(file)

    def read(self, folder: Path) -> Installation | None:
        """Return what the copy in a folder says of itself; None without one of the current schema."""
        file = folder / self._file_name
        if not file.is_file():
            return None
        with _open_copy(file) as copy:
            if not DatabaseSchema(copy).is_current():
                return None
        return self._installation(file)

    def is_unused(self) -> bool:
        """Return whether the database, which has the current schema, holds nothing yet."""
        with translate_errors(), self._engine.connect() as connection:
            return all(connection.execute(sa.select(table).limit(1)).first() is None for table in _MOVED)

    def restore(self, folder: Path) -> None:
        """Fill the database, which must be unused, with the copy in a folder, in one transaction."""
        with _open_copy(folder / self._file_name) as copy:
            _copy_rows(copy, self._engine)

    def copy_to(
        self, target: sa.Engine, names: Collection[str] = (), note: Note = lambda *_: None
    ) -> tuple[Counts, Counts]:
        """Make the rows of another database those of this one, or of these collections and all keys; return
        the counts of both. May be run again: only what is different is written."""
        # Raises CollectionNotFoundError; InvalidFieldError if the target must not be overwritten;
        # DatabaseUnavailableError while something works on this database, or if it has changed meanwhile.
        with Database(self._engine).read() as work:
            source = work.session.connection()
            ids = [work.collections.get(name).id for name in names] or None
            _require_other(source, target)
            _require_rest(work, ids)
            _claim(work, target, names, ids)
            state = work.installation.get(), work.installation.progress(), _count(source, ids)
            done, total = 0, sum(sum(rows.values()) for rows in state[-1].values())
            for table in _MOVED:
                note(table.name, done, total)
                _remove_differing(source, target, table, _belongs(table, ids))
                for n_rows in _add_missing(source, target, table, _belongs(table, ids)):
                    done += n_rows
                    note(table.name, done, total)
        with Database(target).read() as work:
            copied = _count(work.session.connection(), ids)
        with Database(self._engine).read() as work:
            counts = _count(work.session.connection(), ids)
            if (work.installation.get(), work.installation.progress(), counts) != state:
                message = "the database has changed while it was copied: stop what writes, and run this again"
                raise DatabaseUnavailableError(message=message)
        if ids is None and copied == counts:
            with translate_errors(), target.begin() as writing:
                writing.execute(sa.update(_INSTALLATION).values(points=list(state[0].points)))
        return counts, copied

    @staticmethod
    def _installation(file: Path) -> Installation:
        with _open_copy(file) as copy, Database(copy).read() as work:
            return work.installation.get()


@contextmanager
def _open_copy(file: Path) -> Iterator[sa.Engine]:
    """Open a copy for reading, also where nothing can be written; one that was served may have a log."""
    if file.with_name(f"{file.name}-wal").exists():
        engine = make_engine(f"sqlite:///{file.resolve()}")
    else:
        unchanged = f"{file.resolve().as_uri()}?immutable=1"
        engine = sa.create_engine(
            "sqlite://", creator=lambda: sqlite3.connect(unchanged, uri=True), poolclass=sa.NullPool
        )
    try:
        yield engine
    finally:
        engine.dispose()


def copy_sqlite(engine: sa.Engine, target: Path) -> None:
    """Write a consistent copy of a SQLite database to a new file, while other processes read and write.
    Raises FileExistsError."""
    target.touch(exist_ok=False)
    with closing(engine.raw_connection()) as pooled, closing(sqlite3.connect(target)) as copy:
        source = pooled.driver_connection
        assert isinstance(source, sqlite3.Connection)
        # All pages in one step: a copy in several steps starts over at every write.
        source.backup(copy)


def _copy_rows(source: sa.Engine, target: sa.Engine) -> None:
    """Copy one consistent state into a database of the same schema without rows, in one transaction."""
    options = {READ_ONLY: True, "stream_results": True, "yield_per": _ROWS}
    if source.dialect.name == "postgresql":
        source = source.execution_options(isolation_level="REPEATABLE READ")
    with (
        translate_errors(),
        source.execution_options(**options).connect() as reading,
        target.begin() as writing,
    ):
        writing.execute(sa.delete(_INSTALLATION))
        for table in _KEPT:
            for rows in reading.execute(sa.select(table)).mappings().partitions():
                writing.execute(sa.insert(table), [dict(row) for row in rows])
            if table.autoincrement_column is not None:
                _number_from(writing, table, _last_number(reading, table))


def _last_number(connection: sa.Connection, table: sa.Table) -> int:
    """Return the highest number that a table gave to a row, also to one that was deleted since."""
    if connection.dialect.name == "postgresql":
        query = "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM {}"
        name = connection.scalar(
            sa.text("SELECT pg_get_serial_sequence(:table, 'id')"), {"table": table.name}
        )
        return int(connection.scalar(sa.text(query.format(name))) or 0)
    if table.dialect_options["sqlite"]["autoincrement"]:
        query = "SELECT seq FROM sqlite_sequence WHERE name = :table"
        return int(connection.scalar(sa.text(query), {"table": table.name}) or 0)
    return int(connection.scalar(sa.text(f"SELECT max(id) FROM {table.name}")) or 0)


def _number_from(connection: sa.Connection, table: sa.Table, last: int) -> None:
    """Let a table number its next row after `last`."""
    if connection.dialect.name == "postgresql":
        query = "SELECT setval(pg_get_serial_sequence(:table, 'id'), greatest(:last, 1), :last > 0)"
        connection.execute(sa.text(query), {"table": table.name, "last": last})
    elif table.dialect_options["sqlite"]["autoincrement"] and last:
        connection.execute(sa.text("DELETE FROM sqlite_sequence WHERE name = :table"), {"table": table.name})
        query = "INSERT INTO sqlite_sequence (name, seq) VALUES (:table, :last)"
        connection.execute(sa.text(query), {"table": table.name, "last": last})


def _refusal(message: str) -> InvalidFieldError:
    return InvalidFieldError("TARGET_URL", message)


def _require_other(source: sa.Connection, target: sa.Engine) -> None:
    """Raise InvalidFieldError if the target is the same database, or a second copy into it runs."""
    is_same = False
    if source.dialect.name == target.dialect.name == "postgresql":
        # A lock of the database that the transaction of the source holds to its end, whatever the URLs.
        query = sa.select(sa.func.pg_try_advisory_xact_lock(_COPY_LOCK))
        with target.connect() as other:
            is_same = not source.scalar(query) or not other.scalar(query)
    else:
        files = file_of(source.engine.url), file_of(target.url)
        is_same = files[0] is not None and files[1] is not None and files[0].samefile(files[1])
    if is_same:
        raise _refusal("is the database that is copied, or another copy of it is being made")


def _require_rest(work: UnitOfWork, ids: Sequence[int] | None) -> None:
    """Raise DatabaseUnavailableError while a job or an import is at work on collections."""
    moment = work.now()
    for row, is_open in (
        (JobRow, JobRow.state == JobState.RUNNING.value),
        (ImportRow, ImportRow.state != "published"),
    ):
        is_its = sa.true() if ids is None else row.collection_id.in_(ids)
        if work.session.scalar(
            sa.select(row.id).where(is_open, row.lease_expires_at > moment, is_its).limit(1)
        ):
            message = "a job or an import is at work: let it end, or stop it, and run this again"
            raise DatabaseUnavailableError(message=message)


def _claim(work: UnitOfWork, target: sa.Engine, names: Collection[str], ids: Sequence[int] | None) -> None:
    """Make a database a copy that is not complete; raises InvalidFieldError unless it is unused, or one of
    this database where nothing was written since."""
    own, source = work.installation.get(), work.session.connection()
    last = _last_number(source, _COLLECTIONS)
    query = sa.select(_COLLECTIONS.c.id, _COLLECTIONS.c.name, _COLLECTIONS.c.revision)
    revisions = {one.id: one.revision for one in source.execute(query)}
    is_unused = DatabaseCopies(target, "").is_unused()
    with translate_errors(), target.begin() as writing:
        identity, points = writing.execute(sa.select(_INSTALLATION.c.identity, _INSTALLATION.c.points)).one()
        if identity != own.identity and not is_unused:
            raise _refusal("the database belongs to another installation: name an empty one")
        there = writing.execute(query).all()
        is_served = identity == own.identity and points and points[-1] not in (_PART, *own.points)
        if is_served or any(
            one.id > last or one.revision > revisions.get(one.id, one.revision) for one in there
        ):
            raise _refusal("the database was written since it was copied: name an empty one")
        if any(one.name in names and one.id not in (ids or ()) for one in there):
            raise _refusal("the database has another collection of that name: copy all, or name another")
        writing.execute(sa.update(_INSTALLATION).values(identity=own.identity, points=[_PART]))


def _owner_of(table: sa.Table) -> sa.ColumnElement[int] | None:
    """Return the id of the collection that a row belongs to; None for a table of rows that belong to none."""
    if table is _COLLECTIONS:
        return table.c.id
    if "job_id" in table.c:
        return sa.select(_JOBS.c.collection_id).where(_JOBS.c.id == table.c.job_id).scalar_subquery()
    return table.c.get("collection_id")


def _belongs(table: sa.Table, ids: Sequence[int] | None) -> sa.ColumnElement[bool]:
    """Return the condition that a row belongs to one of these collections, or to none."""
    owner = _owner_of(table)
    return sa.true() if ids is None or owner is None else owner.in_(ids)


def _are(table: sa.Table, rows: Sequence[sa.Row[Any]]) -> sa.ColumnElement[bool]:
    """Return the condition that rows have the keys of these."""
    return sa.tuple_(*table.primary_key.columns).in_([_key_of(table, row) for row in rows])


def _key_of(table: sa.Table, row: sa.Row[Any]) -> tuple[Any, ...]:
    return tuple(row._mapping[column] for column in table.primary_key.columns)


def _differences(
    one: sa.Connection, other: sa.Connection, table: sa.Table, is_meant: sa.ColumnElement[bool]
) -> Iterator[tuple[int, Sequence[sa.Row[Any]]]]:
    """Yield a number of rows of one database, in the order of their keys, and those of them that the other
    lacks or has otherwise."""
    query = sa.select(table).where(is_meant).order_by(*table.primary_key.columns)
    options = {"stream_results": True, "yield_per": _ROWS}
    for rows in one.execute(query, execution_options=options).partitions():
        same = {_key_of(table, row): row for row in other.execute(sa.select(table).where(_are(table, rows)))}
        yield len(rows), [row for row in rows if same.get(_key_of(table, row)) != row]


def _remove_differing(
    source: sa.Connection, target: sa.Engine, table: sa.Table, is_meant: sa.ColumnElement[bool]
) -> None:
    """Remove what the source does not have or has otherwise, and what refers to it, in many transactions."""
    reading = target.execution_options(**{READ_ONLY: True})
    with translate_errors(), reading.connect() as there, target.connect() as writing:
        for _, rows in _differences(there, source, table, is_meant):
            if rows:
                writing.execute(sa.delete(table).where(_are(table, rows)))
                writing.commit()


def _add_missing(
    source: sa.Connection, target: sa.Engine, table: sa.Table, is_meant: sa.ColumnElement[bool]
) -> Iterator[int]:
    """Add what the source has besides, in many transactions; yield the number of rows that each looks at."""
    with translate_errors(), target.connect() as writing:
        for n_rows, rows in _differences(source, writing, table, is_meant):
            if rows:
                writing.execute(sa.insert(table), [dict(row._mapping) for row in rows])
                writing.commit()
            yield n_rows
        if table.autoincrement_column is not None:
            _number_from(writing, table, _last_number(source, table))
            writing.commit()


def _count(connection: sa.Connection, ids: Sequence[int] | None) -> Counts:
    """Count the rows of these collections, or of all, and those that belong to none."""
    query = sa.select(_COLLECTIONS.c.id, _COLLECTIONS.c.name)
    names = {one.id: one.name for one in connection.execute(query)}
    counts: Counts = {}
    for table in _MOVED:
        owner = _owner_of(table)
        number = sa.literal(0) if owner is None else owner
        query = sa.select(number.label("owner"), sa.func.count().label("rows")).select_from(table)
        groups = connection.execute(query.where(_belongs(table, ids)).group_by("owner"))
        counts[table.name] = {names.get(one.owner, ""): one.rows for one in groups}
    return counts
