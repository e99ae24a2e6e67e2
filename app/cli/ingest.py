"""Import data sets into collections: release files, arrays, tables of pictures and texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from app.bootstrap import Services
from app.domain.entities import Content, Modality
from app.domain.errors import CollectionNotFoundError, InvalidFieldError
from app.domain.names import join_words
from app.services.catalogue.service import NewItem
from solver.datasets import PairedFeatures, PictureTextRow, read_picture_text_table

_BATCH = 200
"""Items per transaction: pictures of one batch fit into memory."""
_Entry = TypeVar("_Entry")


def ensure_collection(services: Services, name: str, modalities: Sequence[Modality]) -> None:
    """Create the collection unless it exists."""
    try:
        services.catalogue.collection(name)
    except CollectionNotFoundError:
        services.catalogue.create(name, modalities)


def store(services: Services, name: str, items: Iterable[NewItem], on_stored: Callable[[int], None]) -> int:
    """Store items in batches, replacing those with the same id, and return their number.

    Parameters
    ----------
    services : Services
        As built by `app.bootstrap.build`.
    name : str
        Collection.
    items : iterable of NewItem
        With ids, so that a second run changes nothing.
    on_stored : callable
        Called with the number of items just stored.
    """
    total = 0
    for batch in split_into_batches(items, _BATCH):
        services.catalogue.add_items(name, batch, replace=True)
        on_stored(len(batch))
        total += len(batch)
    return total


def feature_items(data: PairedFeatures, modality_names: tuple[str, str]) -> Iterator[NewItem]:
    """Yield both modalities of paired features as items of `vector` encoders."""
    for name, features, ids in (
        (modality_names[0], data.X, data.x_ids),
        (modality_names[1], data.Z, data.z_ids),
    ):
        for row, source_id in enumerate(ids):
            is_train = bool(data.is_train[row])
            yield NewItem(
                modality=name,
                content=Content(vector=features[row].tolist()),
                id=f"{name}-{row:06d}",
                labels=(str(data.labels[row]),),
                pair_id=f"{row:06d}",
                metadata={"split": "train" if is_train else "test", "source_id": source_id},
                train=is_train,
            )


def table_items(
    rows: Sequence[PictureTextRow], modality_names: tuple[str, str], pair_column: str | None
) -> Iterator[NewItem]:
    """Yield the picture and the text of each row; they are partners unless a column says which rows are."""
    picture_name, text_name = modality_names
    for row in rows:
        metadata = {name: value for name, value in row.other.items() if name != pair_column}
        metadata["split"] = "train" if row.is_train else "test"
        pair_id = row.id if pair_column is None else row.other[pair_column] or None
        picture = Content(picture=row.picture.read_bytes(), picture_field=f"picture {row.picture.name}")
        for name, content in ((picture_name, picture), (text_name, Content(text=row.text))):
            yield NewItem(
                modality=name,
                content=content,
                id=f"{name}-{row.id}",
                labels=row.labels,
                pair_id=pair_id,
                metadata=metadata,
                train=row.is_train,
                place=f"row {row.id!r}",
            )


def read_table(file: Path, pair_column: str | None, **columns: Any) -> list[PictureTextRow]:
    """Read a CSV of pictures and texts.

    Parameters
    ----------
    file : Path
        As of `read_picture_text_table`, and so are `columns`.
    pair_column : str or None
        Another column that it must have.

    Raises
    ------
    DatasetError
        If it cannot be read; names the line or the column.
    InvalidFieldError
        If it is empty, or has no such column.
    """
    if file.is_file() and not file.read_bytes().strip():
        raise InvalidFieldError(str(file), "is empty: expected a header line and a line for each pair")
    rows = read_picture_text_table(file, **columns)
    if not rows:
        raise InvalidFieldError(str(file), "has a header line and nothing else")
    if pair_column is not None and pair_column not in rows[0].other:
        others = join_words(rows[0].other) or "none"
        raise InvalidFieldError("--pair-column", f"no other column is {pair_column!r}, there are {others}")
    return rows


def split_into_batches(entries: Iterable[_Entry], size: int) -> Iterator[list[_Entry]]:
    """Yield lists of at most `size` entries."""
    batch: list[_Entry] = []
    for entry in entries:
        batch.append(entry)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch
