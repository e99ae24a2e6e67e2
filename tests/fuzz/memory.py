"""Search for the request that needs most memory: ``python -m tests.fuzz.memory --rounds 3 --seed 1``.

Every shape of a request is sent to a real server of its own, with default settings and bodies within the
limits, in several random variants; the worst few are varied again. The peak of the process is what counts.
"""

import argparse
import base64
import io
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np
import pillow_heif
from PIL import ExifTags, Image

from app.bootstrap import Services, build
from app.domain.entities import Content, Modality
from app.domain.names import Scope
from app.services.catalogue.service import NewItem
from app.services.training.requests import TrainingParameters
from app.settings import Settings
from app.worker.worker import make_worker
from tests.app.e2e.conftest import servers
from tests.faults.campaign import heading
from tests.fuzz.campaign import megabytes
from tests.fuzz.wire import Connection, Part, Wire, form_body

PEAK_MEGABYTES = 1000.0
"""What one request may bring the process to."""
_LARGE, _SEARCH, _SMALL = (64 << 20) - 4096, (16 << 20) - 4096, (1 << 20) - 4096
_LONG_TEXT = 20_000
_TEXTS, _PICTURES = 3000, 4
_ITEMS = "/v1/collections/shop/items"
_IMPORT = "/v1/collections/shop/items:import"
_TO_TEXT = "/v1/collections/shop/search/image-to-text"
_JSON = (("Content-Type", "application/json"),)
_NDJSON = (("Content-Type", "application/x-ndjson"),)
_VALUES = (b"0,", b'"a",', b"null,", b"1e9,", b"true,", b"[],", b"{},", b"0.12345678,", b'"\\u00e9",')
_MODES = {
    "PNG": ("1", "L", "LA", "P", "RGB", "RGBA", "I;16"),
    "JPEG": ("L", "RGB", "CMYK"),
    "GIF": ("L", "P"),
    "WEBP": ("RGB", "RGBA"),
    "BMP": ("1", "L", "RGB"),
    "TIFF": ("1", "L", "RGB", "RGBA", "CMYK", "I;16"),
    "AVIF": ("L", "RGB", "RGBA"),
    "HEIF": ("L", "RGB", "RGBA"),
    "JPEG2000": ("L", "LA", "RGB", "RGBA", "I;16"),
}
_SHRUNK = {"WEBP": 3, "JPEG2000": 3, "AVIF": 1.5, "HEIF": 1.5}
"""How many times fewer pixels are allowed."""
Shape = Callable[[Random], Wire]


def _post(path: str, body: bytes, method: str = "POST") -> Wire:
    return Wire(method, path, _JSON, body)


def _filled(start: bytes, value: bytes, end: bytes, size: int) -> bytes:
    """Return a body of about `size` bytes that repeats `value`, the last time without its comma."""
    times = max((size - len(start) - len(end)) // len(value), 1)
    return start + (value * times)[:-1] + end


def _fields(random: Random) -> tuple[bytes, bytes]:
    """Return what stands before and after the values of a list inside an item."""
    name = random.choice(["vector", "labels", "metadata", "unknown", "text"])
    return (b'{"modality":"image","metadata":{"a":[', b"]}}") if name == "metadata" else (
        f'{{"modality":"image","{name}":['.encode(), b"]}")  # fmt: skip


def one_large_item(random: Random) -> Wire:
    start, end = _fields(random)
    return _post(_ITEMS, _filled(b'{"items":[' + start, random.choice(_VALUES), end + b"]}", _LARGE))


def many_items(random: Random) -> Wire:
    start, end = _fields(random)
    count = random.choice([10, 1000, 5000, 100_000])
    one = _filled(start, random.choice(_VALUES), end, _LARGE // count) + b","
    return _post(_ITEMS, _filled(b'{"items":[', one, b"]}", _LARGE))


def valid_vectors(random: Random) -> Wire:
    count = random.choice([1, 100, 1000])
    number = random.choice([b"0,", b"0.5,", b"-1.2345678901234567e-05,"])
    one = _filled(b'{"modality":"image","vector":[', number, b"]}", _LARGE // count) + b","
    return _post("/v1/collections/vectors/items", _filled(b'{"items":[', one, b"]}", _LARGE))


def long_texts(random: Random) -> Wire:
    character = random.choice(["a", "\\u0001", "\\ud83d\\ude00", "é", "a b ", "\\\\"])
    one = f'{{"modality":"text","text":"{character * (_LONG_TEXT // random.choice([1, 2]))}"}},'.encode()
    return _post(_ITEMS, _filled(b'{"items":[', one, b"]}", min(_LARGE, 1000 * len(one))))


def top_level(random: Random) -> Wire:
    path = random.choice([_ITEMS, _TO_TEXT, f"{_TO_TEXT}/batch", "/v1/collections", "/v1/admin/keys"])
    size = _LARGE if path == _ITEMS else _SEARCH if "search" in path else _SMALL
    start, end = random.choice([(b"[", b"]"), (b'{"items":[', b"]}"), (b'{"queries":[', b"]}")])
    return _post(path, _filled(start, random.choice(_VALUES), end, size))


def put_item(random: Random) -> Wire:
    start, end = _fields(random)
    return _post(f"{_ITEMS}/a", _filled(start, random.choice(_VALUES), end, _LARGE), "PUT")


def picture_as_text(random: Random) -> Wire:
    size = random.choice([_LARGE, 13 << 20])
    return _post(_ITEMS, b'{"items":[{"modality":"image","image_base64":"' + b"A" * (size - 60) + b'"}]}')


def query(random: Random) -> Wire:
    field = random.choice(
        [b'"vector":[', b'"filter":{"labels":[', b'"include":[', b'"filter":{"metadata":{"a":[']
    )
    end = b"]" + b"}" * field.count(b"{") + b"}"
    return _post(_TO_TEXT, _filled(b'{"item_id":"i0",' + field, random.choice(_VALUES), end, _SEARCH))


def batch(random: Random) -> Wire:
    count = random.choice([1, 10, 1000])
    one = _filled(b'{"vector":[', random.choice(_VALUES), b"]}", _SEARCH // count) + b","
    return _post(f"{_TO_TEXT}/batch", _filled(b'{"queries":[', one, b"]}", _SEARCH))


def large_answer(random: Random) -> Wire:
    k = random.choice([100, 1000, 3000, 10_000])
    count = max(min(100_000 // k, random.choice([1, 20, 100, 1000])), 1)
    include = random.choice([{}, {"include": ["text"]}, {"include": ["metadata"]}, {"include": []}])
    queries = [{"item_id": f"i{random.randrange(_PICTURES)}"} for _ in range(count)]
    if count == 1:
        return _post(_TO_TEXT, json.dumps({**queries[0], "k": k, **include}).encode())
    return _post(f"{_TO_TEXT}/batch", json.dumps({"queries": queries, "k": k, **include}).encode())


def page(random: Random) -> Wire:
    return Wire("GET", f"{_ITEMS}?limit=1000&modality={random.choice(['text', 'image'])}", (), b"")


def long_form(random: Random) -> Wire:
    small = Part("picture", b"a" * 100, "a.png")
    values = b'{"modality":"image","metadata":{"a":[' + b"0," * 500_000 + b"0]}}"
    parts = random.choice(
        [
            [Part("picture", b"a" * (_LARGE - 4096), "a.png")],
            [small, Part("item", b"[" + b"0," * (_LARGE // 2 - 4096) + b"0]")],
            [small, Part("item", values)],
            [Part(f"part-{n}", b"", "a.png") for n in range(400_000)],
            [Part("x" * (_LARGE // 2), b"")],
        ]
    )
    body = form_body(parts)[:_LARGE]
    return Wire("POST", random.choice([_ITEMS, _TO_TEXT]), _form_type(), body)


def _form_type() -> tuple[tuple[str, str], ...]:
    return (("Content-Type", "multipart/form-data; boundary=fuzz-boundary"),)


def picture_bomb(random: Random) -> Wire:
    content = bomb(random)
    if random.random() < 0.5:
        form = form_body([Part("picture", content, "a")])
        return Wire("POST", random.choice([_ITEMS, _TO_TEXT]), _form_type(), form)
    count = max(min(_LARGE // max(len(content) * 2, 1), random.choice([1, 8])), 1)
    items = [{"modality": "image", "image_base64": base64.b64encode(content).decode()}] * count
    return _post(_ITEMS, json.dumps({"items": items}).encode())


def bomb(random: Random) -> bytes:
    """Return a picture of nearly as many pixels as are allowed."""
    pillow_heif.register_heif_opener()
    form = random.choice([*_MODES, "PNG"])
    mode = random.choice(_MODES[form])
    shrunk = _SHRUNK.get(form, 1) ** 0.5
    sizes = [(int(6320 / shrunk), int(6320 / shrunk)), (int(16_000 / shrunk), int(2400 / shrunk))]
    if form == "PNG":
        sizes += [(40_000_000, 1), (1, 40_000_000)]
    image = Image.new(mode, random.choice(sizes))
    options: dict[str, object] = {"transparency": 0} if mode == "P" else {}
    if form == "JPEG":
        exif = Image.Exif()
        exif[ExifTags.Base.Orientation] = random.choice([1, 6])
        options = {"progressive": random.random() < 0.5, "exif": exif}
    elif form == "TIFF":
        options = {"compression": "raw" if mode == "I;16" else "tiff_deflate", "strip_size": 1 << 30}
    stored = io.BytesIO()
    image.save(stored, form, **options)
    return stored.getvalue()


def stream(random: Random) -> Wire:
    start, end = _fields(random)
    size = random.choice([1 << 10, 1 << 16, 1 << 20, (16 << 20) - 100])
    line = _filled(start, random.choice(_VALUES), end, size) + b"\n"
    head = b'{"modality":"text","text":"a"}\n' * random.choice([0, 100_000])
    return Wire(
        "POST",
        _IMPORT,
        (("Content-Type", "application/x-ndjson"),),
        head + line * max(_LARGE // len(line), 1),
    )


def long_stream(random: Random) -> Wire:
    rest = random.choice(['text","text":"a"', f'text","text":"{"a " * (_LONG_TEXT // 2)}"'])
    count = min(2 * _LARGE // len(rest), 100_000)
    lines = [f'{{"id":"n{number}","modality":"{rest}}}' for number in range(count)]
    return Wire("POST", _IMPORT, _NDJSON, "\n".join(lines).encode())


def retrain(random: Random) -> Wire:
    body = _filled(b'{"scaling":[', random.choice(_VALUES), b"]}", _SMALL)
    return _post("/v1/admin/collections/shop/retrain", body)


SHAPES: tuple[Shape, ...] = (
    one_large_item, many_items, valid_vectors, long_texts, top_level, put_item, picture_as_text, query, batch,
    large_answer, page, long_form, picture_bomb, stream, long_stream, retrain,
)  # fmt: skip


@dataclass(frozen=True)
class Found:
    """What one request brought the server to."""

    shape: Shape
    seed: str
    status: int
    megabytes: float
    seconds: float
    sent: int
    got: int

    def told(self) -> str:
        sent, got = (size / 2**20 for size in (self.sent, self.got))
        figures = f"{self.megabytes:6.0f} MB  {self.seconds:6.2f} s  {self.status}"
        return f"{figures}  sent {sent:5.1f} MiB  got {got:5.1f} MiB  {self.shape.__name__} {self.seed}"


def filled(folder: Path) -> str:
    """Fill and train what is asked, and return an admin key."""
    services = build(Settings(data_dir=folder, database_url=""))
    services.schema.upgrade()
    _, key = services.access.create(Scope.ADMIN)
    sides = [
        Modality("image", {"type": "hog-color"}),
        Modality("text", {"type": "tfidf", "max_features": 500}),
    ]
    services.catalogue.create("shop", sides)
    services.catalogue.create("vectors", [Modality(name, {"type": "vector"}) for name in ("image", "text")])
    _fill_shop(services)
    services.training.request("shop", TrainingParameters(method="lrbs", alpha=0.01, scaling="center"))
    if (job := make_worker(services).run_once()) is None or job.model_version != 1:
        raise RuntimeError(f"not trained: {job}")
    services.database.engine.dispose()
    return key


def _fill_shop(services: Services) -> None:
    pictures = []
    for number in range(_PICTURES):
        stored = io.BytesIO()
        Image.fromarray(np.full((16, 16, 3), 60 * number, np.uint8)).save(stored, "PNG")
        labels = (f"label {number % 2}",)
        pictures.append(NewItem("image", Content(picture=stored.getvalue()), id=f"i{number}", labels=labels))
    services.catalogue.add_items("shop", pictures)
    text = "\x01" * (_LONG_TEXT - 30)
    texts = [
        NewItem(
            "text",
            Content(text=f"word{n % 2} {n} {text}"),
            id=f"t{n}",
            labels=(f"label {n % 2}",),
            metadata={"note": "\x01" * 3000},
            train=n < 2 * _PICTURES,
        )
        for n in range(_TEXTS)
    ]
    for start in range(0, _TEXTS, 500):
        services.catalogue.add_items("shop", texts[start : start + 500])


def tried(shape: Shape, seed: str, folder: Path, key: str) -> Found:
    """Send one request to a server of its own, over a copy of the folder, and return its peak."""
    wire = shape(Random(seed))
    with tempfile.TemporaryDirectory() as name, servers() as start:
        server = start(shutil.copytree(folder, Path(name) / "data"), ("serve", "--no-worker"))
        connection = Connection(server.url, key)
        began = time.monotonic()
        answer = connection.send(wire)
        seconds = time.monotonic() - began
        connection.close()
        peak = megabytes(server.process.pid, "VmHWM")
    return Found(shape, seed, answer.status, peak, seconds, len(wire.body), len(answer.body))


def search(rounds: int, seed: int, shapes: tuple[Shape, ...]) -> list[Found]:
    """Try every shape in random variants, then variants of the worst shapes; return the worst first."""
    found: list[Found] = []
    with tempfile.TemporaryDirectory() as name:
        key = filled(Path(name) / "data")
        worst = shapes
        for number in range(rounds):
            for shape in worst:
                for variant in range(2 if number == 0 else 6):
                    found.append(tried(shape, f"{seed}:{number}:{variant}", Path(name) / "data", key))
                    print(found[-1].told(), file=sys.stderr, flush=True)  # noqa: T201
            found.sort(key=lambda one: -one.megabytes)
            worst = tuple(dict.fromkeys(one.shape for one in found))[:4]
    return found


def main() -> None:
    """Print a heading and the worst requests; exit with 1 where one needs too much memory or fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--shapes", help="comma-separated names; default: all")
    arguments = parser.parse_args()
    names = None if arguments.shapes is None else set(arguments.shapes.split(","))
    shapes = tuple(shape for shape in SHAPES if names is None or shape.__name__ in names)
    print(heading(arguments.seed, rounds=arguments.rounds, shapes=len(shapes)), flush=True)  # noqa: T201
    found = search(arguments.rounds, arguments.seed, shapes)
    for one in found[:20]:
        print(one.told())  # noqa: T201
    sys.exit(any(one.megabytes > PEAK_MEGABYTES or one.status >= 500 for one in found))


if __name__ == "__main__":
    main()
