"""The training method that learns from all that items carry."""

from __future__ import annotations

import math
import time

from app.domain.entities import TrainingParameters
from app.services.training.items import LabelledItems
from app.services.training.methods import PAUSE_SECONDS, FullFit, HeldOutFit, Report
from solver import CompositeBilinear, Progress


class CompositeMethod:
    """A weighted sum of similarities of facets, pairs and feedback.

    Parameters
    ----------
    parameters : TrainingParameters
        The seed is used.
    report : callable
        Receives progress.
    """

    name = "composite"
    must_choose = False

    def __init__(self, parameters: TrainingParameters, report: Report) -> None:
        self._parameters = parameters
        self._report = report
        self._chosen: CompositeBilinear | None = None

    def evaluate(self, fitting: LabelledItems, held_out: LabelledItems) -> HeldOutFit:
        """Fit without the held-out items; the weights are chosen inside the fitting part."""
        self._chosen = self._fit(fitting, "judging")
        return HeldOutFit(self._chosen.projector_)

    def fit(self, data: LabelledItems) -> FullFit:
        """Fit on all items, with what `evaluate` chose, if it was called."""
        estimator = self._fit(data, "fitting")
        weights = {name: float(weight) for name, weight in estimator.weights_.items()}
        return FullFit(estimator.projector_, None, None, weights=weights)

    def _fit(self, data: LabelledItems, phase: str) -> CompositeBilinear:
        reported_at = -math.inf
        step = 0

        def follow(_: Progress) -> None:
            nonlocal reported_at, step
            step += 1
            if time.monotonic() - reported_at >= PAUSE_SECONDS:
                reported_at = time.monotonic()
                self._report({"phase": f"{phase} terms", "step": step})

        estimator = CompositeBilinear(random_state=self._parameters.seed)
        estimator.fit(data.X, data.Z, data.annotations(), callback=follow, reuse=self._chosen)
        return estimator
