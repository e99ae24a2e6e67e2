import dataclasses
import io
import tarfile
from pathlib import Path

import pytest

from app.cli.sources import archives
from app.cli.sources.archives import Archives
from app.cli.sources.rows import Refusal, Row
from app.services.catalogue.service import NewItem


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


def rows_of(*files: Path) -> list[Row]:
    return list(Archives(files, {"picture": "photo", "text": "words"}).rows())


def test_members_of_one_name_are_one_sample(tmp_path: Path) -> None:
    members = {"a/1.jpg": b"one", "a/1.txt": "größe".encode(), "a/1.cls": b"7\n", "a/1.json": b'{"width": 3}'}
    first = write_tar(tmp_path / "0.tar", {**members, "a/2.seg.png": b"two", "a/2.npy": b"unused"})
    second = write_tar(tmp_path / "1.tar", {"a/1.jpg": b"other"})
    picture, text, lone, other = (row for row in rows_of(first, second) if isinstance(row, NewItem))
    assert (picture.modality, picture.content.picture, picture.labels) == ("photo", b"one", ("7",))
    assert (text.modality, text.content.text, text.metadata) == ("words", "größe", {"width": 3})
    assert (picture.pair_id, picture.id, text.id) == ("0:a:1", "photo-0:a:1", "words-0:a:1")
    assert (lone.id, lone.content.picture, other.id) == ("photo-0:a:2", b"two", "photo-1:a:1")


def test_a_class_file_has_a_label_on_each_line(tmp_path: Path) -> None:
    members = {"1.jpg": b"one", "1.cls": b"red\r\n big \n\nred\n", "2.jpg": b"two", "2.cls": b"\n"}
    rows = rows_of(write_tar(tmp_path / "s.tar", members))
    assert [row.labels for row in rows if isinstance(row, NewItem)] == [("red", "big"), ()]


def test_bad_members_are_named_and_the_others_are_read(tmp_path: Path) -> None:
    members = {"1.jpg": b"one", "1.txt": None, "2.jpg": b"two", "2.json": b"[1]", "../3.jpg": b"three"}
    file = write_tar(tmp_path / "s.tar", members)
    rows = rows_of(file)
    refused = {row.place: row.reason for row in rows if isinstance(row, Refusal)}
    assert refused == {
        "s.tar/1.txt": "is a link or a device, not a file",
        "s.tar/2.json": "expected a JSON object",
    }
    assert [row.content.picture for row in rows if isinstance(row, NewItem)] == [b"one", b"three"]
    assert list(tmp_path.iterdir()) == [file]


def test_a_tar_file_that_ends_early_yields_what_it_has(tmp_path: Path) -> None:
    file = write_tar(tmp_path / "s.tar", {"1.jpg": b"one", "2.jpg": b"2" * 5000})
    whole = file.read_bytes()
    second = 2 * tarfile.BLOCKSIZE  # after the header and the content of the first member
    spoilt = whole[:second] + bytes(range(256)) * 2 + whole[second + tarfile.BLOCKSIZE :]
    for content, reason in (
        (whole[:2048], "unexpected end of data"),
        (whole[:second], "the mark of its end is missing"),
        (spoilt, "invalid header"),
    ):
        file.write_bytes(content)
        good, bad = rows_of(file)
        assert isinstance(good, NewItem)
        assert isinstance(bad, Refusal)
        assert bad.reason == f"is damaged from here on, or no tar file: {reason}"


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
    *_, bad = rows_of(compressed)
    assert isinstance(bad, Refusal)
    assert bad.reason.startswith("is damaged from here on")


def test_members_of_one_sample_are_bounded_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MAX_FILE_BYTES", 10)
    file = write_tar(
        tmp_path / "s.tar", {"1.jpg": b"123456", "1.txt": b"12345", "2.jpg": b"12345678901", "3.jpg": b"1"}
    )
    rows = rows_of(file)
    assert [(row.place, row.reason) for row in rows if isinstance(row, Refusal)] == [
        ("s.tar/1.txt", "makes its sample larger than 256 MiB"),
        ("s.tar/2.jpg", "is larger than 256 MiB"),
    ]
    assert [row.place for row in rows if isinstance(row, NewItem)] == ["s.tar/1.jpg", "s.tar/3.jpg"]
