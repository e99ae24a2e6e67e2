"""Routes of items."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import APIRouter, Depends, File, Form, Query, Request, Response, UploadFile, status
from pydantic import ValidationError
from starlette.datastructures import UploadFile as StarletteUploadFile

from app.api.deps import Catalogue, may_search, may_write
from app.api.problems import responses
from app.api.schemas import Identifier, ItemIn, ItemOut, ItemPage, ItemsIn, WrittenOut
from app.domain.entities import Content
from app.domain.errors import ContentTooLargeError, InvalidFieldError
from app.services.catalogue import NewItem

router = APIRouter(prefix="/v1/collections/{collection}/items", tags=["items"])
_MAX_PAGE = 1000


@router.post(
    "",
    status_code=status.HTTP_201_CREATED,
    dependencies=[Depends(may_write)],
    responses=responses(401, 403, 404, 409, 413, 422),
)
def create_items(collection: str, body: ItemsIn, request: Request, catalogue: Catalogue) -> WrittenOut:
    """Store items: all of the request or none of it."""
    limit = request.app.state.settings.max_batch
    if len(body.items) > limit:
        raise ContentTooLargeError("items", f"{len(body.items)} items in one call, at most {limit} allowed")
    items = [item.to_item(number) for number, item in enumerate(body.items)]
    written = catalogue.add_items(collection, items)
    return WrittenOut(ids=list(written.ids), revision=written.revision)


@router.post(
    "/picture",
    status_code=status.HTTP_201_CREATED,
    dependencies=[Depends(may_write)],
    responses=responses(401, 403, 404, 409, 413, 422),
)
def create_picture_item(
    collection: str,
    catalogue: Catalogue,
    request: Request,
    picture: Annotated[UploadFile, File(description="a picture file")],
    item: Annotated[str, Form(description="the item's other fields, as JSON")] = '{"modality": "image"}',
) -> WrittenOut:
    """Store one item whose picture comes as a multipart file."""
    facts = _parse_facts(item)
    limit = request.app.state.settings.max_picture_bytes
    new = NewItem(
        modality=facts.modality,
        content=Content(picture=read_picture("picture", picture, limit)),
        id=facts.id,
        labels=tuple(facts.labels),
        pair_id=facts.pair_id,
        metadata=facts.metadata,
        train=facts.train,
    )
    written = catalogue.add_items(collection, [new])
    return WrittenOut(ids=list(written.ids), revision=written.revision)


@router.get("", dependencies=[Depends(may_search)], responses=responses(401, 403, 404, 422))
def list_items(
    collection: str,
    catalogue: Catalogue,
    modality: str | None = None,
    cursor: Annotated[str | None, Query(pattern=r"^\d{1,18}$")] = None,
    limit: Annotated[int, Query(ge=1, le=_MAX_PAGE)] = 100,
) -> ItemPage:
    """Page through items in order of creation; the cursor stays valid while others write."""
    rows = catalogue.page(collection, modality, int(cursor or 0), limit + 1)
    page = rows[:limit]
    return ItemPage(
        items=[ItemOut.of(collection, item) for _, item in page],
        next_cursor=str(page[-1][0]) if len(rows) > limit else None,
    )


@router.put("/{item_id}", dependencies=[Depends(may_write)], responses=responses(401, 403, 404, 413, 422))
def put_item(collection: str, item_id: Identifier, body: ItemIn, catalogue: Catalogue) -> WrittenOut:
    """Store an item under this id, replacing one that is there."""
    if body.id is not None and body.id != item_id:
        raise InvalidFieldError("id", f"is {body.id!r} in the body and {item_id!r} in the path")
    written = catalogue.add_items(collection, [body.to_item(0, item_id)], replace=True)
    return WrittenOut(ids=list(written.ids), revision=written.revision)


@router.get("/{item_id}", dependencies=[Depends(may_search)], responses=responses(401, 403, 404))
def get_item(collection: str, item_id: str, catalogue: Catalogue) -> ItemOut:
    """Return one item."""
    return ItemOut.of(collection, catalogue.item(collection, item_id))


@router.get(
    "/{item_id}/content",
    dependencies=[Depends(may_search)],
    responses=responses(401, 403, 404),
    response_class=Response,
)
def get_content(collection: str, item_id: str, catalogue: Catalogue) -> Response:
    """Return the picture or the text itself."""
    content, media_type = catalogue.content(collection, item_id)
    return Response(content, media_type=media_type, headers={"X-Content-Type-Options": "nosniff"})


@router.delete("/{item_id}", dependencies=[Depends(may_write)], responses=responses(401, 403, 404))
def delete_item(collection: str, item_id: str, catalogue: Catalogue) -> WrittenOut:
    """Delete one item; no search returns it from now on."""
    return WrittenOut(ids=[item_id], revision=catalogue.delete_item(collection, item_id))


def read_picture(field: str, upload: StarletteUploadFile, max_bytes: int) -> bytes:
    """Return an uploaded file's bytes; raises ContentTooLargeError as soon as it is too long."""
    content = upload.file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise ContentTooLargeError(field, f"more than {max_bytes} bytes")
    return content


def _parse_facts(text: str) -> ItemIn:
    try:
        facts: Any = json.loads(text)
        return ItemIn.model_validate(facts)
    except (ValueError, ValidationError, RecursionError) as error:
        raise InvalidFieldError("item", f"is not a valid item in JSON: {str(error)[:300]}") from error
