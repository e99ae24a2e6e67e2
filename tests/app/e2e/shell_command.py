"""The command `lrbs` of shell programs, started by the process of the tests, which forks it."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from tests.app.e2e.conftest import LRBS, ROOT

_MOST_BYTES = 1 << 16
_SCRIPT = """#!{python} -IS
import json, os, signal, socket, sys
if os.environ["PYTHONPATH"] != {root!r}:  # what is on it, a fork would not import
    os.execv(sys.executable, [sys.executable, *{command!r}, *sys.argv[1:]])
settings = {{name: value for name, value in os.environ.items() if name.startswith(("LOKY_", "LRBS_"))}}
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as call:
    call.connect({address!r})
    socket.send_fds(call, [json.dumps([sys.argv[1:], os.getcwd(), settings]).encode()], [0, 1, 2])
    process = int(call.recv(32))
    signal.signal(signal.SIGTERM, lambda number, _: os.kill(process, number))
    sys.exit(int(call.recv(32)))
"""


@contextlib.contextmanager
def shell_command(folder: Path) -> Iterator[None]:
    """Put the command into a folder, and run it for whoever calls it until the block ends."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as calls:
        address = folder / "socket"
        calls.bind(str(address))
        calls.listen()
        command = folder / "lrbs"
        command.write_text(
            _SCRIPT.format(python=sys.executable, root=str(ROOT), command=LRBS[1:], address=str(address))
        )
        command.chmod(0o755)
        threading.Thread(target=_answer, args=(calls,), daemon=True).start()
        yield
        calls.shutdown(socket.SHUT_RDWR)


def _answer(calls: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the block ended
        while True:
            threading.Thread(target=_run, args=(calls.accept()[0],), daemon=True).start()


def _run(call: socket.socket) -> None:
    with call:
        message, streams, _, _ = socket.recv_fds(call, _MOST_BYTES, 3)
        arguments, folder, settings = json.loads(message)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("LRBS_")}
        process = subprocess.Popen(
            [*LRBS, *arguments],
            cwd=folder,
            env={**kept, **settings},
            stdin=streams[0],
            stdout=streams[1],
            stderr=streams[2],
        )
        for stream in streams:
            os.close(stream)
        call.send(str(process.pid).encode())
        call.send(str(process.wait()).encode())
