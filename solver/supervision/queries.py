"""Short queries that name values of facets, and are no samples themselves."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from solver.linalg.matrices import Samples
from solver.supervision.annotations import BoolArray, Facet, indicators_of
from solver.validation.errors import SupervisionError


@dataclass(frozen=True, slots=True, eq=False)
class Queries:
    """Queries of one modality, such as "red handbags", and the values that each names.

    Rankings are made for them, and they are in none. A sample of the other modality is as relevant as it has
    many of the values.

    Parameters
    ----------
    samples : ndarray or CSR array of shape (n_queries, n_features)
        Raw features.
    indicators : mapping of str to ndarray of bool, shape (n_queries, n_values)
        Values that each query names, by facet; columns as of the `Facet`.

    Raises
    ------
    SupervisionError
        If the numbers of rows differ.
    """

    samples: Samples
    indicators: Mapping[str, BoolArray]

    def __post_init__(self) -> None:
        for name, side in self.indicators.items():
            if side.ndim != 2 or len(side) != self.samples.shape[0]:
                raise SupervisionError(
                    f"facet {name!r} describes {len(side)} queries, there are {self.samples.shape[0]}"
                )

    @classmethod
    def of(
        cls,
        samples: Samples,
        values: Mapping[str, Sequence[Collection[str]]],
        facets: Mapping[str, Facet],
    ) -> Self:
        """Return the queries that name these values of facets; an empty collection where none is named.

        Parameters
        ----------
        samples : ndarray or CSR array of shape (n_queries, n_features)
            Raw features.
        values : mapping of str to sequence
            Values of each query by facet.
        facets : mapping of str to Facet
            Facets of the samples that the queries are ranked for; values that none has are left out.
        """
        indicators = {}
        for name, entries in values.items():
            columns = facets[name].values
            indicators[name] = indicators_of([set(entry) & set(columns) for entry in entries], columns)
        return cls(samples, indicators)

    def grades(self, gallery: Mapping[str, BoolArray]) -> npt.NDArray[np.int8]:
        """Return how many of a query's values samples have, (n_queries, n_gallery).

        Parameters
        ----------
        gallery : mapping of str to ndarray of bool, shape (n_gallery, n_values)
            Values of the samples of the other modality by facet.
        """
        n_gallery = len(next(iter(gallery.values()), ()))
        grades = np.zeros((self.samples.shape[0], n_gallery), np.int8)
        for name, side in self.indicators.items():
            grades += (side.astype(np.float32) @ gallery[name].T.astype(np.float32)).astype(np.int8)
        return grades
