import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from app.bootstrap import build
from app.client import Client
from app.domain.names import Scope
from app.main import create_app
from app.settings import DATABASE_FILE, Settings
from solver.datasets import make_low_rank_pairs
from tests.app.conftest import LrbsInside
from tests.app.e2e.browsing import Watch
from tests.app.e2e.refusals import (
    MAX_BODY,
    MAX_IMPORT,
    MAX_IMPORT_LINE,
    MAX_PICTURE,
    MAX_TEXT,
    Api,
    client_of,
)

ROOT = Path(__file__).parents[3]
LRBS = (sys.executable, "-m", "app.cli")
__all__ = ["LrbsInside"]
START_SECONDS = 120.0
PER_KIND = 10
"""Pictures of the demo: as few as it draws."""


def environment_of(data_dir: Path) -> dict[str, str]:
    """Return the settings of a process of the command line: its folder, a free port, one server process."""
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("LRBS_")},
        "LRBS_DATA_DIR": str(data_dir),
        "LRBS_PORT": "0",
        "LRBS_PROCESSES": "1",
        "PYTHONUNBUFFERED": "1",
    }


class Server:
    """A real process of the command line that serves on a free port."""

    def __init__(
        self, data_dir: Path, arguments: tuple[str, ...], command: tuple[str, ...] = LRBS, **settings: str
    ) -> None:
        data_dir.mkdir(parents=True, exist_ok=True)
        self._log = data_dir / f"{time.monotonic_ns()}.log"
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, *arguments],
                cwd=ROOT,
                env={**environment_of(data_dir), **settings},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.url = ""

    def said(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    def wait_until_ready(self, seconds: float = START_SECONDS) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise AssertionError(f"ended with {self.process.returncode}:\n{self.said()}")
            found = re.search(r"LRBS serves on (http://[\w.:]+)", self.said())
            if found and _is_ready(found[1]):
                self.url = found[1]
                return
            time.sleep(0.05)
        raise AssertionError(f"not ready after {seconds} s:\n{self.said()}")

    def client(self, key: str) -> Client:
        """Return a client of this server that sends every call once: what is turned away is not hidden."""
        return Client(self.url, key, patience=0.0)

    def kill(self) -> None:
        """End the server alone, the way a crash does; its worker notices by itself."""
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        """End the server and everything it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@contextlib.contextmanager
def servers() -> Iterator[Callable[..., Server]]:
    """Yield a function that starts a server and waits until it is ready; all are ended."""
    started: list[Server] = []

    def start(*arguments: Any, **settings: str) -> Server:
        started.append(Server(*arguments, **settings))
        started[-1].wait_until_ready()
        return started[-1]

    try:
        yield start
    finally:
        for server in started:
            server.end()


def _is_ready(url: str) -> bool:
    # Not verifying what is not encrypted spares each look the certificates, which take 17 milliseconds.
    try:
        return httpx.get(f"{url}/readyz", trust_env=False, verify=False, timeout=30.0).status_code == 200
    except httpx.TransportError:
        return False


@pytest.fixture
def lrbs_process(tmp_path: Path) -> LrbsInside:
    """Run the command line as a process of its own."""

    def run(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
        command, environment = [*LRBS, *arguments], {**environment_of(tmp_path / "data"), **settings}
        return subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False
        )

    return run


def said(done: subprocess.CompletedProcess[str]) -> str:
    """Return what a command that succeeded printed."""
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def archive_of_pairs(path: Path) -> str:
    """Save an archive of pairs of three classes, a quarter of them to test with, and return its path."""
    data = make_low_rank_pairs(60, 60, n_features_x=8, n_features_z=6, n_classes=3, random_state=1)
    order = np.argsort(data.z_labels, kind="stable")[np.argsort(np.argsort(data.x_labels, kind="stable"))]
    fit, rest, labels = slice(0, 45), slice(45, 60), data.x_labels
    arrays = {"x_tr": data.X[fit], "x_te": data.X[rest], "y_tr": labels[fit], "y_te": labels[rest]}
    np.savez(path, **arrays, z_tr=data.Z[order][fit], z_te=data.Z[order][rest])
    return str(path)


@pytest.fixture
def create_admin_key(tmp_path: Path, copy_migrated: Callable[[Path], None]) -> Callable[[], str]:
    """Return a function that makes a key over this test's folder, where the command is not what is tested."""

    def create() -> str:
        folder = tmp_path / "data"
        if not (folder / DATABASE_FILE).exists():
            copy_migrated(folder)
        services = build(Settings(data_dir=folder, database_url=""))
        _, secret = services.access.create(Scope.ADMIN)
        services.database.engine.dispose()
        return secret

    return create


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Return a function that starts `lrbs serve` over this test's folder."""
    with servers() as start:
        yield lambda *options, **settings: start(tmp_path / "data", ("serve", *options), **settings)


@pytest.fixture(scope="module")
def lasting_server(
    tmp_path_factory: pytest.TempPathFactory, copy_migrated: Callable[[Path], None]
) -> Iterator[tuple[Server, str]]:
    """A real server that gives a body up after a pause of two seconds, and an admin key."""
    folder = tmp_path_factory.mktemp("served")
    copy_migrated(folder)
    services = build(Settings(data_dir=folder, database_url=""))
    _, key = services.access.create(Scope.ADMIN)
    services.database.engine.dispose()
    with servers() as start:
        yield start(folder, ("serve", "--no-worker"), LRBS_BODY_PAUSE_SECONDS="2"), key


@pytest.fixture(scope="module")
def lasting_api(
    tmp_path_factory: pytest.TempPathFactory, copy_migrated: Callable[[Path], None]
) -> Iterator[Api]:
    """A client of a service with small limits and two collections, for requests that are refused."""
    folder = tmp_path_factory.mktemp("lasting")
    copy_migrated(folder)
    settings = Settings(
        data_dir=folder,
        database_url="",
        open_search=False,
        max_body_bytes=MAX_BODY,
        max_import_bytes=MAX_IMPORT,
        max_import_line_bytes=MAX_IMPORT_LINE,
        max_picture_bytes=MAX_PICTURE,
        max_picture_pixels=1_000_000,
        max_text_chars=MAX_TEXT,
        max_batch=5,
    )
    services = build(settings)
    keys = {scope: services.access.create(scope)[1] for scope in Scope}
    headers = {"Authorization": f"Bearer {keys[Scope.ADMIN]}"}
    with client_of(create_app(services), headers) as client:
        made = Api(client, keys, folder)
        made.begin()
        yield made
    services.database.engine.dispose()


@pytest.fixture
def api(lasting_api: Api) -> Api:
    """As `lasting_api`, with collections that nothing was written to."""
    lasting_api.begin()
    return lasting_api


def check_demo(data_dir: Path) -> tuple[int, dict[str, Any]]:
    """Run `lrbs demo --check`; return its exit status and the summary it printed."""
    done = subprocess.run(
        [*LRBS, "demo", "--check", "--per-kind", str(PER_KIND)],
        cwd=ROOT,
        env=environment_of(data_dir),
        capture_output=True,
        text=True,
        timeout=600,
    )
    return done.returncode, json.loads(done.stdout or "{}") | {"stderr": done.stderr}


@pytest.fixture(scope="session")
def drawn_demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data folder of a demo, only to be copied: one for all processes of this run. Beside it, as JSON, is
    what the check returned that drew it."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "drawn-demo"
    checked = folder.with_suffix(".json")
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not checked.exists():
            shutil.rmtree(folder, ignore_errors=True)
            checked.write_text(json.dumps(check_demo(folder)))
    return folder


# For a module: its processes look for work all the time, which takes two percent of a core.
@pytest.fixture(scope="module")
def _demo(tmp_path_factory: pytest.TempPathFactory, drawn_demo: Path) -> Iterator[tuple[str, str, Path]]:
    folder, arguments = tmp_path_factory.mktemp("demo"), ("demo", "--no-open", "--per-kind", str(PER_KIND))
    shutil.copytree(drawn_demo, folder, dirs_exist_ok=True)
    server = Server(folder, arguments, LRBS_APPROXIMATE_FROM_ITEMS="2500")
    try:
        server.wait_until_ready(300.0)
        key = re.search(r"admin key \(shown this once[^)]*\): (\S+)", server.said())
        assert key is not None, server.said()
        yield server.url, key[1], folder
    finally:
        server.end()


@pytest.fixture(scope="module")
def demo_server(_demo: tuple[str, str, Path]) -> str:
    """Base URL of a demo with ten pictures of each kind."""
    return _demo[0]


@pytest.fixture(scope="module")
def demo_key(_demo: tuple[str, str, Path]) -> str:
    """Admin key of `demo_server`."""
    return _demo[1]


@pytest.fixture(scope="module")
def demo_folder(_demo: tuple[str, str, Path]) -> Path:
    """Data folder of `demo_server`."""
    return _demo[2]


@pytest.fixture(scope="module")
def client(demo_server: str, demo_key: str) -> Iterator[Client]:
    """A client of `demo_server` that sends every call once."""
    with Client(demo_server, demo_key, patience=0.0) as client:
        yield client


# Not for longer: its event loop would stand in the way of those of other tests.
@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Browser]:
    """A headless Chromium; its pages are given time on a busy machine."""
    expect.set_options(timeout=60_000)
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
        )
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def _context(browser: Browser) -> BrowserContext:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(60_000)
    return context


@pytest.fixture
def page(_context: BrowserContext) -> Iterator[Page]:
    """A tab of its own, and with it a key of its own; the files of the pages are in a cache they share."""
    page = _context.new_page()
    yield page
    page.close()
    _context.clear_permissions()


@pytest.fixture
def watch(page: Page) -> Watch:
    return Watch(page)
