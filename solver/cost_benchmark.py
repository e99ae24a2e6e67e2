"""Evaluations on Dask workers, beside what `FitCost` expected of them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

from solver.datasets import make_low_rank_pairs
from solver.losses.costs import RANK, FitCost
from solver.losses.dask_engine import DaskEngine
from solver.losses.logistic import PairLogisticLoss
from solver.supervision.labels import Labels

__all__ = ["CostComparison", "compare_cost"]

_FEATURES, _CLASSES = 64, 12


@dataclass(frozen=True, slots=True)
class CostComparison:
    """Expected and measured time of an evaluation, in seconds."""

    n_samples: int  # of either modality
    expected_seconds: float
    seconds: float  # by the clock, the median
    expected_processor_seconds: float
    processor_seconds: float  # of all workers together, the mean


def compare_cost(
    n_samples: int,
    n_evaluations: int = 10,
    *,
    scheduler: str | None = None,
    folder: str | Path | None = None,
    n_workers: int | None = None,
    seed: int = 0,
) -> CostComparison:
    """Measure evaluations along factors on workers (see `DaskEngine`), after their cost was estimated there.
    Samples have 64 features and 12 classes; a first evaluation is not measured."""
    data = make_low_rank_pairs(
        n_samples,
        n_samples,
        n_features_x=_FEATURES,
        n_features_z=_FEATURES,
        n_classes=_CLASSES,
        random_state=seed,
    )
    supervision, costs = Labels(data.x_labels, data.z_labels), list[FitCost]()
    factor = np.full((_FEATURES, RANK), 1e-3, np.float32)
    seconds: list[float] = []
    with DaskEngine(scheduler, folder, n_workers=n_workers, least_pairs=0, announce=costs.append) as engine:
        loss = PairLogisticLoss(data.X, data.Z, supervision, engine=engine)
        loss.value_and_factor_gradients(factor, factor)
        processor_seconds = -_processor_seconds(engine)
        for _ in range(n_evaluations):
            began = time.perf_counter()
            loss.value_and_factor_gradients(factor, factor)
            seconds.append(time.perf_counter() - began)
        processor_seconds += _processor_seconds(engine)
    (cost,) = costs
    return CostComparison(
        n_samples,
        cost.evaluation_seconds,
        median(seconds),
        cost.evaluation_processor_seconds,
        processor_seconds / n_evaluations,
    )


def _processor_seconds(engine: DaskEngine) -> float:
    return float(sum(engine.client.run(time.process_time).values()))
