"""The route that finds what items are paired with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from pydantic import Field

from app import answers
from app.api.deps import Catalogue, RootPath, may_search
from app.api.problems import responses
from app.api.schemas.base import Identifier
from app.api.shown import show_partners

router = APIRouter(prefix="/v1/collections/{collection}/partners", tags=["items"])
_MAX_ITEMS = 100
_Ids = Annotated[Sequence[Identifier], Field(min_length=1, max_length=_MAX_ITEMS)]


@router.get("", dependencies=[Depends(may_search)], responses=responses(401, 403, 404))
def list_partners(
    collection: str,
    catalogue: Catalogue,
    root_path: RootPath,
    item_id: Annotated[_Ids, Query(description="ids of items, of either modality", examples=[["t1"]])],
) -> answers.Partners:
    """Return the partner of each item: the first of the other modality with the same `pair_id`.

    Items without one, and those that do not exist, are left out.
    """
    partners = catalogue.partners(collection, list(dict.fromkeys(item_id)))
    return show_partners(collection, partners, root_path)
