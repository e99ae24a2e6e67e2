"""Folders of embeddings of pictures and texts, as tools around CLIP write them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from app.cli.sources.rows import Row
from app.domain.entities import Content
from app.domain.errors import InvalidFieldError
from app.services.catalogue.service import NewItem

_PARTS = ("img_emb", "text_emb")
"""Folders of the two modalities, and how the names of the files in them begin."""


@dataclass(frozen=True, slots=True)
class Embeddings:
    """Rows of ``img_emb/img_emb_<n>.npy`` and their partners in ``text_emb/text_emb_<n>.npy``.

    Parameters
    ----------
    shards : sequence of (str, tuple of ndarray)
        Number of each, and its two arrays, as `open_embeddings` returned them.
    modality_names : (str, str)
        Of pictures and of texts.
    """

    shards: Sequence[tuple[str, tuple[npt.NDArray[Any], npt.NDArray[Any]]]]
    modality_names: tuple[str, str]

    @property
    def total(self) -> int:
        """Number of rows of both modalities."""
        return sum(len(array) for _, arrays in self.shards for array in arrays)

    def rows(self) -> Iterator[Row]:
        """Yield the items of each shard, those of one modality after those of the other."""
        for number, arrays in self.shards:
            for modality, part, array in zip(self.modality_names, _PARTS, arrays, strict=True):
                for row, vector in enumerate(array):
                    name = f"{number}:{row}"
                    yield NewItem(
                        modality=modality,
                        content=Content(vector=vector.astype(np.float64).tolist()),
                        id=f"{modality}-{name}",
                        pair_id=name,
                        place=f"{part}_{number}.npy, row {row}",
                    )


def open_embeddings(
    folder: Path,
) -> list[tuple[str, tuple[npt.NDArray[Any], npt.NDArray[Any]]]]:
    """Open the arrays of a folder without reading them into memory.

    Raises
    ------
    InvalidFieldError
        If there are none, one has no partner, or one is no matrix of numbers; names the file.
    """
    first, second = _PARTS
    numbers = [
        path.stem.removeprefix(f"{first}_") for path in sorted((folder / first).glob(f"{first}_*.npy"))
    ]
    if not numbers:
        raise InvalidFieldError(str(folder), f"has no files {first}/{first}_<number>.npy")
    shards = []
    for number in numbers:
        pictures, texts = (_open_array(folder / part / f"{part}_{number}.npy") for part in _PARTS)
        if len(pictures) != len(texts):
            place = str(folder / second / f"{second}_{number}.npy")
            raise InvalidFieldError(place, f"has {len(texts)} rows, the pictures have {len(pictures)}")
        shards.append((number, (pictures, texts)))
    return shards


def _open_array(file: Path) -> npt.NDArray[Any]:
    try:
        array: npt.NDArray[Any] = np.load(file, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise InvalidFieldError(str(file), f"is no readable .npy array: {error}") from error
    if not isinstance(array, np.ndarray) or array.ndim != 2 or array.dtype.kind not in "fiu":
        raise InvalidFieldError(str(file), "is no matrix of numbers")
    return array
