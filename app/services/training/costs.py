"""Estimated costs of the training methods, from the numbers of items, classes and features."""

from __future__ import annotations

from dataclasses import dataclass

from solver import LabelledPair, can_be_compact

_MOST_BYTES = 2 << 30
"""Of a method's largest arrays together: half of the 4 GB that a retrain may take, since items, features and
libraries need the other half."""
_OPERATIONS_A_SECOND, _MOST_SECONDS = 3e10, 300.0
"""Of two cores on small arrays, and how long a method may take that was not requested by name."""
_FLOAT = 8
_SEARCHED = 3000
_TABLES, _SEARCHED_TABLES, _SQUARES, _KERNELS = 8, 40, 10, 4
"""Arrays needed at once: samples x classes for the posteriors, the same per searched candidate, classes x
classes (or features x features) for the similarity, and the kernel of all searched samples of a modality."""
_COORDINATES = 3000
"""Numbers of an item that "composite" works with: 1500 principal coordinates, and the same rotated."""
_HEADS, _OPTIMISED = 18, 40
"""Features x classes of a modality: linear classifiers of a trial and a final fit (eight of each, and
a read-out); and what one logistic regression takes, measured, where samples are too many to be made dense."""
_CLASSIFIERS, _PER_CLASSIFIER = 300, 3e4
"""Logistic regressions of a trial and a final fit, and the operations of one for each sample and class:
measured, and close to 400 features, two products and 20 steps."""
_PER_PAIR, _PER_PAIR_AND_RANK = 20, 6
"""Operations of one evaluation of the logistic loss: an exponential, and three products with factors."""
_EVALUATIONS, _EVALUATIONS_PER_RANK = 40, 4
"""Evaluations of a fit on many pairs, measured: the more ranks there are to be found, the more of them."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much there is to learn from: training items of both modalities, and classes of either."""

    n_x: int
    n_z: int
    n_classes: int

    @classmethod
    def of(cls, data: LabelledPair) -> Sizes:
        """Return the sizes of training items, all of which have a label."""
        classes = {*data.x_labels.tolist(), *data.z_labels.tolist()}
        return cls(len(data.x_labels), len(data.z_labels), len(classes))


def posteriors_too_large(
    sizes: Sizes, features: tuple[int, int] | None = None, are_sparse: tuple[bool, bool] = (False, False)
) -> str | None:
    """Return why "semantic" would not fit into memory; None where it does, or no features are known yet."""
    n_items, n_classes = sizes.n_x + sizes.n_z, sizes.n_classes
    n_searched = min(n_items, max(_SEARCHED, 2 * n_classes))
    floats = (_TABLES * n_items + _SEARCHED_TABLES * n_searched + _SQUARES * n_classes) * n_classes
    floats += _KERNELS * max(min(sizes.n_x, n_searched), min(sizes.n_z, n_searched)) ** 2
    what = f"posteriors of {n_classes} labels for each of {n_items} items"
    if features is not None:
        what += f", learned from {features[0]} and {features[1]} features,"
        for n, width, is_sparse in zip((sizes.n_x, sizes.n_z), features, are_sparse, strict=True):
            stays_sparse = is_sparse and not can_be_compact(n, width)
            floats += (_HEADS + _OPTIMISED * stays_sparse) * width * n_classes
    return _too_large(what, floats)


def composite_too_large(n_items: int, n_values: int) -> str | None:
    """Return why "composite" with these items of both modalities and values of all facets would not fit into
    memory, or None."""
    floats = n_items * (_TABLES * n_values + _COORDINATES)
    return _too_large(f"posteriors of {n_values} values of facets for each of {n_items} items", floats)


def posteriors_too_slow(sizes: Sizes) -> str | None:
    """Return why "semantic" would take too long to be tried unasked; None where it would not."""
    n_items, n_classes = sizes.n_x + sizes.n_z, sizes.n_classes
    operations = _CLASSIFIERS * _PER_CLASSIFIER * n_classes * min(n_items, 2 * _SEARCHED)
    return _excess(f"classifiers of {n_classes} labels for {n_items} items", operations)


def pairs_too_slow(sizes: Sizes, n_features: int) -> str | None:
    """Return why "lrbs" would take too long to be tried unasked, or None.
    `n_features` of the modality with fewer: neither they nor the classes are exceeded by the rank."""
    n_pairs, rank = sizes.n_x * sizes.n_z, min(n_features, sizes.n_classes)
    n_evaluations = _EVALUATIONS + _EVALUATIONS_PER_RANK * rank
    operations = n_evaluations * n_pairs * (_PER_PAIR + _PER_PAIR_AND_RANK * rank)
    return _excess(f"{n_pairs:.1e} pairs of items of {sizes.n_classes} labels", operations)


def sums_too_large(x_features: int, z_features: int) -> str | None:
    """Return why "squared" would not fit into memory, or None; features, or samples where these are fewer."""
    floats = _SQUARES * (x_features + z_features) ** 2 // 2
    return _too_large(f"sums of products of {x_features} and {z_features} features", floats)


def _too_large(what: str, floats: float) -> str | None:
    size, most = floats * _FLOAT, _MOST_BYTES
    if size <= most:
        return None
    gigabytes, allowed = size / (1 << 30), most / (1 << 30)
    return f"{what} would take about {gigabytes:.3g} GB, at most {allowed:.3g} GB are allowed"


def _excess(what: str, operations: float) -> str | None:
    seconds = operations / _OPERATIONS_A_SECOND
    if seconds <= _MOST_SECONDS:
        return None
    return (
        f"{what} would take an estimated {seconds / 60.0:.3g} minutes on two cores, "
        f"at most {_MOST_SECONDS / 60.0:g} are taken unasked"
    )
