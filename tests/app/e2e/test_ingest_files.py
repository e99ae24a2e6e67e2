"""Files of many items as the commands bring them in."""

import base64
import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from app.bootstrap import build
from app.settings import Settings
from tests.app.e2e.conftest import LrbsInside
from tests.app.published_sets import write_nus_wide, write_voc

CLASSES = {"y_tr": np.arange(4) % 2, "y_te": np.arange(4) % 2}


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
        "items.ndjson, line 4: colour: is",
        "items.ndjson, line 5.modality: u",
        "items.ndjson, line 7: another ro",
    ]
    assert done.stdout == "2 items stored in 'lines': 2 new, 0 changed, 0 unchanged; 4 refused\n"
    file.write_text("\n".join([lines[0], lines[-1]]))
    assert lrbs_inside(*ingest).stdout == "2 items stored in 'lines': 0 new, 1 changed, 1 unchanged\n"


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
    (tmp_path / "metadata").mkdir()
    for number in range(2):
        facts = [{"caption": f"caption {row}", "kind": "even" if row % 2 == 0 else None} for row in range(5)]
        pq.write_table(pa.Table.from_pylist(facts), tmp_path / "metadata" / f"metadata_{number}.parquet")
    assert ": 0 new, 19 changed" in lrbs_inside(*ingest, "--label-column", "kind").stdout
    services = build(Settings(data_dir=tmp_path / "data", database_url=""))
    labelled = services.catalogue.item("clip", "text-1:2")
    assert (labelled.labels, labelled.metadata) == (("even",), {"caption": "caption 2"})
    assert [item.id for _, item in services.catalogue.page("clip", None, 0, 9, "1:2").rows] == [
        "image-1:2",
        "text-1:2",
    ]
    np.save(tmp_path / "text_emb" / "text_emb_1.npy", np.ones((4, 3)))
    assert "text_emb_1.npy: has 4 rows, the pictures have 5" in lrbs_inside(*ingest).stderr
    (tmp_path / "text_emb" / "text_emb_1.npy").write_bytes(b"none")
    assert "text_emb_1.npy is not a readable .npy array" in lrbs_inside(*ingest).stderr


def test_a_collection_is_encoded_anew_from_its_originals(lrbs_inside: LrbsInside, tmp_path: Path) -> None:
    lines = [
        {"modality": "image", "id": name, "image_base64": base64.b64encode(picture(name)).decode()}
        for name in ("red", "blue", "lime")
    ]
    facts = {"labels": ["x", "y"], "pair_id": "red", "metadata": {"size": 3}, "train": False}
    lines.append({"modality": "text", "id": "t", "text": "red", **facts})
    file = tmp_path / "items.ndjson"
    file.write_text("\n".join(map(json.dumps, lines)))
    lrbs_inside("ingest", "ndjson", str(file), "-c", "old")
    for name, value in (("train", True), ("pair_id", "blue"), ("labels", ["y", "x"]), ("train", False)):
        file.write_text(json.dumps({**lines[-1], name: value}))
        done = lrbs_inside("ingest", "ndjson", str(file), "-c", "old")
        assert "1 items stored in 'old': 0 new, 1 changed, 0 unchanged" in done.stdout
    services = build(Settings(data_dir=tmp_path / "data", database_url=""))
    lost = services.catalogue.item("old", "lime").content_hash
    (copy,) = (tmp_path / "data").rglob(str(lost))
    copy.unlink()
    anew = ("ingest", "collection", "old", "-c", "new", "--image-encoder", "hog-color+hog-color")
    for expected in ("3 new, 0 changed, 0", "0 new, 0 changed, 3"):
        done = lrbs_inside(*anew)
        assert done.stdout == f"3 items stored in 'new': {expected} unchanged; 1 refused\n"
        assert "refused: item 'lime'" in done.stderr
    old, new = (
        {item.id: item for _, item in services.catalogue.page(name, None, 0, 9).rows}
        for name in ("old", "new")
    )
    image, text = services.catalogue.collection("new")[0].modalities
    assert image.encoder["type"] == "combine"
    assert text.encoder == services.catalogue.collection("old")[0].modalities[1].encoder
    assert new.keys() == old.keys() - {"lime"}
    assert (new["t"].text, new["t"].labels, new["t"].pair_id) == ("red", ("x", "y"), "red")
    assert (new["t"].metadata, new["t"].train) == ({"size": 3}, False)
    assert new["red"].content_hash == old["red"].content_hash
    single, double = (services.catalogue.item(name, "red").features for name in ("old", "new"))
    assert single is not None
    assert double is not None
    assert len(double) == 2 * len(single)
    refused = lrbs_inside("ingest", "collection", "old", "-c", "old")
    assert "--collection: name another one" in refused.stderr


def test_own_features_are_taken_along_to_another_collection(lrbs_inside: LrbsInside, tmp_path: Path) -> None:
    arrays = np.random.default_rng(0).normal(size=(4, 3))
    np.savez(
        tmp_path / "set.npz", a_tr=arrays, b_tr=arrays[:, :2], a_te=arrays, b_te=arrays[:, :2], **CLASSES
    )
    names = ("--x", "a", "--z", "b", "--modalities", "a,b")
    (tmp_path / "other.npz").write_bytes((tmp_path / "set.npz").read_bytes())
    for file in ("set.npz", "other.npz"):  # rows of the same numbers are others
        done = lrbs_inside("ingest", "npz", str(tmp_path / file), "-c", "old", *names)
        assert done.stdout == "16 items stored in 'old': 16 new, 0 changed, 0 unchanged\n"
    done = lrbs_inside("ingest", "collection", "old", "-c", "new")
    assert done.stdout == "32 items stored in 'new': 32 new, 0 changed, 0 unchanged\n"
    services = build(Settings(data_dir=tmp_path / "data", database_url=""))
    for _, item in services.catalogue.page("old", None, 0, 32).rows:
        old, new = (services.catalogue.item(name, item.id).features for name in ("old", "new"))
        assert old is not None
        np.testing.assert_array_equal(new, old)


def test_parquet_tables_and_pairs_of_arrays_are_brought_in(lrbs_inside: LrbsInside, tmp_path: Path) -> None:
    rows = [
        {"id": name, "image": picture(colour), "text": f"{colour} thing", "label": colour, "part": part}
        for name, colour, part in (("a", "red", "train"), ("b", "blue", "test"))
    ]
    table = tmp_path / "items.parquet"
    pq.write_table(pa.Table.from_pylist([*rows, {**rows[0], "id": "c", "image": b"none"}]), table)
    ingest = (
        "ingest",
        "table",
        str(table),
        "-c",
        "shop",
        "--split-column",
        "part",
        "--modalities",
        "photo,words",
    )
    for expected in ("5 new, 0 changed, 0", "0 new, 0 changed, 5"):
        done = lrbs_inside(*ingest)
        assert done.stdout == f"5 items stored in 'shop': {expected} unchanged; 1 refused\n", done.stderr
        assert "refused: items.parquet, row 2: is not a picture" in done.stderr
    shown = json.loads(lrbs_inside("items", "show", "shop", "words-b", "--json").stdout)
    assert (shown["labels"], shown["train"], shown["metadata"]) == (["blue"], False, {"split": "test"})
    assert "has no column 'caption'" in lrbs_inside(*ingest, "--text-column", "caption").stderr

    for name in ("x", "z"):
        np.save(tmp_path / f"{name}.npy", np.eye(3)[:, : 2 if name == "z" else 3])
    arrays = [str(tmp_path / "x.npy"), str(tmp_path / "z.npy")]
    stored = "6 items stored in 'vectors': 6 new, 0 changed, 0 unchanged\n"
    assert lrbs_inside("ingest", "npy", *arrays, "-c", "vectors", "--modalities", "a,b").stdout == stored
    np.savez(tmp_path / "rows.npz", x=np.eye(3), z=np.eye(3), labels=np.asarray(["u", "v", "w"]))
    archive = ("ingest", "npz", str(tmp_path / "rows.npz"), "-c", "rows")
    assert lrbs_inside(*archive).stdout.startswith("6 items stored in 'rows'")
    shown = json.loads(lrbs_inside("items", "show", "rows", "text-rows:000002", "--json").stdout)
    assert (shown["labels"], shown["pair_id"]) == (["w"], "rows:000002")


def test_published_sets_are_brought_in(lrbs_inside: LrbsInside, tmp_path: Path) -> None:
    voc = write_voc(tmp_path / "VOC2007", lambda number: picture("red" if number % 2 else "blue"))
    done = lrbs_inside("ingest", "voc2007", str(voc), "--single")
    assert done.stdout == "2 items stored in 'voc2007': 2 new, 0 changed, 0 unchanged; 1 refused\n"
    assert "refused: JPEGImages/000002.jpg: No such file" in done.stderr
    nus_wide = write_nus_wide(tmp_path / "NUS-WIDE")
    for options, stored in (((), "11 items"), (("--concepts", "2"), "9 items")):
        collection = f"nus{len(options)}"
        done = lrbs_inside("ingest", "nus-wide", str(nus_wide), "-c", collection, *options)
        assert done.stdout.startswith(f"{stored} stored in {collection!r}"), done.stderr
    shown = json.loads(lrbs_inside("collections", "show", "nus2", "--json").stdout)
    assert shown["modalities"]["text"]["encoder"]["type"] == "word-frequency"
