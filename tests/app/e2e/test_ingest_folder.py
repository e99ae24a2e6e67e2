"""Folders of pictures and texts as `lrbs ingest folder` brings them in."""

import json
import os
import re
import subprocess
from pathlib import Path

from PIL import Image

from app.bootstrap import build
from app.cli.sources.rows import identifier_of
from app.settings import Settings
from tests.app.e2e.conftest import LRBS, ROOT, LrbsInside, environment_of
from tests.app.sounds import tone
from tests.conftest import import_extra

N_PICTURES, N_DAMAGED = 2500, 20


def draw(path: Path, number: int) -> None:
    """Draw a small picture that no other number has."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (2, 2), (number % 256, number // 256, 0)).save(path)


def stored_items(
    data_dir: Path, collection: str
) -> dict[str, tuple[str | None, tuple[str, ...], str | None]]:
    services = build(Settings(data_dir=data_dir, database_url=""))
    rows = services.catalogue.page(collection, None, 0, 2 * N_PICTURES).rows
    return {item.id: (item.content_hash, item.labels, item.pair_id) for _, item in rows}


def test_a_folder_with_damaged_pictures_survives_a_kill(tmp_path: Path) -> None:
    folder, data = tmp_path / "pictures", tmp_path / "data"
    for number in range(N_PICTURES):
        draw(folder / f"class{number % 10}" / f"{number}.png", number)
    damaged = [f"class{number % 10}/{number}.png" for number in range(7, N_PICTURES, N_PICTURES // N_DAMAGED)]
    for name in damaged:
        (folder / name).write_bytes((folder / name).read_bytes()[:40])
    command = [*LRBS, "ingest", "folder", str(folder), "-c", "many"]
    where = {"cwd": ROOT, "env": environment_of(data), "text": True}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **where) as first:  # type: ignore[call-overload]
        for line in first.stderr:
            if " storing " in line:
                break
        first.kill()
    assert first.returncode < 0
    n_before = len(stored_items(data, "many"))
    assert 0 < n_before < N_PICTURES - N_DAMAGED

    second = subprocess.run([*command, "--json"], capture_output=True, **where)  # type: ignore[call-overload]
    assert second.returncode == 3, second.stderr
    told = re.findall(r"^refused: (\S+): is not a picture", second.stderr, re.MULTILINE)
    assert sorted(told) == sorted(damaged)
    n_good = N_PICTURES - N_DAMAGED
    expected = {"created": n_good - n_before, "updated": 0, "unchanged": n_before, "refused": N_DAMAGED}
    told_counts = json.loads(second.stdout)
    assert told_counts.pop("revision") > 0
    assert told_counts == expected
    found = stored_items(data, "many")
    names = {f"class{number % 10}/{number}.png" for number in range(N_PICTURES)} - set(damaged)
    assert {(labels, pair) for _, labels, pair in found.values()} == {
        ((name.split("/")[0],), pair) for name, pair in zip(names, map(pair_of, names), strict=True)
    }
    assert len({content for content, _, _ in found.values()}) == len(found) == n_good


def pair_of(name: str) -> str:
    return identifier_of(name.removesuffix(".png"))


def test_texts_are_partners_of_pictures_of_the_same_name(lrbs_inside: LrbsInside, tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    for number, name in enumerate(["train/bag/a 1.jpg", "train/shoe/b.JPG", "test/bag/c.jpg"]):
        draw(folder / name, number)
        text = folder / name[:-4]
        text.with_suffix(".txt").write_bytes(f"für {number} €".encode("cp1252" if number else "utf-8"))
    (folder / "train" / "readme.md").write_text("no item")
    (folder / "train" / "bag" / "empty.txt").write_text(" ")
    os.mkfifo(folder / "train" / "bag" / "pipe.jpg")  # opened, it would be waited for without end
    ingest = ("ingest", "folder", str(folder), "-c", "shop", "--modalities", "photo,words")
    done = lrbs_inside(*ingest)
    assert done.returncode == 3
    assert done.stdout == "6 items stored in 'shop': 6 new, 0 changed, 0 unchanged; 2 refused\n"
    assert "1 other files" in done.stderr
    assert "refused: train/bag/pipe.jpg: is no file but a pipe, a device or a folder" in done.stderr
    assert "refused: train/bag/empty.txt.text: expected a text that is not empty" in done.stderr

    (folder / "train" / "bag" / "empty.txt").unlink()
    (folder / "train" / "bag" / "pipe.jpg").unlink()
    (folder / "train" / "shoe" / "b.txt").write_text("another text")
    done = lrbs_inside(*ingest)
    assert done.stdout == "6 items stored in 'shop': 0 new, 1 changed, 5 unchanged\n"
    assert done.returncode == 0
    refused = lrbs_inside("ingest", "folder", str(folder), "-c", "shop")
    assert refused.returncode == 1
    assert "--modalities: collection 'shop' has photo and words, not image and text" in refused.stderr


def test_a_picture_whose_file_was_lost_is_given_back(lrbs_inside: LrbsInside, tmp_path: Path) -> None:
    draw(tmp_path / "one" / "a.png", 1)
    ingest = ("ingest", "folder", str(tmp_path / "one"), "-c", "one")
    lrbs_inside(*ingest)
    content = (tmp_path / "one" / "a.png").read_bytes()
    ((content_hash, _, _),) = stored_items(tmp_path / "data", "one").values()
    (copy,) = (tmp_path / "data").rglob(str(content_hash))
    copy.unlink()
    assert lrbs_inside(*ingest).stdout.endswith("0 new, 0 changed, 1 unchanged\n")
    assert copy.read_bytes() == content


def test_sounds_are_brought_in_from_folders_and_tables_and_are_queries(
    lrbs_inside: LrbsInside, tmp_path: Path
) -> None:
    import_extra("soundfile")
    folder = tmp_path / "calls"
    for number in range(8):
        name = ("low", "high")[number % 2]
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / f"{number}.wav").write_bytes(tone(300 + 3000 * (number % 2) + 10 * number))
        (folder / name / f"{number}.txt").write_text(f"a {name} tone")
    (folder / "low" / "bad.flac").write_bytes(b"fLaC")
    (folder / "low" / "cover.png").write_bytes(b"no sound")
    names = ("-c", "calls", "--modalities", "sound,text")
    done = lrbs_inside("ingest", "folder", str(folder), *names, "--image-encoder", "mfcc")
    assert done.stdout == "16 items stored in 'calls': 16 new, 0 changed, 0 unchanged; 1 refused\n"
    assert "1 other files are no sounds nor texts" in done.stderr
    assert "refused: low/bad.flac: is no readable sound" in done.stderr
    (folder / "low" / "bad.flac").unlink()
    again = lrbs_inside("ingest", "folder", str(folder), *names)
    assert again.stdout.endswith("0 new, 0 changed, 16 unchanged\n"), "the collection says what it takes"

    lines = ["id,file,text,label", "a,low/0.wav,a low one,low", "b,low/0.txt,a text,low"]
    (folder / "items.csv").write_text("\n".join(lines))
    columns = ("--picture-column", "file", "--label-column", "label")
    done = lrbs_inside("ingest", "table", str(folder / "items.csv"), *names, *columns)
    assert done.stdout == "3 items stored in 'calls': 3 new, 0 changed, 0 unchanged; 1 refused\n"
    assert "refused: row 'b'.sound 0.txt: is no readable sound" in done.stderr

    assert lrbs_inside("train", "calls", "--method", "lrbs").returncode == 0
    query = tmp_path / "query.wav"
    query.write_bytes(tone(3025))
    found = lrbs_inside("search", "calls", "--sound", str(query), "-k", "4").stdout.splitlines()
    assert ["high" in line for line in found] == [True] * 4
    wrong = lrbs_inside("search", "calls", "--picture", str(query))
    assert "--picture: collection 'calls' has no modality for pictures" in wrong.stderr
    judged = lrbs_inside("feedback", "give", "calls", "text-a", "--not-relevant", "--sound", str(query))
    assert judged.returncode == 0
    assert "to sound sound " in lrbs_inside("feedback", "list", "calls").stdout
