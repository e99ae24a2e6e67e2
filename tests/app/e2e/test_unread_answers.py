"""Clients that ask for much and do not read it."""

import contextlib
import json
import re
import socket
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import httpx


def test_unread_answers_are_refused_then_dropped_and_others_go_on(
    create_admin_key: Callable[[], str], start_server: Callable[..., Any]
) -> None:
    key = create_admin_key()
    url = start_server("--no-worker", LRBS_MAX_BODY_BYTES=str(6 << 20), LRBS_BODY_PAUSE_SECONDS="3").url
    texts = "text " * 3999
    with httpx.Client(
        base_url=url, headers={"Authorization": f"Bearer {key}"}, trust_env=False, timeout=60.0
    ) as client:
        modalities = {"image": {"encoder": {"type": "vector"}}, "text": {"encoder": {"type": "tfidf"}}}
        client.post("/v1/collections", json={"name": "a", "modalities": modalities}).raise_for_status()
        items = [{"id": f"t{n}", "modality": "text", "text": texts} for n in range(250)]
        client.post("/v1/collections/a/items", json={"items": items}).raise_for_status()
        page = "/v1/collections/a/items?limit=250"
        assert len(client.get(page).content) > 4 << 20
        with contextlib.ExitStack() as open_connections:
            statuses, unread = [], []
            for _ in range(4):
                connection = open_connections.enter_context(socket.socket())
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                connection.settimeout(60.0)
                address = urlsplit(url)
                connection.connect((address.hostname, address.port))
                head = f"GET {page} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n\r\n"
                connection.sendall(head.encode())
                statuses.append(int(connection.recv(12).split()[1]))
                unread.append(connection)
            assert statuses == [200, 503, 503, 503]
            assert client.get("/v1/collections/a/items?limit=1").status_code == 200
            # The one that does not read is given up, which makes room for another.
            for _ in range(300):
                time.sleep(0.1)
                answer = client.get(page)
                if answer.status_code == 200:
                    break
            assert answer.status_code == 200, json.dumps(answer.json())
            got = 0
            with contextlib.suppress(ConnectionError):
                while piece := unread[0].recv(1 << 20):
                    got += len(piece)
            assert got < len(answer.content)
        running = re.findall(r'lrbs_queue_running\{lane="read"\} (\S+)', client.get("/metrics").text)
        assert [float(value) for value in running] == [0.0]


def test_small_answers_that_nobody_reads_are_dropped_too(start_server: Callable[..., Any]) -> None:
    url = start_server("--no-worker", LRBS_BODY_PAUSE_SECONDS="1").url
    address = urlsplit(url)
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        connection.settimeout(60.0)
        connection.connect((address.hostname, address.port))
        head = "GET /docs/assets/swagger-ui-bundle.js HTTP/1.1\r\nHost: x\r\nRange: bytes=0-60000\r\n\r\n"
        # The last of the first requests is begun when nothing can be written any more.
        for count in (31, 20):
            with contextlib.suppress(OSError):
                connection.sendall(head.encode() * count)
            time.sleep(2.0)
        with httpx.Client(base_url=url, trust_env=False) as client:
            for _ in range(300):
                time.sleep(0.1)
                if "lrbs_http_requests_in_progress 1.0" in client.get("/metrics").text:
                    return
            raise AssertionError(client.get("/metrics").text)
