"""Programs of the house, forked from a process that has imported them, which is this file run as a program:
each takes a second of processor less than one that imports it again."""

import atexit
import contextlib
import ctypes
import dataclasses
import faulthandler
import fcntl
import gc
import importlib
import io
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
_STARTING = ("app.cli",)
"""Programs that start others."""
_PROGRAMS = (*_STARTING, "app.cli.bench.bare_endpoint", "app.worker.trainer")
_COMMANDS = ("demo", "serve", "worker")
"""Those whose modules are imported before."""
_NEEDED_LATER = ("alembic.command", "anyio._backends._asyncio", "psycopg", "solver.comparison", "uvloop")
"""What most of them import once they are at work."""
_IGNORES_INTERRUPTS = ("/bin/sh", "-c", 'trap "" INT; exec "$@"', "sh")
_READ_LATE = (
    "LRBS_",
    "AWS_",
    "KMP_",
    "LOKY_",
    "PROMETHEUS_MULTIPROC_DIR",
    "PYTEST_CURRENT_TEST",
    "PYTHONFAULTHANDLER",
    "PYTHONPATH",
    "PYTHONUNBUFFERED",
    "_RJEM_",  # of polars
)
"""How variables begin that change nothing of what a process imports, that an import sets, or that
`_read_environment` sees to."""
_MOST_BYTES = 1 << 17
"""Of a command with its environment."""
_ROOM_ARGUMENT, _ROOM_VARIABLE = " " * (1 << 14), "LRBS_ROOM_OF_A_FORK"
_FREE_DESCRIPTOR = 500
"""The first number that none of those has which a program inherits."""
_ADOPT_ORPHANS = 36
"""``PR_SET_CHILD_SUBREAPER`` of ``prctl``."""
_system = ctypes.CDLL(None, use_errno=True)
_really_start = subprocess._fork_exec  # type: ignore[attr-defined]


@dataclasses.dataclass(frozen=True)
class _Order:
    """A program to become."""

    module: str
    arguments: Sequence[str]
    environment: Mapping[str, str]
    folder: str | None
    ignores_interrupts: bool
    has_own_session: bool
    group: int
    kept: Sequence[int]
    """Descriptors beside the three streams."""


class _Origin:
    """The process that others are forked from, seen from its parent, who becomes theirs."""

    def __init__(self, asking: socket.socket, environment: Mapping[str, str]) -> None:
        self._asking = asking
        self._environment = _read_early(environment)
        self._busy = threading.Lock()

    @classmethod
    def start(cls) -> "_Origin":
        here, there = _pair()
        # Without the variable, NumPy has threads, of which a fork would have none.
        environment = {"OPENBLAS_NUM_THREADS": "1", **os.environ, _ROOM_VARIABLE: " " * (1 << 16)}
        with there:
            process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(there.fileno()), _ROOM_ARGUMENT],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                pass_fds=(there.fileno(),),
            )

        def end() -> None:
            here.close()
            process.wait()

        atexit.register(end)
        return cls(here, os.environ)

    def fork(self, order: _Order, streams: Sequence[int]) -> int | None:
        """Have a process forked that is a child of this one; None for what depends on its start."""
        # What prints looks at its import whether it prints to a terminal.
        if _read_early(order.environment) != self._environment or any(map(os.isatty, streams)):
            return None
        with self._busy:
            # The process is forked twice, and the one between ends: this one takes what that leaves behind.
            _system.prctl(_ADOPT_ORPHANS, 1, 0, 0, 0)
            try:
                told = json.dumps(dataclasses.asdict(order)).encode()
                socket.send_fds(self._asking, [told], [*streams, *order.kept])
                return int(self._asking.recv(_MOST_BYTES))
            finally:
                _system.prctl(_ADOPT_ORPHANS, 0, 0, 0, 0)


class _Forks:
    """Starts the programs of the house by forks, and everything else as `subprocess` does."""

    def __init__(self, origin: _Origin | None = None) -> None:
        self._origin = origin
        self._starting = threading.Lock()

    def start(self, arguments: Sequence[Any], *options: Any) -> int:
        """Take what `subprocess` gives to the function that starts a process, and return its number."""
        program = _program_of(arguments)
        (
            _executables,
            closes_files,
            kept,
            folder,
            environment,
            stdin,
            _stdin_end,
            _stdout_end,
            stdout,
            _stderr_end,
            stderr,
            _failure_end,
            failure,
            _restores_signals,
            has_own_session,
            group,
            *identity,
        ) = options
        is_plain = closes_files and identity[:5] == [None, None, None, -1, None]
        if program is None or not is_plain:
            return int(_really_start(arguments, *options))
        module, own, ignores_interrupts = program
        variables = os.environ if environment is None else _parsed(environment)
        order = _Order(
            module,
            own,
            dict(variables),
            None if folder is None else os.fsdecode(folder),
            ignores_interrupts,
            has_own_session,
            group,
            sorted(set(kept) - {failure}),
        )
        streams = [usual if given < 0 else given for usual, given in enumerate((stdin, stdout, stderr))]
        forked = self._started().fork(order, streams)
        return int(_really_start(arguments, *options)) if forked is None else forked

    def _started(self) -> _Origin:
        with self._starting:
            if self._origin is None:
                self._origin = _Origin.start()
            return self._origin


def fork_programs() -> None:
    """Have `subprocess` fork the programs of the house, in this process and in those it starts."""
    if sys.platform == "linux":
        subprocess._fork_exec = _Forks().start  # type: ignore[attr-defined]


def _pair() -> tuple[socket.socket, socket.socket]:
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for side in (here, there):
        side.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * _MOST_BYTES)
    return here, there


def _parsed(environment: Sequence[bytes]) -> dict[str, str]:
    pairs = (os.fsdecode(variable).partition("=") for variable in environment)
    return {name: value for name, _, value in pairs}


def _read_early(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that imports, or the start of the interpreter, may depend on."""
    return {name: value for name, value in environment.items() if not name.startswith(_READ_LATE)}


def _program_of(arguments: Sequence[Any]) -> tuple[str, Sequence[str], bool] | None:
    """Return which program is to be started, with what, and whether it ignores Ctrl-C."""
    command = tuple(map(os.fsdecode, arguments))
    ignores_interrupts = command[: len(_IGNORES_INTERRUPTS)] == _IGNORES_INTERRUPTS
    if ignores_interrupts:
        command = command[len(_IGNORES_INTERRUPTS) :]
    if command[:2] != (sys.executable, "-m") or command[2:3] == () or command[2] not in _PROGRAMS:
        return None
    return command[2], command[3:], ignores_interrupts


def _become_asked(asking: socket.socket, environment: Mapping[str, str]) -> _Order:
    """Fork a process for each command; returns in a forked one, which is to run that."""
    order, descriptors = _serve(asking)
    _join(order)
    while order.module in _STARTING:
        # It will have threads, of which a fork has none: first it gets an origin of its own.
        here, there = _pair()
        if os.fork():
            there.close()
            own = socket.socket(fileno=fcntl.fcntl(here, fcntl.F_DUPFD_CLOEXEC, _FREE_DESCRIPTOR))
            here.close()
            subprocess._fork_exec = _Forks(_Origin(own, environment)).start  # type: ignore[attr-defined]
            break
        here.close()
        for descriptor in descriptors:
            os.close(descriptor)
        order, descriptors = _serve(there)
        _join(order)
    _become(order, descriptors)
    return order


def _join(order: _Order) -> None:
    """Have the session and the group of processes that are asked for, as what is forked from here."""
    if order.has_own_session:
        os.setsid()
    if order.group >= 0:
        os.setpgid(0, order.group)


def _serve(asking: socket.socket) -> tuple[_Order, list[int]]:
    """Fork a process for each command, as a child of who asks for it; returns in a forked one."""
    while True:
        told, descriptors, _, _ = socket.recv_fds(asking, _MOST_BYTES, 64)
        if not told:
            os._exit(0)  # who asked has ended
        reading, writing = os.pipe()
        if between := os.fork():
            os.close(writing)
            number = os.read(reading, 32)
            os.waitpid(between, 0)
            asking.send(number)
            for descriptor in (reading, *descriptors):
                os.close(descriptor)
            continue
        between = os.getpid()
        if process := os.fork():
            os.write(writing, str(process).encode())
            os._exit(0)
        while os.getppid() == between:
            time.sleep(0.0002)
        for descriptor in (reading, writing):
            os.close(descriptor)
        asking.close()
        return _Order(**json.loads(told)), list(descriptors)


def _become(order: _Order, streams: Sequence[int]) -> None:
    """Make of this process what `subprocess.Popen` makes of a new one."""
    if not order.ignores_interrupts:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    _place(streams, [0, 1, 2, *order.kept])
    if order.folder is not None:
        os.chdir(order.folder)
    os.environ.clear()
    os.environ.update(order.environment)
    _show(48, [sys.executable, "-m", order.module, *order.arguments])
    _show(50, [f"{name}={value}" for name, value in order.environment.items()])
    _read_environment()
    sys.argv = ["-m", *order.arguments]


def _place(received: Sequence[int], numbers: Sequence[int]) -> None:
    """Give descriptors the numbers that they are known by."""
    beyond = max(*received, *numbers, 2) + 1
    # First out of the way of each other.
    moved = [os.dup2(descriptor, beyond + place) for place, descriptor in enumerate(received)]
    for descriptor in received:
        os.close(descriptor)
    for descriptor, number in zip(moved, numbers, strict=True):
        os.dup2(descriptor, number)
        os.close(descriptor)


def _show(field: int, texts: Sequence[str]) -> None:
    """Put into /proc what a process was started with: fields 48 and 50 of its status say where that is."""
    status = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    begin, end = (int(status[number - 3]) for number in (field, field + 1))
    shown = b"".join(os.fsencode(text) + b"\0" for text in texts)
    assert len(shown) < end - begin, "there is no room for it"
    ctypes.memset(begin, 0, end - begin)
    ctypes.memmove(begin, shown, len(shown))


def _read_environment() -> None:
    """See to what was read of the environment before."""
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name)
        if os.environ.get("PYTHONUNBUFFERED"):
            raw = io.FileIO(descriptor, "w", closefd=False)
            made = io.TextIOWrapper(raw, stream.encoding, stream.errors, write_through=True)  # type: ignore[type-var]
            setattr(sys, name, made)
        else:
            stream.reconfigure(line_buffering=name == "stderr" or os.isatty(descriptor))
    if os.environ.get("PYTHONFAULTHANDLER"):
        faulthandler.enable()
    values = importlib.import_module("prometheus_client.values")
    values.ValueClass = values.get_value_class()


def _main() -> None:
    environment = dict(os.environ)  # to which imports add
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # scikit-learn imports it where it is installed, and it a library with a thread; nothing forked needs it.
    sys.modules["pandas"] = None  # type: ignore[assignment]
    for name in ("app.cli.main", "app.cli.serve", "app.main"):
        importlib.import_module(name)
    for name in _NEEDED_LATER:
        with contextlib.suppress(ImportError):  # of an extra
            importlib.import_module(name)
    entries = importlib.import_module("app.cli.main").ENTRIES
    for command in _COMMANDS:
        importlib.import_module(f"app.cli.{entries[command].module}")
    for name in importlib.import_module("app.worker.trainer")._LEARNING:
        importlib.import_module(name)
    del sys.modules["app.worker.trainer"]  # it is run as a program
    del sys.modules["pandas"]
    gc.collect()
    gc.freeze()
    assert len(os.listdir("/proc/self/task")) == 1, (
        "a fork has none of the other threads, but what they locked"
    )
    order = _become_asked(socket.socket(fileno=int(sys.argv[1])), environment)
    runpy.run_module(order.module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main()
