"""Features of two modalities that somebody else computed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from app.cli.sources.rows import Row
from app.domain.entities import Content
from app.services.catalogue.service import NewItem
from solver.datasets import PairedFeatures


@dataclass(frozen=True, slots=True)
class Features:
    """Both modalities of paired features, X and Z, as items of `vector` encoders."""

    data: PairedFeatures
    modality_names: tuple[str, str]

    @property
    def total(self) -> int:
        """Number of items."""
        return 2 * len(self.data.labels)

    def rows(self) -> Iterator[Row]:
        """Yield the items of one modality, then those of the other."""
        data = self.data
        for name, features, ids in (
            (self.modality_names[0], data.X, data.x_ids),
            (self.modality_names[1], data.Z, data.z_ids),
        ):
            for row, source_id in enumerate(ids):
                is_train = bool(data.is_train[row])
                yield NewItem(
                    modality=name,
                    content=Content(vector=features[row].tolist()),
                    id=f"{name}-{row:06d}",
                    labels=(str(data.labels[row]),),
                    pair_id=f"{row:06d}",
                    metadata={"split": "train" if is_train else "test", "source_id": source_id},
                    train=is_train,
                    place=f"row {row} of {name!r}",
                )
