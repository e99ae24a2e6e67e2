"""The route that draws both galleries in two dimensions."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query

from app import answers
from app.api.deps import Maps, Readers, may_search
from app.api.middleware.admission import aside
from app.api.problems import responses

router = APIRouter(prefix="/v1/collections/{collection}/map", tags=["items"])
_MOST_ITEMS = 1000  # of each gallery: more points than these cover each other


@router.get("", dependencies=[Depends(may_search)], responses=responses(401, 403, 404, 409))
def draw_map(
    collection: str,
    maps: Maps,
    readers: Readers,
    limit: Annotated[int, Query(ge=1, le=_MOST_ITEMS)] = 300,
) -> answers.Map:
    """Return coordinates of items of both galleries in the common space, for a drawing.

    The axes are the first two principal components of at most `limit` items of each gallery, evenly spaced
    ones of a larger gallery. Each gallery is centred and scaled to the same spread.
    """
    return maps.draw(collection, limit, aside, readers)
