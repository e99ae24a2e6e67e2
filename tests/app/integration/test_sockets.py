"""The sockets that requests come in by."""

import asyncio
import socket
from pathlib import Path

import pytest

from app.cli.serve import bound_socket
from app.settings import Settings


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
