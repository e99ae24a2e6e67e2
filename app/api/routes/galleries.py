"""Routes over both galleries: partners of items, values that filters can choose from, and a map."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from pydantic import Field

from app import answers
from app.api.admission import aside
from app.api.deps import Readers, RootPath, may_search
from app.api.problems import responses
from app.api.schemas.base import Identifier
from app.api.shown import show_partners
from app.api.state import State

router = APIRouter(prefix="/v1/collections/{collection}", tags=["items"], dependencies=[Depends(may_search)])
_MAX_ITEMS = 100
_MAX_VALUES = 1000
_MOST_POINTS = 1000  # of each gallery: more points than these cover each other
_Ids = Annotated[Sequence[Identifier], Field(min_length=1, max_length=_MAX_ITEMS)]


@router.get("/partners", responses=responses(401, 403, 404))
def list_partners(
    collection: str,
    state: State,
    root_path: RootPath,
    item_id: Annotated[_Ids, Query(description="ids of items, of either modality", examples=[["t1"]])],
) -> answers.Partners:
    """Return the partner of each item: the first of the other modality with the same `pair_id`.

    Items without one, and those that do not exist, are left out.
    """
    partners = state.catalogue.partners(collection, list(dict.fromkeys(item_id)))
    return show_partners(collection, partners, root_path)


@router.get("/values", responses=responses(401, 403, 404, 409))
def count_values(
    collection: str,
    modality: str,
    state: State,
    readers: Readers,
    limit: Annotated[int, Query(ge=1, le=_MAX_VALUES)] = 50,
) -> answers.Values:
    """Count the items of a searchable gallery by label, and by the metadata keys that look categorical.

    These are at most 12 keys whose values repeat among the first 1000 items. `limit` is the most labels, and
    the most values of each key, the most frequent first.
    """
    return state.overviews.count_values(collection, modality, limit, aside, readers)


@router.get("/map", responses=responses(401, 403, 404, 409))
def draw_map(
    collection: str,
    state: State,
    readers: Readers,
    limit: Annotated[int, Query(ge=1, le=_MOST_POINTS)] = 300,
) -> answers.Map:
    """Return coordinates of items of both galleries in the common space, for a drawing.

    The axes are the first two principal components of at most `limit` items of each gallery, evenly spaced
    ones of a larger gallery. Each gallery is centred and scaled to the same spread.
    """
    return state.overviews.draw_map(collection, limit, aside, readers)
