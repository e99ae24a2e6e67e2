"""The consistent state of a collection that a query is answered from; a searcher, in Lucene's words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from app.domain.entities import Collection, Item
from app.services.models.model_bundles import LoadedModel
from app.services.serving.gallery import Gallery


@dataclass(frozen=True, slots=True)
class LoadFailure:
    """A load that failed."""

    reason: str
    failed_at: float  # by the clock of the fallback policy


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """A model and its galleries at one revision of a collection; immutable."""

    collection: Collection  # as it was when the snapshot was made
    model: LoadedModel  # of the active version, or of the one that stands in for it
    galleries: Mapping[str, Gallery]  # by modality
    model_bundle: str  # its folder name
    n_unsaved: int = 0  # items that a start would read from the database rather than from a saved gallery
    # why galleries were read without the version's index, by modality
    missing_indexes: Mapping[str, str] = field(default_factory=dict)
    load_failure: LoadFailure | None = None  # why `model` is not the active version but an earlier one
    # rows of hits that were read, by id and fields; another revision begins without any
    shown: dict[tuple[str, frozenset[str]], Item] = field(default_factory=dict, init=False, repr=False)

    @property
    def is_gone(self) -> bool:
        """Whether one of its galleries is no longer there, so that all have to be opened again."""
        return any(gallery.is_gone for gallery in self.galleries.values())

    @property
    def size(self) -> int:
        """Number of items in its galleries, as far as it is known."""
        return sum(gallery.known_size or 0 for gallery in self.galleries.values())

    @property
    def without_index(self) -> list[str]:
        """Modalities whose gallery is searched exactly, though the version has an index for it."""
        return [
            name
            for name, gallery in self.galleries.items()
            if name in self.model.published_recall and gallery.is_exact and gallery.known_size != 0
        ]
