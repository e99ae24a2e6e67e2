"""Routes of many items at once: imports and exports, and what is done to all that pass a filter."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any

from anyio import CancelScope, from_thread
from fastapi import APIRouter, Depends, Request, Response, status
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from app import answers
from app.api import bodies
from app.api.admission import works_as
from app.api.deps import KeyId, ListedFilter, may_write
from app.api.faults import parse_line
from app.api.gate import PIECE
from app.api.openapi import schema_of
from app.api.problems import OF_BODIES, responses
from app.api.schemas.items import ItemLineIn, ItemsDeleteIn, ItemsUpdateIn
from app.api.shown import encode, show_original
from app.api.state import ApiLimits, State
from app.domain.entities import Content, Item
from app.domain.errors import ContentTooLargeError, InvalidFieldError, ServiceError
from app.services.catalogue.imports import Import
from app.services.catalogue.preparation import ItemChange, NewItem
from app.services.storage.pacing import in_batches
from solver.datasets.files import describe_binary

router = APIRouter(prefix="/v1/collections/{collection}", tags=["items"])
_BLOCK_BYTES = 1 << 20  # enough lines to be worth handing to a thread
_IDS_PER_PIECE = 1000  # ids sent in one piece of the answer
_NDJSON = "application/x-ndjson"
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "One item a line, in JSON; blank lines count and are passed over",
        "content": {
            _NDJSON: {
                "schema": schema_of(ItemLineIn),
                "example": '{"id": "t1", "modality": "text", "text": "a red shoe", "labels": ["shoes"]}\n'
                '{"id": "t2", "modality": "text", "text": "a leather wallet", "labels": ["wallets"]}\n',
            }
        },
    }
}


@router.post(
    "/items:import",
    status_code=status.HTTP_201_CREATED,
    response_model=answers.Imported,
    dependencies=[Depends(may_write)],
    openapi_extra=_BODY,
    responses=responses(409, 410, *OF_BODIES),
)
@works_as("import")
async def import_items(collection: str, request: Request, state: State, key_id: KeyId) -> Response:
    """Store a stream of items of any length (NDJSON), all of it or nothing.

    An item whose id exists already is replaced if it differs, and left unchanged if it is the same, so an
    import may be repeated. An item without an id gets one derived from its content. Each id may occur once.

    A line with an id and without content changes an item that exists: `labels` replace all that it has, and
    of `metadata` the given keys are set, or removed where they are null; what is not given stays as it is.
    """
    max_bytes = state.limits.max_import_bytes
    if int(request.headers.get("content-length", "0")) > max_bytes:
        raise _too_large(max_bytes)
    running_import = await run_in_threadpool(state.imports.begin, collection, key_id)
    try:
        await _receive(request, running_import, state.limits)
        imported = await run_in_threadpool(running_import.store)
    except BaseException:
        # In a thread, and to the end even if the client is gone: stored pictures may have to be removed.
        with CancelScope(shield=True):
            await run_in_threadpool(running_import.close)
        raise
    return StreamingResponse(
        _answer(imported, running_import), status_code=status.HTTP_201_CREATED, media_type="application/json"
    )


@router.get(
    "/items:export",
    dependencies=[Depends(may_write)],
    response_class=StreamingResponse,
    responses={
        **responses(431),
        200: {
            "description": "One item a line, in JSON; cut off where the connection ends early",
            "content": _BODY["requestBody"]["content"],
        },
    },
)
@works_as("import")
def export_items(collection: str, state: State, request: Request, item_filter: ListedFilter) -> Response:
    """Return items as an import takes them (NDJSON), with their originals, in order of creation.

    Pictures and sounds are in base64; an item without an original has its vector. Each item comes once, as it
    is when its line is read; what is stored after the beginning is left out. One whose file is lost has no
    content, so that an import names it. Blank lines, which an import passes over, come while nothing passes
    the filter. What `label`, `where` and `filter` ask for holds together.
    """
    originals = state.catalogue.originals(collection, item_filter)
    return StreamingResponse(_lines(request, originals), media_type=_NDJSON)


def _lines(request: Request, originals: Iterator[tuple[Item, Content | None] | None]) -> Iterator[bytes]:
    if request.scope["method"] == "HEAD":  # as the gate says once the answer has begun
        return
    piece = bytearray()
    for original in originals:
        # A blank line keeps the connection where little passes a filter.
        piece += (b"" if original is None else encode(show_original(*original))) + b"\n"
        if original is None or len(piece) >= PIECE:
            yield bytes(piece)
            piece.clear()
    yield bytes(piece)


@router.post("/items:delete", dependencies=[Depends(may_write)])
def delete_items(
    collection: str,
    body: Annotated[ItemsDeleteIn, bodies.read_json(ItemsDeleteIn)],
    request: Request,
    state: State,
    key_id: KeyId,
) -> answers.Affected:
    """Delete all items that pass a filter, and the feedback that names them.

    Some hundred are deleted at a time, each time all or none; a million take some minutes. A client that
    closes its connection stops the rest. The call may be repeated whatever became of it. With `dry_run` they
    are only counted.
    """
    return state.catalogue.delete_passing(
        collection, body.to_filter(), body.dry_run, key_id, is_stopped=partial(_is_gone, request)
    )


@router.post("/items:update", dependencies=[Depends(may_write)])
def update_items(
    collection: str,
    body: Annotated[ItemsUpdateIn, bodies.read_json(ItemsUpdateIn)],
    request: Request,
    state: State,
    key_id: KeyId,
) -> answers.Affected:
    """Change labels and metadata of all items that pass a filter, which need not be sent again.

    `labels` replace all that they have; then `add_labels` are added and `remove_labels` taken away. Of
    `metadata` the given keys are set, or removed where they are null. Where one item cannot be stored so,
    none is changed. Some hundred are written at a time, and a client that closes its connection stops the
    rest; the call may be repeated. With `dry_run` they are only counted.
    """
    return state.catalogue.change_passing(
        collection, body.to_filter(), body.to_change(), body.dry_run, key_id, partial(_is_gone, request)
    )


def _is_gone(request: Request) -> bool:
    """Return whether the client has closed its connection; called in a thread."""
    return from_thread.run(request.is_disconnected)


async def _receive(request: Request, running_import: Import, limits: ApiLimits) -> None:
    """Add the items that arrive, in blocks worth a thread's time; discard the rest of a faulty stream, or the
    client would get no answer."""
    lines = _ItemLines(limits.max_import_line_bytes)
    block, size = bytearray(), 0
    fault: ServiceError | None = None
    with bodies.reject_incomplete_body():
        async for chunk in request.stream():
            size += len(chunk)
            if size > limits.max_import_bytes:
                raise _too_large(limits.max_import_bytes)
            block += chunk
            if chunk and len(block) < _BLOCK_BYTES:  # an empty chunk ends the stream
                continue
            if fault is None:
                try:
                    await run_in_threadpool(running_import.add, lines.read(bytes(block), not chunk))
                except ServiceError as error:
                    fault = error
            block.clear()
    if fault is not None:
        raise fault


class _ItemLines:
    """Reads a stream of items, one a line; holds no more than one unfinished line."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._rest = b""
        self._number = 0

    def read(self, block: bytes, is_last: bool) -> Iterator[tuple[int, NewItem | ItemChange]]:
        """Yield what stands on each line that is now complete, with its number from 1; blank ones count.
        Raises ServiceError for what is no item, and if a line is too long, finished or not."""
        *complete, self._rest = (self._rest + block).split(b"\n")
        for place, line in enumerate([*complete, self._rest]):
            number = self._number + 1
            if len(line) > self._max_bytes:
                error = ContentTooLargeError("body", f"more than {self._max_bytes} bytes in one line")
                raise error.at_line(number)
            if place == len(complete) and not is_last:
                return
            self._number = number
            if line.strip():
                yield number, _read_item(number, line)


def _read_item(number: int, line: bytes) -> NewItem | ItemChange:
    try:
        return parse_line(ItemLineIn, line).to_row()
    except ServiceError as error:
        if number == 1 and not line.lstrip().startswith(b"{"):
            what = describe_binary(line) or "no item in JSON: lrbs ingest table takes tables such as CSV"
            message = f"is {what}; expected one item a line, in JSON"
            raise InvalidFieldError("body", message).at_line(1) from error
        error.line = number
        raise


def _answer(imported: answers.Imported, running_import: Import) -> Iterator[bytes]:
    """Yield what an import did in pieces, since there may be more ids than memory should hold."""
    try:
        yield encode(imported).removesuffix(b"]}")  # the list of ids comes last
        comma = b""
        for ids in in_batches(running_import.spool.ids(), _IDS_PER_PIECE):
            yield comma + encode(ids)[1:-1]
            comma = b","
        yield b"]}"
    finally:
        running_import.close()


def _too_large(max_bytes: int) -> ContentTooLargeError:
    return ContentTooLargeError("body", f"at most {max_bytes} bytes allowed in one import")
