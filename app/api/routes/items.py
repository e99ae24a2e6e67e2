"""Routes of items."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response, status
from pydantic import Field, StringConstraints

from app.api.bodies import FormFields, item_body_bytes, parse_json, read_json, read_json_or_form
from app.api.deps import Catalogue, NoteWrite, may_search, may_write
from app.api.entries import parse_entries
from app.api.openapi import schema_of, two_forms
from app.api.problems import OF_BODIES, responses
from app.api.schemas.base import Identifier, Label
from app.api.schemas.content import RawIn
from app.api.schemas.items import ItemFactsIn, ItemIn, ItemOut, ItemPage, ItemsIn, LabelsIn, WrittenOut
from app.api.state import ApiLimits
from app.domain.entities import ItemFilter
from app.domain.errors import InvalidFieldError
from app.services.catalogue.preparation import NewItem

router = APIRouter(prefix="/v1/collections/{collection}/items", tags=["items"])
_MAX_PAGE = 1000
_FACTS = {"picture": '{"modality": "image"}', "sound": '{"modality": "sound"}'}
"""Of an item that is sent as a file alone."""
_MAX_CONDITIONS = 20
"""Of each kind: the address of a request, with all of them at their longest, has to fit into 64 KiB."""
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
    catalogue: Catalogue,
    note_write: NoteWrite,
    items: Annotated[
        list[NewItem], read_json_or_form(_parse_items, _parse_form, _BODY, ("item",), item_body_bytes)
    ],
) -> WrittenOut:
    """Store items, all of the request or none of it; or one item whose picture or sound is a file."""
    written = catalogue.add_items(collection, items)
    note_write(collection, written.revision)
    return WrittenOut(ids=list(written.ids), revision=written.revision)


@router.get(
    "", dependencies=[Depends(may_search)], responses=responses(401, 403, 404, 422), response_model=ItemPage
)
def list_items(
    collection: str,
    catalogue: Catalogue,
    modality: str | None = None,
    cursor: Annotated[str | None, Query(pattern=r"^[0-9]{1,18}$")] = None,
    limit: Annotated[int, Query(ge=1, le=_MAX_PAGE)] = 100,
    pair_id: Annotated[Identifier | None, Query(description="only items of this pair")] = None,
    label: Annotated[_Labels, Query(description="only items with any of these labels")] = (),
    where: Annotated[_Conditions, Query(description=_CONDITION, examples=[["colour=red"]])] = (),
) -> Response:
    """Page through items in order of creation; the cursor stays valid while others write.

    A page ends before `limit` where its items are large, or where few pass the filter of `label` and `where`:
    there is more as long as `next_cursor` is set.
    """
    item_filter = ItemFilter.of_conditions(label, where)
    page = catalogue.page(collection, modality, int(cursor or 0), limit, pair_id, item_filter)
    body = ItemPage(
        items=[ItemOut.of(collection, item) for _, item in page.rows],
        next_cursor=None if page.end is None else str(page.end),
    )
    # Encoded here, in a thread: in the event loop a large page would delay all other requests.
    return Response(body.model_dump_json(), media_type="application/json")


@router.put("/{item_id}", dependencies=[Depends(may_write)], responses=responses(401, 403, 404, *OF_BODIES))
def put_item(
    collection: str,
    item_id: Identifier,
    body: Annotated[ItemIn, read_json(ItemIn, item_body_bytes)],
    catalogue: Catalogue,
    note_write: NoteWrite,
) -> WrittenOut:
    """Store an item under this id, replacing an existing one."""
    if body.id is not None and body.id != item_id:
        raise InvalidFieldError("id", f"is {body.id!r} in the body and {item_id!r} in the path")
    written = catalogue.add_items(collection, [body.to_item(item_id=item_id)], replace=True)
    note_write(collection, written.revision)
    return WrittenOut(ids=list(written.ids), revision=written.revision)


@router.put(
    "/{item_id}/labels", dependencies=[Depends(may_write)], responses=responses(401, 403, 404, *OF_BODIES)
)
def put_labels(
    collection: str,
    item_id: str,
    body: Annotated[LabelsIn, read_json(LabelsIn, item_body_bytes)],
    catalogue: Catalogue,
    note_write: NoteWrite,
) -> WrittenOut:
    """Give an item these labels in place of all that it has; its content is not sent again."""
    written = catalogue.change_labels(collection, item_id, body.labels)
    note_write(collection, written.revision)
    return WrittenOut(ids=list(written.ids), revision=written.revision)


@router.get("/{item_id}", dependencies=[Depends(may_search)], responses=responses(401, 403, 404, 422))
def get_item(collection: str, item_id: str, catalogue: Catalogue) -> ItemOut:
    """Return one item."""
    return ItemOut.of(collection, catalogue.item(collection, item_id))


@router.get(
    "/{item_id}/content",
    dependencies=[Depends(may_search)],
    responses={
        **responses(401, 403, 404, 410, 422),
        200: {
            "description": "The content, with its own media type",
            "content": {
                "image/*": {"schema": {"type": "string", "format": "binary"}},
                "audio/*": {"schema": {"type": "string", "format": "binary"}},
                "text/plain": {"schema": {"type": "string"}},
            },
        },
    },
    response_class=Response,
)
def get_content(collection: str, item_id: str, catalogue: Catalogue) -> Response:
    """Return the picture, the sound or the text itself."""
    content, media_type = catalogue.content(collection, item_id)
    return Response(content, media_type=media_type)


@router.delete("/{item_id}", dependencies=[Depends(may_write)], responses=responses(401, 403, 404, 422))
def delete_item(collection: str, item_id: str, catalogue: Catalogue, note_write: NoteWrite) -> WrittenOut:
    """Delete one item; no search with the same key returns it from now on, and soon none.

    Feedback that names it goes with it.
    """
    revision = catalogue.delete_item(collection, item_id)
    note_write(collection, revision)
    return WrittenOut(ids=[item_id], revision=revision)
