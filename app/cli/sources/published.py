"""PASCAL VOC (pictures, and for each class a list of those that show it) and NUS-WIDE (features of pictures,
their tags, and a list of 0 and 1 for each concept), as they are published."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from app.cli.sources.rows import Refusal, Row, Source, read_item
from app.domain.entities import Content
from app.domain.errors import InvalidFieldError
from app.services.catalogue.preparation import NewItem

# VOC2007 has no texts. Papers pair its pictures with tags that others collected; they come in here as a
# folder of text files with the names of the pictures.
_LISTS = Path("ImageSets", "Main")
_VOC_SPLITS = {"trainval": True, "test": False}
"""Names of the lists, and whether a retrain may learn from what they name."""
_SHOWN, _FLAGS = "1", frozenset({"1", "0", "-1"})
"""Of a picture in the list of a class: it is shown, hard to see, or absent."""


def open_voc(root: Path, texts: Path | None, names: tuple[str, str], *, single: bool = False) -> Source:
    """Open the pictures of a folder ``VOC2007`` (``JPEGImages``, ``ImageSets/Main``), and perhaps a folder of
    texts ``<name>.txt``; `single`: pictures of exactly one class, as in the paper."""
    labels, is_train = read_lists(root, single=single)

    def rows() -> Iterator[Row]:
        for name in labels:
            files = [(names[0], "picture", root / "JPEGImages" / f"{name}.jpg")]
            if texts is not None:
                files.append((names[1], "text", texts / f"{name}.txt"))
            for modality, form, path in files:
                yield read_item(
                    modality,
                    form,
                    path,
                    f"{path.parent.name}/{path.name}",
                    id=f"{modality}-{name}",
                    labels=tuple(labels[name]),
                    pair_id=name,
                    metadata={"split": "train" if is_train[name] else "test"},
                    train=is_train[name],
                )

    return Source(rows, len(labels) * (1 if texts is None else 2))


def read_lists(root: Path, *, single: bool = False) -> tuple[dict[str, list[str]], dict[str, bool]]:
    """Return the classes that each picture of ``ImageSets/Main/<class>_trainval.txt`` and
    ``<class>_test.txt`` clearly shows, and whether it is of "trainval"; `single`: those of one class."""
    # Raises InvalidFieldError, which names a line that is none of theirs.
    labels: dict[str, list[str]] = {}
    is_train: dict[str, bool] = {}
    for split, learned in _VOC_SPLITS.items():
        for path in sorted((root / _LISTS).glob(f"*_{split}.txt")):
            label = path.stem.removesuffix(f"_{split}")
            for name, flag in _read_list(path):
                is_train[name] = learned
                labels.setdefault(name, []).extend([label] if flag == _SHOWN else [])
    if not is_train:
        raise InvalidFieldError(str(root), f"has no lists {_LISTS / '<class>_trainval.txt'}")
    return {name: labels[name] for name in sorted(labels) if not single or len(labels[name]) == 1}, is_train


def _read_list(path: Path) -> Iterator[Sequence[str]]:
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        cells = line.split()
        if not cells:
            continue
        if len(cells) != 2 or cells[1] not in _FLAGS:
            raise InvalidFieldError(
                f"{path}, line {number}", f"expected a picture and 1, 0 or -1, got {line!r:.80}"
            )
        yield cells


# Of the archives of NUS-WIDE are read ``Low_Level_Features`` (500 visual words), ``NUS_WID_Tags`` (the 1000
# most frequent tags) and ``Groundtruth/TrainTestLabels`` (81 concepts). Line i of all is of the same picture.
_NUS_WIDE_SPLITS = {"Train": True, "Test": False}
"""Names of the parts, and whether a retrain may learn from them."""
_TAG_LIST = "TagList1k.txt"
Flags = npt.NDArray[np.bool]


@dataclass(frozen=True, slots=True)
class _Part:
    """One of the two parts, "Train" or "Test"; a line of numbers for each picture."""

    name: str
    features: Path
    tags: Path
    concepts: Mapping[str, Flags]  # whether a picture shows each

    def select(self, concepts: Sequence[str] | None) -> Flags:
        """Return which pictures show exactly one of some concepts; all, where none are named."""
        if concepts is None:
            return np.ones(len(next(iter(self.concepts.values()))), np.bool)
        return np.asarray(np.sum([self.concepts[name] for name in concepts], axis=0) == 1)

    def rows(
        self, tags: Sequence[str], concepts: Sequence[str] | None, names: tuple[str, str]
    ) -> Iterator[Row]:
        """Yield pictures as counts of visual words, and their tags as texts; one without tags has no text."""
        with self.features.open("rb") as features, self.tags.open("rb") as flags:
            lines = itertools.zip_longest(features, flags, self.select(concepts).tolist())
            for number, (words, flags_of_tags, is_kept) in enumerate(lines):
                if words is None or flags_of_tags is None or is_kept is None:
                    files = f"{self.features.name}, {self.tags.name} and Labels_*_{self.name}.txt"
                    yield Refusal(files, f"one of them ends after {number} lines, another goes on")
                    break
                if is_kept:
                    shown = self.concepts if concepts is None else concepts
                    labels = tuple(concept for concept in shown if self.concepts[concept][number])
                    yield from self._row(self.features, number, words, None, names[0], labels)
                    yield from self._row(self.tags, number, flags_of_tags, tags, names[1], labels)

    def _row(
        self,
        file: Path,
        number: int,
        line: bytes,
        tags: Sequence[str] | None,
        modality: str,
        labels: tuple[str, ...],
    ) -> Iterator[Row]:
        place, name = f"{file.name}, line {number + 1}", f"{self.name.lower()}-{number:06d}"
        try:
            content = _content_of(line, tags)
        except ValueError as error:
            yield Refusal(place, str(error))
            return
        if content is not None:
            yield NewItem(
                modality=modality,
                content=content,
                id=f"{modality}-{name}",
                labels=labels,
                pair_id=name,
                metadata={"split": self.name.lower()},
                train=_NUS_WIDE_SPLITS[self.name],
                place=place,
            )


def _content_of(line: bytes, tags: Sequence[str] | None) -> Content | None:
    """Return what a line holds; None for no tags, ValueError for what is no line of numbers."""
    numbers = [float(cell) for cell in line.split()]
    if tags is None:
        return Content(vector=numbers)
    if len(numbers) != len(tags):
        raise ValueError(f"has {len(numbers)} numbers, {_TAG_LIST} has {len(tags)} tags")
    words = [tag for tag, number in zip(tags, numbers, strict=True) if number]
    return Content(text=" ".join(words)) if words else None


def open_nus_wide(root: Path, n_concepts: int | None, names: tuple[str, str]) -> Source:
    """Open the files of the set in a folder or below it; `n_concepts`: only pictures of exactly one of the
    most frequent."""
    # Raises InvalidFieldError, which names the file that is missing or does not fit the others.
    parts = []
    for part in _NUS_WIDE_SPLITS:
        concepts = {
            path.stem.removeprefix("Labels_").removesuffix(f"_{part}"): _read_flags(path)
            for path in sorted(root.rglob(f"Labels_*_{part}.txt"))
        }
        if not concepts:
            raise InvalidFieldError(
                str(root), f"has no files Groundtruth/TrainTestLabels/Labels_*_{part}.txt"
            )
        n_rows = Counter(len(flags) for flags in concepts.values()).most_common(1)[0][0]
        for concept, flags in concepts.items():
            if len(flags) != n_rows:
                place = f"Labels_{concept}_{part}.txt"
                raise InvalidFieldError(place, f"has {len(flags)} lines, the others have {n_rows}")
        features, tags = _find(root, f"BoW_{part}_int.dat"), _find(root, f"{part}_Tags1k.dat")
        parts.append(_Part(part, features, tags, concepts))
    if parts[0].concepts.keys() != parts[1].concepts.keys():
        odd = sorted(parts[0].concepts.keys() ^ parts[1].concepts.keys())
        raise InvalidFieldError(f"Labels_{odd[0]}_*.txt", "is there for one of Train and Test only")
    tag_names = _find(root, _TAG_LIST).read_text(encoding="utf-8").split()
    chosen = None
    if n_concepts is not None:
        counts = {concept: int(flags.sum()) for concept, flags in parts[0].concepts.items()}
        chosen = sorted(counts, key=lambda concept: (-counts[concept], concept))[:n_concepts]
    n_pictures = sum(int(part.select(chosen).sum()) for part in parts)
    return Source(
        lambda: (row for part in parts for row in part.rows(tag_names, chosen, names)), 2 * n_pictures
    )


def _find(root: Path, name: str) -> Path:
    files = sorted(root.rglob(name))
    if not files:
        raise InvalidFieldError(str(root), f"has no file {name}")
    return files[0]


def _read_flags(path: Path) -> Flags:
    cells = path.read_bytes().split()
    wrong = next((number for number, cell in enumerate(cells, 1) if cell not in (b"0", b"1")), None)
    if wrong is not None:
        raise InvalidFieldError(f"{path}, line {wrong}", f"expected 0 or 1, got {cells[wrong - 1]!r:.40}")
    return np.asarray([cell == b"1" for cell in cells], np.bool)
