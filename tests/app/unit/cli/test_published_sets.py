"""VOC2007 and NUS-WIDE as they are published."""

from pathlib import Path

import pytest

from app.cli.sources.published import open_nus_wide, open_voc, read_lists
from app.cli.sources.rows import Refusal
from app.domain.errors import InvalidFieldError
from app.services.catalogue.preparation import NewItem
from tests.app.published_sets import write_nus_wide, write_voc

NAMES = ("photo", "words")


def test_pictures_of_voc_have_the_classes_that_they_clearly_show(tmp_path: Path) -> None:
    root, texts = write_voc(tmp_path / "VOC2007"), tmp_path / "tags"
    texts.mkdir()
    (texts / "000005.txt").write_bytes("chien Müll".encode("cp1252"))
    source = open_voc(root, texts, NAMES)
    rows = list(source.rows())
    items = {row.id: row for row in rows if isinstance(row, NewItem)}
    assert source.total == len(rows) == 8
    assert {name: (item.labels, item.train) for name, item in items.items()} == {
        "photo-000005": (("dog",), True),
        "words-000005": (("dog",), True),
        "photo-000007": (("car",), True),
        "photo-000001": (("car", "dog"), False),
    }
    assert items["words-000005"].content.text == "chien Müll"
    assert items["words-000005"].pair_id == items["photo-000005"].pair_id
    assert sorted(row.place for row in rows if isinstance(row, Refusal)) == [
        "JPEGImages/000002.jpg",
        "tags/000001.txt",
        "tags/000002.txt",
        "tags/000007.txt",
    ]
    assert list(read_lists(root, single=True)[0]) == ["000002", "000005", "000007"]
    assert open_voc(root, None, NAMES).total == 4


def test_a_line_that_is_none_of_a_list_is_named(tmp_path: Path) -> None:
    root = write_voc(tmp_path)
    (root / "ImageSets" / "Main" / "car_test.txt").write_text("000001 1\n000002 yes\n")
    with pytest.raises(
        InvalidFieldError, match=r"car_test.txt, line 2: expected a picture and 1, 0 or -1, got"
    ):
        read_lists(root)
    with pytest.raises(InvalidFieldError, match=r"has no lists ImageSets/Main/<class>_trainval.txt"):
        read_lists(tmp_path / "JPEGImages")


def test_lines_of_nus_wide_become_vectors_tags_and_concepts(tmp_path: Path) -> None:
    source = open_nus_wide(write_nus_wide(tmp_path), None, NAMES)
    items = {row.id: row for row in source.rows() if isinstance(row, NewItem)}
    assert source.total == 12
    assert {name: item.labels for name, item in items.items() if name.startswith("photo")} == {
        "photo-train-000000": ("sea", "sky"),
        "photo-train-000001": ("sky",),
        "photo-train-000002": ("dog",),
        "photo-train-000003": ("sky",),
        "photo-test-000000": ("dog", "sky"),
        "photo-test-000001": ("dog",),
    }
    texts = {name: item.content.text for name, item in items.items() if name.startswith("words")}
    assert texts == {
        "words-train-000000": "beach sea",
        "words-train-000002": "nikon",
        "words-train-000003": "beach nikon sea",
        "words-test-000000": "sea",
        "words-test-000001": "beach",
    }
    first, last = items["photo-train-000000"], items["photo-test-000001"]
    assert (first.content.vector, first.train, first.pair_id) == ([1.0, 0.0, 2.0], True, "train-000000")
    assert (last.content.vector, last.train) == ([6.0, 6.0, 6.0], False)


def test_of_frequent_concepts_only_pictures_of_exactly_one_are_kept(tmp_path: Path) -> None:
    source = open_nus_wide(write_nus_wide(tmp_path), 2, NAMES)  # sky, then dog before sea by name
    kept = {row.id: row.labels for row in source.rows() if isinstance(row, NewItem)}
    assert {name: labels for name, labels in kept.items() if name.startswith("photo")} == {
        "photo-train-000000": ("sky",),
        "photo-train-000001": ("sky",),
        "photo-train-000002": ("dog",),
        "photo-train-000003": ("sky",),
        "photo-test-000001": ("dog",),
    }


def test_bad_lines_and_files_of_nus_wide_are_named(tmp_path: Path) -> None:
    root = write_nus_wide(tmp_path)
    (root / "Low_Level_Features" / "BoW_Train_int.dat").write_text("1 0 2\nx\n3 1 1\n")
    (root / "NUS_WID_Tags" / "Test_Tags1k.dat").write_text("0 1\n1 0 0\n")
    rows = list(open_nus_wide(root, None, NAMES).rows())
    assert [(row.place, row.reason) for row in rows if isinstance(row, Refusal)] == [
        ("BoW_Train_int.dat, line 2", "could not convert string to float: b'x'"),
        (
            "BoW_Train_int.dat, Train_Tags1k.dat and Labels_*_Train.txt",
            "one of them ends after 3 lines, another goes on",
        ),
        ("Test_Tags1k.dat, line 1", "has 2 numbers, TagList1k.txt has 3 tags"),
    ]
    labels = root / "Groundtruth" / "TrainTestLabels"
    (labels / "Labels_dog_Test.txt").write_text("1\n2\n")
    with pytest.raises(InvalidFieldError, match=r"Labels_dog_Test.txt, line 2: expected 0 or 1, got b'2'"):
        open_nus_wide(root, None, NAMES)
    (labels / "Labels_dog_Test.txt").write_text("1\n")
    with pytest.raises(InvalidFieldError, match=r"Labels_dog_Test.txt: has 1 lines, the others have 2"):
        open_nus_wide(root, None, NAMES)
    (root / "NUS_WID_Tags" / "TagList1k.txt").unlink()
    (labels / "Labels_dog_Test.txt").write_text("1\n1\n")
    with pytest.raises(InvalidFieldError, match=r"has no file TagList1k.txt"):
        open_nus_wide(root, None, NAMES)
