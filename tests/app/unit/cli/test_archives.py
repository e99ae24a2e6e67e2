import base64
import dataclasses
import gzip
import io
import json
import os
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.cli.sources import folders
from app.cli.sources.folders import open_archives
from app.cli.sources.rows import Refusal, Row
from app.cli.sources.samples import write_samples
from app.services.catalogue.service import NewItem

_TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=9)
_VALUES = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(-1e9, 1e9) | st.lists(_TEXTS)
_EXPORTED = st.fixed_dictionaries(
    {
        "labels": st.lists(st.sampled_from(["red", "big", " wide", "a\nb", "\ufeffx"]) | _TEXTS, max_size=3),
        "metadata": st.dictionaries(
            st.sampled_from(["size", "lrbs", "source"]) | _TEXTS, _VALUES, max_size=3
        ),
        "pair_id": st.none() | st.sampled_from(["p1", "p2"]),
        "train": st.booleans(),
    }
)
_CONTENTS = st.fixed_dictionaries(
    {"text": _TEXTS | st.just("\ufeff red\r\n"), "modality": st.just("words")}
) | (
    st.fixed_dictionaries(
        {
            "image_base64": st.binary(max_size=600).map(lambda file: base64.b64encode(file).decode()),
            "modality": st.just("photo"),
        }
    )
)


def write_tar(path: Path, members: dict[str, bytes | None]) -> Path:
    """Write members; one without content becomes a link to a file of the system."""
    with tarfile.open(path, "w") as archive:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            if content is None:
                entry.type, entry.linkname = tarfile.SYMTYPE, "/etc/passwd"
            entry.size = len(content or b"")
            archive.addfile(entry, io.BytesIO(content or b""))
    return path


def rows_of(
    *files: Path, report: Callable[[str], None] = lambda _: None, are_splits: bool | None = None
) -> list[Row]:
    return list(open_archives(files, {"picture": "photo", "text": "words"}, report, are_splits).rows())


def refusals_of(rows: list[Row]) -> dict[str, str]:
    return {row.place: row.reason for row in rows if isinstance(row, Refusal)}


def test_members_of_one_name_are_one_sample(tmp_path: Path) -> None:
    members = {"a/1.jpg": b"one", "a/1.txt": "größe".encode(), "a/1.cls": b"7\n", "a/1.json": b'{"width": 3}'}
    first = write_tar(tmp_path / "0.tar", {**members, "a/2.seg.png": b"two", "a/2.npy": b"unused"})
    second = write_tar(tmp_path / "1.tar", {"a/1.jpg": b"other"})
    picture, text, lone, other = (row for row in rows_of(first, second) if isinstance(row, NewItem))
    assert (picture.modality, picture.content.picture, picture.labels) == ("photo", b"one", ("7",))
    assert (text.modality, text.content.text) == ("words", "größe")
    assert text.metadata == {"width": 3, "source": "0/a/1.txt"}
    assert (picture.pair_id, picture.id, text.id) == ("0:a:1", "photo-0:a:1", "words-0:a:1")
    assert (lone.id, lone.content.picture, other.id) == ("photo-0:a:2", b"two", "photo-1:a:1")


def test_a_class_file_has_a_label_on_each_line(tmp_path: Path) -> None:
    members = {"1.jpg": b"one", "1.cls": b"red\r\n big \n\nred\n", "2.jpg": b"two", "2.cls": b"\n"}
    rows = rows_of(write_tar(tmp_path / "s.tar", members))
    assert [row.labels for row in rows if isinstance(row, NewItem)] == [("red", "big"), ()]


def test_bad_members_are_named_and_the_others_are_read(tmp_path: Path) -> None:
    members = {"1.jpg": b"one", "1.txt": None, "2.jpg": b"two", "2.json": b"[1]", "../3.jpg": b"three"}
    file = write_tar(tmp_path / "s.tar", {**members, "4.cls": b"alone", "._5.jpg": b"x", "6.odt": b"x"})
    notes: list[str] = []
    rows = rows_of(file, report=notes.append)
    assert refusals_of(rows) == {
        "s.tar/1.txt": "is a link to '/etc/passwd', which is no file of the archive that is taken",
        "s.tar/2.json": "expected a JSON object",
        "s.tar/4": "has neither picture, sound nor text",
    }
    assert [row.content.picture for row in rows if isinstance(row, NewItem)] == [b"one", b"three"]
    assert notes[:2] == [
        "s.tar: left out: 1 files that are no pictures nor texts (1 .odt)",
        "s.tar: left out: 1 hidden files and folders ('._5.jpg')",
    ]
    assert list(tmp_path.iterdir()) == [file]


def test_a_damaged_tar_file_yields_what_it_has_but_for_what_may_be_incomplete(tmp_path: Path) -> None:
    file = write_tar(tmp_path / "s.tar", {"1.jpg": b"one", "2.jpg": b"2" * 5000})
    whole = file.read_bytes()
    second = 2 * tarfile.BLOCKSIZE  # after the header and the content of the first member
    spoilt = whole[:second] + bytes(range(256)) * 2 + whole[second + tarfile.BLOCKSIZE :]
    for content, last, reason in (
        (whole[:2048], "2.jpg", "unexpected end of data"),
        (whole[:second], "1.jpg", "the mark of its end is missing"),
        (spoilt, "1.jpg", "invalid header"),
    ):
        file.write_bytes(content)
        bad, good = rows_of(file)
        assert isinstance(good, NewItem)
        told = f"is damaged in or after this member, or no tar file: {reason}"
        assert bad == Refusal(f"s.tar/{last}", told)
    file.write_bytes(b"no tar" * 1000)
    assert rows_of(file) == [Refusal("s.tar", "is damaged, or no tar file: invalid header")]

    write_tar(file, {"1.jpg": b"one", "1.txt": b"a", "2.jpg": b"two", "2.txt": b"b"})
    file.write_bytes(file.read_bytes()[: 7 * tarfile.BLOCKSIZE])
    cut = rows_of(file)
    assert refusals_of(cut)["s.tar/2"] == "is left out, as its text may be behind the damage"
    assert [row.id for row in cut if isinstance(row, NewItem)] == ["photo-s:1", "words-s:1"]


def test_members_come_in_any_order_and_names_may_have_dots(tmp_path: Path) -> None:
    endings = {".jpg": b"p", ".txt": b"t", ".cls": b"red"}
    names = ["v1.0", "v1.1", "v1.2"]
    dotted = {f"shot.{name}{ending}": body for name in names for ending, body in endings.items()}
    unsorted = {f"./{name[-1]}{ending}": body for ending, body in endings.items() for name in names}
    for members, keys in ((dotted, ["shot.v1.0", "shot.v1.1", "shot.v1.2"]), (unsorted, ["0", "1", "2"])):
        rows = rows_of(write_tar(tmp_path / "s.tar", members))
        items = {row.id: row for row in rows if isinstance(row, NewItem)}
        assert sorted(items) == [f"{kind}-s:{key}" for kind in ("photo", "words") for key in keys]
        assert len(items) == len(rows)
        assert {row.labels for row in items.values()} == {("red",)}
        assert {row.pair_id for row in items.values()} == {f"s:{key}" for key in keys}

    several = {"1.left.jpg": b"l", "1.right.jpg": b"r", "1.txt": b"t", "1.cls": b"red"}
    rows = rows_of(write_tar(tmp_path / "s.tar", several))
    assert {(row.pair_id, row.labels) for row in rows if isinstance(row, NewItem)} == {("s:1", ("red",))}
    assert len({row.id for row in rows if isinstance(row, NewItem)}) == 3
    unclear = {"a.jpg": b"p", "a.txt": b"t", "a.cls": b"red", "a.b.jpg": b"q", "a.b.txt": b"u"}
    ((place, reason),) = refusals_of(rows_of(write_tar(tmp_path / "s.tar", unclear))).items()
    assert place == "s.tar/a"
    assert reason.startswith("may be one sample or 2, as names have dots: 'a.b.jpg', 'a.b.txt'")


def test_links_lead_to_members_and_never_out_of_the_archive(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "s.tar", "w") as archive:
        for name, kind, target in (
            ("a/1.jpg", tarfile.REGTYPE, ""),
            ("b/2.jpg", tarfile.LNKTYPE, "a/1.jpg"),
            ("b/3.jpg", tarfile.SYMTYPE, "../a/1.jpg"),
            ("b/4.jpg", tarfile.SYMTYPE, "3.jpg"),
            ("b/5.jpg", tarfile.SYMTYPE, "5.jpg"),
            ("b/6.jpg", tarfile.SYMTYPE, "../../../1.jpg"),
        ):
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname, entry.size = kind, target, 3 * (kind == tarfile.REGTYPE)
            archive.addfile(entry, io.BytesIO(b"one"))
    rows = rows_of(tmp_path / "s.tar")
    assert [row.place for row in rows if isinstance(row, NewItem)] == [
        f"s.tar/{name}.jpg" for name in ("a/1", "b/2", "b/3", "b/4")
    ]
    assert {row.content.picture for row in rows if isinstance(row, NewItem)} == {b"one"}
    assert sorted(refusals_of(rows)) == ["s.tar/b/5.jpg", "s.tar/b/6.jpg"]


def test_archives_one_behind_the_other_are_read_whole(tmp_path: Path) -> None:
    first, second = (
        write_tar(tmp_path / f"{name}.tar", {f"{name}.jpg": name.encode()}) for name in ("one", "two")
    )
    both = tmp_path / "both.tar"
    both.write_bytes(first.read_bytes() + second.read_bytes())
    joined = tmp_path / "joined.tar.gz"
    joined.write_bytes(gzip.compress(first.read_bytes()) + gzip.compress(second.read_bytes()))
    for file in (both, joined):
        assert [row.content.picture for row in rows_of(file) if isinstance(row, NewItem)] == [b"one", b"two"]
    pipe = tmp_path / "pipe.tar"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(first.read_bytes(),))
    writer.start()
    assert [row.id for row in rows_of(pipe) if isinstance(row, NewItem)] == ["photo-pipe:one"]
    writer.join()
    both.write_bytes(b"\x28\xb5\x2f\xfd" + bytes(100))
    assert "zstd" in refusals_of(rows_of(both))["both.tar"]


def test_splits_are_folders_of_members_or_archives(tmp_path: Path) -> None:
    inside = write_tar(tmp_path / "s.tar", {"Train/a/1.txt": b"1", "Valid/a/2.txt": b"2"})
    first = write_tar(tmp_path / "set-train-0.tar", {"1.txt": b"1"})
    second = write_tar(tmp_path / "set-val-0.tar", {"2.txt": b"2"})
    notes: list[str] = []
    for files, are_splits, expected in (
        ([inside], None, [True, False]),
        ([inside], False, [True, True]),
        ([first, second], None, [True, False]),
        ([second], None, [True]),
        ([second], True, [False]),
    ):
        rows = rows_of(*files, report=notes.append, are_splits=are_splits)
        assert [row.train for row in rows if isinstance(row, NewItem)] == expected
    assert "s.tar: held out: 1 files in 'Valid'" in notes
    assert any("'set-val-0' has the name of what is held out" in note for note in notes)


@pytest.mark.parametrize("compression", ["gz", "bz2", "xz"])
def test_a_compressed_archive_has_the_items_of_the_plain_one(tmp_path: Path, compression: str) -> None:
    plain = write_tar(tmp_path / "s.v1.tar", {"a/1.jpg": b"one", "a/1.txt": b"text", "2.jpg": b"2" * 50_000})
    compressed = tmp_path / f"s.v1.tar.{compression}"
    with tarfile.open(compressed, f"w:{compression}") as archive, tarfile.open(plain) as source:
        for entry in source:
            archive.addfile(entry, source.extractfile(entry))
    assert rows_of(compressed) == [
        dataclasses.replace(row, place=str(row.place).replace(".tar", f".tar.{compression}"))
        for row in rows_of(plain)
    ]
    compressed.write_bytes(compressed.read_bytes()[:-100])
    bad, *_ = rows_of(compressed)
    assert isinstance(bad, Refusal)
    assert bad.reason.startswith("is damaged")


def test_members_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "MAX_FILE_BYTES", 10)
    monkeypatch.setattr(folders, "_MAX_ANNOTATION_BYTES", 3)
    file = write_tar(tmp_path / "s.tar", {"1.jpg": b"123456", "1.cls": b"1234", "2.jpg": b"12345678901"})
    rows = rows_of(file)
    assert sorted(refusals_of(rows)) == ["s.tar/1.cls", "s.tar/2.jpg"]
    assert [row.place for row in rows if isinstance(row, NewItem)] == ["s.tar/1.jpg"]


@settings(max_examples=60, deadline=None, database=None)
@given(drawn=st.lists(st.tuples(_EXPORTED, _CONTENTS), max_size=6))
def test_what_is_exported_is_read_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[tuple[dict[str, Any], dict[str, Any]]]
) -> None:
    items = [{"id": f"i.{number}", **facts, **content} for number, (facts, content) in enumerate(drawn)]
    file = tmp_path_factory.mktemp("exported") / "test.tar"
    file.write_bytes(b"".join(write_samples(items)))
    notes: list[str] = []
    rows = rows_of(file, report=notes.append)
    read = []
    for row in rows:
        assert isinstance(row, NewItem), row
        picture = row.content.picture
        content = (
            {"text": row.content.text}
            if picture is None
            else {"image_base64": base64.b64encode(picture).decode()}
        )
        facts = {name: getattr(row, name) for name in ("id", "modality", "metadata", "pair_id", "train")}
        read.append({**facts, **content, "labels": list(row.labels)})
    assert read == items
    assert not [note for note in notes if "held out" in note]


def test_partners_that_follow_each_other_are_one_sample(tmp_path: Path) -> None:
    facts = {"labels": ["red"], "pair_id": "p", "train": True}
    text = {"id": "t", "modality": "words", "text": "red", "metadata": {"size": 3, "source": "1.txt"}}
    heads = {
        "jpg": b"\xff\xd8\xff",
        "png": b"\x89PNG",
        "webp": b"RIFF1234WEBP",
        "avif": b"\0\0\0 ftypavif",
        "tga": b"?",
    }
    items = [facts | text]
    for number, head in enumerate(heads.values()):
        picture = {"modality": "photo", "image_base64": base64.b64encode(head).decode()}
        items.append(facts | picture | {"id": f"i{number}", "metadata": {"size": 3, "source": "1.jpg"}})
    for number, head in enumerate((b"fLaC", b"RIFX")):
        sound = {"modality": "noise", "sound_base64": base64.b64encode(head).decode(), "metadata": {}}
        items.append(facts | sound | {"id": f"s{number}", "pair_id": None})
    file = tmp_path / "s.tar"
    file.write_bytes(b"".join(write_samples(items)))
    with tarfile.open(file) as archive:
        names = [name for name in archive.getnames() if not name.endswith((".json", ".cls"))]
        first = archive.extractfile("000000000.json")
        labels = archive.extractfile("000000000.cls")
        assert first is not None
        assert labels is not None
        assert (json.load(first)["size"], labels.read()) == (3, b"red")
    endings = ["000000000.txt", *(f"{number:09}.{ending}" for number, ending in enumerate(heads))]
    assert names == [*endings, "000000005.flac", "000000006.wav"]


def test_facts_of_an_export_that_were_damaged_are_named(tmp_path: Path) -> None:
    facts = {"1.txt": b"one", "1.json": b'{"lrbs": {"txt": {"id": 7, "pair_id": null, "train": true}}}'}
    refusals = refusals_of(
        rows_of(write_tar(tmp_path / "s.tar", facts | {"2.txt": b"two", "2.json": b'{"lrbs": 1}'}))
    )
    assert refusals == {
        "s.tar/1.json": "lrbs: Expected `str`, got `int` - at `$[...].id`",
        "s.tar/2.json": "lrbs: Expected `object`, got `int`",
    }
