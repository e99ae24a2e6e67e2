"""Comparing methods fairly: the same choices for each, tuned on training rows, one look at the test split."""

from solver.comparison.cells import Cell, Outcome, OutcomeStore, run_cell
from solver.comparison.comparison import Comparison, Row, compare
from solver.comparison.methods import METHODS, Axis, Method, chosen_methods
from solver.evaluation.significance import bootstrap_interval, sign_flip_p_value
from solver.evaluation.trec import write_qrels, write_run

__all__ = [
    "METHODS",
    "Axis",
    "Cell",
    "Comparison",
    "Method",
    "Outcome",
    "OutcomeStore",
    "Row",
    "bootstrap_interval",
    "chosen_methods",
    "compare",
    "run_cell",
    "sign_flip_p_value",
    "write_qrels",
    "write_run",
]
