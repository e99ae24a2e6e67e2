"""Routes of items."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response, status
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData

from app.api.bodies import (
    check_parts,
    is_multipart,
    json_part,
    parse_json,
    picture_part,
    schema_of,
    two_forms,
    validated,
)
from app.api.deps import Catalogue, may_search, may_write
from app.api.problems import responses
from app.api.schemas.base import Identifier
from app.api.schemas.content import RawIn
from app.api.schemas.items import ItemFactsIn, ItemIn, ItemOut, ItemPage, ItemsIn, WrittenOut
from app.domain.entities import Content
from app.domain.errors import ContentTooLargeError, InvalidFieldError
from app.services.catalogue import NewItem

router = APIRouter(prefix="/v1/collections/{collection}/items", tags=["items"])
_MAX_PAGE = 1000
_BODY = two_forms(
    ItemsIn,
    parts={"item": schema_of(ItemFactsIn)},
    example={"item": {"id": "i1", "modality": "image", "labels": ["shoes"]}},
    encoding={"item": {"contentType": "application/json"}},
)


async def _parse(request: Request) -> list[NewItem]:
    """Read items from JSON, or one item from a multipart picture; the work is done off the event loop."""
    settings = request.app.state.settings
    if is_multipart(request):
        async with request.form(max_files=2, max_fields=10) as form:
            return [await run_in_threadpool(_picture_item, form, settings.max_picture_bytes)]
    return await run_in_threadpool(_json_items, await request.body(), settings.max_batch)


@router.post(
    "",
    status_code=status.HTTP_201_CREATED,
    dependencies=[Depends(may_write)],
    openapi_extra=_BODY,
    responses=responses(401, 403, 404, 409, 413, 422),
)
def create_items(
    collection: str, catalogue: Catalogue, items: Annotated[list[NewItem], Depends(_parse)]
) -> WrittenOut:
    """Store items, all of the request or none of it; or one item whose picture is a file."""
    written = catalogue.add_items(collection, items)
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


def _json_items(body: bytes, max_batch: int) -> list[NewItem]:
    items = validated(ItemsIn, parse_json("body", body)).items
    if len(items) > max_batch:
        raise ContentTooLargeError("items", f"{len(items)} items in one call, at most {max_batch} allowed")
    return [item.to_item(number) for number, item in enumerate(items)]


def _picture_item(form: FormData, max_bytes: int) -> NewItem:
    check_parts(form, "picture", "item")
    given = json_part(form, "item")
    for name in RawIn.model_fields:
        if isinstance(given, dict) and name in given:
            raise InvalidFieldError(f"item.{name}", "the picture part is this item's content: leave it out")
    facts = validated(ItemFactsIn, {"modality": "image"} if given is None else given, "item")
    return facts.with_content(Content(picture=picture_part(form, max_bytes)))
