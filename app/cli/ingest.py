"""Store what sources yield: in batches, without what is stored already, and without what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from app.bootstrap import Services
from app.cli.sources.rows import Refusal, Row
from app.domain.entities import Counts, Modality
from app.domain.errors import (
    CollectionNotFoundError,
    ContentTooLargeError,
    InvalidFieldError,
    InvalidRequestError,
)
from app.services.catalogue.service import NewItem

_BATCH = 200
"""Items per transaction: pictures of one batch fit into memory."""
_Entry = TypeVar("_Entry")
Refuse = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Tally:
    """What became of the rows of a source.

    Parameters
    ----------
    counts : Counts
        Of what is stored.
    refused : int
        Rows that are not.
    """

    counts: Counts = field(default_factory=Counts)
    refused: int = 0

    @property
    def stored(self) -> int:
        """Items that are stored now, those that were already included."""
        return self.counts.changed + self.counts.unchanged


def ensure_collection(services: Services, name: str, modalities: Sequence[Modality]) -> None:
    """Create the collection unless it exists; raises InvalidFieldError if it has other modalities."""
    try:
        collection, _ = services.catalogue.collection(name)
    except CollectionNotFoundError:
        services.catalogue.create(name, modalities)
        return
    expected = [modality.name for modality in modalities]
    if sorted(collection.modality_names) != sorted(expected):
        present, required = " and ".join(collection.modality_names), " and ".join(expected)
        raise InvalidFieldError("--modalities", f"collection {name!r} has {present}, not {required}")


def used_modalities(services: Services, name: str, described: Sequence[Modality]) -> list[Modality]:
    """Return the modalities with the encoders of the collection, where there is one that has them."""
    try:
        collection, _ = services.catalogue.collection(name)
    except CollectionNotFoundError:
        return list(described)
    stored = {modality.name: modality for modality in collection.modalities}
    return [stored.get(modality.name, modality) for modality in described]


def store(
    services: Services,
    name: str,
    rows: Iterable[Row],
    on_stored: Callable[[int], None],
    on_refused: Refuse | None = None,
) -> Tally:
    """Store items in batches, replacing those with the same id if they differ.

    What is stored already, the same, is not encoded again, so that an interrupted call can be repeated.

    Parameters
    ----------
    services : Services
        As built by `app.bootstrap.build`.
    name : str
        Collection.
    rows : iterable of NewItem or Refusal
        Items have ids, so that a second run changes nothing.
    on_stored : callable
        Called with the number of rows just done with.
    on_refused : callable, optional
        Called for each row that is no item with its place and the reason; by default, the first one raises.
    """
    seen: set[str] = set()
    tally = Tally()

    def refuse(place: str, reason: str) -> None:
        nonlocal tally
        if on_refused is None:
            raise InvalidFieldError(place, reason)
        tally = replace(tally, refused=tally.refused + 1)
        on_refused(f"{place}: {reason}" if place else reason)

    for batch in split_into_batches(rows, _BATCH):
        items: list[NewItem] = []
        for row in batch:
            if isinstance(row, Refusal):
                refuse(row.place, row.reason)
            elif row.id in seen:
                refuse(row.place or "items", f"another row before it has the id {row.id!r}")
            else:
                seen.update(() if row.id is None else (row.id,))
                items.append(row)
        same = services.catalogue.find_unchanged(name, items)
        differing = [item for number, item in enumerate(items) if number not in same]
        is_patient = on_refused is not None
        added = _add(services, name, differing, refuse if is_patient else None)
        tally = replace(tally, counts=tally.counts + Counts(unchanged=len(same)) + added)
        on_stored(len(batch))
    return tally


def _add(
    services: Services, name: str, items: Sequence[NewItem], refuse: Callable[[str, str], None] | None
) -> Counts:
    """Store items; where some are refused, halves of them, until each of these is alone."""
    if not items:
        return Counts()
    try:
        return services.catalogue.add_items(name, items, replace=True).counts
    except (InvalidRequestError, ContentTooLargeError) as error:
        if refuse is None:
            raise
        if len(items) == 1:
            refuse("", str(error))
            return Counts()
    middle = len(items) // 2
    first = _add(services, name, items[:middle], refuse)
    return first + _add(services, name, items[middle:], refuse)


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
