"""NUS-WIDE as it is published: features of pictures, their tags, and a list of 0 and 1 for each concept."""
# Of its archives are read ``Low_Level_Features`` (500 visual words), ``NUS_WID_Tags`` (the 1000 most frequent
# tags) and ``Groundtruth/TrainTestLabels`` (81 concepts). Line i of all of them belongs to the same picture.

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from app.cli.sources.rows import Refusal, Row
from app.domain.entities import Content
from app.domain.errors import InvalidFieldError
from app.services.catalogue.service import NewItem

_SPLITS = {"Train": True, "Test": False}  # names of the parts, and whether a retrain may learn from them
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
        """Number of pictures."""
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
        """Yield each picture and its text."""
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
        is_train = _SPLITS[part.name]
        name = f"{part.name.lower()}-{row:06d}"
        names = part.concepts if self.concepts is None else self.concepts
        labels = tuple(concept for concept in names if part.concepts[concept][row])
        picture_name, text_name = self.modality_names
        contents = (
            (picture_name, part.features, features),
            (text_name, part.tags, tags),
        )
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
    for part in _SPLITS:
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
