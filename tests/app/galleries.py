"""Galleries in memory."""

from collections.abc import Sequence

from app.domain.entities import IndexedItem, Matrix
from app.index import ExactIndex
from app.services.serving.galleries import Gallery
from app.services.serving.segments import Segment


def gallery_of(items: Sequence[IndexedItem], vectors: Matrix) -> Gallery:
    return Gallery.of_segment(Segment(items, ExactIndex(vectors)))
