"""Costs of the stages of a composite fit, by which its progress is measured."""

from __future__ import annotations

from solver.composite.pairs import PAIR_RIDGES
from solver.supervision.annotations import Annotations

_UNIT = 1000.0  # samples that the costs below are of
_PER_MAPS, _PER_SPACE, _PER_VALUE, _PER_RIDGE, _PER_TERM, _PER_CURVE = 5.0, 0.45, 0.012, 0.4, 2.0, 1.0
"""Seconds of one core, measured on a catalogue of 2000 pairs: for all maps and a space of one modality, for a
facet's value in both, for canonical directions, for a term's weight, and for the curve of matches."""


def costs_of_stages(
    annotations: Annotations, n_folds: int, max_samples: int, *, is_chosen: bool
) -> dict[str, float]:
    """Return the relative costs of the stages of a composite fit, from what there is to learn.
    `is_chosen`: maps, ridge and weights are taken over."""
    sizes = [size / _UNIT for size in annotations.shape]
    most = max_samples / _UNIT
    held_out = n_folds * min(sizes[0] / n_folds, most) * min(sizes[1] / n_folds, most)
    n_values = sum(len(facet.values) for facet in annotations.facets.values())
    n_terms = len(annotations.facets) + 1
    n_ridges = n_folds * (1 if is_chosen else len(PAIR_RIDGES)) if len(annotations.pairs) else 0
    return {
        "maps": 0.0 if is_chosen else _PER_MAPS * sum(min(size, most) ** 3 for size in sizes),
        "spaces": _PER_SPACE * sum(size**3 for size in sizes),
        "facets": _PER_VALUE * n_values * sum(sizes),
        "parts": _PER_RIDGE * n_ridges / n_folds * sizes[0] * sizes[1],
        "weights": 0.0 if is_chosen else _PER_TERM * n_terms * held_out,
        "end": _PER_CURVE * held_out,
    }
