"""Writes small files in the formats in which VOC2007 and NUS-WIDE are published."""

from collections.abc import Callable
from pathlib import Path

TAGS = "beach\nnikon\nsea\n"
PARTS = {
    "Train": ("1 0 2\n0 0 0\n3 1 1\n4 4 4\n", "1\t0\t1\t\n0\t0\t0\t\n0\t1\t0\t\n1\t1\t1\t\n"),
    "Test": ("5 5 5\n6 6 6\n", "0\t0\t1\t\n1\t0\t0\t\n"),
}
CONCEPTS = {
    "Train": {"sky": "1 1 0 1", "sea": "1 0 0 0", "dog": "0 0 1 0"},
    "Test": {"sky": "1 0", "sea": "0 0", "dog": "1 1"},
}


def write_voc(root: Path, draw: Callable[[int], bytes] = lambda number: str(number).encode()) -> Path:
    lists = root / "ImageSets" / "Main"
    lists.mkdir(parents=True)
    (root / "JPEGImages").mkdir()
    for name in ("000005", "000007", "000001"):
        (root / "JPEGImages" / f"{name}.jpg").write_bytes(draw(int(name)))
    (lists / "trainval.txt").write_text("000005\n000007\n")
    (lists / "car_trainval.txt").write_text("000005 -1\n000007  1\n")
    (lists / "dog_trainval.txt").write_text("000005  1\n000007  0\n")
    (lists / "car_test.txt").write_text("000001  1\n000002 -1\n")
    (lists / "dog_test.txt").write_text("000001  1\n000002  1\n")
    return root


def write_nus_wide(root: Path) -> Path:
    features, tags = root / "Low_Level_Features", root / "NUS_WID_Tags"
    labels = root / "Groundtruth" / "TrainTestLabels"
    for folder in (features, tags, labels):
        folder.mkdir(parents=True)
    (tags / "TagList1k.txt").write_text(TAGS)
    for part, (words, flags) in PARTS.items():
        (features / f"BoW_{part}_int.dat").write_text(words)
        (tags / f"{part}_Tags1k.dat").write_text(flags)
        for concept, shown in CONCEPTS[part].items():
            (labels / f"Labels_{concept}_{part}.txt").write_text(shown.replace(" ", "\n") + "\n")
    return root
