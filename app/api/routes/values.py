"""The route that counts what filters can choose from."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query

from app import answers
from app.api.deps import Readers, Values, may_search
from app.api.middleware.admission import aside
from app.api.problems import responses

router = APIRouter(prefix="/v1/collections/{collection}/values", tags=["items"])
_MAX_VALUES = 1000


@router.get("", dependencies=[Depends(may_search)], responses=responses(401, 403, 404, 409))
def count_values(
    collection: str,
    modality: str,
    values: Values,
    readers: Readers,
    limit: Annotated[int, Query(ge=1, le=_MAX_VALUES)] = 50,
) -> answers.Values:
    """Count the items of a searchable gallery by label, and by the metadata keys that look categorical.

    These are at most 12 keys whose values repeat among the first 1000 items. `limit` is the most labels, and
    the most values of each key, the most frequent first.
    """
    return values.count(collection, modality, limit, aside, readers)
