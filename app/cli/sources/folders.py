"""Folders of pictures, with texts of the same names, in folders named by classes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from app.cli.sources.rows import Refusal, Row, decode_text, identifier_of, read_bounded
from app.domain.entities import Content
from app.domain.errors import InvalidFieldError
from app.services.catalogue.service import NewItem

PICTURE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp"})
_TEXT_SUFFIX = ".txt"
_SPLITS = {"train": True, "training": True, "test": False, "val": False, "validation": False}
"""Names of outermost folders that say whether a retrain may learn from what is in them."""


@dataclass(frozen=True, slots=True)
class Folder:
    """The pictures and texts of a folder.

    A picture and a text of the same name but for the ending are partners. The outermost folder in which a
    file lies is its class; "train" and "test" outside of it say what a retrain may learn from.

    Parameters
    ----------
    root : Path
        The folder.
    names : sequence of str
        Pictures and texts in it, as `find_files` returned them.
    modality_names : (str, str)
        Of pictures and of texts.
    has_class_folders : bool
        Whether folders are classes.
    """

    root: Path
    names: Sequence[str]
    modality_names: tuple[str, str]
    has_class_folders: bool

    @property
    def total(self) -> int:
        """Number of files."""
        return len(self.names)

    def rows(self) -> Iterator[Row]:
        """Yield an item for each file."""
        for name in self.names:
            try:
                yield self._item(name, read_bounded(self.root / name))
            except InvalidFieldError as error:
                yield Refusal(name, error.message)

    def _item(self, name: str, content: bytes) -> NewItem:
        path = PurePosixPath(name)
        is_picture = path.suffix.lower() in PICTURE_SUFFIXES
        modality = self.modality_names[0 if is_picture else 1]
        folders = list(path.parts[:-1])
        split = folders.pop(0) if folders and folders[0].lower() in _SPLITS else None
        is_train = split is None or _SPLITS[split.lower()]
        return NewItem(
            modality=modality,
            content=Content(picture=content, picture_field="") if is_picture else _text(content),
            id=f"{modality}-{identifier_of(name)}",
            labels=tuple(folders[:1]) if self.has_class_folders else (),
            pair_id=identifier_of(str(path.with_suffix(""))),
            metadata={"file": name, "split": "train" if is_train else "test"},
            train=is_train,
            place=name,
        )


def _text(content: bytes) -> Content:
    try:
        return Content(text=decode_text(content))
    except UnicodeDecodeError as error:
        raise InvalidFieldError("", "is a text in neither UTF-8 nor Windows-1252") from error


def find_files(root: Path) -> tuple[list[str], int]:
    """Return the pictures and texts below a folder, in order, and how many other files there are.

    Hidden files and folders are passed over, and links to folders are not followed.

    Raises
    ------
    InvalidFieldError
        If it is no folder, or has no picture and no text.
    """
    if not root.is_dir():
        raise InvalidFieldError(str(root), "is no folder")
    names: list[str] = []
    n_others = 0
    for place, folders, files in os.walk(root):
        folders[:] = sorted(folder for folder in folders if not folder.startswith("."))
        for file in sorted(files):
            if file.startswith("."):
                continue
            path = Path(place, file)
            if path.suffix.lower() in PICTURE_SUFFIXES or path.suffix.lower() == _TEXT_SUFFIX:
                names.append(path.relative_to(root).as_posix())
            else:
                n_others += 1
    if not names:
        endings = ", ".join(sorted(PICTURE_SUFFIXES))
        raise InvalidFieldError(str(root), f"has no pictures ({endings}) and no texts ({_TEXT_SUFFIX})")
    return names, n_others
