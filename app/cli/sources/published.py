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

from app.cli.sources.rows import Refusal, Row, content_of, read_bounded
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


@dataclass(frozen=True, slots=True)
class VocPicture:
    """A picture of the lists."""

    labels: tuple[str, ...]  # classes that it clearly shows
    is_train: bool  # of "trainval"


@dataclass(frozen=True, slots=True)
class VocFolder:
    """The pictures of a folder ``VOC2007`` (``JPEGImages``, ``ImageSets/Main``), and texts so named."""

    root: Path
    pictures: Mapping[str, VocPicture]  # as `read_lists` returned them
    texts: Path | None  # a folder of ``<name>.txt``
    modality_names: tuple[str, str]

    @property
    def total(self) -> int:
        """Number of pictures and of texts that are looked for."""
        return len(self.pictures) * (1 if self.texts is None else 2)

    def rows(self) -> Iterator[Row]:
        picture_name, text_name = self.modality_names
        for name, entry in self.pictures.items():
            files = [(picture_name, "picture", self.root / "JPEGImages" / f"{name}.jpg")]
            if self.texts is not None:
                files.append((text_name, "text", self.texts / f"{name}.txt"))
            for modality, form, path in files:
                place = f"{path.parent.name}/{path.name}"
                try:
                    yield NewItem(
                        modality=modality,
                        content=content_of(form, read_bounded(path)),
                        id=f"{modality}-{name}",
                        labels=entry.labels,
                        pair_id=name,
                        metadata={"split": "train" if entry.is_train else "test"},
                        train=entry.is_train,
                        place=place,
                    )
                except InvalidFieldError as error:
                    yield Refusal(place, error.message)


def read_lists(root: Path, *, single: bool = False) -> dict[str, VocPicture]:
    """Return the pictures of ``ImageSets/Main/<class>_trainval.txt`` and ``<class>_test.txt``; `single`: of
    exactly one class, as in the paper."""
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
    return {
        name: VocPicture(tuple(labels[name]), is_train[name])
        for name in sorted(is_train)
        if not single or len(labels[name]) == 1
    }


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
class NusWidePart:
    """One of the two parts, "Train" or "Test"; a line of numbers for each picture."""

    name: str
    features: Path
    tags: Path
    concepts: Mapping[str, Flags]  # whether a picture shows each

    @property
    def n_rows(self) -> int:
        return len(next(iter(self.concepts.values())))


@dataclass(frozen=True, slots=True)
class NusWide:
    """Pictures as counts of visual words, and their tags as texts; a picture without tags has no text."""

    parts: Sequence[NusWidePart]
    tag_names: Sequence[str]  # what the columns of the tags stand for
    # only pictures of exactly one of these are taken, as their label; None: all, with all their concepts
    concepts: Sequence[str] | None
    modality_names: tuple[str, str]

    @property
    def total(self) -> int:
        """Number of pictures and of texts, those without tags included."""
        return 2 * sum(int(self._is_kept(part).sum()) for part in self.parts)

    def rows(self) -> Iterator[Row]:
        for part in self.parts:
            with part.features.open("rb") as features, part.tags.open("rb") as tags:
                lines = itertools.zip_longest(features, tags, self._is_kept(part).tolist())
                for number, (numbers, flags, is_kept) in enumerate(lines):
                    if numbers is None or flags is None or is_kept is None:
                        files = f"{part.features.name}, {part.tags.name} and Labels_*_{part.name}.txt"
                        yield Refusal(files, f"one of them ends after {number} lines, another goes on")
                        break
                    if is_kept:
                        yield from self._pair(part, number, numbers, flags)

    def _is_kept(self, part: NusWidePart) -> Flags:
        if self.concepts is None:
            return np.ones(part.n_rows, np.bool)
        n_shown = np.sum([part.concepts[name] for name in self.concepts], axis=0)
        return np.asarray(n_shown == 1)

    def _pair(self, part: NusWidePart, row: int, features: bytes, tags: bytes) -> Iterator[Row]:
        is_train = _NUS_WIDE_SPLITS[part.name]
        name = f"{part.name.lower()}-{row:06d}"
        names = part.concepts if self.concepts is None else self.concepts
        labels = tuple(concept for concept in names if part.concepts[concept][row])
        picture_name, text_name = self.modality_names
        contents = ((picture_name, part.features, features), (text_name, part.tags, tags))
        for modality, path, line in contents:
            place = f"{path.name}, line {row + 1}"
            try:
                content = self._content(line, path == part.tags)
            except ValueError as error:
                yield Refusal(place, str(error))
                continue
            if content is not None:
                yield NewItem(
                    modality=modality,
                    content=content,
                    id=f"{modality}-{name}",
                    labels=labels,
                    pair_id=name,
                    metadata={"split": part.name.lower()},
                    train=is_train,
                    place=place,
                )

    def _content(self, line: bytes, is_tags: bool) -> Content | None:
        """Return what a line holds; None for no tags, ValueError for what is no line of numbers."""
        numbers = [float(cell) for cell in line.split()]
        if not is_tags:
            return Content(vector=numbers)
        if len(numbers) != len(self.tag_names):
            raise ValueError(f"has {len(numbers)} numbers, {_TAG_LIST} has {len(self.tag_names)} tags")
        words = [tag for tag, number in zip(self.tag_names, numbers, strict=True) if number]
        return Content(text=" ".join(words)) if words else None


def open_nus_wide(root: Path, n_concepts: int | None, names: tuple[str, str]) -> NusWide:
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
        parts.append(NusWidePart(part, features, tags, concepts))
    if parts[0].concepts.keys() != parts[1].concepts.keys():
        odd = sorted(parts[0].concepts.keys() ^ parts[1].concepts.keys())
        raise InvalidFieldError(f"Labels_{odd[0]}_*.txt", "is there for one of Train and Test only")
    tag_names = _find(root, _TAG_LIST).read_text(encoding="utf-8").split()
    chosen = None
    if n_concepts is not None:
        counts = {concept: int(flags.sum()) for concept, flags in parts[0].concepts.items()}
        chosen = sorted(counts, key=lambda concept: (-counts[concept], concept))[:n_concepts]
    return NusWide(parts, tag_names, chosen, names)


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
