"""Parquet files: tables of pictures, texts or vectors, and the metadata of embeddings.
They are read by pyarrow, which the extra ``parquet`` installs, a few hundred rows at a time."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from app.domain.errors import InvalidFieldError

_MAGIC = b"PAR1"
_ROWS_AT_ONCE = 200  # their pictures fit into memory


def is_parquet(file: Path) -> bool:
    """Return whether a file begins as Parquet files do."""
    try:
        with file.open("rb") as stream:
            return stream.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


def open_parquet(file: Path) -> Any:
    """Open a Parquet file; raises InvalidFieldError, which names the file, and the extra if that is not
    installed."""
    try:
        library = importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        reason = "is a Parquet file, which needs the extra 'parquet': pip install 'lrbs[parquet]'"
        raise InvalidFieldError(str(file), reason) from error
    try:
        return library.ParquetFile(file)
    except (ValueError, OSError) as error:  # pyarrow's errors are of these
        raise InvalidFieldError(str(file), f"is no readable Parquet file: {error}") from error


def read_rows(file: Path) -> Iterator[tuple[str, dict[str, Any] | str]]:
    """Yield the place and the cells of each row; in the place of what cannot be read any more, why."""
    number = 0
    try:
        for batch in open_parquet(file).iter_batches(batch_size=_ROWS_AT_ONCE):
            for cells in batch.to_pylist():
                yield f"row {number}", cells
                number += 1
    except (ValueError, OSError) as error:
        yield f"row {number}", f"is damaged from here on: {error}"


def check_length(file: Path, n_rows: int) -> None:
    """Check how many rows a file has; raises InvalidFieldError, which names it."""
    n_stored = int(open_parquet(file).metadata.num_rows)
    if n_stored != n_rows:
        raise InvalidFieldError(str(file), f"has {n_stored} rows, the arrays have {n_rows}")
