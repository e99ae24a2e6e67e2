import contextlib
import io
import struct
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import ExifTags, Image

from app.domain.entities import Content
from app.domain.errors import ContentTooLargeError, InvalidFieldError, ServiceError
from app.encoders.content import PixelBudget, opened_picture
from app.encoders.registry import ContentLimits, EncoderRegistry
from tests.app.onnx_files import flattening_model
from tests.conftest import ROOT

ORIENTATION = 0x0112


def stored(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def opened(content: bytes) -> np.ndarray:
    with opened_picture("p", content, 10**6, PixelBudget(10**6)) as picture:
        return np.asarray(picture)


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


@pytest.mark.parametrize(
    ("mode", "form", "size"),
    [
        ("I;16", "PNG", (5000, 5000)),
        ("RGBA", "PNG", (5000, 5000)),
        ("P", "PNG", (5000, 5000)),
        ("RGB", "PNG", (5000, 5000)),
        ("RGB", "JPEG", (5000, 5000)),
        ("I;16", "PNG", (65_535, 381)),
        ("RGBA", "PNG", (381, 65_535)),
        ("RGBA", "WEBP", (5000, 1666)),
    ],
)
def test_a_picture_of_whatever_kind_costs_so_many_bytes_a_pixel_that_is_allowed(
    mode: str, form: str, size: tuple[int, int], tmp_path: Path
) -> None:
    width, height = size
    zeros = np.zeros((height, width), np.uint16)
    picture = Image.fromarray(zeros) if mode == "I;16" else Image.new(mode, size)
    turned = Image.Exif()
    turned[ExifTags.Base.Orientation] = 6
    allowed = width * height * (3 if form == "WEBP" else 1)
    path = tmp_path / "picture"
    picture.save(path, form, **{"transparency": 0} if mode == "P" else {"exif": turned})
    measure = f"""
import resource
from app.encoders.content import PixelBudget, opened_picture

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

content = open({str(path)!r}, "rb").read()
before = peak()
with opened_picture("p", content, {allowed}, PixelBudget({allowed})):
    print(peak() - before)
"""
    ran = subprocess.run(
        [sys.executable, "-c", measure], capture_output=True, text=True, check=True, cwd=ROOT
    )
    # Pillow keeps four bytes a pixel of what it decodes to and of the RGB made of it.
    assert int(ran.stdout) < 9 * allowed + (16 << 20)


@pytest.mark.parametrize(
    ("size", "form", "told"),
    [
        ((70_000, 1), "PNG", "70000 x 1 pixels, no side over 65535 allowed"),
        ((1, 70_000), "BMP", "1 x 70000 pixels, no side over 65535 allowed"),
        ((1001, 1000), "PNG", "1001 x 1000 pixels, at most 1000000 allowed in PNG"),
        ((1000, 334), "WEBP", "1000 x 334 pixels, at most 333333 allowed in WEBP"),
    ],
)
def test_a_picture_that_would_take_too_much_memory_is_refused(
    size: tuple[int, int], form: str, told: str
) -> None:
    with pytest.raises(ContentTooLargeError, match=told):
        opened(stored(Image.new("RGB", size), form))


def test_the_largest_pictures_are_taken() -> None:
    for size, form in (((65_535, 1), "PNG"), ((1000, 1000), "JPEG"), ((1000, 333), "WEBP")):
        assert opened(stored(Image.new("RGB", size), form)).shape == (size[1], size[0], 3)


def test_pictures_share_a_budget_of_pixels() -> None:
    budget = PixelBudget(1000)
    open_now, most, lock = 0, 0, threading.Lock()
    content = stored(Image.new("RGB", (20, 20)))  # 400 pixels: two at a time

    def hold() -> None:
        nonlocal open_now, most
        with opened_picture("p", content, 10**6, budget):
            with lock:
                open_now += 1
                most = max(most, open_now)
            time.sleep(0.01)
            with lock:
                open_now -= 1

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(hold) for _ in range(40)]:
            done.result()
    assert most == 2


def test_a_picture_larger_than_the_budget_is_opened_alone_and_not_overtaken() -> None:
    budget = PixelBudget(100)
    order: list[str] = []
    first_in, first_may_leave = threading.Event(), threading.Event()

    def first() -> None:
        with budget.reserve(60):
            first_in.set()
            first_may_leave.wait(60.0)
            order.append("first")

    def hold(name: str, pixels: int) -> None:
        with budget.reserve(pixels):
            order.append(name)

    threads = [threading.Thread(target=first)]
    threads[0].start()
    assert first_in.wait(60.0)
    for name, pixels in (("large", 500), ("small", 10)):
        threads.append(threading.Thread(target=hold, args=(name, pixels)))
        threads[-1].start()
        threads[-1].join(0.2)
    first_may_leave.set()
    for thread in threads:
        thread.join(60.0)
    assert order == ["first", "large", "small"]


def test_a_picture_that_is_refused_leaves_the_budget_as_it_was() -> None:
    budget = PixelBudget(10**6)
    content = stored(corners())
    for _ in range(3):
        with pytest.raises(ServiceError), opened_picture("p", content[:-40], 10**6, budget):
            pass
        with pytest.raises(ValueError, match="of the caller"), opened_picture("p", content, 10**6, budget):
            raise ValueError("of the caller")
    assert budget._used == 0


@pytest.fixture
def registry(onnxruntime: object) -> EncoderRegistry:
    return EncoderRegistry(ContentLimits(10**6, 10**6, 1000))


def test_an_onnx_encoder_that_fits_its_model_works(registry: EncoderRegistry, tmp_path: Path) -> None:
    path = tmp_path / "flat.onnx"
    path.write_bytes(flattening_model(8))
    encoder = registry.make({"type": "onnx", "path": str(path), "size": 8})
    found = encoder.encode([Content(picture=stored(Image.new("RGB", (20, 20), (0, 128, 255))))])
    assert found.shape == (1, 192)
    np.testing.assert_allclose(np.unique(found), [-1.0, 0.0, 127 / 128])


@pytest.mark.parametrize("options", [{"size": 4}, {"size": 8, "scale": 1e-320}, {}])
def test_an_onnx_encoder_that_does_not_fit_its_model_is_refused_with_its_collection(
    registry: EncoderRegistry, tmp_path: Path, options: dict[str, object]
) -> None:
    path = tmp_path / "flat.onnx"
    path.write_bytes(flattening_model(8))
    with pytest.raises(InvalidFieldError, match="encoder") as refused:
        registry.settle({"type": "onnx", "path": str(path), **options})
    assert str(tmp_path) not in str(refused.value)


def test_what_is_no_model_is_refused_without_its_folder(registry: EncoderRegistry, tmp_path: Path) -> None:
    path = tmp_path / "flat.onnx"
    for content in (None, b"", struct.pack("<q", 7)):
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(InvalidFieldError, match=r"encoder\.path: .*flat\.onnx") as refused:
            registry.settle({"type": "onnx", "path": str(path)})
        assert str(tmp_path) not in str(refused.value)


def test_an_onnx_input_has_a_largest_side(registry: EncoderRegistry) -> None:
    with pytest.raises(InvalidFieldError, match="2048"):
        registry.make({"type": "onnx", "path": "x", "size": 2049})
