"""Folders of pictures or sounds, with texts of the same names, in folders named by classes."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from app.cli.sources.contents import SUFFIXES, content_of, form_of
from app.cli.sources.rows import Refusal, Row, identifier_of, read_bounded
from app.domain.errors import InvalidFieldError
from app.domain.names import join_words
from app.services.catalogue.service import NewItem

_SPLITS = {"train": True, "training": True, "test": False, "val": False, "validation": False}
"""Names of outermost folders that say whether a retrain may learn from what is in them."""


@dataclass(frozen=True, slots=True)
class Folder:
    """The pictures, sounds and texts of a folder.

    Two of the same name but for the ending are partners. The outermost folder in which a
    file lies is its class; "train" and "test" outside of it say what a retrain may learn from.

    Parameters
    ----------
    root : Path
        The folder.
    names : sequence of str
        Files in it, as `find_files` returned them.
    modality_names : mapping of str to str
        Of what is taken: pictures, sounds, or texts (`names_by_form`).
    has_class_folders : bool
        Whether folders are classes.
    """

    root: Path
    names: Sequence[str]
    modality_names: Mapping[str, str]
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
        form = str(form_of(path.suffix))
        modality = self.modality_names[form]
        folders = list(path.parts[:-1])
        split = folders.pop(0) if folders and folders[0].lower() in _SPLITS else None
        is_train = split is None or _SPLITS[split.lower()]
        return NewItem(
            modality=modality,
            content=content_of(form, content),
            id=f"{modality}-{identifier_of(name)}",
            labels=tuple(folders[:1]) if self.has_class_folders else (),
            pair_id=identifier_of(str(path.with_suffix(""))),
            metadata={"file": name, "split": "train" if is_train else "test"},
            train=is_train,
            place=name,
        )


def find_files(root: Path, forms: Collection[str]) -> tuple[list[str], int]:
    """Return the files of some forms below a folder, in order, and how many others there are.

    Hidden files and folders are passed over, and links to folders are not followed.

    Parameters
    ----------
    root : Path
        The folder.
    forms : collection of str
        Of ``"picture"``, ``"sound"`` and ``"text"``.

    Raises
    ------
    InvalidFieldError
        If it is no folder, or has no such file.
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
            if form_of(path.suffix) in forms:
                names.append(path.relative_to(root).as_posix())
            else:
                n_others += 1
    if not names:
        kinds = [f"no {form}s ({', '.join(sorted(SUFFIXES[form]))})" for form in forms]
        raise InvalidFieldError(str(root), f"has {join_words(kinds, 'and') or 'nothing that is taken'}")
    return names, n_others
