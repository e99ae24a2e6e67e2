"""The schema of the galleries, and what the server's errors mean."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import sqlalchemy as sa
from sqlalchemy import Connection, CursorResult
from sqlalchemy.exc import DBAPIError

from app.db.session import translate_errors
from app.domain.entities import Vector
from app.domain.errors import ServiceError, VectorEngineUnavailableError, galleries_gone
from app.engines.common import BUSY, LOCK_NOT_AVAILABLE

SCHEMA = "lrbs_engine"
LIST = f"{SCHEMA}.galleries"
"""The table that lists the galleries that are complete."""

_REASONS = {
    "0A000": "the PostgreSQL server has no extension pgvector",
    "58P01": "the PostgreSQL server has no extension pgvector",
    "42501": "the role may not make the extension, or a schema",
    LOCK_NOT_AVAILABLE: BUSY,
}
"""By SQLSTATE: feature_not_supported, undefined_file, insufficient_privilege, lock_not_available."""
_GONE = ("42P01", "3F000")  # SQLSTATE undefined_table and invalid_schema_name


@contextmanager
def translated_errors() -> Iterator[None]:
    """Raise the service's errors in place of the driver's."""
    try:
        with translate_errors():
            yield
    except (DBAPIError, ServiceError) as error:
        driver = error if isinstance(error, DBAPIError) else error.__cause__
        code = getattr(getattr(driver, "orig", None), "sqlstate", None) or ""
        if code in _GONE:
            raise galleries_gone() from error
        reason = _REASONS.get(code)
        if reason is None:
            raise
        raise VectorEngineUnavailableError(reason) from error


def run(connection: Connection, statement: str, **parameters: Any) -> CursorResult[*tuple[Any, ...]]:
    """Run a statement with its parameters."""
    return connection.execute(sa.text(statement), parameters)


def text_of(vector: Vector) -> str:
    """Return a vector as pgvector reads it, with all the digits of single precision."""
    return "[" + ",".join(np.format_float_scientific(value, unique=True, trim="-") for value in vector) + "]"
