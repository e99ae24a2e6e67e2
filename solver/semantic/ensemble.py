"""Class posteriors of one modality at query time: a weighted average of classifiers on feature maps."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from solver.linalg.matrices import FloatArray, Samples
from solver.logistic import LinearClassifier
from solver.scaling.feature_maps import FeatureMap
from solver.semantic.neighbours import NeighbourClassifier

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
