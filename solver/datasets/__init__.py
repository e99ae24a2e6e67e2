"""Loaders for data files, and synthetic pairs with a known low-rank truth."""

from solver.datasets.features import (
    LABEL,
    PARTNER,
    AnnotatedFeatures,
    PairedFeatures,
    RowClasses,
    annotate_rows,
    draw_split,
    is_training_split,
    load_annotated,
    load_npz,
    row_classes,
    training_rows,
)
from solver.datasets.files import read_array, read_arrays, read_labels, read_row_arrays
from solver.datasets.protocols import PROTOCOLS, PublishedProtocol, load_protocol, load_wikipedia
from solver.datasets.synthetic import SyntheticPairs, make_low_rank_pairs

__all__ = [
    "LABEL",
    "PARTNER",
    "PROTOCOLS",
    "AnnotatedFeatures",
    "PairedFeatures",
    "PublishedProtocol",
    "RowClasses",
    "SyntheticPairs",
    "annotate_rows",
    "draw_split",
    "is_training_split",
    "load_annotated",
    "load_npz",
    "load_protocol",
    "load_wikipedia",
    "make_low_rank_pairs",
    "row_classes",
    "read_array",
    "read_arrays",
    "read_labels",
    "read_row_arrays",
    "training_rows",
]
