"""Folders of pictures or sounds, with texts of the same names, in folders named by classes and splits; and
files by the names that tables give them, which other machines, programs and people wrote."""

from __future__ import annotations

import os
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from app.cli.sources.rows import (
    SUFFIXES,
    Refusal,
    Row,
    Source,
    form_of,
    identifier_of,
    read_item,
    readable_name,
    with_source,
)
from app.domain.errors import InvalidFieldError
from app.domain.names import join_words, some_of
from solver.datasets import is_training_split

_BY_SYSTEMS = frozenset({"__macosx", "thumbs.db", "ehthumbs.db", "desktop.ini", "@eadir", "$recycle.bin"})
"""What operating systems put beside the files of people, besides names that begin with a dot."""
_ROOT = PurePosixPath()
_TAKEN = {True: "learned from", False: "held out"}
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+://|data:|www\.", re.IGNORECASE)
_UNSEEN = re.compile(
    "[\u200b-\u200f\u202a-\u202e\u2060\ufeff]"
)  # what is copied with a name, as from Windows
_ABSOLUTE = re.compile(r"[a-z]:|[/\\]", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Layout:
    """What the folders mean in which files lie: splits, and labels."""

    # A folder is a split if its name is that of one, and either all folders beside it have such names as well
    # or both kinds are there, what is learned from and what is held out: "test" beside "shoe" is a label.

    # folders that are splits, and whether a retrain may learn from what is in them
    splits: Mapping[PurePosixPath, bool]
    label_level: int  # which of the other folders around a file is its label, counted from outside
    notes: tuple[str, ...]  # what was taken as what, for people

    @classmethod
    def of(
        cls,
        names: Iterable[str],
        are_splits: bool | None = None,
        root: str = "",
        is_root_beside_others: bool = False,
    ) -> Layout:
        """Return what the folders around files (`readable_name`) mean; the root is a split only if all or it
        and others are. `are_splits`: all folders named so, or none; None: as described above."""
        n_files = Counter(PurePosixPath(name).parent for name in names)
        siblings: dict[PurePosixPath, dict[PurePosixPath, bool | None]] = {}
        for folder in sorted({folder for inner in n_files for folder in (inner, *inner.parents)} - {_ROOT}):
            siblings.setdefault(folder.parent, {})[folder] = is_training_split(folder.name)
        splits: dict[PurePosixPath, bool] = {}
        notes: dict[str, None] = {}
        for named in siblings.values():
            is_level = {True, False} <= set(named.values()) or None not in named.values()
            for folder, is_training in named.items():
                if is_training is None:
                    continue
                if is_level if are_splits is None else are_splits:
                    splits[folder] = is_training
                elif are_splits is None:
                    others = some_of([other.name for other in named if named[other] is None])
                    no_split = f"{folder.name!r} is no split, as there is {others} beside it"
                    notes[f"{no_split}; --splits takes it as one"] = None
        is_training = is_training_split(root)
        if is_training is not None and (is_root_beside_others if are_splits is None else are_splits):
            splits[_ROOT] = is_training
        elif is_training is False and are_splits is None and not splits:
            notes[
                f"{root!r} has the name of what is held out, and is learned from; --splits holds it out"
            ] = None
        for is_training, taken in _TAKEN.items():
            used = [folder for folder in splits if splits[folder] is is_training]
            if used:
                inside = [folder for folder in n_files if not {folder, *folder.parents}.isdisjoint(used)]
                names_of = some_of(sorted({folder.name or root for folder in used}))
                notes[f"{taken}: {sum(map(n_files.__getitem__, inside))} files in {names_of}"] = None
        if splits and are_splits is None:
            notes["--no-splits takes splits as any other folders"] = None
        return cls(splits, _label_level(splits, n_files), tuple(notes))

    def is_train(self, path: PurePosixPath) -> bool:
        """Return whether a retrain may learn from a file: no split around it is held out."""
        return all(self.splits.get(folder, True) for folder in path.parents)

    def labels(self, path: PurePosixPath) -> tuple[str, ...]:
        """Return the label of a file; none outside of folders."""
        names = _without(self.splits, path.parent)
        return names[self.label_level : self.label_level + 1]


def _without(splits: Mapping[PurePosixPath, bool], folder: PurePosixPath) -> tuple[str, ...]:
    """Return the names on the way to a folder that are those of no split."""
    way = (*reversed(folder.parents), folder)
    return tuple(step.name for step in way if step.name and step not in splits)


def _label_level(splits: Mapping[PurePosixPath, bool], folders: Iterable[PurePosixPath]) -> int:
    """Return which folders are labels: the outermost, unless all files with their splits lie in that one."""
    ways = {_without(splits, folder) for folder in folders}
    for level in range(min(map(len, ways), default=0) if splits else 0):
        if len({way[level] for way in ways}) > 1:
            return level
    return 0


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """The files of a folder."""

    names: Sequence[str]  # of those that are taken, below the folder, in order
    refusals: Sequence[Refusal]  # folders that could not be read
    notes: Sequence[str]  # what was left out, and why


def open_folder(
    root: Path, modality_names: Mapping[str, str], has_class_folders: bool, are_splits: bool | None = None
) -> Source:
    """Open the pictures, sounds and texts of a folder, or which of them have a modality (`names_by_form`).
    `has_class_folders`: folders are classes; `are_splits` as of `Layout.of`."""
    # Two of the same name but for the ending are partners, in whatever form their accents are composed, and
    # in whatever case where that leaves no doubt. Raises InvalidFieldError without any file.
    files = find_files(root, modality_names)
    names = list(map(readable_name, files.names))
    layout = Layout.of(names, are_splits, root.resolve().name)

    def rows() -> Iterator[Row]:
        yield from files.refusals
        pairs = _pair_names(names)
        for file, name in zip(files.names, names, strict=True):
            stem, form = _stem_and_form(name)
            modality, path = modality_names[form], PurePosixPath(name)
            is_train = layout.is_train(path)
            split = {"split": "train" if is_train else "test"} if layout.splits else {}
            yield read_item(
                modality,
                form,
                root / file,
                name,
                id=f"{modality}-{identifier_of(file)}",
                labels=layout.labels(path) if has_class_folders else (),
                pair_id=identifier_of(pairs[stem]),
                metadata=with_source(split, name),
                train=is_train,
            )

    labels = {label for name in names for label in layout.labels(PurePosixPath(name))}
    listed = _describe_labels(sorted(labels)) if has_class_folders else ()
    notes = [*files.notes, *layout.notes, *listed, *_without_partners(names)]
    return Source(rows, len(files.names) + len(files.refusals), notes)


def _describe_labels(labels: Sequence[str]) -> Iterator[str]:
    if labels:
        yield f"labels: {some_of(labels)}"
    spellings: dict[str, list[str]] = {}
    for label in labels:
        spellings.setdefault(label.casefold().strip(), []).append(label)
    for alike in spellings.values():
        if len(alike) > 1:
            yield f"labels that differ in case or blanks alone are different ones: {some_of(alike)}"


def _pair_names(names: Iterable[str]) -> dict[str, str]:
    """Return the name of the pair of each name without ending: the same where only case differs, unless of
    one kind."""
    groups: dict[str, dict[str, list[str]]] = {}
    for name in names:
        stem, form = _stem_and_form(name)
        folded = unicodedata.normalize("NFC", stem.casefold()).strip()
        groups.setdefault(folded, {}).setdefault(stem, []).append(form)
    pairs: dict[str, str] = {}
    for spellings in groups.values():
        forms = [form for of_stem in spellings.values() for form in of_stem]
        first = next(iter(spellings))
        are_same = len(set(forms)) == len(forms)
        pairs |= {stem: first if are_same else stem for stem in spellings}
    return pairs


def _stem_and_form(name: str) -> tuple[str, str]:
    path = PurePosixPath(name)
    return str(path.with_suffix("")), str(form_of(path.suffix))


def _without_partners(names: Sequence[str]) -> Iterator[str]:
    """Yield how many files have no partner, where there are two kinds of files at least."""
    pairs = _pair_names(names)
    forms_by_pair: dict[str, set[str]] = {}
    for stem, form in map(_stem_and_form, names):
        forms_by_pair.setdefault(pairs[stem], set()).add(form)
    forms = sorted(set().union(*forms_by_pair.values()))
    for form in forms if len(forms) > 1 else ():
        alone = [pair for pair, of_pair in forms_by_pair.items() if of_pair == {form}]
        if alone:
            others = join_words(other for other in forms if other != form)
            yield f"{len(alone)} {form}s have no {others} of the same name beside them: {some_of(alone)}"


def find_files(root: Path, forms: Collection[str]) -> FoundFiles:
    """Return the "picture", "sound" and "text" files below a folder. Raises InvalidFieldError without any."""
    # Links are followed, but for those that lead back to a folder around them. Hidden files and folders are
    # left out, and so is what operating systems put beside files.
    if not root.is_dir():
        raise InvalidFieldError(str(root), "is no folder")
    names: list[str] = []
    hidden: list[str] = []
    loops: list[str] = []
    refusals: list[Refusal] = []
    others: Counter[str] = Counter()

    def refuse(error: OSError) -> None:
        place = Path(error.filename or root)
        refusals.append(Refusal(readable_name(str(place)), error.strerror or str(error)))

    for place, folders, files in os.walk(root, onerror=refuse, followlinks=True):
        below = Path(place).relative_to(root)
        followed: list[str] = []
        for folder in sorted(folders):
            if is_hidden(folder):
                hidden.append(folder)
            elif os.path.islink(Path(place, folder)) and _leads_back(root, below / folder):
                loops.append((below / folder).as_posix())
            else:
                followed.append(folder)
        folders[:] = followed
        for file in sorted(files):
            path = below / file
            if is_hidden(file):
                hidden.append(file)
            elif form_of(path.suffix) in forms:
                names.append(path.as_posix())
            else:
                others[path.suffix.lower() or "without ending"] += 1
    notes = describe_left_out(others, hidden, forms)
    if loops:
        shown = some_of(list(map(readable_name, loops)))
        notes.append(f"left out: links that lead back to a folder around them: {shown}")
    if not names:
        missing = [f"no {form}s ({', '.join(sorted(SUFFIXES[form]))})" for form in forms]
        reason = f"has {join_words(missing, 'and') or 'nothing that is taken'}"
        raise InvalidFieldError(str(root), "; ".join([reason, *notes]))
    return FoundFiles(names, refusals, notes)


def describe_left_out(others: Counter[str], hidden: Collection[str], forms: Iterable[str]) -> list[str]:
    """Return how many files of which endings, and how many hidden ones, are left out."""
    notes = []
    if others:
        kinds = join_words([f"{form}s" for form in forms], "nor")
        listed = ", ".join(f"{count} {readable_name(ending)}" for ending, count in others.most_common())
        notes.append(f"left out: {others.total()} files that are no {kinds} ({listed})")
    if hidden:
        shown = some_of(sorted(set(map(readable_name, hidden))))
        notes.append(f"left out: {len(hidden)} hidden files and folders ({shown})")
    return notes


def is_hidden(name: str) -> bool:
    """Return whether a file or folder is hidden, or was put there by an operating system."""
    return name.startswith(".") or name.casefold() in _BY_SYSTEMS


def _leads_back(root: Path, link: Path) -> bool:
    """Return whether a link below a folder leads to one around it, on the way that was taken to it."""
    target = (root / link).resolve()
    way = [(root / step).resolve() for step in link.parents]
    return any(target == step or target in step.parents for step in way)


class NamedFiles:
    """The files of a folder and below it, by names relative to it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._by_name: dict[str, list[tuple[str, ...]]] | None = None

    def find(self, name: str) -> Path:
        """Return the file of a name: as it is written, or else the one that is meant; raises
        InvalidFieldError without a field."""
        # Blanks around, backslashes, capitals, accents and folders make no difference, as long as one file
        # fits.
        if _ADDRESS.match(name.strip()):
            raise InvalidFieldError(
                "", "is an address, and nothing is fetched: download the files, and name them in the table"
            )
        path = self._folder / name
        try:
            if path.is_file():
                return path
            paths = self._fitting(_UNSEEN.sub("", name))
        except (OSError, ValueError) as error:  # a name that is too long, or has a NUL
            raise InvalidFieldError("", "can be no name of a file") from error
        if not paths:
            raise InvalidFieldError(
                "", f"is not found in {self._folder}; --pictures names the folder in which the files are"
            )
        if len(paths) > 1:
            raise InvalidFieldError(
                "", f"may be one of several files below {self._folder}: name its folder, too"
            )
        return self._folder.joinpath(*paths[0])

    def _fitting(self, name: str) -> list[tuple[str, ...]]:
        """Return the files that a path of another machine may mean: those of which it says most steps."""
        steps = [_normal(step) for step in re.split(r"[/\\]", name) if step.strip() not in ("", ".")]
        paths = (
            {candidate: [*map(_normal, candidate)] for candidate in self._index().get(steps[-1], [])}
            if steps
            else {}
        )

        def n_common(candidate: tuple[str, ...]) -> int:
            n_steps = min(len(candidate), len(steps))
            return n_steps if paths[candidate][-n_steps:] == steps[-n_steps:] else 0

        # Of a path from the root of another machine the folders may have other names here.
        fitting = [candidate for candidate in paths if n_common(candidate) or _ABSOLUTE.match(name.strip())]
        nearest = [candidate for candidate in fitting if n_common(candidate) == max(map(n_common, fitting))]
        whole = [candidate for candidate in nearest if paths[candidate] == steps]
        return whole or nearest

    def _index(self) -> dict[str, list[tuple[str, ...]]]:
        """Return the steps to each file by its last one; made when a name is not one as it is written."""
        if self._by_name is None:
            self._by_name = {}
            for place, folders, files in os.walk(self._folder):
                folders[:] = [folder for folder in folders if not folder.startswith(".")]
                steps = Path(place).relative_to(self._folder).parts
                for file in files:
                    self._by_name.setdefault(_normal(file), []).append((*steps, file))
        return self._by_name


def _normal(name: str) -> str:
    """Return a form in which names are compared: blanks, capitals and forms of accents make no difference."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).strip().casefold())
