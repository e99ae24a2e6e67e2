"""Routes of collections, of their encoders and items, of overviews of both galleries, and of feedback."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request, Response, status
from pydantic import Field

from app import answers
from app.api import bodies, shown
from app.api.admission import aside
from app.api.deps import (
    FilterParameter,
    KeyId,
    ListedFilter,
    Readers,
    RootPath,
    may_administer,
    may_list,
    may_search,
    may_write,
)
from app.api.openapi import json_body, schema_of, two_forms
from app.api.problems import responses
from app.api.schemas.admin import CollectionIn
from app.api.schemas.base import Identifier, RawIn
from app.api.schemas.items import FeedbackIn, FeedbackListIn, ItemFactsIn, ItemIn, ItemsIn, LabelsIn
from app.api.state import ApiLimits, State
from app.domain.entities import ApiKey
from app.domain.errors import InvalidFieldError
from app.domain.names import LARGEST_FEEDBACK_ID
from app.services.catalogue.preparation import NewItem
from app.services.catalogue.service import NewFeedback

collections = APIRouter(prefix="/v1", tags=["collections"])


@collections.post(
    "/collections",
    status_code=status.HTTP_201_CREATED,
    dependencies=[Depends(may_administer)],
    responses=responses(409),
)
def create_collection(
    body: Annotated[CollectionIn, bodies.read_json(CollectionIn)], state: State
) -> answers.Collection:
    """Create a collection: a pair of galleries with an encoder each."""
    return shown.show_collection(state.catalogue.create(body.name, body.to_modalities()))


@collections.get("/collections")
def list_collections(key: Annotated[ApiKey | None, Depends(may_list)], state: State) -> answers.Collections:
    """List the collections that the key can see."""
    visible = state.catalogue.collections()
    if key is not None:
        visible = [collection for collection in visible if key.bounds.allow(collection.name)]
    return answers.Collections([shown.show_collection(collection) for collection in visible])


@collections.get("/collections/{collection}", dependencies=[Depends(may_search)])
def get_collection(collection: str, state: State) -> answers.Collection:
    """Return one collection with its item counts."""
    return shown.show_collection(*state.catalogue.collection(collection))


@collections.delete(
    "/collections/{collection}",
    status_code=status.HTTP_204_NO_CONTENT,
    dependencies=[Depends(may_administer)],
)
def delete_collection(collection: str, state: State) -> None:
    """Delete a collection with all its items and models; its name is free immediately."""
    state.catalogue.delete_collection(collection)


@collections.get("/encoders", dependencies=[Depends(may_list)])
def list_encoders() -> answers.Encoders:
    """List the encoders of this server with their options, those of other packages as well."""
    return shown.show_encoders()


items_of = APIRouter(prefix="/v1/collections/{collection}/items", tags=["items"])
_MAX_PAGE = 1000
_FACTS = {"picture": '{"modality": "image"}', "sound": '{"modality": "sound"}'}
"""Of an item that is sent as a file alone."""
_Ids = Annotated[Sequence[Identifier], Field(max_length=10)]
_BODY = two_forms(
    ItemsIn,
    ItemFactsIn,
    parts={"item": schema_of(ItemFactsIn)},
    example={"item": {"id": "i1", "modality": "image", "labels": ["shoes"]}},
    encoding={"item": {"contentType": "application/json"}},
)


def _parse_items(limits: ApiLimits, body: bytes) -> list[NewItem]:
    _, entries = bodies.parse_entries(ItemsIn, ItemIn, "items", body, limits.max_batch)
    return [item.to_item(f"items.{number}") for number, item in enumerate(entries)]


def _parse_form(form: bodies.FormFields) -> list[NewItem]:
    # A lone surrogate that the form's encoding let through is not valid JSON.
    facts = bodies.parse_json(
        ItemIn, form.texts.get("item", _FACTS[form.part]).encode(errors="replace"), ("item",)
    )
    for name in RawIn.model_fields:
        if getattr(facts, name) is not None:
            raise InvalidFieldError(
                f"item.{name}", f"the {form.part} part is this item's content: leave it out"
            )
    return [facts.to_item(content=form.content)]


@items_of.post(
    "", status_code=status.HTTP_201_CREATED, dependencies=[Depends(may_write)], responses=responses(409)
)
def create_items(
    collection: str,
    state: State,
    key_id: KeyId,
    items: Annotated[
        list[NewItem],
        bodies.read_json_or_form(_parse_items, _parse_form, _BODY, ("item",), bodies.item_body_bytes),
    ],
) -> answers.Written:
    """Store items, all of the request or none of it; or one item whose picture or sound is a file."""
    return state.catalogue.add_items(collection, items, key_id=key_id)


@items_of.get(
    "", dependencies=[Depends(may_search)], responses=responses(431), response_model=answers.ItemPage
)
def list_items(
    collection: str,
    state: State,
    root_path: RootPath,
    item_filter: ListedFilter,
    modality: str | None = None,
    cursor: Annotated[str | None, Query(pattern=r"^[0-9]{1,18}$")] = None,
    limit: Annotated[int, Query(ge=1, le=_MAX_PAGE)] = 100,
    pair_id: Annotated[Identifier | None, Query(description="only items of this pair")] = None,
    item_id: Annotated[_Ids, Query(description="only items of any of these ids, on one page")] = (),
) -> Response:
    """Page through items in order of creation; the cursor stays valid while others write.

    What `label`, `where` and `filter` ask for holds together. A page ends before `limit` where its items are
    large, or where few pass: there is more as long as `next_cursor` is set. Where the first page has nothing,
    `notices` says why.
    """
    page = state.catalogue.page(
        collection, modality, int(cursor or 0), limit, pair_id, item_filter, tuple(item_id)
    )
    # Encoded here, in a thread: in the event loop a large page would delay all other requests.
    return Response(shown.encode(shown.show_page(collection, page, root_path)), media_type="application/json")


@items_of.put("/{item_id}", dependencies=[Depends(may_write)])
def put_item(
    collection: str,
    item_id: Identifier,
    body: Annotated[ItemIn, bodies.read_json(ItemIn, bodies.item_body_bytes)],
    state: State,
    key_id: KeyId,
) -> answers.Written:
    """Store an item under this id, replacing an existing one."""
    if body.id is not None and body.id != item_id:
        raise InvalidFieldError("id", f"is {body.id!r} in the body and {item_id!r} in the path")
    item = body.to_item(item_id=item_id)
    return state.catalogue.add_items(collection, [item], replace=True, key_id=key_id)


@items_of.put("/{item_id}/labels", dependencies=[Depends(may_write)])
def put_labels(
    collection: str,
    item_id: str,
    body: Annotated[LabelsIn, bodies.read_json(LabelsIn, bodies.item_body_bytes)],
    state: State,
    key_id: KeyId,
) -> answers.Written:
    """Give an item these labels in place of all that it has; its content is not sent again."""
    return state.catalogue.change_labels(collection, item_id, body.labels, key_id)


@items_of.get("/{item_id}", dependencies=[Depends(may_search)])
def get_item(collection: str, item_id: str, state: State, root_path: RootPath) -> answers.Item:
    """Return one item."""
    return shown.show_item(collection, state.catalogue.item(collection, item_id), root_path)


@items_of.get(
    "/{item_id}/content",
    dependencies=[Depends(may_search)],
    responses={
        **responses(410),
        200: {
            "description": "The content, with its own media type. A picture that browsers do not show, "
            "such as a TIFF, is a JPEG where `Accept` names types of pictures, but not its own",
            "headers": {"Vary": {"schema": {"type": "string"}, "description": "`Accept`"}},
            "content": {
                "image/*": {"schema": {"type": "string", "format": "binary"}},
                "audio/*": {"schema": {"type": "string", "format": "binary"}},
                "text/plain": {"schema": {"type": "string"}},
            },
        },
    },
    response_class=Response,
)
def get_content(collection: str, item_id: str, state: State, request: Request) -> Response:
    """Return the picture, the sound or the text itself."""
    named = {part.split(";")[0].strip() for part in request.headers.get("Accept", "").lower().split(",")}
    names_pictures = any(name.startswith("image/") and name != "image/*" for name in named)
    content, media_type = state.catalogue.content(
        collection, item_id, lambda media_type: media_type in named or not names_pictures
    )
    return Response(content, media_type=media_type, headers={"Vary": "Accept"})


@items_of.delete("/{item_id}", dependencies=[Depends(may_write)])
def delete_item(collection: str, item_id: str, state: State, key_id: KeyId) -> answers.Written:
    """Delete one item; no search with the same key returns it from now on, and soon none.

    Feedback that names it goes with it.
    """
    return state.catalogue.delete_item(collection, item_id, key_id)


galleries = APIRouter(
    prefix="/v1/collections/{collection}", tags=["items"], dependencies=[Depends(may_search)]
)
_MAX_ITEMS = 100
_MAX_VALUES = 1000
_MOST_POINTS = 1000  # of each gallery: more points than these cover each other
_ItemIds = Annotated[Sequence[Identifier], Field(min_length=1, max_length=_MAX_ITEMS)]


@galleries.get("/partners")
def list_partners(
    collection: str,
    state: State,
    root_path: RootPath,
    item_id: Annotated[_ItemIds, Query(description="ids of items, of either modality", examples=[["t1"]])],
) -> answers.Partners:
    """Return the partner of each item: the first of the other modality with the same `pair_id`.

    Items without one, and those that do not exist, are left out.
    """
    partners = state.catalogue.partners(collection, list(dict.fromkeys(item_id)))
    return shown.show_partners(collection, partners, root_path)


@galleries.get("/values", responses=responses(409, 431))
def count_values(
    collection: str,
    modality: str,
    state: State,
    readers: Readers,
    item_filter: FilterParameter,
    limit: Annotated[int, Query(ge=1, le=_MAX_VALUES)] = 50,
) -> answers.Values:
    """Count the items of a searchable gallery by label, and by the metadata keys that look categorical.

    These are at most 12 keys whose values repeat among the first 1000 items. `limit` is the most labels, and
    the most values of each key, the most frequent first. With `filter` the items that pass it are counted.
    `ranges` are those of keys that are numbers there.
    """
    return state.overviews.count_values(collection, modality, limit, aside, readers, item_filter)


@galleries.get("/map", responses=responses(409))
def draw_map(
    collection: str, state: State, readers: Readers, limit: Annotated[int, Query(ge=1, le=_MOST_POINTS)] = 300
) -> answers.Map:
    """Return coordinates of items of both galleries in the common space, for a drawing.

    The axes are the first two principal components of at most `limit` items of each gallery, evenly spaced
    ones of a larger gallery. Each gallery is centred and scaled to the same spread.
    """
    return state.overviews.draw_map(collection, limit, aside, readers)


feedback_on = APIRouter(
    prefix="/v1/collections/{collection}/feedback", tags=["feedback"], dependencies=[Depends(may_write)]
)


def _parse(limits: ApiLimits, body: bytes) -> list[NewFeedback]:
    _, entries = bodies.parse_entries(FeedbackListIn, FeedbackIn, "feedback", body, limits.max_batch)
    return [entry.to_feedback(f"feedback.{number}") for number, entry in enumerate(entries)]


@feedback_on.post("", status_code=status.HTTP_201_CREATED)
def create_feedback(
    collection: str,
    state: State,
    feedback: Annotated[
        list[NewFeedback], bodies.read_json_with(_parse, json_body(FeedbackListIn), bodies.item_body_bytes)
    ],
) -> answers.FeedbackIds:
    """Store which items are relevant to which queries, all of the request or none of it.

    The next retrain may learn from it; searches do not change before. Of a collection's feedback the newest
    100 000 are kept; what names an item goes with the item.
    """
    return answers.FeedbackIds(ids=list(state.feedback.add(collection, feedback)))


@feedback_on.get("", response_model=answers.FeedbackPage)
def list_feedback(
    collection: str,
    state: State,
    cursor: Annotated[str | None, Query(pattern=r"^[0-9]{1,18}$")] = None,
    limit: Annotated[int, Query(ge=1, le=_MAX_PAGE)] = 100,
) -> Response:
    """Page through feedback in order of creation; the cursor stays valid while others write.

    A page of large texts ends before `limit`: there is more as long as `next_cursor` is set.
    """
    page = shown.show_feedback(*state.feedback.page(collection, int(cursor or 0), limit))
    # Encoded here, in a thread: in the event loop a large page would delay all other requests.
    return Response(shown.encode(page), media_type="application/json")


@feedback_on.delete("/{feedback_id}", status_code=status.HTTP_204_NO_CONTENT)
def delete_feedback(
    collection: str, feedback_id: Annotated[int, Path(ge=1, le=LARGEST_FEEDBACK_ID)], state: State
) -> None:
    """Delete one feedback; the next retrain does not learn from it."""
    state.feedback.delete(collection, feedback_id)
