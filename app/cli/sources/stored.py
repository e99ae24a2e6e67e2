"""The items of a stored collection, from their originals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from app.bootstrap import Services
from app.cli.sources.contents import content_of
from app.cli.sources.rows import Refusal, Row
from app.domain.entities import Content, Item
from app.domain.errors import ServiceError
from app.services.catalogue.service import NewItem

_PAGE = 200  # items that are read at a time, as many as are stored at a time


@dataclass(frozen=True, slots=True)
class StoredItems:
    """The items of a collection as they were brought in: pictures, sounds, texts or own features."""

    services: Services
    collection: str

    @property
    def total(self) -> int:
        """Number of items."""
        return sum(self.services.catalogue.collection(self.collection)[1].values())

    def rows(self) -> Iterator[Row]:
        """Yield all items with what they carry; one whose file is gone, or that just went, is a refusal."""
        position: int | None = 0
        while position is not None:
            page = self.services.catalogue.page(self.collection, None, position, _PAGE)
            for _, item in page.rows:
                try:
                    content = self._content(item)
                except ServiceError as error:
                    if error.code not in ("content-missing", "item-not-found"):
                        raise
                    yield Refusal(f"item {item.id!r}", str(error))
                else:
                    yield _as_new(item, content)
            position = page.end

    def _content(self, item: Item) -> Content:
        if item.content_hash is not None:
            stored, media_type = self.services.catalogue.content(self.collection, item.id)
            return content_of("sound" if media_type.startswith("audio/") else "picture", stored)
        if item.text is not None:
            return Content(text=item.text)
        features = self.services.catalogue.item(self.collection, item.id).features
        return Content(vector=None if features is None else features.tolist())


def _as_new(item: Item, content: Content) -> NewItem:
    return NewItem(
        modality=item.modality,
        content=content,
        id=item.id,
        labels=item.labels,
        pair_id=item.pair_id,
        metadata=item.metadata,
        train=item.train,
        place=f"item {item.id!r}",
    )
