"""Clients of the REST interface that wait for answers, or are awaited."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import aclosing, closing
from itertools import islice
from typing import Any, Generic, Self, TypeVar

import httpx
import msgspec

from app.answers import Item, Job
from app.client.operations import Call, Operations, export_items
from app.client.problems import ConnectionFailedError, LrbsError, RejectedError, UnavailableError, problem_of

_T = TypeVar("_T")
_Http = TypeVar("_Http", httpx.Client, httpx.AsyncClient)
_TIMEOUT_SECONDS = 60.0
"""A search may wait half a minute for a collection that is being loaded."""
_LONG_SECONDS = 3600.0
"""To delete or change all that passes a filter takes some minutes per million items."""
_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 5.0
_SHORTEST_POLL_SECONDS, _LONGEST_POLL_SECONDS = 0.05, 0.5
_POLL_SHARE = 0.1
"""A training is asked for again after this share of the wait so far, within these bounds."""
_LINES_PER_CHUNK = 1000
_ITEM = msgspec.json.Decoder(dict[str, Any])


class _Lines:
    """Items of an export, whose lines may be of many pieces."""

    def __init__(self) -> None:
        self._begun: list[bytes] = []

    def feed(self, piece: bytes) -> Iterator[dict[str, Any]]:
        """Yield the items that end in a piece."""
        *ends, rest = piece.split(b"\n")
        for end in ends:
            line = b"".join((*self._begun, end))
            self._begun.clear()
            if line:  # blank ones are sent while nothing passes a filter
                yield _ITEM.decode(line)
        self._begun.append(rest)

    def end(self) -> None:
        """Refuse a line without an end: a proxy may hide that a connection was cut off."""
        if any(self._begun):
            raise ConnectionFailedError("the export ended early, within a line")


def _be_patient(seconds: float) -> Callable[[Call[Any], RejectedError | httpx.TransportError], float]:
    """Return what says after how many seconds a call is sent again that the service could not answer, for so
    many seconds from now; it raises the error where the call should not be."""
    until, usual_pause = time.monotonic() + seconds, _FIRST_PAUSE_SECONDS

    def pause_after(call: Call[Any], fault: RejectedError | httpx.TransportError) -> float:
        # A call that changes something, and could do so twice, is sent again only where it was turned away.
        nonlocal usual_pause
        error: LrbsError = fault if isinstance(fault, RejectedError) else _unreachable(fault)
        pause = error.retry_after if isinstance(error, RejectedError) else None
        was_turned_away = isinstance(error, UnavailableError) and error.status in (429, 503)
        if not (was_turned_away or (call.is_repeatable and isinstance(error, ConnectionFailedError))):
            raise error
        if pause is None:
            pause, usual_pause = usual_pause, min(2.0 * usual_pause, _LONGEST_PAUSE_SECONDS)
        if time.monotonic() + pause > until or call.lines is not None:
            raise error
        return pause

    return pause_after


class _BaseClient(Operations, Generic[_Http]):
    """What both clients have, but for the waiting."""

    _open: Callable[..., _Http]

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        timeout: float = _TIMEOUT_SECONDS,
        patience: float = 30.0,
        http: _Http | None = None,
    ) -> None:
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        self._patience_seconds = patience
        # To read which certificates are trusted takes 40 ms. No redirect is followed from http to https.
        verify = not url.lower().startswith("http://")
        self._http: _Http = http or self._open(base_url=url, headers=headers, timeout=timeout, verify=verify)

    def _request_of(self, call: Call[Any], content: Any) -> httpx.Request:
        headers = {}
        if call.json is not None:
            content, headers = msgspec.json.encode(call.json), {"Content-Type": "application/json"}
        elif call.lines is not None:
            headers = {"Content-Type": "application/x-ndjson"}
        timeout = self._http.timeout
        if call.is_long and timeout.read is not None:
            seconds = timeout.as_dict() | {"read": max(timeout.read, _LONG_SECONDS)}
            timeout = httpx.Timeout(**seconds)
        return self._http.build_request(
            call.method, call.path, params=dict(call.query), content=content, headers=headers, timeout=timeout
        )

    @staticmethod
    def _check(call: Call[Any], answer: httpx.Response) -> httpx.Response:
        if answer.has_redirect_location:
            raise LrbsError(f"{call.method} {call.path}: the service is at {answer.headers['Location']}")
        if not answer.is_success:
            raise problem_of(answer)
        return answer

    @staticmethod
    def _decode(call: Call[_T], answer: httpx.Response) -> _T:
        content: Any = None if call.answer is type(None) else answer.content
        try:
            decoded: _T = (
                content
                if call.answer in (bytes, type(None))
                else msgspec.json.decode(content, type=call.answer)
            )
        except msgspec.MsgspecError as error:
            message = f"{call.method} {call.path}: the answer is not of this service: {error}"
            raise LrbsError(message) from error
        return decoded


class Client(_BaseClient[httpx.Client]):
    """Calls the service and waits for its answers.

    Its methods are the operations of the OpenAPI document under the same names; see `app.client.operations`.

    Parameters
    ----------
    url : str
        Of the service, such as ``http://127.0.0.1:8000``.
    key : str, optional
        Secret of an API key.
    timeout : float
        Seconds for an answer; an hour at least for what is done to all that pass a filter.
    patience : float
        Seconds for which a call is repeated that the service turned away (429, 503), or that did not reach it
        and may be sent twice.
    http : httpx.Client, optional
        To be used in place of an own one, with its address and headers.

    Examples
    --------
    >>> with Client("http://127.0.0.1:8000") as client:  # doctest: +SKIP
    ...     for hit in client.search("sample", "text", "image", text="boats").hits:
    ...         print(hit.id, hit.probability)
    """

    _open = httpx.Client

    def send(self, call: Call[_T]) -> _T:
        """Send a call, and return its answer.

        Raises
        ------
        RejectedError
            If the service answers with a problem.
        ConnectionFailedError
            If it does not answer.
        """
        return self._decode(call, self._exchange(call))

    def _exchange(self, call: Call[Any], is_stream: bool = False) -> httpx.Response:
        pause_after = _be_patient(self._patience_seconds)
        while True:
            content = None if call.lines is None else _chunks(call.lines)
            try:
                answer = self._http.send(self._request_of(call, content), stream=is_stream)
                if is_stream and not answer.is_success:
                    answer.read()
                return self._check(call, answer)
            except (RejectedError, httpx.TransportError) as error:
                time.sleep(pause_after(call, error))

    def iter_export(self, collection: str, **conditions: Any) -> Iterator[dict[str, Any]]:
        """Yield the items of an export as they come; conditions as of `export_items`.

        Raises
        ------
        ConnectionFailedError
            If they end early.
        """
        with closing(self._exchange(export_items(collection, **conditions), is_stream=True)) as answer:
            lines = _Lines()
            try:
                for piece in answer.iter_bytes():
                    yield from lines.feed(piece)
            except httpx.TransportError as error:
                raise _unreachable(error) from error
            lines.end()

    def iter_items(self, collection: str, **conditions: Any) -> Iterator[Item]:
        """Yield all items; conditions as of `list_items`."""
        cursor: str | None = None
        while True:
            page = self.list_items(collection, **conditions, cursor=cursor)
            yield from page.items
            cursor = page.next_cursor
            if cursor is None:
                return

    def wait_for_job(
        self, job_id: str, *, timeout: float | None = None, progress: Callable[[Job], None] | None = None
    ) -> Job:
        """Return a training when it has ended; raises TimeoutError.

        Parameters
        ----------
        job_id : str
            As of `retrain`.
        timeout : float, optional
            Longest wait in seconds.
        progress : callable, optional
            Called with the training again and again meanwhile.
        """
        began = time.monotonic()
        while True:
            job = self.get_job(job_id)
            if progress is not None:
                progress(job)
            if job.is_over:
                return job
            time.sleep(_pause_before_poll(job_id, time.monotonic() - began, timeout))

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncClient(_BaseClient[httpx.AsyncClient]):
    """Calls the service; its methods are those of `Client`, and are awaited.

    Parameters as of `Client`; `http` is an `httpx.AsyncClient`.
    """

    _open = httpx.AsyncClient

    async def send(self, call: Call[_T]) -> _T:
        """Send a call, and return its answer; errors as of `Client.send`."""
        return self._decode(call, await self._exchange(call))

    async def _exchange(self, call: Call[Any], is_stream: bool = False) -> httpx.Response:
        pause_after = _be_patient(self._patience_seconds)
        while True:
            content = None if call.lines is None else _chunks_without_waiting(call.lines)
            try:
                answer = await self._http.send(self._request_of(call, content), stream=is_stream)
                if is_stream and not answer.is_success:
                    await answer.aread()
                return self._check(call, answer)
            except (RejectedError, httpx.TransportError) as error:
                await asyncio.sleep(pause_after(call, error))

    async def iter_export(self, collection: str, **conditions: Any) -> AsyncIterator[dict[str, Any]]:
        """Yield the items of an export as they come, as of `Client.iter_export`."""
        call = export_items(collection, **conditions)
        async with aclosing(await self._exchange(call, is_stream=True)) as answer:
            lines = _Lines()
            try:
                async for piece in answer.aiter_bytes():
                    for item in lines.feed(piece):
                        yield item
            except httpx.TransportError as error:
                raise _unreachable(error) from error
            lines.end()

    async def iter_items(self, collection: str, **conditions: Any) -> AsyncIterator[Item]:
        """Yield all items; conditions as of `list_items`."""
        cursor: str | None = None
        while True:
            page = await self.list_items(collection, **conditions, cursor=cursor)
            for item in page.items:
                yield item
            cursor = page.next_cursor
            if cursor is None:
                return

    async def wait_for_job(
        self, job_id: str, *, timeout: float | None = None, progress: Callable[[Job], None] | None = None
    ) -> Job:
        """Return a training when it has ended, as of `Client.wait_for_job`."""
        began = time.monotonic()
        while True:
            job = await self.get_job(job_id)
            if progress is not None:
                progress(job)
            if job.is_over:
                return job
            await asyncio.sleep(_pause_before_poll(job_id, time.monotonic() - began, timeout))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _chunks(lines: Iterable[Any]) -> Iterator[bytes]:
    """Yield JSON lines, many at once."""
    encoded = map(msgspec.json.encode, lines)
    while chunk := list(islice(encoded, _LINES_PER_CHUNK)):
        yield b"\n".join(chunk) + b"\n"


async def _chunks_without_waiting(lines: Iterable[Any]) -> AsyncIterator[bytes]:
    for chunk in _chunks(lines):
        yield chunk


def _unreachable(error: httpx.TransportError) -> ConnectionFailedError:
    url = error.request.url
    place = f"{url.scheme}://{url.netloc.decode()}{url.path}"  # without a password
    return ConnectionFailedError(f"{error.request.method} {place}: {error or type(error).__name__}")


def _pause_before_poll(job_id: str, waited: float, timeout: float | None) -> float:
    """Return the seconds after which to ask for a training again; raises TimeoutError."""
    if timeout is not None and waited > timeout:
        raise TimeoutError(f"job {job_id} has not ended within {timeout:g} s")
    return min(max(_POLL_SHARE * waited, _SHORTEST_POLL_SECONDS), _LONGEST_POLL_SECONDS)
