import gc
import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.domain.errors import EncoderUnavailableError, InvalidFieldError
from app.encoders.base import BaseEncoder
from app.encoders.model_files import MAX_BYTES, MOST_LOADED, LoadedFiles, hash_of, load_session, signature_of
from app.encoders.registry import ContentLimits, EncoderRegistry
from tests.app.onnx_files import flattening_model, wait_for_looks

pytestmark = pytest.mark.usefixtures("onnxruntime")


@pytest.fixture
def registry() -> EncoderRegistry:
    return EncoderRegistry(ContentLimits(10**6, 10**6, 1000))


def found_fault(encoder: BaseEncoder) -> str | None:
    """What a look that begins now finds."""
    wait_for_looks()
    encoder.fault()
    wait_for_looks()
    return encoder.fault()


@contextmanager
def written_to(path: Path) -> Iterator[None]:
    """Write to a file again and again meanwhile, as a copy in place does."""
    stop = threading.Event()

    def write() -> None:
        while not stop.wait(0.01):
            os.utime(path)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_a_few_models_are_held_and_those_not_used_leave_memory(tmp_path: Path) -> None:
    models, first = LoadedFiles(load_session), tmp_path / "0.onnx"
    paths = [tmp_path / f"{number}.onnx" for number in range(MOST_LOADED + 3)]
    for side, path in enumerate(paths, start=1):
        path.write_bytes(flattening_model(side))
    hashes = [models.sha256(path) for path in paths]
    evicted = weakref.ref(models.get(paths[1], hashes[1]).runtime)
    kept = models.get(first, hashes[0])
    for path, sha256 in zip(paths[2:], hashes[2:], strict=True):
        models.get(path, sha256)
        assert models.get(first, hashes[0]) is kept
    gc.collect()
    assert evicted() is None
    assert not models.has_room()
    assert models.get(paths[1], hashes[1]).outputs == ("features",)


def test_the_same_file_is_held_once_wherever_it_lies(tmp_path: Path) -> None:
    models = LoadedFiles(load_session)
    paths = [tmp_path / name for name in ("a.onnx", "b.onnx")]
    for path in paths:
        path.write_bytes(flattening_model(4))
    assert models.get(paths[0], None) is models.get(paths[1], None)


def test_another_file_under_the_same_name_is_noticed_though_its_time_and_size_are_the_same(
    tmp_path: Path,
) -> None:
    models, path, other = LoadedFiles(load_session), tmp_path / "a.onnx", tmp_path / "other"
    path.write_bytes(flattening_model(4, "Neg"))
    other.write_bytes(flattening_model(4, "Abs"))
    before = models.sha256(path)
    session = models.get(path, before)
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    other.replace(path)
    os.utime(path, ns=times)
    assert models.sha256(path) != before
    assert models.get(path, before) is session, "what is held is what was asked for"
    with pytest.raises(EncoderUnavailableError, match="not the one"):
        LoadedFiles(load_session).get(path, before)


def test_an_encoder_of_an_earlier_release_knows_no_hash_and_takes_that_of_its_file(
    registry: EncoderRegistry, tmp_path: Path
) -> None:
    path = tmp_path / "a.onnx"
    options = {"type": "onnx", "path": str(path), "size": 8}
    assert found_fault(registry.restore(options, {})) is not None
    path.write_bytes(flattening_model(8))
    encoder = registry.restore(options, {})
    assert found_fault(encoder) is None
    settled_hash = {"sha256": registry.settle(options)["sha256"]}
    assert encoder.state() == settled_hash
    path.write_bytes(flattening_model(8, "Neg"))
    assert found_fault(encoder) is None
    assert "not the one" in str(found_fault(registry.restore(options, settled_hash)))


def test_a_look_takes_no_time_of_who_asks_and_a_file_that_still_changes_is_not_hashed(tmp_path: Path) -> None:
    models, path = LoadedFiles(load_session), tmp_path / "a.onnx"
    path.write_bytes(flattening_model(8))
    with written_to(path):
        assert models.fault(path, "0" * 64) is None, "nothing is known yet"
        wait_for_looks()
        assert "is being replaced" in str(models.fault(path, "0" * 64))
        wait_for_looks()
    models.fault(path, "0" * 64)
    wait_for_looks()
    assert "not the one" in str(models.fault(path, "0" * 64))
    assert "not the one" in str(models.fault(path, "0" * 64)), "known until the next look has ended"
    assert [thread.name for thread in threading.enumerate()].count("look-at-model") <= 1
    wait_for_looks()


def test_a_file_that_changes_while_it_is_hashed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.onnx"
    with path.open("wb") as file:
        file.truncate(MAX_BYTES)
    signature = signature_of(path)
    with written_to(path), pytest.raises(EncoderUnavailableError, match="being replaced"):
        hash_of(path, signature)


def test_only_regular_files_of_a_bounded_size_are_opened(tmp_path: Path) -> None:
    large, empty, pipe = (tmp_path / name for name in ("large", "empty", "pipe"))
    empty.touch()
    with large.open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    os.mkfifo(pipe)
    for path, reason in (
        (large, f"{MAX_BYTES + 1} bytes, expected 1 to {MAX_BYTES}"),
        (empty, "0 bytes"),
        (pipe, "no regular file"),
        (tmp_path, "no regular file"),
        (Path("/dev/zero"), "no regular file"),
    ):
        with pytest.raises(EncoderUnavailableError, match=reason):
            LoadedFiles(load_session).sha256(path)
    path = tmp_path / "a.onnx"
    path.write_bytes(flattening_model(8))
    signature = signature_of(path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(EncoderUnavailableError, match="being replaced"):
        hash_of(path, signature)


def test_a_hash_that_the_file_does_not_have_is_refused(registry: EncoderRegistry, tmp_path: Path) -> None:
    path = tmp_path / "a.onnx"
    path.write_bytes(flattening_model(8))
    with pytest.raises(InvalidFieldError, match=r"encoder\.sha256"):
        registry.settle({"type": "onnx", "path": str(path), "size": 8, "sha256": "0" * 64})
