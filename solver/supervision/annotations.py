"""All that samples of both modalities carry, queries for it, and other supervision in its form."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse

from solver.linalg import FloatArray, Samples, to_dense
from solver.supervision import kinds
from solver.validation import SupervisionError

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Facet:
    """One property of the samples, such as a class, a colour or a set of tags.

    Parameters
    ----------
    values : tuple of str
        What a sample may have; the columns of the indicators.
    x_indicators : ndarray of bool, shape (n_samples_x, n_values)
        Values of each sample of the first modality; no value where the property is unknown.
    z_indicators : ndarray of bool, shape (n_samples_z, n_values)
        The same for the second modality.

    Raises
    ------
    SupervisionError
        If the shapes do not match.
    """

    values: tuple[str, ...]
    x_indicators: BoolArray
    z_indicators: BoolArray

    def __post_init__(self) -> None:
        for name, indicators in (("x_indicators", self.x_indicators), ("z_indicators", self.z_indicators)):
            if indicators.ndim != 2 or indicators.shape[1] != len(self.values):
                raise SupervisionError(
                    f"{name} must have shape (n_samples, {len(self.values)}), got {indicators.shape}"
                )

    @classmethod
    def of(cls, x_values: Sequence[Collection[str]], z_values: Sequence[Collection[str]]) -> Self:
        """Return the facet of samples with these values; an empty collection where it is unknown."""
        values = tuple(sorted({value for side in (x_values, z_values) for entry in side for value in entry}))
        return cls(values, *(indicators_of(side, values) for side in (x_values, z_values)))

    @property
    def sides(self) -> tuple[BoolArray, BoolArray]:
        """The indicators of both modalities."""
        return self.x_indicators, self.z_indicators

    @property
    def is_exclusive(self) -> bool:
        """Whether no sample has two values."""
        return all(int(side.sum(axis=1).max(initial=0)) <= 1 for side in self.sides)

    def subset(self, x_rows: kinds.Indices, z_rows: kinds.Indices) -> Self:
        """Return the facet of some samples of each modality; all values stay."""
        return type(self)(self.values, self.x_indicators[x_rows], self.z_indicators[z_rows])

    def is_shared(self, x_rows: kinds.Indices, z_rows: kinds.Indices) -> BoolArray:
        """Return, of shape (len(x_rows), len(z_rows)), which samples have a value in common."""
        x = self.x_indicators[x_rows].astype(np.float32)
        return x @ self.z_indicators[z_rows].astype(np.float32).T > 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Annotations:
    """What is known of samples of both modalities.

    Parameters
    ----------
    shape : tuple of int
        Numbers of samples, (n_samples_x, n_samples_z).
    facets : mapping of str to Facet
        Properties by name.
    pairs : ndarray of int, shape (n_pairs, 2)
        Rows of the first and of the second modality that belong together, such as a picture and its caption.
    signs : sparse array of shape (n_samples_x, n_samples_z), optional
        +1 and -1 where a pair was judged relevant or not, as of `SignedPairs`.

    Raises
    ------
    SupervisionError
        If facets, pairs or signs do not fit the numbers of samples, or nothing is known at all.

    Examples
    --------
    >>> colour = Facet.of([["red"], ["blue"]], [["red"], []])
    >>> annotations = Annotations((2, 2), {"colour": colour}, np.array([[0, 0]]))
    >>> annotations.grades(np.arange(2), np.arange(2))
    array([[2, 0],
           [0, 0]], dtype=int8)
    """

    shape: tuple[int, int]
    facets: Mapping[str, Facet] = field(default_factory=dict)
    pairs: kinds.Indices = field(default_factory=lambda: np.empty((0, 2), np.intp))
    signs: scipy.sparse.csr_array | None = None

    def __post_init__(self) -> None:
        for name, facet in self.facets.items():
            shape = tuple(map(len, facet.sides))
            if shape != self.shape:
                raise SupervisionError(f"facet {name!r} describes {shape} samples, expected {self.shape}")
        if self.pairs.ndim != 2 or self.pairs.shape[1] != 2 or self.pairs.dtype.kind != "i":
            raise SupervisionError(f"pairs must be integers of shape (n_pairs, 2), got {self.pairs.shape}")
        if len(self.pairs) and not (self.pairs.min() >= 0 and (self.pairs.max(axis=0) < self.shape).all()):
            raise SupervisionError(f"pairs must name rows of {self.shape} samples")
        if self.signs is not None and self.signs.shape != self.shape:
            raise SupervisionError(f"signs must have shape {self.shape}, got {self.signs.shape}")
        if not self.facets and not len(self.pairs) and self.signs is None:
            raise SupervisionError("neither facets nor pairs nor signs: there is nothing to learn from")

    @property
    def top_grade(self) -> int:
        """Largest possible grade: one for each facet, and one for a pair."""
        return len(self.facets) + int(len(self.pairs) > 0)

    def subset(self, x_rows: kinds.Indices, z_rows: kinds.Indices) -> Self:
        """Return what is known of some samples; a pair stays if both of its samples do.

        SupervisionError if nothing is known of these.
        """
        return type(self)(
            (len(x_rows), len(z_rows)),
            {name: facet.subset(x_rows, z_rows) for name, facet in self.facets.items()},
            self._places(x_rows, z_rows)[0],
            None if self.signs is None else scipy.sparse.csr_array(self.signs[x_rows][:, z_rows]),
        )

    def without(self, x_rows: kinds.Indices, z_rows: kinds.Indices) -> Self:
        """Return the same samples without the pairs and signs of these rows; facets stay."""
        touched = np.isin(self.pairs[:, 0], x_rows) | np.isin(self.pairs[:, 1], z_rows)
        signs = self.signs
        if signs is not None:
            table = scipy.sparse.coo_array(signs)
            is_other = ~(np.isin(table.coords[0], x_rows) | np.isin(table.coords[1], z_rows))
            entries = table.data[is_other], tuple(axis[is_other] for axis in table.coords)
            signs = scipy.sparse.csr_array(entries, shape=self.shape)
        return replace(self, pairs=self.pairs[~touched], signs=signs)

    def transpose(self) -> Annotations:
        """Return the same with the modalities exchanged."""
        facets = {name: Facet(facet.values, *facet.sides[::-1]) for name, facet in self.facets.items()}
        signs = None if self.signs is None else scipy.sparse.csr_array(self.signs.T)
        return Annotations(self.shape[::-1], facets, self.pairs[:, ::-1], signs)

    def grades(self, x_rows: kinds.Indices, z_rows: kinds.Indices) -> npt.NDArray[np.int8]:
        """Return how relevant samples are to each other, (len(x_rows), len(z_rows)).

        That is the number of facets that they share, and one for a pair.
        """
        grades = np.zeros((len(x_rows), len(z_rows)), np.int8)
        for facet in self.facets.values():
            grades += facet.is_shared(x_rows, z_rows)
        grades += self.is_paired(x_rows, z_rows)
        return grades

    def matches(self, x_rows: kinds.Indices, z_rows: kinds.Indices) -> BoolArray:
        """Return which samples a person would call a match, (len(x_rows), len(z_rows)).

        Those match that agree in each facet known of both, and in one at least; without facets, partners.
        """
        if not self.facets:
            return self.is_paired(x_rows, z_rows)
        shape = len(x_rows), len(z_rows)
        agrees: BoolArray = np.ones(shape, np.bool_)
        is_shared: BoolArray = np.zeros(shape, np.bool_)
        for facet in self.facets.values():
            is_known = np.outer(
                facet.x_indicators[x_rows].any(axis=1), facet.z_indicators[z_rows].any(axis=1)
            )
            one = facet.is_shared(x_rows, z_rows)
            agrees &= one | ~is_known
            is_shared |= one
        return agrees & is_shared

    def is_paired(self, x_rows: kinds.Indices, z_rows: kinds.Indices) -> BoolArray:
        """Return, of shape (len(x_rows), len(z_rows)), which samples belong together."""
        pairs, *places = self._places(x_rows, z_rows)
        paired = np.zeros((len(x_rows), len(z_rows)), np.bool_)
        paired[pairs[:, 0], pairs[:, 1]] = True
        is_distinct = all(np.array_equal(place, np.arange(len(place))) for place in places)
        return paired if is_distinct else paired[np.ix_(*places)]

    def _places(self, x_rows: kinds.Indices, z_rows: kinds.Indices) -> list[kinds.Indices]:
        # The pairs of some samples by the places of these, and the places: the last of rows that come again.
        places = [np.full(size, -1, np.intp) for size in self.shape]
        for place, rows in zip(places, (x_rows, z_rows), strict=True):
            place[rows] = np.arange(len(rows))
        pairs = np.column_stack([place[self.pairs[:, side]] for side, place in enumerate(places)])
        return [pairs[(pairs >= 0).all(axis=1)], places[0][x_rows], places[1][z_rows]]


def group_partners(annotations: Annotations) -> tuple[int, npt.NDArray[np.int32]]:
    """Return the number of groups of samples that are paired, directly or through others, and the group of
    each sample; those of the second modality follow."""
    n_x, n_z = annotations.shape
    places = annotations.pairs[:, 0], n_x + annotations.pairs[:, 1]
    graph = scipy.sparse.csr_array((np.ones(len(annotations.pairs)), places), shape=(n_x + n_z, n_x + n_z))
    return scipy.sparse.csgraph.connected_components(graph, directed=False)


def indicators_of(entries: Sequence[Collection[str]], values: tuple[str, ...]) -> BoolArray:
    """Return which of the values each entry has, (n_entries, n_values), others left out."""
    columns = {value: column for column, value in enumerate(values)}
    indicators = np.zeros((len(entries), len(values)), np.bool_)
    for row, entry in enumerate(entries):
        for value in columns.keys() & entry:
            indicators[row, columns[value]] = True
    return indicators


WRONG = 0.05
"""Share of carried values that are taken to be wrong. Parts of 2030 products that no term had learned from
were ranked alike with .01 to .1; with a tenth of the values shuffled, this lost .003 to the best."""
_UNSAID = 0.2  # share of a sample's values, where it may have several, that it is taken not to carry
_NO_EVIDENCE = 1e-12  # smaller posteriors are none


def join_posteriors(posteriors: FloatArray, carried: BoolArray, is_exclusive: bool) -> FloatArray:
    """Return posteriors, (n_samples, n_values), given the values that samples carry, one at least; one value
    is true of each, or several may be."""
    # Posteriors are evidence, and so is a carried value, which may be wrong: both are joined by Bayes' rule.
    # A value that the content firmly contradicts does not bury the sample among those that have it.
    likely = np.clip(posteriors, _NO_EVIDENCE, 1.0)
    if is_exclusive:
        n_carried = carried.sum(axis=1, keepdims=True)
        n_others = np.maximum(carried.shape[1] - n_carried, 1)
        joined = likely * np.where(carried, (1.0 - WRONG) / n_carried, WRONG / n_others)
        total = joined.sum(axis=1, keepdims=True)
    else:
        joined = likely * np.where(carried, 1.0 - _UNSAID, _UNSAID)
        total = joined + (1.0 - likely) * np.where(carried, WRONG, 1.0 - WRONG)
    result: FloatArray = joined / total
    return result


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
        cls, samples: Samples, values: Mapping[str, Sequence[Collection[str]]], facets: Mapping[str, Facet]
    ) -> Self:
        """Return the queries that name these values of facets; an empty collection where none is named.

        Values that none of the ranked samples has, whose facets are given, are left out.
        """
        return cls(
            samples, {name: indicators_of(entries, facets[name].values) for name, entries in values.items()}
        )

    @property
    def n_named(self) -> kinds.Indices:
        """How many values each query names, shape (n_queries,)."""
        counts = np.zeros(self.samples.shape[0], np.intp)
        for side in self.indicators.values():
            counts += side.sum(axis=1)
        return counts

    @property
    def decides(self) -> BoolArray:
        """Which queries decide about weights: those of several values, or all if there are none."""
        # By texts of one value, too, weights of products ranked these a little better, and others worse.
        several = self.n_named > 1
        return several if several.any() else ~several

    def grades(self, gallery: Mapping[str, BoolArray]) -> npt.NDArray[np.int8]:
        """Return how many of a query's values samples of a gallery have, (n_queries, n_gallery)."""
        n_gallery = len(next(iter(gallery.values()), ()))
        grades = np.zeros((self.samples.shape[0], n_gallery), np.int8)
        for name, side in self.indicators.items():
            grades += (side.astype(np.float32) @ gallery[name].T.astype(np.float32)).astype(np.int8)
        return grades


OF_SEARCHES = (
    "for GridSearchCV, cross_val_score and other splits of scikit-learn, give PairedEstimator(estimator) "
    "PairedSamples(X, Z) and labels"
)


KINDS = (kinds.Labels, kinds.MultiLabels, kinds.PairedRows, kinds.SignedPairs)


def check_sizes(X: Samples, Z: Samples, supervision: kinds.AnySupervision | Annotations) -> None:
    """Raise SupervisionError unless `supervision` is a supervision of as many samples as there are."""
    if isinstance(supervision, Annotations):
        sizes = supervision.shape
    elif isinstance(supervision, KINDS):
        sizes = len(supervision.x_order), len(supervision.z_order)
    else:
        raise SupervisionError(
            f"expected Labels, MultiLabels, PairedRows or SignedPairs, got {type(supervision).__name__}"
        )
    for name, samples, size in zip("XZ", (X, Z), sizes, strict=True):
        if samples.shape[0] != size:
            hint = f"; {OF_SEARCHES}" if samples.shape[0] < size else ""
            raise SupervisionError(f"{name} has {samples.shape[0]} samples, the supervision has {size}{hint}")


LABEL = "label"
"""Name of the facet that labels become."""

_OF_BOTH = ([1, 1], [2, 2])  # numbers of axes of the arrays of both modalities

AnyLabels = Annotations | kinds.AnySupervision | npt.ArrayLike | tuple[npt.ArrayLike, npt.ArrayLike] | None
"""What says which samples are similar: a supervision, or plain labels, or nothing where rows are pairs."""


def supervision_of(supervision: AnyLabels, X: Samples, Z: Samples) -> Any:
    """Return a supervision as it is, plain labels (one array, or a tuple) as one, and None as pairs of rows.
    SupervisionError if it is none, or one array cannot be that of both modalities."""
    if isinstance(supervision, (Annotations, *KINDS)):
        return supervision
    n_x, n_z = X.shape[0], Z.shape[0]
    is_of_both = isinstance(supervision, tuple) and [*map(n_axes, supervision)] in _OF_BOTH
    sides: Any = supervision if is_of_both else (supervision, supervision)
    axes = n_axes(sides[0])
    if supervision is not None and axes not in (1, 2):
        raise SupervisionError(
            "expected Labels, MultiLabels, PairedRows, SignedPairs or an array of labels, got "
            f"{type(supervision).__name__}"
        )
    if not is_of_both and n_x != n_z:
        what = "nothing says which belong together" if supervision is None else "one array cannot label both"
        raise SupervisionError(
            f"X has {n_x} samples and Z has {n_z}: {what}; give labels of both as (x_labels, z_labels)"
        )
    if supervision is None:
        return kinds.PairedRows(n_x)
    if axes == 1:
        return kinds.Labels(*sides)
    if isinstance(supervision, list) and len(supervision) == 2 != n_x:
        raise SupervisionError("labels of both modalities are a tuple, (x_labels, z_labels), not a list")
    sides = [side if hasattr(side, "shape") else np.asarray(side) for side in sides]
    if all(side.shape[1] == 1 for side in sides):  # columns of a table
        return kinds.Labels(*(to_dense(side)[:, 0] for side in sides))
    return kinds.MultiLabels(*sides)


def n_axes(array: Any) -> int:
    """Return the number of axes; 0 of what is no array."""
    try:
        return int(np.ndim(array))
    except ValueError:  # lists of different lengths
        return 0


def annotations_of(supervision: Annotations | kinds.Supervision) -> Annotations:
    """Return annotations as they are, labels as one facet, and paired rows as pairs; or SupervisionError."""
    if isinstance(supervision, Annotations):
        return supervision
    if isinstance(supervision, kinds.PairedRows):
        rows = np.arange(len(supervision.x_order))
        return Annotations((len(rows), len(rows)), {}, np.column_stack([rows, rows]))
    if isinstance(supervision, kinds.Labels):
        one_hot = np.eye(len(supervision.classes), dtype=np.bool_)
        return _of_facet(one_hot[supervision.x_targets], one_hot[supervision.z_targets])
    if isinstance(supervision, kinds.MultiLabels):
        return _of_facet(supervision.x_targets, supervision.z_targets)
    raise SupervisionError(
        f"Annotations, Labels, MultiLabels or PairedRows are needed, not {type(supervision).__name__}"
    )


def _of_facet(x_indicators: BoolArray, z_indicators: BoolArray) -> Annotations:
    values = tuple(str(number) for number in range(x_indicators.shape[1]))
    facet = Facet(values, x_indicators, z_indicators)
    return Annotations((len(x_indicators), len(z_indicators)), {LABEL: facet})
