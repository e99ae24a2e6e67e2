"""Loaders for data files, and synthetic pairs with a known low-rank truth."""

from solver.datasets.annotated import (
    LABEL,
    PARTNER,
    AnnotatedFeatures,
    RowClasses,
    annotate_rows,
    draw_split,
    load_annotated_npz,
    row_classes,
    training_rows,
)
from solver.datasets.arrays import PairedFeatures, load_npz
from solver.datasets.protocols import PROTOCOLS, PublishedProtocol, load_protocol
from solver.datasets.synthetic import SyntheticPairs, make_low_rank_pairs
from solver.datasets.table import PictureTextRow, read_picture_text_table
from solver.datasets.wikipedia import load_wikipedia

__all__ = [
    "LABEL",
    "PARTNER",
    "PROTOCOLS",
    "AnnotatedFeatures",
    "PairedFeatures",
    "PictureTextRow",
    "PublishedProtocol",
    "RowClasses",
    "SyntheticPairs",
    "annotate_rows",
    "draw_split",
    "load_annotated_npz",
    "load_npz",
    "load_protocol",
    "load_wikipedia",
    "make_low_rank_pairs",
    "row_classes",
    "read_picture_text_table",
    "training_rows",
]
