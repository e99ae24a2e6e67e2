import contextlib
import io
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from app.domain.entities import Content
from app.domain.errors import EncoderUnavailableError, InvalidFieldError, ServiceError
from app.encoders.content import open_picture
from app.encoders.registry import ContentLimits, EncoderRegistry

ORIENTATION = 0x0112


def stored(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def opened(content: bytes) -> np.ndarray:
    return np.asarray(open_picture("p", content, 10**6))


def corners() -> Image.Image:
    pixels = np.zeros((16, 24, 3), np.uint8)
    pixels[:8, :12], pixels[:8, 12:], pixels[8:, :12] = (255, 0, 0), (0, 255, 0), (0, 0, 255)
    return Image.fromarray(pixels)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_picture_is_turned_as_its_exif_says(orientation: int) -> None:
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    back = {5: 5, 6: 8, 7: 7, 8: 6}.get(orientation, orientation)
    turns = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_270,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_90,
    }
    lying = corners() if back == 1 else corners().transpose(turns[back])
    np.testing.assert_array_equal(opened(stored(lying, exif=exif)), np.asarray(corners()))


def damaged_exifs() -> list[bytes]:
    exif = Image.Exif()
    exif[ORIENTATION], exif[0x010E], exif[0x8298] = 6, "desc", "c"
    content = stored(corners(), "JPEG", exif=exif)
    # Past "Exif", two zeros and the TIFF header: entries and their values.
    first = content.index(b"Exif") + 14
    after = content.index(b"Exif") - 2 + int.from_bytes(content[content.index(b"Exif") - 2 :][:2], "big")
    rng = np.random.default_rng(4)
    found = []
    for _ in range(400):
        mutant = bytearray(content)
        for place in rng.integers(first, after, 3):
            mutant[place] = rng.choice([0, 255, rng.integers(256)])
        found.append(bytes(mutant))
    return found


def test_a_damaged_exif_part_does_not_hide_the_picture() -> None:
    assert {opened(content).shape for content in damaged_exifs()} <= {(16, 24, 3), (24, 16, 3)}


def test_any_damage_is_a_refusal() -> None:
    rng = np.random.default_rng(5)
    sources = [stored(corners(), kind) for kind in ("JPEG", "PNG", "WEBP", "GIF", "BMP")]
    for _ in range(600):
        mutant = bytearray(sources[rng.integers(len(sources))])
        for place in rng.integers(0, min(len(mutant), 200), 4):
            mutant[place] = rng.integers(256)
        with contextlib.suppress(ServiceError):
            assert opened(bytes(mutant)).dtype == np.uint8


def test_sixteen_bits_of_grey_keep_their_shades() -> None:
    ramp = np.linspace(0, 65535, 64 * 64).reshape(64, 64).round().astype(np.uint16)
    found = opened(stored(Image.fromarray(ramp)))
    np.testing.assert_array_equal(found[..., 0], (ramp / 257.0).round())
    assert (found[..., 0] == found[..., 1]).all()


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_transparent_parts_show_a_white_page(mode: str) -> None:
    pixels = np.zeros((32, 32, 4), np.uint8)
    pixels[8:24, 8:24] = (90, 90, 90, 255)
    found = opened(stored(Image.fromarray(pixels).convert(mode)))
    assert found[0, 0].tolist() == [255, 255, 255]
    assert found[16, 16].tolist() == [90, 90, 90]


def field(number: int, value: bytes | int | str) -> bytes:
    """One field of a protocol buffer message."""
    if isinstance(value, int):
        return bytes([number << 3]) + varint(value)
    content = value.encode() if isinstance(value, str) else value
    return bytes([number << 3 | 2]) + varint(len(content)) + content


def varint(value: int) -> bytes:
    found = b""
    while value > 127:
        found += bytes([value & 127 | 128])
        value >>= 7
    return found + bytes([value])


def flattening_model(side: int) -> bytes:
    """An ONNX model that takes (1, 3, side, side) and flattens it."""

    def tensor(name: str, *shape: int) -> bytes:
        dims = b"".join(field(1, field(1, size)) for size in shape)
        return field(1, name) + field(2, field(1, field(1, 1) + field(2, dims)))

    node = field(1, "pixels") + field(2, "features") + field(4, "Flatten")
    graph = field(1, node) + field(2, "flat") + field(11, tensor("pixels", 1, 3, side, side))
    graph += field(12, tensor("features", 1, 3 * side * side))
    return field(1, 8) + field(7, graph) + field(8, field(2, 13))


@pytest.fixture
def registry() -> EncoderRegistry:
    pytest.importorskip("onnxruntime")
    return EncoderRegistry(ContentLimits(10**6, 10**6, 1000))


def test_an_onnx_encoder_that_fits_its_model_works(registry: EncoderRegistry, tmp_path: Path) -> None:
    path = tmp_path / "flat.onnx"
    path.write_bytes(flattening_model(8))
    encoder = registry.make({"type": "onnx", "path": str(path), "size": 8})
    found = encoder.encode([Content(picture=stored(Image.new("RGB", (20, 20), (0, 128, 255))))])
    assert found.shape == (1, 192)
    np.testing.assert_allclose(np.unique(found), [-1.0, 0.0, 127 / 128])


@pytest.mark.parametrize("options", [{"size": 4}, {"size": 8, "scale": 1e-320}, {}])
def test_an_onnx_encoder_that_does_not_fit_its_model_is_refused_when_made(
    registry: EncoderRegistry, tmp_path: Path, options: dict[str, object]
) -> None:
    path = tmp_path / "flat.onnx"
    path.write_bytes(flattening_model(8))
    with pytest.raises(EncoderUnavailableError, match="encoder") as refused:
        registry.make({"type": "onnx", "path": str(path), **options})
    assert str(tmp_path) not in str(refused.value)


def test_what_is_no_model_is_refused_without_its_folder(registry: EncoderRegistry, tmp_path: Path) -> None:
    path = tmp_path / "flat.onnx"
    for content in (None, b"", struct.pack("<q", 7)):
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(EncoderUnavailableError, match=r"flat\.onnx") as refused:
            registry.make({"type": "onnx", "path": str(path)})
        assert str(tmp_path) not in str(refused.value)


def test_an_onnx_input_has_a_largest_side(registry: EncoderRegistry) -> None:
    with pytest.raises(InvalidFieldError, match="2048"):
        registry.make({"type": "onnx", "path": "x", "size": 2049})
