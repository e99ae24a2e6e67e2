"""What a trained `SemanticBilinear` is at query time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import scipy.sparse

from solver.errors import InvalidInputError, InvalidParameterError
from solver.linalg.matrices import FloatArray, Samples, is_sparse
from solver.logistic import LinearClassifier
from solver.losses.base import LOSSES
from solver.projector import check_array, match_probability, project_in_range
from solver.scaling import Scaler
from solver.semantic.ensemble import Member, average
from solver.semantic.feature_maps import FeatureMap
from solver.semantic.neighbours import NeighbourClassifier

if TYPE_CHECKING:
    from solver.semantic.estimator import SemanticBilinear  # what trains, and all that it needs

_OF_MAPS = ("mean", "scale", "whitening")
_LANDMARKS, _OF_SPARSE = ("landmarks",), ("landmarks", "landmark_columns", "landmark_ends")
"""Dense landmarks; or their entries that are not zero, with the column of each and the end of each row."""
_OF_HEADS = ("coefficients", "intercepts")
_OF_READ_OUTS = (*_OF_HEADS, "anchors", "indicators")
_FIELDS = {"scaling": str, "kernel": str, "gamma": float, "weight": float, "is_exclusive": bool}
_BOUNDED = frozenset({"landmarks", "whitening", *_OF_READ_OUTS})
_MAP = "map"
"""The first classifier on the same feature map, whose arrays are kept once."""
_SCALE = "read_out_scale"
"""What a classifier has that is read out of a similarity, and no other."""
_SPARSE = "has_sparse_landmarks"
_WEIGHT_TOLERANCE = 1e-6
_LARGEST = 1e15
"""Of a landmark, a whitening, a coefficient: whose squares and sums are finite, also in float32."""


@dataclass(frozen=True, slots=True, eq=False)
class PosteriorProjector:
    """Projects raw features of both modalities into one space of inner products, by way of class posteriors.

    Parameters
    ----------
    x_members, z_members : tuple of Member
        Classifiers whose weighted mean the posteriors are.
    x_factors, z_factors : ndarray of shape (n_classes, rank)
        ``U sqrt(S)`` and ``V sqrt(S)`` of the bilinear matrix.
    loss : str
        What the bilinear matrix was fitted with; says how a similarity becomes a probability.

    Raises
    ------
    InvalidInputError
        If a part does not fit the others; names it.
    """

    x_members: tuple[Member, ...]
    z_members: tuple[Member, ...]
    x_factors: FloatArray
    z_factors: FloatArray
    loss: str

    def __post_init__(self) -> None:
        """Refuse parts that do not fit each other."""
        if self.loss not in LOSSES:
            raise InvalidInputError(f"loss must be one of {LOSSES}, got {self.loss!r}")
        check_array("x_factors", self.x_factors, (None, None))
        check_array("z_factors", self.z_factors, (None, self.rank))
        for name, factors in (("x_factors", self.x_factors), ("z_factors", self.z_factors)):
            if np.abs(factors).max(initial=0.0) > _LARGEST:
                raise InvalidInputError(f"{name} must not exceed {_LARGEST:g}: similarities would overflow")
        for side, members, factors in (
            ("x", self.x_members, self.x_factors),
            ("z", self.z_members, self.z_factors),
        ):
            if not members:
                raise InvalidInputError(f"{side} must have at least one classifier")
            _check_side(side, members)
            for number, member in enumerate(members):
                n_classes = member.head.n_classes
                if n_classes != len(factors):
                    raise InvalidInputError(
                        f"{side}_{number} must have the {len(factors)} classes of {side}_factors, "
                        f"got {n_classes}"
                    )

    @classmethod
    def of(cls, estimator: SemanticBilinear) -> PosteriorProjector:
        """Return what a fitted estimator needs at query time."""
        return cls(
            estimator.x_posteriors_.members,
            estimator.z_posteriors_.members,
            estimator.bilinear_.x_factors_.astype(np.float32),
            estimator.bilinear_.z_factors_.astype(np.float32),
            estimator.bilinear_.loss,
        )

    @property
    def rank(self) -> int:
        """Dimension of the common space."""
        return int(self.x_factors.shape[1])

    def project_x(self, X: npt.ArrayLike) -> FloatArray:
        """Return the (n_samples, rank) projections of raw features of the first modality, float32.

        Those of samples that are too large are not finite.
        """
        return _project(self.x_members, X, self.x_factors)

    def project_z(self, Z: npt.ArrayLike) -> FloatArray:
        """Return the (n_samples, rank) projections of raw features of the second modality, float32.

        Those of samples that are too large are not finite.
        """
        return _project(self.z_members, Z, self.z_factors)

    def probability(self, similarities: FloatArray) -> FloatArray:
        """Return the estimated probability of a match for each similarity (see `match_probability`)."""
        return match_probability(similarities, self.loss)

    def arrays(self) -> dict[str, FloatArray]:
        """Return everything numeric, by name."""
        arrays = {"x_factors": self.x_factors, "z_factors": self.z_factors}
        for side, members in (("x", self.x_members), ("z", self.z_members)):
            for number, member in enumerate(members):
                scaler, features, head = member.features.scaler, member.features, member.head
                if _map_number(members, member) == number:
                    parts = {"mean": scaler.mean_, "scale": scaler.scale_, "whitening": features.whitening}
                    parts |= _landmark_arrays(features.landmarks)
                    arrays |= {f"{side}_{number}_{name}": part for name, part in parts.items()}
                names = _OF_READ_OUTS if isinstance(head, NeighbourClassifier) else _OF_HEADS
                arrays |= {f"{side}_{number}_{name}": getattr(head, name) for name in names}
        return arrays

    def described(self) -> dict[str, Any]:
        """Return what is not numeric, and the few numbers that are no arrays, as JSON."""
        members = {
            side: [
                {
                    "map": _map_number(members, member),
                    "scaling": member.features.scaler.kind_,
                    "kernel": member.features.kernel,
                    "gamma": member.features.gamma,
                    "weight": member.weight,
                    "is_exclusive": member.head.is_exclusive,
                }
                | ({_SCALE: member.head.scale} if isinstance(member.head, NeighbourClassifier) else {})
                | ({_SPARSE: True} if is_sparse(member.features.landmarks) else {})
                for member in members
            ]
            for side, members in (("x", self.x_members), ("z", self.z_members))
        }
        return {"loss": self.loss, **members}

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, FloatArray], described: Mapping[str, Any]
    ) -> PosteriorProjector:
        """Rebuild a projector from `arrays` and `described`.

        Parameters
        ----------
        arrays : mapping of str to ndarray
            What `arrays` returned.
        described : mapping
            What `described` returned; read as if it came from anyone.

        Raises
        ------
        InvalidInputError, InvalidParameterError
            If something is missing, too much or does not fit; names it.
        """
        members = {side: _checked(side, described.get(side)) for side in "xz"}
        expected = {"x_factors", "z_factors"} | {
            f"{side}_{number}_{part}"
            for side in "xz"
            for number, facts in enumerate(members[side])
            for part in _parts(facts, number)
        }
        if set(arrays) != expected:
            raise InvalidInputError(f"expected the arrays {sorted(expected)}, got {sorted(arrays)}")
        x, z = (_members(side, members[side], arrays) for side in "xz")
        return cls(x, z, arrays["x_factors"], arrays["z_factors"], described["loss"])


def _project(members: Sequence[Member], samples: npt.ArrayLike, factors: FloatArray) -> FloatArray:
    def project(some: npt.ArrayLike) -> FloatArray:
        raw: Samples = some if is_sparse(some) else np.asarray(some)
        projected: FloatArray = average(members, raw).astype(np.float32) @ factors
        return projected

    return project_in_range(project, samples, factors.shape[1])


def _check_side(side: str, members: Sequence[Member]) -> None:
    """Refuse classifiers that are not of one kind, or whose weighted mean is no mean."""
    first = members[0]
    for number, member in enumerate(members):
        if not member.weight > 0.0:
            raise InvalidInputError(f"{side}_{number}: weight must be > 0, got {member.weight}")
        n_features, expected = (len(each.features.scaler.mean_) for each in (member, first))
        if n_features != expected:
            raise InvalidInputError(
                f"{side}_{number}_mean must have the {expected} features of {side}_0, got {n_features}"
            )
        if member.head.is_exclusive != first.head.is_exclusive:
            raise InvalidInputError(f"{side}_{number}: is_exclusive must be the same as of {side}_0")
    total = sum(member.weight for member in members)
    if not abs(total - 1.0) <= _WEIGHT_TOLERANCE:
        raise InvalidInputError(f"{side}: the weights must sum to 1, got {total}")


def _checked(side: str, members: Any) -> list[dict[str, Any]]:
    if not isinstance(members, list):
        raise InvalidInputError(f"{side} must be a list of classifiers, got {members!r:.100}")
    for number, facts in enumerate(members):
        for name, kind in _FIELDS.items():
            if not isinstance(facts, dict) or type(facts.get(name)) is not kind:
                raise InvalidInputError(f"{side}.{number}.{name} must be of type {kind.__name__}")
        if type(facts.get(_SCALE, 1.0)) is not float:
            raise InvalidInputError(f"{side}.{number}.{_SCALE} must be of type float")
        if type(facts.get(_SPARSE, True)) is not bool:
            raise InvalidInputError(f"{side}.{number}.{_SPARSE} must be of type bool")
        owner = facts.get(_MAP, number)
        if (
            type(owner) is not int
            or owner not in range(number + 1)
            or members[owner].get(_MAP, owner) != owner
        ):
            raise InvalidInputError(f"{side}.{number}.{_MAP} must be the number of an earlier classifier")
    return members


def _map_number(members: Sequence[Member], member: Member) -> int:
    """Return the first classifier on the same feature map."""
    return next(number for number, each in enumerate(members) if each.features is member.features)


def _parts(facts: Mapping[str, Any], number: int) -> tuple[str, ...]:
    of_map: tuple[str, ...] = ()
    if facts.get(_MAP, number) == number:
        of_map = (*_OF_MAPS, *(_OF_SPARSE if facts.get(_SPARSE) else _LANDMARKS))
    return (*of_map, *(_OF_READ_OUTS if _SCALE in facts else _OF_HEADS))


def _members(
    side: str, described: Sequence[Mapping[str, Any]], arrays: Mapping[str, FloatArray]
) -> tuple[Member, ...]:
    members: list[Member] = []
    for number, facts in enumerate(described):
        name, owner = f"{side}_{number}", facts.get(_MAP, number)
        parts = {part: arrays[f"{name}_{part}"] for part in _parts(facts, number)}
        for part in set(parts) & _BOUNDED:
            if np.abs(parts[part]).max(initial=0.0) > _LARGEST:
                raise InvalidInputError(
                    f"{name}_{part} must not exceed {_LARGEST:g}: sums of it would overflow"
                )
        features = _features(parts, name, facts) if owner == number else members[owner].features
        members.append(Member(features, _head(parts, name, facts, features.n_mapped), facts["weight"]))
    return tuple(members)


def _features(parts: Mapping[str, FloatArray], name: str, facts: Mapping[str, Any]) -> FeatureMap:
    n_features = parts["mean"].shape[0] if parts["mean"].ndim else 0
    check_array(f"{name}_mean", parts["mean"], (n_features,))
    check_array(f"{name}_scale", parts["scale"], (n_features,))
    landmarks: Samples = parts["landmarks"]
    if facts.get(_SPARSE):
        landmarks = _sparse_landmarks(parts, name, n_features)
    else:
        check_array(f"{name}_landmarks", landmarks, (None, n_features))
    check_array(f"{name}_whitening", parts["whitening"], (landmarks.shape[0], None))
    try:
        scaler = Scaler.restore(facts["scaling"], parts["mean"], parts["scale"])
        features = FeatureMap(scaler, facts["kernel"], facts["gamma"], landmarks, parts["whitening"])
    except InvalidParameterError as error:
        raise InvalidInputError(f"{name}: {error}") from error
    if not 0.0 <= facts["gamma"] < np.inf:
        raise InvalidInputError(f"{name}: gamma must be finite and >= 0, got {facts['gamma']}")
    return features


def _landmark_arrays(landmarks: Samples) -> dict[str, FloatArray]:
    if not is_sparse(landmarks):
        return {"landmarks": landmarks}
    ends = landmarks.indptr[1:].astype(np.int64)
    return dict(zip(_OF_SPARSE, (landmarks.data, landmarks.indices.astype(np.int64), ends), strict=True))


def _sparse_landmarks(parts: Mapping[str, FloatArray], name: str, n_features: int) -> Samples:
    entries, columns, ends = (parts[part] for part in _OF_SPARSE)
    check_array(f"{name}_landmarks", entries, (None,))
    for part, numbers, largest in (("columns", columns, n_features - 1), ("ends", ends, len(entries))):
        is_valid = numbers.dtype == np.int64 and numbers.ndim == 1
        if not (is_valid and ((numbers >= 0) & (numbers <= largest)).all()):
            raise InvalidInputError(f"{name}_landmark_{part} must hold integers from 0 to {largest}")
    rows = np.concatenate([[0], ends])
    if len(columns) != len(entries) or rows[-1] != len(entries) or (np.diff(rows) < 0).any():
        raise InvalidInputError(f"{name}_landmarks, its columns and its ends do not fit each other")
    return scipy.sparse.csr_array((entries, columns, rows), shape=(len(ends), n_features))


def _head(
    parts: Mapping[str, FloatArray], name: str, facts: Mapping[str, Any], n_mapped: int
) -> LinearClassifier | NeighbourClassifier:
    check_array(f"{name}_coefficients", parts["coefficients"], (n_mapped, None))
    n_scores = parts["coefficients"].shape[1]
    check_array(f"{name}_intercepts", parts["intercepts"], (n_scores,))
    if _SCALE not in facts:
        return LinearClassifier(parts["coefficients"], parts["intercepts"], facts["is_exclusive"])
    check_array(f"{name}_anchors", parts["anchors"], (None, n_scores))
    check_array(f"{name}_indicators", parts["indicators"], (len(parts["anchors"]), None))
    arrays = {part: parts[part] for part in _OF_READ_OUTS}
    try:
        return NeighbourClassifier(**arrays, scale=facts[_SCALE], is_exclusive=facts["is_exclusive"])
    except InvalidInputError as error:
        raise InvalidInputError(f"{name}: {error}") from error
