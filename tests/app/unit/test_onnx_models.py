import gc
import os
import weakref
from pathlib import Path

import pytest

from app.domain.errors import EncoderUnavailableError, InvalidFieldError
from app.encoders.onnx_models import MOST_SESSIONS, OnnxModels
from app.encoders.registry import ContentLimits, EncoderRegistry
from tests.app.onnx_files import flattening_model

pytestmark = pytest.mark.usefixtures("onnxruntime")


@pytest.fixture
def registry() -> EncoderRegistry:
    return EncoderRegistry(ContentLimits(10**6, 10**6, 1000))


def test_a_few_models_are_held_and_those_not_used_leave_memory(tmp_path: Path) -> None:
    models, first = OnnxModels(), tmp_path / "0.onnx"
    paths = [tmp_path / f"{number}.onnx" for number in range(MOST_SESSIONS + 3)]
    for side, path in enumerate(paths, start=1):
        path.write_bytes(flattening_model(side))
    hashes = [models.sha256(path) for path in paths]
    evicted = weakref.ref(models.session(paths[1], hashes[1]).runtime)
    kept = models.session(first, hashes[0])
    for path, sha256 in zip(paths[2:], hashes[2:], strict=True):
        models.session(path, sha256)
        assert models.session(first, hashes[0]) is kept
    gc.collect()
    assert evicted() is None
    assert not models.has_room()
    assert models.session(paths[1], hashes[1]).outputs == ("features",)


def test_the_same_file_is_held_once_wherever_it_lies(tmp_path: Path) -> None:
    models = OnnxModels()
    paths = [tmp_path / name for name in ("a.onnx", "b.onnx")]
    for path in paths:
        path.write_bytes(flattening_model(4))
    assert models.session(paths[0], None) is models.session(paths[1], None)


def test_another_file_under_the_same_name_is_noticed_though_its_time_and_size_are_the_same(
    tmp_path: Path,
) -> None:
    models, path, other = OnnxModels(), tmp_path / "a.onnx", tmp_path / "other"
    path.write_bytes(flattening_model(4, "Neg"))
    other.write_bytes(flattening_model(4, "Abs"))
    before = models.sha256(path)
    session = models.session(path, before)
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    other.replace(path)
    os.utime(path, ns=times)
    assert models.sha256(path) != before
    assert models.session(path, before) is session, "what is held is what was asked for"
    with pytest.raises(EncoderUnavailableError, match="not the one"):
        OnnxModels().session(path, before)


def test_an_encoder_of_an_earlier_release_knows_no_hash_and_takes_that_of_its_file(
    registry: EncoderRegistry, tmp_path: Path
) -> None:
    path = tmp_path / "a.onnx"
    options = {"type": "onnx", "path": str(path), "size": 8}
    assert registry.restored(options, {}).fault() is not None
    path.write_bytes(flattening_model(8))
    encoder = registry.restored(options, {})
    assert encoder.fault() is None
    settled = registry.settled(options)
    assert encoder.state() == {"sha256": settled["sha256"]}
    path.write_bytes(flattening_model(8, "Neg"))
    assert encoder.fault() is None
    assert "not the one" in str(registry.restored(options, {"sha256": settled["sha256"]}).fault())


def test_a_hash_that_the_file_does_not_have_is_refused(registry: EncoderRegistry, tmp_path: Path) -> None:
    path = tmp_path / "a.onnx"
    path.write_bytes(flattening_model(8))
    with pytest.raises(InvalidFieldError, match=r"encoder\.sha256"):
        registry.settled({"type": "onnx", "path": str(path), "size": 8, "sha256": "0" * 64})
