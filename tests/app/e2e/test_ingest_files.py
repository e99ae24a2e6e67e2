"""Files of many items as the commands bring them in."""

import base64
import io
import json
import tarfile
from pathlib import Path

import numpy as np
from PIL import Image

from app.bootstrap import build
from app.settings import Settings
from tests.app.e2e.conftest import LrbsInside


def picture(colour: str) -> bytes:
    content = io.BytesIO()
    Image.new("RGB", (4, 4), colour).save(content, "PNG")
    return content.getvalue()


def test_lines_are_brought_in_and_bad_ones_are_named(lrbs_inside: LrbsInside, tmp_path: Path) -> None:
    lines = [
        json.dumps({"modality": "image", "image_base64": base64.b64encode(picture("red")).decode()}),
        '{"modality": "text", "text": "red"',
        "",
        '{"modality": "text", "text": "red", "colour": 1}',
        '{"modality": "sound", "text": "red"}',
        '{"modality": "text", "text": "blue", "id": "b", "labels": ["x", "y"]}',
        '{"modality": "text", "text": "green", "id": "b"}',
    ]
    file = tmp_path / "items.ndjson"
    file.write_text("\n".join(lines))
    ingest = ("ingest", "ndjson", str(file), "-c", "lines")
    done = lrbs_inside(*ingest)
    assert done.returncode == 3
    refused = sorted(line[9:41] for line in done.stderr.splitlines() if line.startswith("refused: "))
    assert refused == [
        "items.ndjson, line 2: Invalid JS",
        "items.ndjson, line 4: colour: Ex",
        "items.ndjson, line 5.modality: u",
        "items.ndjson, line 7: another ro",
    ]
    assert done.stdout == "2 items stored in 'lines': 2 new, 0 changed, 0 unchanged; 4 refused\n"
    file.write_text("\n".join([lines[0], lines[-1]]))
    assert lrbs_inside(*ingest).stdout == "2 items stored in 'lines': 0 new, 1 changed, 1 unchanged\n"


def test_samples_of_tar_files_are_brought_in(lrbs_inside: LrbsInside, tmp_path: Path) -> None:
    files = []
    for number, colour in enumerate(["red", "blue"]):
        files.append(str(tmp_path / f"{number}.tar"))
        with tarfile.open(files[-1], "w") as archive:
            for name, content in {"0.png": picture(colour), "0.txt": colour.encode(), "1.jpg": b"?"}.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
    for expected in ("4 new, 0 changed, 0", "0 new, 0 changed, 4"):
        done = lrbs_inside("ingest", "tar", *files, "-c", "samples")
        assert done.stdout == f"4 items stored in 'samples': {expected} unchanged; 2 refused\n"
        assert "refused: 1.tar/1.jpg: is not a picture" in done.stderr


def test_embeddings_are_brought_in_with_their_partners(lrbs_inside: LrbsInside, tmp_path: Path) -> None:
    chance = np.random.default_rng(0)
    for part, width in (("img_emb", 4), ("text_emb", 3)):
        (tmp_path / part).mkdir()
        for number in range(2):
            array = chance.normal(size=(5, width)).astype(np.float16)
            array[4, 0] = np.nan if part == "img_emb" and number else 1.0
            np.save(tmp_path / part / f"{part}_{number}.npy", array)
    ingest = ("ingest", "embeddings", str(tmp_path), "-c", "clip")
    for expected in ("19 new, 0 changed, 0", "0 new, 0 changed, 19"):
        done = lrbs_inside(*ingest)
        assert done.stdout == f"19 items stored in 'clip': {expected} unchanged; 1 refused\n"
        assert "refused: img_emb_1.npy, row 4.vector" in done.stderr
    services = build(Settings(data_dir=tmp_path / "data", database_url=""))
    assert [item.id for _, item in services.catalogue.page("clip", None, 0, 9, "1:2").rows] == [
        "image-1:2",
        "text-1:2",
    ]
    np.save(tmp_path / "text_emb" / "text_emb_1.npy", np.ones((4, 3)))
    assert "text_emb_1.npy: has 4 rows, the pictures have 5" in lrbs_inside(*ingest).stderr
    (tmp_path / "text_emb" / "text_emb_1.npy").write_bytes(b"none")
    assert "text_emb_1.npy: is no readable .npy array" in lrbs_inside(*ingest).stderr
