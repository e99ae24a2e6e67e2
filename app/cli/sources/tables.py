"""Tables of pictures or sounds, and texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.cli.sources.contents import content_of
from app.cli.sources.rows import Refusal, Row, read_bounded
from app.domain.entities import Content
from app.domain.errors import InvalidFieldError
from app.domain.names import join_words
from app.services.catalogue.service import NewItem
from solver.datasets import PictureTextRow, read_picture_text_table


@dataclass(frozen=True, slots=True)
class Table:
    """The picture and the text of each row.

    Parameters
    ----------
    lines : sequence of PictureTextRow
        As `read_table` returned them.
    refusals : sequence of Refusal
        Rows that it left out.
    modality_names : (str, str)
        Of pictures or sounds, and of texts.
    pair_column : str or None
        Rows of the same value are partners; None: picture and text of a row are.
    form : str
        What the files hold that the rows name: ``"picture"`` or ``"sound"``.
    """

    lines: Sequence[PictureTextRow]
    refusals: Sequence[Refusal]
    modality_names: tuple[str, str]
    pair_column: str | None
    form: str = "picture"

    @property
    def total(self) -> int:
        """Number of pictures, texts and refused rows."""
        return 2 * len(self.lines) + len(self.refusals)

    def rows(self) -> Iterator[Row]:
        """Yield what was refused, then the picture and the text of each row."""
        yield from self.refusals
        for line in self.lines:
            yield from self._pair(line)

    def _pair(self, line: PictureTextRow) -> Iterator[Row]:
        place, field = f"row {line.id!r}", f"{self.form} {line.picture.name}"
        picture_name, text_name = self.modality_names
        try:
            content = content_of(self.form, read_bounded(line.picture), field)
        except InvalidFieldError as error:
            yield Refusal(f"{place}.{field}", error.message)
        else:
            yield self._item(line, place, picture_name, content)
        yield self._item(line, place, text_name, Content(text=line.text))

    def _item(self, line: PictureTextRow, place: str, modality: str, content: Content) -> NewItem:
        metadata = {name: value for name, value in line.other.items() if name != self.pair_column}
        metadata["split"] = "train" if line.is_train else "test"
        return NewItem(
            modality=modality,
            content=content,
            id=f"{modality}-{line.id}",
            labels=line.labels,
            pair_id=line.id if self.pair_column is None else line.other[self.pair_column] or None,
            metadata=metadata,
            train=line.is_train,
            place=place,
        )


def read_table(
    file: Path,
    modality_names: tuple[str, str],
    pair_column: str | None,
    on_fallback: Callable[[str], None] | None = None,
    form: str = "picture",
    **columns: Any,
) -> Table:
    """Read a CSV of pictures or sounds, and texts.

    Parameters
    ----------
    file : Path
        As of `read_picture_text_table`, and so are `on_fallback` and `columns`.
    modality_names : (str, str)
        Of pictures or sounds, and of texts.
    pair_column : str or None
        Another column that it must have.
    form : str
        As of `Table`.

    Raises
    ------
    DatasetError
        If it cannot be read; names the line or the column.
    InvalidFieldError
        If it is empty, or has no such column.
    """
    if file.is_file() and not file.read_bytes().strip():
        raise InvalidFieldError(str(file), "is empty: expected a header line and a line for each pair")
    refusals: list[Refusal] = []
    lines = read_picture_text_table(
        file,
        on_refused=lambda place, reason: refusals.append(Refusal(place, reason)),
        on_fallback=on_fallback,
        **columns,
    )
    if not lines and not refusals:
        raise InvalidFieldError(str(file), "has a header line and nothing else")
    if lines and pair_column is not None and pair_column not in lines[0].other:
        others = join_words(lines[0].other) or "none"
        raise InvalidFieldError("--pair-column", f"no other column is {pair_column!r}, there are {others}")
    return Table(lines, refusals, modality_names, pair_column, form)
