"""Routes of items."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response, status
from pydantic import Field, StringConstraints

from app import answers
from app.api.bodies import (
    FormFields,
    item_body_bytes,
    parse_entries,
    parse_json,
    read_json,
    read_json_or_form,
)
from app.api.deps import KeyId, RootPath, may_search, may_write
from app.api.openapi import schema_of, two_forms
from app.api.problems import OF_BODIES, responses
from app.api.schemas.base import Identifier, Label, RawIn
from app.api.schemas.items import ItemFactsIn, ItemIn, ItemsIn, LabelsIn
from app.api.shown import encode, show_item, show_page
from app.api.state import ApiLimits, State
from app.domain.errors import InvalidFieldError
from app.domain.searches import ItemFilter
from app.services.catalogue.preparation import NewItem

router = APIRouter(prefix="/v1/collections/{collection}/items", tags=["items"])
_MAX_PAGE = 1000
_FACTS = {"picture": '{"modality": "image"}', "sound": '{"modality": "sound"}'}
"""Of an item that is sent as a file alone."""
_MAX_CONDITIONS = 20
"""Of each kind: the address of a request, with all of them at their longest, has to fit into 64 KiB."""
_Ids = Annotated[Sequence[Identifier], Field(max_length=10)]
_Labels = Annotated[Sequence[Label], Field(max_length=_MAX_CONDITIONS)]
_Conditions = Annotated[
    Sequence[Annotated[str, StringConstraints(pattern=r"^[^=]+=", max_length=1000)]],
    Field(max_length=_MAX_CONDITIONS),
]
_CONDITION = (
    "only items with this value under a metadata key, in JSON or as text; of one key any of the values"
)
_BODY = two_forms(
    ItemsIn,
    ItemFactsIn,
    parts={"item": schema_of(ItemFactsIn)},
    example={"item": {"id": "i1", "modality": "image", "labels": ["shoes"]}},
    encoding={"item": {"contentType": "application/json"}},
)


def _parse_items(limits: ApiLimits, body: bytes) -> list[NewItem]:
    _, entries = parse_entries(ItemsIn, ItemIn, "items", body, limits.entries)
    return [item.to_item(f"items.{number}") for number, item in enumerate(entries)]


def _parse_form(form: FormFields) -> list[NewItem]:
    # A lone surrogate that the form's encoding let through is not valid JSON.
    facts = parse_json(ItemIn, form.texts.get("item", _FACTS[form.part]).encode(errors="replace"), ("item",))
    for name in RawIn.model_fields:
        if getattr(facts, name) is not None:
            raise InvalidFieldError(
                f"item.{name}", f"the {form.part} part is this item's content: leave it out"
            )
    return [facts.with_content(form.content)]


@router.post(
    "",
    status_code=status.HTTP_201_CREATED,
    dependencies=[Depends(may_write)],
    responses=responses(401, 403, 404, 409, *OF_BODIES),
)
def create_items(
    collection: str,
    state: State,
    key_id: KeyId,
    items: Annotated[
        list[NewItem], read_json_or_form(_parse_items, _parse_form, _BODY, ("item",), item_body_bytes)
    ],
) -> answers.Written:
    """Store items, all of the request or none of it; or one item whose picture or sound is a file."""
    written = state.catalogue.add_items(collection, items, key_id=key_id)
    return answers.Written(ids=list(written.ids), revision=written.revision)


@router.get(
    "",
    dependencies=[Depends(may_search)],
    responses=responses(401, 403, 404),
    response_model=answers.ItemPage,
)
def list_items(
    collection: str,
    state: State,
    root_path: RootPath,
    modality: str | None = None,
    cursor: Annotated[str | None, Query(pattern=r"^[0-9]{1,18}$")] = None,
    limit: Annotated[int, Query(ge=1, le=_MAX_PAGE)] = 100,
    pair_id: Annotated[Identifier | None, Query(description="only items of this pair")] = None,
    label: Annotated[_Labels, Query(description="only items with any of these labels")] = (),
    where: Annotated[_Conditions, Query(description=_CONDITION, examples=[["colour=red"]])] = (),
    item_id: Annotated[_Ids, Query(description="only items of any of these ids, on one page")] = (),
) -> Response:
    """Page through items in order of creation; the cursor stays valid while others write.

    A page ends before `limit` where its items are large, or where few pass the filter of `label` and `where`:
    there is more as long as `next_cursor` is set. Where the first page has nothing, `notices` says why.
    """
    item_filter = ItemFilter.of_conditions(label, where)
    page = state.catalogue.page(
        collection, modality, int(cursor or 0), limit, pair_id, item_filter, tuple(item_id)
    )
    # Encoded here, in a thread: in the event loop a large page would delay all other requests.
    return Response(encode(show_page(collection, page, root_path)), media_type="application/json")


@router.put("/{item_id}", dependencies=[Depends(may_write)], responses=responses(401, 403, 404, *OF_BODIES))
def put_item(
    collection: str,
    item_id: Identifier,
    body: Annotated[ItemIn, read_json(ItemIn, item_body_bytes)],
    state: State,
    key_id: KeyId,
) -> answers.Written:
    """Store an item under this id, replacing an existing one."""
    if body.id is not None and body.id != item_id:
        raise InvalidFieldError("id", f"is {body.id!r} in the body and {item_id!r} in the path")
    written = state.catalogue.add_items(
        collection, [body.to_item(item_id=item_id)], replace=True, key_id=key_id
    )
    return answers.Written(ids=list(written.ids), revision=written.revision)


@router.put(
    "/{item_id}/labels", dependencies=[Depends(may_write)], responses=responses(401, 403, 404, *OF_BODIES)
)
def put_labels(
    collection: str,
    item_id: str,
    body: Annotated[LabelsIn, read_json(LabelsIn, item_body_bytes)],
    state: State,
    key_id: KeyId,
) -> answers.Written:
    """Give an item these labels in place of all that it has; its content is not sent again."""
    written = state.catalogue.change_labels(collection, item_id, body.labels, key_id)
    return answers.Written(ids=list(written.ids), revision=written.revision)


@router.get("/{item_id}", dependencies=[Depends(may_search)], responses=responses(401, 403, 404))
def get_item(collection: str, item_id: str, state: State, root_path: RootPath) -> answers.Item:
    """Return one item."""
    return show_item(collection, state.catalogue.item(collection, item_id), root_path)


@router.get(
    "/{item_id}/content",
    dependencies=[Depends(may_search)],
    responses={
        **responses(401, 403, 404, 410),
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


@router.delete("/{item_id}", dependencies=[Depends(may_write)], responses=responses(401, 403, 404))
def delete_item(collection: str, item_id: str, state: State, key_id: KeyId) -> answers.Written:
    """Delete one item; no search with the same key returns it from now on, and soon none.

    Feedback that names it goes with it.
    """
    revision = state.catalogue.delete_item(collection, item_id, key_id)
    return answers.Written(ids=[item_id], revision=revision)
