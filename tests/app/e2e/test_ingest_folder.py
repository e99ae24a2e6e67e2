"""Folders of pictures and texts as `lrbs ingest folder` brings them in."""

import json
import os
import re
import subprocess
import tarfile
import unicodedata
from collections import Counter
from pathlib import Path

import pytest
from PIL import Image

from app.bootstrap import build
from app.cli.sources.rows import identifier_of
from app.settings import Settings
from tests.app.e2e.conftest import LRBS, ROOT, LrbsInside, environment_of
from tests.app.phone_pictures import picture_of
from tests.app.sounds import tone
from tests.conftest import import_extra

N_PICTURES, N_DAMAGED = 1000, 20


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
    told_counts = json.loads(second.stdout)
    (reason,) = told_counts.pop("reasons")
    assert sorted(reason["places"]) == sorted(damaged)
    told = re.findall(r"^refused: (\S+): is not a picture", second.stderr, re.MULTILINE)
    assert told == reason["places"][:3]
    assert f"refused: and {N_DAMAGED - 3} more (--json names them): is not a picture" in second.stderr
    n_good = N_PICTURES - N_DAMAGED
    expected = {"created": n_good - n_before, "updated": 0, "unchanged": n_before, "refused": N_DAMAGED}
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
    assert "left out: 1 files that are no pictures nor texts (1 .md)" in done.stderr
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


def facts_of(data_dir: Path, collection: str) -> dict[str, tuple[tuple[str, ...], bool]]:
    """Return the labels of each file, and whether it is learned from."""
    services = build(Settings(data_dir=data_dir, database_url=""))
    rows = services.catalogue.page(collection, None, 0, 1000).rows
    return {item.metadata["source"]: (item.labels, item.train) for _, item in rows}


def test_folders_named_as_splits_are_no_labels_and_others_say_why_they_are(
    lrbs_inside: LrbsInside, tmp_path: Path
) -> None:
    layouts = {
        "outside": ["Train/bag/1.txt", "train/bag/2.txt", "VALID/bag/3.txt", "test_set/shoe/4.txt"],
        "inside": ["bag/training/1.txt", "bag/val2017/3.txt", "shoe/Held-Out/4.txt"],
        "german": ["Trainingsdaten/bag/1.txt", "Testdaten/bag/3.txt"],
        "others": ["train_v2/bag/1.txt", "minival/bag/3.txt", "test-dev/shoe/4.txt"],
        "deep": ["mine/train/bag/1.txt", "mine/dev/bag/3.txt", "mine/extra/2.txt"],
    }
    for name, files in layouts.items():
        for number, file in enumerate(files):
            (tmp_path / name / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name / file).write_text(f"text {number}")
        done = lrbs_inside("ingest", "folder", str(tmp_path / name), "-c", name)
        assert done.returncode == 0, done.stderr
        found = facts_of(tmp_path / "data", name)
        assert {file[-5:]: is_train for file, (_, is_train) in found.items()} == {
            f"{number}.txt": number in "12" for number in "1234" if f"{number}.txt" in " ".join(files)
        }
        assert {labels for labels, _ in found.values()} <= {("bag",), ("shoe",), ("extra",)}
    assert "held out: 1 files in 'dev'\n--no-splits" in done.stderr
    assert "labels: 'bag' and 'extra'" in done.stderr

    # A class that has the name of a split: nothing beside it has.
    for kind in ("test", "bag", "shoe", "Shoe"):
        (tmp_path / "classes" / kind).mkdir(parents=True)
        (tmp_path / "classes" / kind / "a.txt").write_text(f"a {kind}")
    ingest = ("ingest", "folder", str(tmp_path / "classes"), "-c")
    done = lrbs_inside(*ingest, "as-labels")
    assert "'test' is no split, as there is 'Shoe', 'bag' and 'shoe' beside it; --splits takes" in done.stderr
    assert "labels that differ in case or blanks alone are different ones: 'Shoe' and 'shoe'" in done.stderr
    assert facts_of(tmp_path / "data", "as-labels")["test/a.txt"] == (("test",), True)
    lrbs_inside(*ingest, "as-splits", "--splits")
    assert facts_of(tmp_path / "data", "as-splits")["test/a.txt"] == ((), False)
    alone = lrbs_inside("ingest", "folder", str(tmp_path / "classes" / "test"), "-c", "alone")
    assert (
        "'test' has the name of what is held out, and is learned from; --splits holds it out" in alone.stderr
    )
    lrbs_inside("ingest", "folder", str(tmp_path / "outside"), "-c", "no-splits", "--no-splits")
    assert facts_of(tmp_path / "data", "no-splits")["VALID/bag/3.txt"] == (("VALID",), True)


def test_names_are_compared_in_one_form_links_are_followed_and_nothing_is_left_out_silently(
    lrbs_inside: LrbsInside, tmp_path: Path
) -> None:
    folder, elsewhere = tmp_path / "shop", tmp_path / "elsewhere"
    composed, decomposed = "größe", unicodedata.normalize("NFD", "größe")
    for number, name in enumerate([f"{decomposed}.png", "Red Bag.PNG", "twins.png", "twins 2.png"]):
        draw(folder / "tasche" / name, number)
    for name in (composed, "red bag", "twins"):
        (folder / "tasche" / f"{name}.txt").write_text(f"a {name}")
    draw(elsewhere / "linked.png", 9)
    (folder / "links").symlink_to(elsewhere)
    (elsewhere / "back").symlink_to(tmp_path)
    (folder / "round").symlink_to(folder)
    for name in (".DS_Store", "Thumbs.db", "__MACOSX/tasche/._x.png", "a.odt", "no-ending"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"x")
    (folder / "empty.png").touch()
    (folder / "broken.png").symlink_to(folder / "gone.png")
    done = lrbs_inside("ingest", "folder", str(folder), "-c", "shop")
    assert done.returncode == 3
    assert "8 new" in done.stdout
    for line in (
        "left out: 2 files that are no pictures nor texts (1 .odt, 1 without ending)",
        "left out: 3 hidden files and folders ('.DS_Store', 'Thumbs.db' and '__MACOSX')",
        "left out: links that lead back to a folder around them: 'round' and 'links/back'",
        "4 pictures have no text of the same name beside them: 'broken', 'empty', 'links/linked' and ",
        "refused: broken.png: No such file or directory",
        "refused: empty.png: is not a picture",
    ):
        assert line in done.stderr
    found = stored_items(tmp_path / "data", "shop")
    pairs = Counter(pair for _, _, pair in found.values())
    assert sorted(pairs.values()) == [1, 1, 2, 2, 2]
    assert pairs[identifier_of(f"tasche/{composed}")] == pairs[identifier_of(f"tasche/{decomposed}")] == 2
    # The same files from a system that composes names differently are the same items.
    (folder / "tasche" / f"{decomposed}.png").rename(folder / "tasche" / f"{composed}.png")
    assert (
        "0 new, 0 changed, 8 unchanged" in lrbs_inside("ingest", "folder", str(folder), "-c", "shop").stdout
    )


@pytest.mark.data
def test_of_four_pairs_a_right_hit_is_not_called_none(lrbs_inside: LrbsInside, test_data: Path) -> None:
    assert lrbs_inside("ingest", "folder", str(test_data / "cases" / "partners"), "-c", "few").returncode == 0
    assert lrbs_inside("train", "few").returncode == 0
    for colour in ("red", "blue"):
        found = lrbs_inside("search", "few", "--text", colour, "-k", "2")
        lines = found.stdout.splitlines()
        assert [colour in line for line in lines] == [True, True]
        # Only partners match without labels and columns: nothing says how probable others are.
        assert not any("%" in line for line in lines)
        assert "no result stands out" not in found.stderr


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
    assert "left out: 1 files that are no sounds nor texts (1 .png)" in done.stderr
    assert "refused: low/bad.flac: is no readable sound" in done.stderr
    (folder / "low" / "bad.flac").unlink()
    again = lrbs_inside("ingest", "folder", str(folder), *names)
    assert again.stdout.endswith("0 new, 0 changed, 16 unchanged\n"), "the collection says what it takes"

    lines = ["id,file,text,label,pitch", "a,low/0.wav,a low one,low,deep", "b,low/0.txt,a text,low,"]
    (folder / "items.csv").write_text("\n".join(lines))
    columns = ("--picture-column", "file", "--label-column", "label")
    done = lrbs_inside("ingest", "table", str(folder / "items.csv"), *names, *columns)
    assert done.stdout == "3 items stored in 'calls': 3 new, 0 changed, 0 unchanged; 1 refused\n"
    assert "items.csv, line 3.sound low/0.txt: is no readable sound" in done.stderr

    assert lrbs_inside("train", "calls", "--method", "lrbs").returncode == 0
    query = tmp_path / "query.wav"
    query.write_bytes(tone(3025))
    found = lrbs_inside("search", "calls", "--sound", str(query), "-k", "4").stdout.splitlines()
    assert ["high" in line for line in found] == [True] * 4
    # A person knows a sound by the text of its partner and its file.
    asked = ("--sound", str(query), "-k", "1", "--to", "sound", "--show", "source,none", "--where")
    (line,) = lrbs_inside("search", "calls", *asked, "source=high/3.wav").stdout.splitlines()
    assert line.endswith("  a high tone (high/3.wav)  high  source=high/3.wav  sound-high:3.wav")
    (line,) = lrbs_inside("search", "calls", *asked, "pitch=deep").stdout.splitlines()
    assert line.endswith("  a low one (low/0.wav)  low  pitch=deep, source=low/0.wav  sound-a")
    missing = lrbs_inside("search", "calls", *asked, "Source=high/3.wav")
    assert "no item has the key 'Source' (did you mean 'source'?)" in missing.stderr
    listed = lrbs_inside("items", "list", "calls", "--where", "pitch=dep")
    assert (listed.stdout, "(did you mean 'deep'?)" in listed.stderr) == ("", True)
    wrong = lrbs_inside("search", "calls", "--picture", str(query))
    assert "--picture: collection 'calls' has no modality for pictures" in wrong.stderr
    judged = lrbs_inside("feedback", "give", "calls", "text-a", "--not-relevant", "--sound", str(query))
    assert judged.returncode == 0
    assert "to sound sound " in lrbs_inside("feedback", "list", "calls").stdout


def test_pictures_of_phones_cameras_and_scanners_are_brought_in_and_are_queries(
    lrbs_inside: LrbsInside, tmp_path: Path
) -> None:
    folder, colours = tmp_path / "shop", {"sea": (20, 60, 200), "wood": (20, 160, 40)}
    names = {"a.jpg": "MPO", "b.HEIC": "HEIF", "c.tif": "TIFF", "d.avif": "AVIF", "e.jp2": "JPEG2000"}
    for kind, colour in colours.items():
        (folder / kind).mkdir(parents=True)
        for name, form in names.items():
            (folder / kind / name).write_bytes(picture_of(form, colour, ord(name[0])))
            (folder / kind / name).with_suffix(".txt").write_text(f"{kind} number {name[0]}")
    (folder / "sea" / "bad.heif").write_bytes(picture_of("HEIF", (0, 0, 0))[:-40])
    (folder / "sea" / "film.eps").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0")
    done = lrbs_inside("ingest", "folder", str(folder), "-c", "shop")
    assert done.stdout == "20 items stored in 'shop': 20 new, 0 changed, 0 unchanged; 1 refused\n", (
        done.stderr
    )
    assert "left out: 1 files that are no pictures nor texts (1 .eps)" in done.stderr
    assert "refused: sea/bad.heif: " in done.stderr

    (folder / "sea" / "bad.heif").unlink()
    with tarfile.open(tmp_path / "shop.tar", "w") as archive:
        for name in names:
            archive.add(folder / "wood" / name, f"of-tar-{name}")
    (folder / "items.csv").write_text("\n".join(["id,image", *(f"{name},wood/{name}" for name in names)]))
    for command in (("tar", str(tmp_path / "shop.tar")), ("table", str(folder / "items.csv"))):
        done = lrbs_inside("ingest", *command, "-c", "more")
        assert done.stdout.startswith("5 items stored in 'more': 5 new, 0 changed, 0 unchanged"), done.stderr

    assert lrbs_inside("train", "shop", "--method", "lrbs").returncode == 0
    for form in names.values():
        query = tmp_path / "query.jpg"
        query.write_bytes(picture_of(form, colours["wood"], 99))
        found = lrbs_inside("search", "shop", "--picture", str(query), "-k", "5")
        assert ["wood" in line for line in found.stdout.splitlines()[:5]] == [True] * 5, found.stderr
    query.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0")
    refused = lrbs_inside("search", "shop", "--picture", str(query))
    assert refused.returncode == 1
    assert "is not a picture; expected a file in JPEG, PNG, " in refused.stderr
