"""The consistent state of a collection that a query is answered from; a searcher, in Lucene's words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from app.domain.entities import Collection
from app.services.models.model_bundles import LoadedModel
from app.services.serving.gallery import Gallery


@dataclass(frozen=True, slots=True)
class LoadFailure:
    """A load that failed.

    Parameters
    ----------
    reason : str
        Why.
    failed_at : float
        When, by the clock of the fallback policy.
    """

    reason: str
    failed_at: float


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """A model and its galleries at one revision of a collection; immutable.

    Parameters
    ----------
    collection : Collection
        As it was when the snapshot was made.
    model : LoadedModel
        Projections and encoders of the active version, or of the one that stands in for it.
    galleries : mapping of str to Gallery
        By modality.
    model_bundle : str
        Folder name of the model.
    n_unsaved : int
        Items that a start would read from the database rather than from a saved gallery.
    missing_indexes : mapping of str to str
        Why galleries were read without the index that the version has for them, by modality.
    load_failure : LoadFailure or None
        Why `model` is not the collection's active version but an earlier one that stands in for it.
    """

    collection: Collection
    model: LoadedModel
    galleries: Mapping[str, Gallery]
    model_bundle: str
    n_unsaved: int = 0
    missing_indexes: Mapping[str, str] = field(default_factory=dict)
    load_failure: LoadFailure | None = None

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
