"""Items in a tar file, as WebDataset writes its samples, which `open_archives` reads back as they were."""

from __future__ import annotations

import json
import re
import tarfile
from base64 import b64decode
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from app.domain.errors import InvalidFieldError

EXPORTED = "lrbs"
"""Key in the .json of a sample: by the endings of its files, what only their items have."""
_CANNOT = "which a tar file cannot hold: export NDJSON"
_ENDINGS = re.compile(
    rb"(?P<jpg>\xff\xd8)|(?P<png>\x89PNG)|(?P<webp>RIFF)|(?P<gif>GIF8)|(?P<bmp>BM)|(?P<tif>II|MM)|(?P<psd>8BPS)"
    rb"|(?P<avif>....ftypavi)|(?P<heic>....ftyp)|(?P<jp2>....jP  )|(?P<j2k>\xffO\xffQ)|(?P<ppm>P[1-7Ff])"
    rb"|(?P<sgi>\x01\xda)|(?P<pcx>\n)|(?P<tga>)",  # TGA has no mark
    re.DOTALL,
)
"""Of pictures, by how they begin."""


def check_forms(name: str, contents: Sequence[str | None]) -> None:
    """Refuse what modalities hold where a tar file cannot; raises InvalidFieldError."""
    if "vector" in contents or len(set(contents)) < len(contents):
        what = "vectors" if "vector" in contents else "two modalities of one kind of files"
        raise InvalidFieldError(name, f"has {what}, {_CANNOT}")


def write_samples(items: Iterable[dict[str, Any]]) -> Iterator[bytes]:
    """Yield a tar file of exported items, piece by piece; partners that follow each other are one sample.
    Raises InvalidFieldError at one without an original."""
    sample: dict[str, dict[str, Any]] = {}
    pair, number = None, 0
    for item in items:
        form = next((form for form in ("text", "image_base64", "sound_base64") if form in item), None)
        if form is None:
            raise InvalidFieldError(f"item {item['id']!r}", f"has a vector or no original, {_CANNOT}")
        if sample and (form in sample or pair is None or item["pair_id"] != pair):
            yield _write_sample(number, sample)
            sample, number = {}, number + 1
        sample[form], pair = item, item["pair_id"]
    if sample:
        yield _write_sample(number, sample)
    yield bytes(2 * tarfile.BLOCKSIZE)


def _write_sample(number: int, sample: dict[str, dict[str, Any]]) -> bytes:
    """Return the members of a sample: contents, labels, and what is common and what is not in JSON."""
    items = list(sample.values())
    labels: list[str] = max((item["labels"] for item in items), key=len)
    are_lines = labels == [*dict.fromkeys(label.strip() for label in labels if label.isprintable())]
    facts = [{(key, json.dumps(value)) for key, value in item["metadata"].items()} for item in items]
    common = {key for key, _ in set.intersection(*facts)} - {EXPORTED}
    files: dict[str, bytes] = {}
    own: dict[str, dict[str, Any]] = {}
    for form, item in sample.items():
        content = item["text"].encode() if form == "text" else b64decode(item[form])
        ending = _ending_of(form, content)
        files[ending] = content
        own[ending] = {name: item[name] for name in ("id", "pair_id", "train")}
        if item["labels"] != labels or not are_lines:
            own[ending]["labels"] = item["labels"]
        own[ending]["metadata"] = {key: value for key, value in item["metadata"].items() if key not in common}
    shared = {key: value for key, value in items[0]["metadata"].items() if key in common}
    files["json"] = json.dumps({**shared, EXPORTED: own}, ensure_ascii=False).encode()
    if labels:
        files["cls"] = "\n".join(labels).encode()
    piece = bytearray()
    for ending, content in files.items():
        entry = tarfile.TarInfo(f"{number:09}.{ending}")
        entry.size = len(content)
        piece += entry.tobuf(tarfile.USTAR_FORMAT) + content + bytes(-len(content) % tarfile.BLOCKSIZE)
    return bytes(piece)


def _ending_of(form: str, content: bytes) -> str:
    match = _ENDINGS.match(content) if form == "image_base64" else None
    if match is not None:
        return str(match.lastgroup)
    return "txt" if form == "text" else "flac" if content.startswith(b"fLaC") else "wav"
