"""Sockets and the loop of a server: small writes of one step are one packet, nothing lost or reordered."""

import asyncio
import gc
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop
from threadpoolctl import threadpool_info, threadpool_limits

from app.cli.serve import bound_socket, keep_event_loop_responsive
from app.settings import Settings
from app.wire.protocol import JoiningTransport


class Writer(asyncio.Protocol):
    """Writes what a test wants as soon as it is connected, and counts the writes that reach the transport."""

    def __init__(self, write: Callable[[Any], None]) -> None:
        self._write = write
        self.sizes: list[int] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        counted: Any = Counted(transport, self.sizes)
        self._write(JoiningTransport(counted, asyncio.get_running_loop()))


class Counted:
    def __init__(self, transport: Any, sizes: list[int]) -> None:
        self._transport = transport
        self._sizes = sizes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        self._sizes.append(len(data))
        self._transport.write(data)


def exchange(write: Callable[[Any], None], new_loop: Callable[[], Any]) -> tuple[bytes, list[int]]:
    """Return what a client reads until the end, and the sizes of the writes."""

    async def run() -> tuple[bytes, list[int]]:
        writer = Writer(write)
        server = await asyncio.get_running_loop().create_server(lambda: writer, "127.0.0.1", 0)
        async with server:
            reader, end = await asyncio.open_connection(*server.sockets[0].getsockname())
            data = await asyncio.wait_for(reader.read(), 30.0)
            end.close()
            return data, writer.sizes

    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(run())


LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]


@pytest.mark.parametrize("new_loop", LOOPS)
def test_head_and_body_are_one_write(new_loop: Callable[[], Any]) -> None:
    def write(transport: Any) -> None:
        transport.write(b"head ")
        transport.write(b"body")
        asyncio.get_running_loop().call_later(0.01, transport.close)

    assert exchange(write, new_loop) == (b"head body", [9])


@pytest.mark.parametrize("new_loop", LOOPS)
@pytest.mark.parametrize("end", ["close", "write_eof"])
def test_what_was_written_is_sent_before_the_end(new_loop: Callable[[], Any], end: str) -> None:
    def write(transport: Any) -> None:
        transport.write(b"last words")
        getattr(transport, end)()
        asyncio.get_running_loop().call_later(0.01, transport.close)

    assert exchange(write, new_loop) == (b"last words", [10])


@pytest.mark.parametrize("new_loop", LOOPS)
def test_large_pieces_are_passed_on_at_once_and_in_order(new_loop: Callable[[], Any]) -> None:
    pieces = [bytes([number]) * (1 << 19) for number in range(40)]
    passed: list[int] = []

    def write(transport: Any) -> None:
        transport.write(b"head")
        for piece in pieces:
            transport.write(piece)
            passed.append(transport.get_write_buffer_size())
        transport.write(b"tail")
        asyncio.get_running_loop().call_soon(asyncio.get_running_loop().call_soon, transport.close)

    data, sizes = exchange(write, new_loop)
    assert data == b"head" + b"".join(pieces) + b"tail"
    assert sizes == [4 + (1 << 19), *[1 << 19] * 39, 4]
    assert max(passed) > 1 << 19  # a writer is told that its reader is slow


@pytest.mark.parametrize("new_loop", LOOPS)
def test_an_aborted_connection_gets_nothing_more(new_loop: Callable[[], Any]) -> None:
    def write(transport: Any) -> None:
        transport.write(b"never")
        transport.abort()

    try:
        data, sizes = exchange(write, new_loop)
    except ConnectionResetError:
        return
    assert (data, sizes) == (b"", [])


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_small_packets_of_an_answer_are_sent_at_once(host: str, tmp_path: Path) -> None:
    found: list[int] = []

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = writer.get_extra_info("socket")
        found.append(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    async def connect(listening: socket.socket) -> None:
        async with await asyncio.start_server(answer, sock=listening):
            reader, writer = await asyncio.open_connection(*listening.getsockname()[:2])
            assert await reader.read() == b""
            writer.close()

    with bound_socket(Settings(data_dir=tmp_path, database_url="", host=host, port=0)) as listening:
        asyncio.run(connect(listening))
    assert found == [1]


def _blas_threads() -> set[int]:
    # Not of the one that faiss brings, which counts for each thread apart: no search uses it.
    return {
        library["num_threads"]
        for library in threadpool_info()
        if library["user_api"] == "blas" and "faiss" not in library["filepath"]
    }


def test_a_server_collects_no_module_gives_its_loop_a_turn_soon_and_multiplies_in_one_thread() -> None:
    before, frozen = sys.getswitchinterval(), gc.get_freeze_count()
    try:
        with threadpool_limits(2, user_api="blas"):
            usual = _blas_threads()
            with keep_event_loop_responsive():
                assert gc.get_freeze_count() > frozen
                assert sys.getswitchinterval() < before
                assert _blas_threads() == {1}
            assert _blas_threads() == usual == {2}
    finally:
        gc.unfreeze()
        sys.setswitchinterval(before)
