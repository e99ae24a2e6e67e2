import contextlib
import io
import struct
import subprocess
import sys
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import ExifTags, Image, ImageCms

from app.domain.entities import Content
from app.domain.errors import ContentTooLargeError, InvalidFieldError, ServiceError
from app.encoders.pictures import _FORMATS, PixelBudget, _readable_formats, opened_picture, picture_type
from app.encoders.registry import ContentLimits, EncoderRegistry
from tests.app.onnx_files import flattening_model
from tests.conftest import ROOT, import_extra

ORIENTATION = 0x0112
_OPTIONS: dict[str, dict[str, object]] = {
    "P": {"transparency": 0},
    "TIFF": {"compression": "tiff_deflate"},
    "HEIF": {"enc_params": {"preset": "ultrafast"}},
    "AVIF": {"speed": 10},
    "PNG": {"compress_level": 1},
    "WEBP": {"method": 0},
}


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


LEFT_OUT = {
    *("EPS", "WMF"),  # another program draws them
    *("BUFR", "GRIB", "HDF5", "FITS", "MCIDAS", "SPIDER", "MPEG", "FLI", "IPTC", "GBR"),  # no still pictures
    *("BLP", "DDS", "DCX", "FTEX", "IM", "IMT"),  # found nowhere
    *("MSP", "PCD", "PIXAR", "SUN", "XVTHUMB", "DIB"),  # nor are these
    *("QOI", "XBM", "XPM"),  # decoded in Python or from text, byte by byte
    *("CUR", "ICNS", "ICO"),  # whose parts may be larger than is told
}


def test_each_format_of_pillow_is_taken_or_left_out_on_purpose() -> None:
    import_extra("pillow_heif")
    taken = set(_readable_formats())
    assert taken == set(_FORMATS) - {"MPO"}
    assert taken.isdisjoint(LEFT_OUT)
    assert set(Image.OPEN) == taken | LEFT_OUT


def layered() -> bytes:
    """A file of Photoshop, which Pillow only reads."""
    pixels = np.asarray(corners()).transpose(2, 0, 1)
    head = struct.pack(">4sH6xHIIHHIIIH", b"8BPS", 1, 3, 16, 24, 8, 3, 0, 0, 0, 0)
    return head + pixels.tobytes()


@pytest.mark.parametrize("form", _FORMATS)
def test_pictures_of_each_format_are_taken(form: str) -> None:
    import_extra("pillow_heif")
    more = {"save_all": True, "append_images": [Image.new("RGB", (24, 16))]} if form == "MPO" else {}
    content = layered() if form == "PSD" else stored(corners(), form, **more)
    found = opened(content)[[4, 4, 12, 12], [6, 18, 6, 18]].astype(int)
    assert np.abs(found - np.asarray(corners())[[4, 4, 12, 12], [6, 18, 6, 18]]).max() < 20
    assert picture_type(content) == _FORMATS[form].media_type


@pytest.mark.parametrize("form", ["MPO", "TIFF", "AVIF", "HEIF", "WEBP"])
def test_each_format_that_has_it_is_turned_as_its_exif_says(form: str) -> None:
    import_extra("pillow_heif")
    exif = Image.Exif()
    exif[ORIENTATION] = 6
    found = opened(stored(corners(), form, exif=exif.tobytes()))
    assert found.shape == (24, 16, 3)
    assert np.abs(found[6, 12].astype(int) - (255, 0, 0)).max() < 20


def test_of_several_frames_the_first_one_is_taken() -> None:
    import_extra("pillow_heif")
    for form in ("MPO", "TIFF", "AVIF", "HEIF", "WEBP", "PNG", "GIF"):
        others = [Image.new("RGB", (24, 16), "white") for _ in range(2)]
        content = stored(corners(), form, save_all=True, append_images=others)
        assert np.abs(opened(content)[4, 6].astype(int) - (255, 0, 0)).max() < 20, form


@pytest.mark.parametrize("form", ["PNG", "TIFF", "JPEG2000", "PPM"])
def test_sixteen_bits_of_grey_keep_their_shades(form: str) -> None:
    ramp = np.linspace(0, 65535, 64 * 64).reshape(64, 64).round().astype(np.uint16)
    found = opened(stored(Image.fromarray(ramp), form))
    np.testing.assert_array_equal(found[..., 0], (ramp / 257.0).round())
    assert (found[..., 0] == found[..., 1]).all()


@pytest.mark.parametrize(
    ("lowest", "highest", "kind"),
    [
        (0, 1, np.float32),
        (0, 255, np.float32),
        (0, 65_535, np.int32),
        (-2e9, 2e9, np.int32),
        (-7, 9, np.float32),
    ],
)
def test_wide_levels_of_grey_keep_their_shades(lowest: float, highest: float, kind: type) -> None:
    ramp = np.linspace(lowest, highest, 64 * 64).reshape(64, 64).astype(kind)
    shades = np.linspace(0, 255, 64 * 64).reshape(64, 64)
    assert np.abs(opened(stored(Image.fromarray(ramp), "TIFF"))[..., 1] - shades).max() < 1.0


def test_levels_that_are_no_numbers_are_black() -> None:
    levels = np.full((8, 8), np.nan, np.float32)
    assert opened(stored(Image.fromarray(levels), "TIFF")).max() == 0
    levels[0, 0], levels[0, 1] = 0.5, np.inf
    found = opened(stored(Image.fromarray(levels), "TIFF"))[..., 0]
    assert (found[0, 0], found[0, 1], found[1, 1]) == (128, 255, 0)


def test_colours_of_print_and_palettes_become_red_green_and_blue() -> None:
    for form, mode in (("JPEG", "CMYK"), ("TIFF", "CMYK"), ("TIFF", "LAB"), ("TIFF", "P"), ("PNG", "P")):
        source = corners()
        if mode == "LAB":
            profiles = [ImageCms.createProfile(name) for name in ("sRGB", "LAB")]
            source = ImageCms.profileToProfile(source, *profiles, outputMode="LAB")
        else:
            source = source.convert(mode)
        found = opened(stored(source, form))
        assert np.abs(found[4, [6, 18]].astype(int) - [(255, 0, 0), (0, 255, 0)]).max() < 16, (form, mode)


def test_a_heic_picture_names_the_extra_where_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    import_extra("pillow_heif")
    _readable_formats()
    content = stored(corners(), "HEIF")
    _readable_formats.cache_clear()
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "pillow_heif", None)
        patch.delitem(Image.OPEN, "HEIF")
        with pytest.raises(InvalidFieldError, match=r"pip install 'lrbs\[heic\]'"):
            opened(content)
        with pytest.raises(InvalidFieldError, match=r"expected a file in JPEG, PNG, .* AVIF, JPEG2000,"):
            opened(b"no picture")
    _readable_formats.cache_clear()


def tiff_of_one_part(side: int, packed: bytes, kind: int) -> bytes:
    """A TIFF of 100 x 100 pixels that is stored in one tile of another size, told in a type of number."""
    entries = [(256, 4, 100), (257, 4, 100), (258, 4, 8), (259, 4, 8), (262, 4, 2), (277, 4, 3)]
    place = 8 + 2 + 12 * 10 + 4
    size = (kind, side if kind == 4 else place)
    entries += [(322, *size), (323, *size), (324, 4, place + 8), (325, 4, len(packed))]
    directory = b"".join(struct.pack("<HHII", tag, kind, 1, value) for tag, kind, value in entries)
    return b"II*\0" + struct.pack("<IH", 8, 10) + directory + struct.pack("<Iq", 0, side) + packed


@pytest.mark.parametrize("kind", [4, 16, 17, 18])
def test_a_part_of_a_tiff_that_is_larger_than_a_picture_may_be_is_refused(kind: int) -> None:
    assert opened(tiff_of_one_part(128, zlib.compress(bytes(3 * 128 * 128)), kind)).shape == (100, 100, 3)
    with pytest.raises(ContentTooLargeError, match="parts of 20000 x 20000 pixels"):
        opened(tiff_of_one_part(20_000, zlib.compress(bytes(1000)), kind))


def test_an_avif_whose_coded_picture_is_larger_than_it_says_is_refused() -> None:
    for options in ({}, {"save_all": True, "append_images": [Image.new("RGB", (1500, 1400))] * 2}):
        content = stored(Image.new("RGB", (1500, 1400)), "AVIF", speed=10, **options)
        lie = content
        for form, scale in ((">II", 1), (">HH", 1), (">II", 1 << 16)):  # of an item, a film and its track
            sizes = [struct.pack(form, *(scale * side for side in size)) for size in ((1500, 1400), (9, 9))]
            lie = lie.replace(*sizes)
        with pytest.raises(ContentTooLargeError, match="2100000 pixels are coded in it"):
            opened(lie)


def test_grey_whose_lowest_level_is_white_is_not_turned_around() -> None:
    ramp = np.linspace(0, 65535, 64 * 64).reshape(64, 64).round().astype(np.uint16)
    content = stored(Image.fromarray(ramp), "TIFF", tiffinfo={262: 0})
    np.testing.assert_array_equal(opened(content)[..., 0], 255 - (ramp / 257.0).round())


def test_digits_in_place_of_pixels_are_refused() -> None:
    with pytest.raises(InvalidFieldError, match="PPM file of digits, expected a binary one"):
        opened(b"P1 8 8\n" + b"1" * 64)


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_transparent_parts_show_a_white_page(mode: str) -> None:
    pixels = np.zeros((32, 32, 4), np.uint8)
    pixels[8:24, 8:24] = (90, 90, 90, 255)
    found = opened(stored(Image.fromarray(pixels).convert(mode)))
    assert found[0, 0].tolist() == [255, 255, 255]
    assert found[16, 16].tolist() == [90, 90, 90]


_LARGE = [
    ("I;16", "PNG", (3500, 3500)), ("RGBA", "PNG", (3500, 3500)), ("P", "PNG", (3500, 3500)),
    ("RGB", "PNG", (3500, 3500)), ("RGB", "JPEG", (3500, 3500)), ("I;16", "PNG", (65_535, 187)),
    ("RGBA", "PNG", (187, 65_535)), ("RGBA", "WEBP", (3500, 1166)), ("RGBA", "AVIF", (4000, 2000)),
    ("RGBA", "HEIF", (4000, 2000)), ("RGBA", "JPEG2000", (3000, 1000)), ("RGBA", "TIFF", (3500, 3500)),
]  # fmt: skip
_TIMES_HELD = {"WEBP": 3, "JPEG2000": 3, "AVIF": 1.5, "HEIF": 1.5}
_OPENS_EACH = """
import os, resource, sys
from app.encoders.pictures import PixelBudget, opened_picture

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

for path, small, allowed in zip(sys.argv[1::3], sys.argv[2::3], map(int, sys.argv[3::3])):
    if not os.fork():
        with opened_picture("p", open(small, "rb").read(), allowed, PixelBudget(allowed)):
            pass  # the code of its codec is read, which a fork counts as its own
        content = open(path, "rb").read()
        before = peak()
        with opened_picture("p", content, allowed, PixelBudget(allowed)):
            print(peak() - before, flush=True)
        os._exit(0)
    assert os.wait()[1] == 0
"""


def test_a_picture_of_whatever_kind_costs_so_many_bytes_a_pixel_that_is_allowed(tmp_path: Path) -> None:
    import_extra("pillow_heif")
    assert "HEIF" in _readable_formats()  # after which it is written, too
    turned = Image.Exif()
    turned[ExifTags.Base.Orientation] = 6
    allowed, arguments = [], []
    for number, (mode, form, (width, height)) in enumerate(_LARGE):
        for part, size in (("all", (width, height)), ("small", (64, 64))):
            zeros = np.zeros(size[::-1], np.uint16)
            picture = Image.fromarray(zeros) if mode == "I;16" else Image.new(mode, size)
            path = tmp_path / f"{number}-{part}"
            picture.save(path, form, exif=turned.tobytes(), **_OPTIONS.get(mode if mode == "P" else form, {}))
            arguments.append(str(path))
        allowed.append(round(width * height * _TIMES_HELD.get(form, 1)))
        arguments.append(str(allowed[-1]))
    command = [sys.executable, "-c", _OPENS_EACH, *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    # Pillow keeps four bytes a pixel of what it decodes to and of the RGB made of it.
    for each, most, taken in zip(_LARGE, allowed, ran.stdout.split(), strict=True):
        assert int(taken) < 9 * most + (8 << 20), each


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


_ENCODES_LARGE_ONES = """
import io
from PIL import Image
from app.domain.entities import Content
from app.encoders.registry import ContentLimits, EncoderRegistry
stored = io.BytesIO()
Image.new("RGBA", (16_000, 2400)).save(stored, "PNG", compress_level=1)
encoder = EncoderRegistry(ContentLimits(10**9, 40_000_000, 1)).make({"type": "hog-color"})
encoder.encode([Content(picture=stored.getvalue())] * 4)
print(open("/proc/self/status").read().split("VmHWM:")[1].split()[0])
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system tells no peak of memory")
def test_one_large_picture_after_the_other_takes_the_memory_of_one() -> None:
    alone = [sys.executable, "-c", _ENCODES_LARGE_ONES]
    peak = int(subprocess.run(alone, cwd=ROOT, check=True, capture_output=True, text=True).stdout)
    assert peak < 600 * 1024  # kilobytes; one takes 440 MB, and four that are kept 740


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
