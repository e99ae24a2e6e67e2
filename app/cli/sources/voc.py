"""PASCAL VOC as it is published: pictures, and for each class a list of the pictures that show it."""
# VOC2007 has no texts. Papers pair its pictures with tags that others collected; they come in here as a
# folder of text files with the names of the pictures.

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from app.cli.sources.rows import Refusal, Row, decode_text, read_bounded
from app.domain.entities import Content
from app.domain.errors import InvalidFieldError
from app.services.catalogue.service import NewItem

_LISTS = Path("ImageSets", "Main")
_SPLITS = {"trainval": True, "test": False}
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
        """Yield each picture, and its text."""
        picture_name, text_name = self.modality_names
        for name, entry in self.pictures.items():
            file = f"JPEGImages/{name}.jpg"
            try:
                content = Content(picture=read_bounded(self.root / file), picture_field="")
            except InvalidFieldError as error:
                yield Refusal(file, error.message)
            else:
                yield _item(picture_name, name, entry, content, file)
            if self.texts is not None:
                place = f"{self.texts.name}/{name}.txt"
                try:
                    text = decode_text(read_bounded(self.texts / f"{name}.txt"))
                except InvalidFieldError as error:
                    yield Refusal(place, error.message)
                except UnicodeDecodeError:
                    yield Refusal(place, "is a text in neither UTF-8, UTF-16 nor Windows-1252")
                else:
                    yield _item(text_name, name, entry, Content(text=text), place)


def _item(modality: str, name: str, entry: VocPicture, content: Content, place: str) -> NewItem:
    return NewItem(
        modality=modality,
        content=content,
        id=f"{modality}-{name}",
        labels=entry.labels,
        pair_id=name,
        metadata={"split": "train" if entry.is_train else "test"},
        train=entry.is_train,
        place=place,
    )


def read_lists(root: Path, *, single: bool = False) -> dict[str, VocPicture]:
    """Return the pictures of ``ImageSets/Main/<class>_trainval.txt`` and ``<class>_test.txt``; `single`: of
    exactly one class, as in the paper."""
    # Raises InvalidFieldError, which names a line that is none of theirs.
    labels: dict[str, list[str]] = {}
    is_train: dict[str, bool] = {}
    for split, learned in _SPLITS.items():
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
