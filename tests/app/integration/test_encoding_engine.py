"""Originals encoded by Dask workers that have neither the database nor the files."""

import io
import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from app.bootstrap import build
from app.domain.entities import Content
from app.domain.errors import EncoderUnavailableError
from app.encoders.registry import ContentLimits, EncoderRegistry
from app.encoders.types.hog_color import HogColorEncoder
from app.engines.dask_encoding import encode_on_workers
from solver import DaskEngine
from tests.app.closing import close
from tests.app.integration.conftest import Pairs
from tests.app.integration.in_process import run_here
from tests.app.integration.test_changed_encoders import CHANGED, PLAIN, TWICE, change, encoders_of, right
from tests.app.integration.test_encoders_in_service import shop
from tests.dask_cluster import Cluster

LIMITS = ContentLimits(1 << 20, 1 << 20, 1000)


def photograph(seed: int) -> bytes:
    stored = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 255, (96, 96, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(stored, "PNG")
    return stored.getvalue()


@pytest.fixture(scope="module")
def cluster(distributed: Any) -> Iterator[Cluster]:
    cluster = Cluster()
    cluster.start()
    yield cluster
    cluster.kill()


def refuse(*_: object) -> None:
    raise AssertionError("encoded in this process")


def test_a_training_encodes_originals_on_workers_as_it_would_itself(
    pairs: Pairs, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = shop(pairs, {"type": "tfidf"}, PLAIN)
    changes = {"training_engine": "dask", "dask_scheduler": cluster.address}
    remote = build(pairs.services.settings.model_copy(update=changes))
    with monkeypatch.context() as here:
        here.setattr("app.services.training.reencoding._LEAST_ELSEWHERE", 24)
        here.setattr(HogColorEncoder, "encode_to_store", refuse)
        here.setattr(HogColorEncoder, "encode", refuse)
        change(pairs, CHANGED, lambda _: run_here(remote))
    assert encoders_of(client) == {"image": "combine", "text": "word-frequency"}
    right(client)
    with remote.database.read() as work:
        collection = work.collections.get("shop")
        images = collection.modalities[0]
        encoded = work.encoded.find(collection, images, sorted(work.encoded.hashes(collection, images)))
    encoder, pictures = EncoderRegistry(LIMITS).make(TWICE), remote.settings.data_dir / "pictures"
    for digest, features in encoded.items():
        (file,) = pictures.rglob(digest)
        expected = encoder.encode_to_store([Content(picture=file.read_bytes())])
        np.testing.assert_array_equal(features, expected[0])
    assert len(encoded) == 24
    close(remote)


def test_workers_that_are_killed_or_lack_a_file_lose_nothing(cluster: Cluster, tmp_path: Path) -> None:
    opened: list[DaskEngine] = []

    def open_engine() -> DaskEngine:
        opened.append(DaskEngine(cluster.address))
        return opened[-1]

    encode = partial(encode_on_workers, open_engine, LIMITS)
    batches = [[Content(picture=photograph(number)) for number in range(4)] for _ in range(60)]
    encoded = encode(PLAIN, batches)
    first = next(encoded)
    pids = opened[0].client.run(os.getpid)
    os.kill(next(iter(pids.values())), signal.SIGKILL)
    rest = list(encoded)
    assert len(rest) == 59
    np.testing.assert_array_equal(first, EncoderRegistry(LIMITS).make(PLAIN).encode_to_store(batches[0]))
    for features in rest:
        np.testing.assert_array_equal(features, first)

    lacking = {"type": "onnx", "path": str(tmp_path / "none.onnx"), "sha256": "0" * 64}
    with pytest.raises(EncoderUnavailableError, match=r"a Dask worker cannot encode: .*none\.onnx"):
        list(encode(lacking, batches[:2]))
    assert [len(features) for features in encode(PLAIN, batches[:2])] == [4, 4]
