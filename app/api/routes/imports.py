"""The route that imports a stream of items."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator

from anyio import CancelScope
from fastapi import APIRouter, Depends, Request, Response, status
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from app.api.bodies import MIN_KEY_LIMIT, limit_keys, reject_incomplete_body
from app.api.deps import Imports, NoteWrite, may_write
from app.api.middleware.workload import Workload, works_as
from app.api.ndjson import LineCutter, parse_line
from app.api.openapi import schema_of
from app.api.problems import OF_BODIES, responses
from app.api.schemas.items import ImportedOut, ItemIn
from app.api.state import ApiLimits, State
from app.domain.errors import ContentTooLargeError, LineError, ServiceError
from app.services.catalogue.imports import Import, Imported
from app.services.catalogue.preparation import NewItem

router = APIRouter(prefix="/v1/collections/{collection}", tags=["items"])
_BYTES_AT_A_TIME = 1 << 20
_IDS_AT_A_TIME = 1000
_BODY = {
    "requestBody": {
        "required": True,
        "description": "One item a line, in JSON; blank lines count and are passed over",
        "content": {
            "application/x-ndjson": {
                "schema": schema_of(ItemIn),
                "example": '{"id": "t1", "modality": "text", "text": "a red shoe", "labels": ["shoes"]}\n'
                '{"id": "t2", "modality": "text", "text": "a leather wallet", "labels": ["wallets"]}\n',
            }
        },
    }
}


@router.post(
    "/items:import",
    status_code=status.HTTP_201_CREATED,
    response_model=ImportedOut,
    dependencies=[Depends(may_write)],
    openapi_extra=_BODY,
    responses=responses(401, 403, 404, 409, 410, *OF_BODIES),
)
@works_as(Workload.IMPORT)
async def import_items(
    collection: str,
    request: Request,
    state: State,
    imports: Imports,
    note_write: NoteWrite,
) -> Response:
    """Store a stream of items of any length (NDJSON), all of it or nothing.

    An item whose id is there already is replaced if it differs, and left alone if it is the same: an import
    may be repeated. An item without an id gets one that follows from what it holds. An id may come once.
    """
    max_bytes = state.limits.import_bytes
    if int(request.headers.get("content-length", "0")) > max_bytes:
        raise _too_large(max_bytes)
    begun = await run_in_threadpool(imports.begin, collection)
    try:
        await _receive(request, begun, state.limits)
        imported = await run_in_threadpool(begun.store)
        note_write(collection, imported.revision)
    except BaseException:
        # In a thread, and to its end also when the client is gone: pictures may have to be taken away.
        with CancelScope(shield=True):
            await run_in_threadpool(begun.close)
        raise
    return StreamingResponse(
        _answer(imported, begun), status_code=status.HTTP_201_CREATED, media_type="application/json"
    )


async def _receive(request: Request, begun: Import, limits: ApiLimits) -> None:
    """Hand over what comes in; of a faulty stream the rest is read and dropped, or no answer would arrive."""
    cutter = LineCutter(limits.import_line_bytes)
    fault: ServiceError | None = None
    async for block, is_last in _blocks(request, limits.import_bytes):
        if fault is None:
            try:
                await run_in_threadpool(_add, begun, cutter, block, is_last)
            except ServiceError as error:
                fault = error
    if fault is not None:
        raise fault


async def _blocks(request: Request, max_bytes: int) -> AsyncIterator[tuple[bytes, bool]]:
    """Yield the body in blocks worth a thread's time, and whether each is the last one."""
    block, size = bytearray(), 0
    with reject_incomplete_body():
        async for chunk in request.stream():
            size += len(chunk)
            if size > max_bytes:
                raise _too_large(max_bytes)
            block += chunk
            if len(block) >= _BYTES_AT_A_TIME:
                yield bytes(block), False
                block.clear()
    yield bytes(block), True


def _add(begun: Import, cutter: LineCutter, block: bytes, is_last: bool) -> None:
    entries: list[tuple[int, NewItem]] = []
    try:
        for number, line in cutter.feed(block):
            entries.append((number, _item(number, line)))
        if is_last:
            entries += [(number, _item(number, line)) for number, line in cutter.rest()]
    except LineError:
        # An earlier line may have a fault that only shows when it is added.
        begun.add(entries)
        raise
    begun.add(entries)


def _item(number: int, line: bytes) -> NewItem:
    try:
        return parse_line(ItemIn, limit_keys(line, MIN_KEY_LIMIT)).to_item()
    except ServiceError as error:
        raise LineError(number, error) from error


def _answer(imported: Imported, begun: Import) -> Iterator[str]:
    """Yield an `ImportedOut` as JSON: the ids may be more than memory should hold."""
    counts = imported.counts
    try:
        facts = {
            "revision": imported.revision,
            "created": counts.created,
            "updated": counts.updated,
            "unchanged": counts.unchanged,
        }
        yield json.dumps(facts)[:-1] + ', "ids": ['
        part: list[str] = []
        for number, item_id in enumerate(begun.ids()):
            part.append((", " if number else "") + json.dumps(item_id))
            if len(part) == _IDS_AT_A_TIME:
                yield "".join(part)
                part.clear()
        yield "".join(part) + "]}"
    finally:
        begun.close()


def _too_large(max_bytes: int) -> ContentTooLargeError:
    return ContentTooLargeError("body", f"at most {max_bytes} bytes allowed in one import")
