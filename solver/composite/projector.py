"""A trained `CompositeBilinear` at query time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import expit, softmax
from typing_extensions import override

from solver.linalg.matrices import FloatArray, Samples, to_dense
from solver.linalg.samples import check_array
from solver.projector import Projector, project_in_range
from solver.scaling.feature_maps import (
    MAX_MAGNITUDE,
    FeatureMap,
    describe_feature_map,
    feature_map_arrays,
    feature_map_parts,
    read_feature_map,
)
from solver.validation.errors import InvalidInputError

_SHARPNESS = 7.0  # of the mean over the bank: the best of 5 to 40 for the partners of held-out products
_MOST_BANKED = 2048  # samples of a bank at most: a query is compared with each of them


def draw_bank(unit: FloatArray) -> FloatArray:
    """Return an even sample of rows, projections of length one of what queries, as a float32 bank."""
    n_samples = len(unit)
    rows = np.unique(np.linspace(0, n_samples - 1, min(n_samples, _MOST_BANKED)).astype(np.intp))
    return np.ascontiguousarray(unit[rows], np.float32)


def distinctness(unit: FloatArray, bank: FloatArray) -> FloatArray:
    """Return one minus the hubness of samples, of shape (n_samples, 1); all projections have length one."""
    # The hubness is the logarithm of the mean, over a bank of queries, of the exponential of the similarity:
    # what an inverted softmax (Smith et al., "Offline Bilingual Word Vectors, Orthogonal Transformations and
    # the Inverted Softmax", ICLR 2017) subtracts from it. The product of two samples' values falls with the
    # hubness of either.
    similarities = _SHARPNESS * (unit @ bank.T)
    hubness = (_log_sum_exp(similarities) - np.log(len(bank))) / _SHARPNESS
    result: FloatArray = 1.0 - hubness
    return result


def _log_sum_exp(rows: FloatArray) -> FloatArray:
    """Return the logarithm of the sum of exponentials of each row, as a column: SciPy's, to the bit, without
    what that does for infinite, complex and weighted numbers, which takes longer than a query."""
    largest = rows.max(axis=1, keepdims=True)
    is_largest = rows == largest
    n_largest = is_largest.sum(axis=1, keepdims=True, dtype=rows.dtype)
    others = np.exp(np.where(is_largest, -np.inf, rows) - largest).sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore"):  # of rows with NaN none is largest
        result: FloatArray = np.log1p(others / n_largest) + np.log(n_largest) + largest
    return result


HEAD_KINDS = ("softmax", "sigmoid", "direction", "linear", "cosine", "distinctness")
_WITHOUT_SCORES = ("cosine", "distinctness")
_MAP_FIELDS = {"scaling": str, "kernel": str, "gamma": float}
_HEAD_FIELDS = {"term": str, "kind": str, "n_scores": int, "scale": float}
_TINY = 1e-12  # shorter vectors have no direction: they are left as they are


@dataclass(frozen=True, slots=True)
class Head:
    """One term's part of a projection."""

    term: str
    kind: str  # softmax, sigmoid, direction (length one), linear, cosine or distinctness
    n_scores: int  # 0 for "cosine" (the raw sample) and "distinctness" (made of "direction")
    scale: float  # root of the term's weight

    def __post_init__(self) -> None:
        if self.kind not in HEAD_KINDS:
            raise InvalidInputError(f"{self.term}: kind must be one of {HEAD_KINDS}, got {self.kind!r:.100}")
        if not 0.0 < self.scale < MAX_MAGNITUDE:
            raise InvalidInputError(f"{self.term}: scale must be positive and finite, got {self.scale}")
        if self.n_scores < 0 or (self.n_scores == 0) != (self.kind in _WITHOUT_SCORES):
            raise InvalidInputError(f"{self.term}: {self.n_scores} scores do not suit the kind {self.kind!r}")

    def apply(self, scores: FloatArray, samples: Samples) -> FloatArray:
        """Return this part of the projections of samples with these scores."""
        if self.kind == "cosine":
            return self.scale * to_unit_length(to_dense(samples))
        if self.kind == "softmax":
            part: FloatArray = softmax(scores, axis=1)
        elif self.kind == "sigmoid":
            part = expit(scores)
        else:
            part = to_unit_length(scores) if self.kind == "direction" else scores
        return self.scale * part


@dataclass(frozen=True, slots=True, eq=False)
class CompositeSide:
    """How samples of one modality are projected: a feature map, linear scores of it, and heads."""

    feature_map: FeatureMap
    coefficients: FloatArray  # (n_mapped, n_scores), one head after the other
    intercepts: FloatArray  # (n_scores,), added to the scores
    heads: tuple[Head, ...]
    bank: FloatArray | None = None  # (n_bank, n_directions), of the other modality, for "distinctness"
    # (n_landmarks, n_scores), from kernel values to scores, where queries come one by one
    _dual: FloatArray | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        n_scores = sum(head.n_scores for head in self.heads)
        check_array("coefficients", self.coefficients, (self.feature_map.n_mapped, n_scores))
        check_array("intercepts", self.intercepts, (n_scores,))
        if not self.heads:
            raise InvalidInputError("heads must not be empty")
        widths = [head.n_scores for head in self.heads if head.kind == "direction"]
        if any(head.kind == "distinctness" for head in self.heads):
            check_array("bank", np.empty(0) if self.bank is None else self.bank, (None, sum(widths)))
            if len(widths) != 1:
                raise InvalidInputError("a head 'distinctness' needs one of the kind 'direction'")
        if np.abs(self.coefficients).max(initial=0.0) > MAX_MAGNITUDE:
            raise InvalidInputError(f"coefficients must not exceed {MAX_MAGNITUDE:g}: scores would overflow")
        feature_map = self.feature_map
        if feature_map.serves and feature_map.kernel != "linear" and n_scores <= feature_map.n_mapped:
            # To read the whitening, which has landmarks squared, took most of a query's time.
            dual = feature_map.whitening.astype(np.float64) @ self.coefficients.astype(np.float64)
            object.__setattr__(self, "_dual", dual.astype(np.float32))

    @property
    def widths(self) -> tuple[int, ...]:
        """Dimensions of each head's part."""
        widths = {"cosine": self.feature_map.n_features, "distinctness": 1}
        return tuple(widths.get(head.kind, head.n_scores) for head in self.heads)

    def project(self, samples: npt.ArrayLike) -> FloatArray:
        """Return the (n_samples, rank) projections, float32; those of too large samples are not finite."""
        return project_in_range(self._project, samples, sum(self.widths))

    def _project(self, samples: Samples) -> FloatArray:
        if self._dual is None:
            scores = np.asarray(self.feature_map.transform(samples) @ self.coefficients)
        else:
            scores = self.feature_map.weigh(samples, self._dual)
        return np.hstack(list(self._parts(scores + self.intercepts, samples))).astype(np.float32)

    def _parts(self, scores: FloatArray, raw: Samples) -> Iterator[FloatArray]:
        start = 0
        directions = scores[:, :0]
        for head in self.heads:
            own = scores[:, start : start + head.n_scores]
            start += head.n_scores
            if head.kind == "direction":
                directions = own
            if head.kind == "distinctness" and self.bank is not None:
                yield head.scale * distinctness(to_unit_length(directions), self.bank)
            else:
                yield head.apply(own, raw)


@dataclass(frozen=True, slots=True, eq=False)
class CompositeProjector(Projector):
    """Projects raw features of both modalities into a space whose inner product sums the terms.

    Parameters
    ----------
    x, z : CompositeSide
        Both modalities; their heads are of the same terms and widths.
    levels : ndarray of shape (n_levels,)
        Similarities in ascending order, at which the probability is known.
    probabilities : ndarray of shape (n_levels,)
        Probability of a match at each of them, from 0 to 1 and never decreasing.

    Raises
    ------
    InvalidInputError
        If a part does not match the others; the message names it.
    """

    x: CompositeSide
    z: CompositeSide
    levels: FloatArray
    probabilities: FloatArray

    def __post_init__(self) -> None:
        terms = [[(head.term, head.scale) for head in side.heads] for side in (self.x, self.z)]
        if terms[0] != terms[1] or self.x.widths != self.z.widths:
            raise InvalidInputError("x and z must have the same terms, with the same widths and scales")
        check_array("levels", self.levels, (None,))
        check_array("probabilities", self.probabilities, (len(self.levels),))
        is_sorted = (np.diff(self.levels) > 0).all() and (np.diff(self.probabilities) >= 0).all()
        if (
            not len(self.levels)
            or not is_sorted
            or not 0 <= self.probabilities[0] <= self.probabilities[-1] <= 1
        ):
            raise InvalidInputError("levels must ascend, and probabilities from 0 to 1 must not descend")

    @property
    @override
    def rank(self) -> int:
        return sum(self.x.widths)

    @override
    def project_x(self, X: npt.ArrayLike) -> FloatArray:
        return self.x.project(X)

    @override
    def project_z(self, Z: npt.ArrayLike) -> FloatArray:
        return self.z.project(Z)

    @override
    def probability(self, similarities: FloatArray) -> FloatArray:
        probability: FloatArray = np.interp(similarities, self.levels, self.probabilities)
        return probability

    @override
    def arrays(self) -> dict[str, FloatArray]:
        arrays = {"levels": self.levels, "probabilities": self.probabilities}
        for name, side in (("x", self.x), ("z", self.z)):
            arrays |= {f"{name}_coefficients": side.coefficients, f"{name}_intercepts": side.intercepts}
            arrays |= {} if side.bank is None else {f"{name}_bank": side.bank}
            arrays |= {f"{name}_{part}": array for part, array in feature_map_parts(side.feature_map).items()}
        return arrays

    def describe(self) -> dict[str, Any]:
        """Return everything that is not an array, as JSON values."""
        return {name: _describe(side) for name, side in (("x", self.x), ("z", self.z))}

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, FloatArray], description: Mapping[str, Any]
    ) -> CompositeProjector:
        """Rebuild a projector from `arrays` and `describe`.

        Parameters
        ----------
        arrays : mapping of str to ndarray
            As returned by `arrays`.
        description : mapping
            As returned by `describe`, or read from an untrusted file.

        Raises
        ------
        InvalidInputError
            If something is missing, unexpected or does not match; the message names it.
        """
        sides = {name: _check_side(name, description.get(name)) for name in "xz"}
        expected = {"levels", "probabilities"} | {
            f"{name}_{part}"
            for name, side in sides.items()
            for part in ("coefficients", "intercepts", *feature_map_arrays(side["map"]), *_bank_names(side))
        }
        if set(arrays) != expected:
            raise InvalidInputError(f"expected the arrays {sorted(expected)}, got {sorted(arrays)}")
        x, z = (_read_side(name, side, arrays) for name, side in sides.items())
        return cls(x, z, arrays["levels"], arrays["probabilities"])


def _bank_names(side: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the name of the bank's array, if the heads of a checked description need one."""
    return ("bank",) if any(head["kind"] == "distinctness" for head in side["heads"]) else ()


def _describe(side: CompositeSide) -> dict[str, Any]:
    return {"map": describe_feature_map(side.feature_map), "heads": [asdict(head) for head in side.heads]}


def _check_side(name: str, side: Any) -> Mapping[str, Any]:
    """Return the description of a modality after checking the types of its fields."""
    if not isinstance(side, dict) or type(side.get("map")) is not dict or type(side.get("heads")) is not list:
        raise InvalidInputError(f"{name} must have a map and heads, got {side!r:.100}")
    for key, kind in _MAP_FIELDS.items():
        if type(side["map"].get(key)) is not kind:
            raise InvalidInputError(f"{name}.map.{key} must be of type {kind.__name__}")
    for number, head in enumerate(side["heads"]):
        for key, kind in _HEAD_FIELDS.items():
            if not isinstance(head, dict) or type(head.get(key)) is not kind:
                raise InvalidInputError(f"{name}.heads.{number}.{key} must be of type {kind.__name__}")
    return side


def _read_side(name: str, side: Mapping[str, Any], arrays: Mapping[str, FloatArray]) -> CompositeSide:
    heads = tuple(Head(**{key: head[key] for key in _HEAD_FIELDS}) for head in side["heads"])
    try:
        return CompositeSide(
            read_feature_map(name, side["map"], arrays),
            arrays[f"{name}_coefficients"],
            arrays[f"{name}_intercepts"],
            heads,
            arrays.get(f"{name}_bank"),
        )
    except InvalidInputError as error:
        raise InvalidInputError(f"{name}: {error}") from error


def to_unit_length(rows: FloatArray) -> FloatArray:
    """Return rows of length one; those that are almost zero stay as they are."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: FloatArray = rows / np.where(lengths > _TINY, lengths, 1.0)
    return unit
