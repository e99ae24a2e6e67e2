"""Class posteriors of one modality at query time: a weighted average of classifiers on feature maps."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from scipy.special import softmax

from solver.linalg import FloatArray, Samples
from solver.logistic import LinearClassifier
from solver.scaling.feature_maps import FeatureMap
from solver.threads import row_blocks
from solver.validation import InvalidInputError

MAX_INVERSE_TEMPERATURE = 1e4
"""There the nearest anchor already takes the whole vote wherever similarities differ by 1e-3."""
_BLOCK_ROWS = 1024  # rows predicted in one block: their similarities to 3000 anchors take 25 MB in float64


@dataclass(frozen=True, slots=True, eq=False)
class NeighbourClassifier:
    """Softmax-weighted vote of all anchors z_i on the class of a sample x."""

    # The posterior of class c is sum_{i: c_i = c} exp(t s(x, z_i)) / sum_i exp(t s(x, z_i)) with the inverse
    # temperature t and a bilinear similarity s: the Nadaraya-Watson estimator with that kernel (E. Nadaraya,
    # "On Estimating Regression", Theory of Probability and Its Applications 9, 1964).

    coefficients: FloatArray  # (n_mapped, rank), linear part of the projection of mapped samples
    intercepts: FloatArray  # (rank,), its constant part
    anchors: FloatArray  # (n_anchors, rank), projected; a similarity is an inner product with one
    indicators: FloatArray  # (n_anchors, n_classes), 1 where an anchor belongs to a class, else 0
    inverse_temperature: float  # t, in (0, 1e4]: the larger, the fewer anchors share the vote
    is_exclusive: bool  # one class an anchor; if not, each label has a probability
    _exact: tuple[FloatArray, FloatArray, FloatArray] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.coefficients.ndim != 2 or self.intercepts.shape != self.coefficients.shape[1:]:
            raise InvalidInputError(
                f"coefficients {self.coefficients.shape} do not match intercepts {self.intercepts.shape}"
            )
        if self.anchors.ndim != 2 or self.anchors.shape[1] != len(self.intercepts) or not len(self.anchors):
            raise InvalidInputError(
                f"anchors {self.anchors.shape} must be at least one, each with {len(self.intercepts)} factors"
            )
        if self.indicators.ndim != 2 or len(self.indicators) != len(self.anchors):
            raise InvalidInputError(
                f"indicators {self.indicators.shape} do not match {len(self.anchors)} anchors"
            )
        is_binary = ((self.indicators == 0) | (self.indicators == 1)).all()
        if not is_binary or (self.is_exclusive and not (self.indicators.sum(axis=1) == 1).all()):
            raise InvalidInputError(
                "indicators must be 0 or 1, with a single 1 in each row where classes are exclusive"
            )
        if not 0.0 < self.inverse_temperature <= MAX_INVERSE_TEMPERATURE:
            raise InvalidInputError(
                f"inverse temperature must be > 0 and at most {MAX_INVERSE_TEMPERATURE:g}, "
                f"got {self.inverse_temperature}"
            )
        parts = (self.coefficients, self.anchors, self.indicators)
        coefficients, anchors, indicators = (part.astype(np.float64, copy=False) for part in parts)
        object.__setattr__(self, "_exact", (coefficients, anchors, indicators))

    @property
    def n_classes(self) -> int:
        return int(self.indicators.shape[1])

    def predict(self, mapped: Samples) -> FloatArray:
        posteriors = np.empty((mapped.shape[0], self.n_classes))
        coefficients, anchors, indicators = self._exact
        for rows in row_blocks(mapped.shape[0], _BLOCK_ROWS):
            projected = mapped[rows].astype(np.float64) @ coefficients + self.intercepts
            votes = softmax(self.inverse_temperature * (projected @ anchors.T), axis=1)
            posteriors[rows] = votes @ indicators
        return posteriors


Classifier = LinearClassifier | NeighbourClassifier  # gives posteriors of mapped samples


@dataclass(frozen=True, slots=True, eq=False)
class WeightedClassifier:
    """A fitted classifier and its positive share of the ensemble's average."""

    classifier: Classifier
    weight: float

    @property
    def kind(self) -> str:
        """Either "linear", a linear classifier, or "neighbours", a vote of labelled samples."""
        return "neighbours" if isinstance(self.classifier, NeighbourClassifier) else "linear"


@dataclass(frozen=True, slots=True, eq=False)
class Branch:
    """A feature map of raw samples, and the classifiers, at least one, that share the mapped ones."""

    feature_map: FeatureMap
    classifiers: tuple[WeightedClassifier, ...]

    @property
    def weight(self) -> float:
        return sum(member.weight for member in self.classifiers)


@dataclass(frozen=True, slots=True, eq=False)
class Ensemble:
    """Weighted average of the posteriors of all classifiers of all branches; their weights sum to one."""

    branches: tuple[Branch, ...]

    @property
    def members(self) -> tuple[WeightedClassifier, ...]:
        """The classifiers of all branches, branch by branch."""
        return tuple(member for branch in self.branches for member in branch.classifiers)

    @property
    def heaviest_branch(self) -> Branch:
        """The branch with the largest share; the first of equals."""
        return max(self.branches, key=lambda branch: branch.weight)

    def predict(self, samples: Samples) -> FloatArray:
        """Return posteriors of raw samples, of shape (n_samples, n_classes), in float64."""
        posteriors: list[FloatArray] = []
        for branch in self.branches:
            mapped = branch.feature_map.transform(samples)
            posteriors += [member.weight * member.classifier.predict(mapped) for member in branch.classifiers]
        average: FloatArray = np.sum(posteriors, axis=0)
        return average

    def blend(self, classifier: Classifier, share: float) -> Ensemble:
        """Return an ensemble with one more classifier, fitted on the map of `heaviest_branch`, which has
        `share`. The other weights are multiplied by ``1 - share``."""
        place = self.branches.index(self.heaviest_branch)
        branches = list(self.scale_weights(1.0 - share).branches)
        members = (*branches[place].classifiers, WeightedClassifier(classifier, share))
        branches[place] = replace(branches[place], classifiers=members)
        return Ensemble(tuple(branches))

    def scale_weights(self, factor: float) -> Ensemble:
        """Return the ensemble with all weights multiplied by a factor, which is no longer an average."""
        return Ensemble(
            tuple(
                Branch(
                    branch.feature_map,
                    tuple(replace(member, weight=factor * member.weight) for member in branch.classifiers),
                )
                for branch in self.branches
            )
        )
