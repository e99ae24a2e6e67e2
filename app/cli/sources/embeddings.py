"""Folders of embeddings of pictures and texts, as tools around CLIP write them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from app.cli.sources.arrays import AnyArray, open_matrix
from app.cli.sources.columns import is_blank, plain_metadata
from app.cli.sources.parquet import check_length, read_rows
from app.cli.sources.rows import Refusal, Row
from app.domain.entities import Content
from app.domain.errors import InvalidFieldError
from app.services.catalogue.service import NewItem

_PARTS = ("img_emb", "text_emb")
"""Folders of the two modalities, and how the names of the files in them begin."""
_METADATA = "metadata"


@dataclass(frozen=True, slots=True)
class Shard:
    """Rows of both modalities, pictures and texts, which are partners."""

    number: str  # as the names of the files have it
    arrays: tuple[AnyArray, AnyArray]
    metadata: Path | None  # a Parquet file with as many rows


@dataclass(frozen=True, slots=True)
class Embeddings:
    """Rows of ``img_emb/img_emb_<n>.npy`` and their partners in ``text_emb/text_emb_<n>.npy``."""

    shards: Sequence[Shard]  # as `open_embeddings` returned them
    modality_names: tuple[str, str]
    label_columns: tuple[str, ...] = ()  # of the metadata, whose values are labels

    @property
    def total(self) -> int:
        """Number of rows of both modalities."""
        return sum(len(array) for shard in self.shards for array in shard.arrays)

    def rows(self) -> Iterator[Row]:
        """Yield the items of each shard, those of one modality after those of the other."""
        for shard in self.shards:
            for modality, part, array in zip(self.modality_names, _PARTS, shard.arrays, strict=True):
                facts = itertools.repeat(("", {})) if shard.metadata is None else read_rows(shard.metadata)
                for row, (vector, (place, cells)) in enumerate(zip(array, facts, strict=False)):
                    if isinstance(cells, str):
                        yield Refusal(f"{Path(str(shard.metadata)).name}, {place}", cells)
                        break
                    name = f"{shard.number}:{row}"
                    yield NewItem(
                        modality=modality,
                        content=Content(vector=vector.astype(np.float64).tolist()),
                        id=f"{modality}-{name}",
                        labels=tuple(
                            str(cells[column])
                            for column in self.label_columns
                            if not is_blank(cells.get(column))
                        ),
                        pair_id=name,
                        metadata=plain_metadata(
                            {key: value for key, value in cells.items() if key not in self.label_columns}
                        ),
                        place=f"{part}_{shard.number}.npy, row {row}",
                    )


def open_embeddings(folder: Path, with_metadata: bool = True) -> list[Shard]:
    """Open ``img_emb``, ``text_emb`` and perhaps ``metadata/metadata_<n>.parquet`` of a folder without
    reading the arrays."""
    # Raises InvalidFieldError, which names a file that is missing, does not fit or needs an extra.
    first, second = _PARTS
    numbers = [
        path.stem.removeprefix(f"{first}_") for path in sorted((folder / first).glob(f"{first}_*.npy"))
    ]
    if not numbers:
        raise InvalidFieldError(str(folder), f"has no files {first}/{first}_<number>.npy")
    shards = []
    for number in numbers:
        pictures, texts = (open_matrix(folder / part / f"{part}_{number}.npy") for part in _PARTS)
        if len(pictures) != len(texts):
            place = str(folder / second / f"{second}_{number}.npy")
            raise InvalidFieldError(place, f"has {len(texts)} rows, the pictures have {len(pictures)}")
        metadata = folder / _METADATA / f"{_METADATA}_{number}.parquet"
        is_used = with_metadata and metadata.is_file()
        if is_used:
            check_length(metadata, len(pictures))
        shards.append(Shard(number, (pictures, texts), metadata if is_used else None))
    return shards
