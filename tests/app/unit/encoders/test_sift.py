import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from app.cli.main import cli
from app.domain.entities import Content
from app.domain.errors import InvalidFieldError
from app.encoders.registry import ContentLimits, EncoderRegistry
from app.encoders.types.sift_bovw import dense_descriptors

REGISTRY = EncoderRegistry(ContentLimits(10**6, 10**6, 1000))


def drawing(kind: str, seed: int) -> Image.Image:
    """Stripes or dots of some width, somewhere."""
    random = np.random.default_rng(seed)
    rows, columns = np.indices((96, 96)) + random.integers(0, 20, (2, 1, 1))
    width = int(random.integers(10, 14))
    pattern = columns % width < width // 2
    if kind == "dots":
        pattern = pattern & (rows % width < width // 2)
    return Image.fromarray((pattern * 200 + random.integers(0, 10, pattern.shape)).astype(np.uint8)).convert(
        "RGB"
    )


def stored(picture: Image.Image) -> bytes:
    stream = io.BytesIO()
    picture.save(stream, "PNG")
    return stream.getvalue()


@pytest.fixture(scope="module")
def codebook(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    for kind in ("stripes", "dots"):
        for seed in range(4):
            (folder / f"{kind}{seed}.png").write_bytes(stored(drawing(kind, seed)))
    (folder / "damaged.png").write_bytes(b"no picture")
    output = folder / "codebook.npy"
    run = CliRunner().invoke(cli, ["codebook", str(folder), str(output), "--words", "30", "--json"])
    assert run.exit_code == 0, run.output
    assert "damaged.png" in run.stderr
    assert json.loads(run.stdout) == {"output": str(output), "words": 30}
    assert np.load(output).shape == (30, 128)
    return output


def test_pictures_of_one_texture_share_their_words(codebook: Path) -> None:
    options = REGISTRY.settle({"type": "sift-bovw", "path": str(codebook)})
    kinds = ["stripes", "dots"] * 4
    contents = [Content(picture=stored(drawing(kind, 10 + seed))) for seed, kind in enumerate(kinds)]
    features = REGISTRY.make(options).encode(contents)
    np.testing.assert_allclose(np.linalg.norm(features, axis=1), 1.0, rtol=1e-6)
    similarity = features @ features.T
    np.fill_diagonal(similarity, -1.0)
    assert [kinds[nearest] for nearest in np.argmax(similarity, axis=1)] == kinds


def test_descriptors_are_the_same_for_a_brighter_picture_and_none_for_one_of_one_colour() -> None:
    picture = drawing("dots", 0).point(lambda level: level // 2)
    brighter = picture.point(lambda level: level + 50)
    np.testing.assert_allclose(dense_descriptors(picture), dense_descriptors(brighter), atol=1e-3)
    assert dense_descriptors(Image.new("RGB", (30, 50), "red")).shape == (0, 128)


def test_a_picture_of_one_colour_has_no_words(codebook: Path) -> None:
    encoder = REGISTRY.make({"type": "sift-bovw", "path": str(codebook)})
    assert not encoder.encode([Content(picture=stored(Image.new("RGB", (30, 50), "red")))]).any()


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (np.zeros((3, 127), np.float32), r"its shape is \(3, 127\)"),
        (np.zeros(128, np.float32), r"its shape is \(128,\)"),
        (
            np.zeros((10_001, 128), np.float32),
            r"its shape is \(10001, 128\), expected 1 to 10000 rows of 128",
        ),
        (np.zeros((3, 128)), "it holds float64, expected float32"),
        (np.full((3, 128), np.inf, np.float32), "it is not finite"),
        (np.array([{"a": 1}]), ""),
    ],
    ids=str,
)
def test_a_file_that_is_no_codebook_is_refused(tmp_path: Path, values: Any, reason: str) -> None:
    path = tmp_path / "c.npy"
    np.save(path, values, allow_pickle=True)
    with pytest.raises(
        InvalidFieldError, match=rf"^encoder\.path: c\.npy is not a usable codebook: .*{reason}"
    ):
        REGISTRY.settle({"type": "sift-bovw", "path": str(path)})


def test_an_archive_or_half_a_file_is_no_codebook(tmp_path: Path) -> None:
    path = tmp_path / "c.npy"
    with path.open("wb") as file:
        np.savez(file, np.zeros((3, 128), np.float32))
    for _ in range(2):
        with pytest.raises(InvalidFieldError, match=r"^encoder\.path: c\.npy is not a usable codebook: "):
            REGISTRY.settle({"type": "sift-bovw", "path": str(path)})
        np.save(path, np.zeros((3, 128), np.float32))
        path.write_bytes(path.read_bytes()[:-1])


def test_a_folder_without_pictures_or_with_too_few_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(stored(Image.new("RGB", (8, 8), "red")))
    output = str(tmp_path / "c.npy")
    for folder, message in ((tmp_path / "none", "holds no picture"), (tmp_path, "fewer than 500 words")):
        run = CliRunner().invoke(cli, ["codebook", str(folder), output])
        assert run.exit_code == 1
        assert message in str(run.exception)
    assert not Path(output).exists()
