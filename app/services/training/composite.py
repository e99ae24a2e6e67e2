"""The training method that learns from all that items carry."""

from __future__ import annotations

import math
import time

from app.domain.reports import TrainingParameters
from app.services.training.items import LabelledItems
from app.services.training.methods import PAUSE_SECONDS, FullFit, step_of
from app.services.training.progress import Report
from app.services.training.short_queries import short_queries
from solver import CompositeBilinear, Progress, Projector, StepProgress


class CompositeMethod:
    """A weighted sum of similarities of facets, pairs and feedback; of the parameters the seed is used."""

    name = "composite"
    must_choose = False

    def __init__(self, parameters: TrainingParameters, report: Report) -> None:
        self._parameters = parameters
        self._report = report
        self._chosen: CompositeBilinear | None = None

    def evaluate(self, fitting: LabelledItems, held_out: LabelledItems) -> Projector:
        """Fit without the held-out items; the weights are chosen inside the fitting part."""
        self._chosen = self._fit(fitting, "judging")
        return self._chosen.projector_

    def fit(self, data: LabelledItems) -> FullFit:
        """Fit on all items, with what `evaluate` chose, if it was called."""
        estimator = self._fit(data, "fitting")
        weights = {name: float(weight) for name, weight in estimator.weights_.items()}
        return FullFit(estimator.projector_, None, None, weights=weights, dimensions=estimator.dimensions_)

    def _fit(self, data: LabelledItems, phase: str) -> CompositeBilinear:
        reported_at = -math.inf

        def follow(progress: Progress) -> None:
            nonlocal reported_at
            if isinstance(progress, StepProgress) and time.monotonic() - reported_at >= PAUSE_SECONDS:
                reported_at = time.monotonic()
                self._report({"phase": f"{phase} terms", **step_of(progress)})

        estimator = CompositeBilinear(random_state=self._parameters.seed)
        annotations = data.annotations()
        # What was chosen with them is taken over.
        queries = short_queries(data, annotations) if self._chosen is None else (None, None)
        estimator.fit(data.X, data.Z, annotations, callback=follow, reuse=self._chosen, queries=queries)
        return estimator
