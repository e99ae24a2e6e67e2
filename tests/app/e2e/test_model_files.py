"""What the file of an encoder is, or becomes, is never felt by other collections, nor by who watches."""

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from app.bootstrap import build
from app.domain.names import Scope
from app.encoders.model_files import MAX_BYTES
from app.settings import Settings
from solver.datasets import SyntheticPairs, make_low_rank_pairs
from tests.app.e2e.conftest import Server
from tests.app.integration.conftest import Pairs
from tests.app.integration.test_onnx_files import SEARCH, picture, shop

pytestmark = pytest.mark.usefixtures("onnxruntime")

VECTOR = {"encoder": {"type": "vector"}}


@pytest.fixture
def key(tmp_path: Path, copy_migrated: Callable[[Path], None]) -> Iterator[str]:
    """A key of a service with a collection of pictures, whose model is `weights.onnx`, and one beside it."""
    data: SyntheticPairs = make_low_rank_pairs(
        60, 60, n_features_x=3, n_features_z=3, n_classes=2, random_state=1
    )
    copy_migrated(tmp_path / "data")
    services = build(Settings(data_dir=tmp_path / "data", database_url=""))
    shop(Pairs(services, data), tmp_path / "weights.onnx")
    yield services.access.create(Scope.ADMIN)[1]
    services.database.engine.dispose()


def reason_of(url: str) -> str:
    answer = httpx.get(f"{url}/readyz", trust_env=False, verify=False, timeout=30.0)
    assert answer.status_code == 200, answer.text
    return str(answer.json().get("reason", ""))


def wait_for_reason(url: str, is_expected: Callable[[str], bool]) -> None:
    deadline = time.monotonic() + 120.0
    while not is_expected(reason := reason_of(url)):
        assert time.monotonic() < deadline, reason
        time.sleep(0.2)


def test_a_large_file_that_is_written_in_place_keeps_nobody_waiting(
    key: str, start_server: Callable[..., Server], tmp_path: Path
) -> None:
    path = tmp_path / "weights.onnx"
    right = path.read_bytes()
    url = start_server().url
    with httpx.Client(
        base_url=url, headers={"Authorization": f"Bearer {key}"}, trust_env=False, timeout=60.0
    ) as client:

        def found() -> list[int]:
            answers = [client.post(SEARCH, json={"image_base64": picture(60)}), client.get("/metrics")]
            return [answer.status_code for answer in answers]

        assert found() == [200, 200]
        assert reason_of(url) == ""
        for size, rounds in ((4 * MAX_BYTES, 4), (MAX_BYTES, 6)):
            os.truncate(path, size)
            for _ in range(rounds):
                os.utime(path)  # as at each write of a copy that goes on
                reason_of(url)
                assert found() == [200, 200]
                time.sleep(0.3)
            if size > MAX_BYTES:
                wait_for_reason(url, lambda reason: f"expected 1 to {MAX_BYTES}" in reason)
        wait_for_reason(url, lambda reason: "is not the one" in reason)
        assert found() == [200, 200], "the right model is held"
        path.write_bytes(right)
        wait_for_reason(url, lambda reason: not reason)


def test_a_path_that_is_no_file_is_refused_and_holds_no_place(
    key: str, start_server: Callable[..., Server], tmp_path: Path
) -> None:
    pipes = [tmp_path / f"pipe{number}" for number in range(4)]
    for pipe in pipes:
        os.mkfifo(pipe)
    large = tmp_path / "large"
    large.touch()
    os.truncate(large, MAX_BYTES + 1)
    url = start_server().url
    with httpx.Client(
        base_url=url, headers={"Authorization": f"Bearer {key}"}, trust_env=False, timeout=30.0
    ) as client:

        def create(name: str, encoder: dict[str, object]) -> httpx.Response:
            modalities = {"image": {"encoder": encoder}, "text": VECTOR}
            return client.post("/v1/collections", json={"name": name, "modalities": modalities})

        paths = [*pipes, Path("/dev/zero"), tmp_path, large]
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda path: create("new", {"type": "onnx", "path": str(path)}), paths))
        for answer in answers:
            assert answer.status_code == 422, answer.text
            assert answer.json()["field"] == "modalities.image.encoder.path"
        assert f"expected 1 to {MAX_BYTES}" in answers[-1].text
        assert create("new", {"type": "vector"}).status_code == 201
