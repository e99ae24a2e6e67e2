"""Routes of feedback."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Response, status

from app import answers
from app.api.bodies import item_body_bytes, parse_entries, read_json_with
from app.api.deps import may_write
from app.api.openapi import json_body
from app.api.problems import OF_BODIES, responses
from app.api.schemas.items import FeedbackIn, FeedbackListIn
from app.api.shown import encode, show_feedback
from app.api.state import ApiLimits, State
from app.domain.names import LARGEST_FEEDBACK_ID
from app.services.catalogue.service import NewFeedback

router = APIRouter(
    prefix="/v1/collections/{collection}/feedback", tags=["feedback"], dependencies=[Depends(may_write)]
)
_MAX_PAGE = 1000


def _parse(limits: ApiLimits, body: bytes) -> list[NewFeedback]:
    _, entries = parse_entries(FeedbackListIn, FeedbackIn, "feedback", body, limits.entries)
    return [entry.to_feedback(f"feedback.{number}") for number, entry in enumerate(entries)]


@router.post(
    "",
    status_code=status.HTTP_201_CREATED,
    responses=responses(401, 403, 404, *OF_BODIES),
)
def create_feedback(
    collection: str,
    state: State,
    feedback: Annotated[
        list[NewFeedback], read_json_with(_parse, json_body(FeedbackListIn), item_body_bytes)
    ],
) -> answers.FeedbackIds:
    """Store which items are relevant to which queries, all of the request or none of it.

    The next retrain may learn from it; searches do not change before. Of a collection's feedback the newest
    100 000 are kept; what names an item goes with the item.
    """
    return answers.FeedbackIds(ids=list(state.feedback.add(collection, feedback)))


@router.get("", responses=responses(401, 403, 404), response_model=answers.FeedbackPage)
def list_feedback(
    collection: str,
    state: State,
    cursor: Annotated[str | None, Query(pattern=r"^[0-9]{1,18}$")] = None,
    limit: Annotated[int, Query(ge=1, le=_MAX_PAGE)] = 100,
) -> Response:
    """Page through feedback in order of creation; the cursor stays valid while others write.

    A page of large texts ends before `limit`: there is more as long as `next_cursor` is set.
    """
    shown = show_feedback(*state.feedback.page(collection, int(cursor or 0), limit))
    # Encoded here, in a thread: in the event loop a large page would delay all other requests.
    return Response(encode(shown), media_type="application/json")


@router.delete("/{feedback_id}", status_code=status.HTTP_204_NO_CONTENT, responses=responses(401, 403, 404))
def delete_feedback(
    collection: str, feedback_id: Annotated[int, Path(ge=1, le=LARGEST_FEEDBACK_ID)], state: State
) -> None:
    """Delete one feedback; the next retrain does not learn from it."""
    state.feedback.delete(collection, feedback_id)
