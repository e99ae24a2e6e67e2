"""A fair comparison of methods: the same choices for each, tuned on training rows, one test at the end."""

from solver.comparison.cells import CellOutcome, OutcomeStore
from solver.comparison.comparison import Comparison, ComparisonRow, compare
from solver.comparison.methods import METHODS, Axis, Method, chosen_methods
from solver.evaluation.significance import bootstrap_interval, sign_flip_p_value, sums_of_partners
from solver.evaluation.trec import write_qrels, write_run

__all__ = [
    "METHODS",
    "Axis",
    "CellOutcome",
    "Comparison",
    "ComparisonRow",
    "Method",
    "OutcomeStore",
    "bootstrap_interval",
    "chosen_methods",
    "compare",
    "sign_flip_p_value",
    "sums_of_partners",
    "write_qrels",
    "write_run",
]
