"""The methods of a retrain: each is tried on a part of the items, and the better one fitted on all."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from app.domain.entities import TrainingParameters
from app.domain.entities.training_report import (
    CandidateQuality,
    ClassifierSummary,
    Iteration,
    PosteriorsSummary,
)
from solver import (
    DEFAULT_FRACTIONS,
    DEFAULT_SCALINGS,
    AffineProjector,
    Candidate,
    CandidateProgress,
    ConvergenceWarning,
    DirectionalMap,
    InvalidInputError,
    IterationProgress,
    LabelledPair,
    Labels,
    LowRankBilinear,
    NumericalError,
    PosteriorProjector,
    Progress,
    Projector,
    SemanticBilinear,
    SolverError,
    SupervisionError,
    bidirectional_map,
    can_be_compact,
    fit_projector,
    is_sparse,
    project_what_can_be_ranked,
    select_on,
)

_LOOSE_TOL, _FEW_STEPS, _TRIAL_STEPS = 1e-2, 3, 30
_PAUSE_SECONDS = 0.5
_METHOD_OF_LOSS = {"logistic": "lrbs", "squared": "squared"}
_FRACTIONS = {"logistic": DEFAULT_FRACTIONS, "squared": (0.03, 0.01, 0.003, 0.001, 0.0003)}
"""Shares of `alpha_max` to try; under the squared loss weak penalties cost little, and suit many classes."""

Report = Callable[[Mapping[str, Any]], None]
"""Takes progress; raises to end the training."""


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """A method fitted without the held-out items.

    Parameters
    ----------
    projector : Projector
        What it gave.
    held_out_map : float
        MAP over the held-out items, averaged over both directions.
    """

    projector: Projector
    held_out_map: float


@dataclass(frozen=True, slots=True, eq=False)
class Fitted:
    """A method fitted on all items.

    Parameters
    ----------
    projector : Projector
        What serves.
    bilinear : LowRankBilinear
        M, with its certificate.
    scaling : str or None
        Kind of feature scaling; None where the method has none of its own.
    candidates : tuple of CandidateQuality
        What was chosen from, the best first.
    posteriors : tuple of PosteriorsSummary
        Of both modalities, where the method has any.
    """

    projector: Projector
    bilinear: LowRankBilinear
    scaling: str | None
    candidates: tuple[CandidateQuality, ...] = ()
    posteriors: tuple[PosteriorsSummary, ...] = ()


class Recipe(Protocol):
    """A method with its parameters."""

    @property
    def method(self) -> str:
        """Its name."""
        ...

    @property
    def must_choose(self) -> bool:
        """Whether it cannot be fitted before it was tried."""
        ...

    def tried(self, fitting: LabelledPair, held_out: LabelledPair) -> Trial:
        """Choose on a held-out part; raises SolverError if that cannot be done."""
        ...

    def fitted(self, data: LabelledPair) -> Fitted:
        """Fit on all items, as chosen by `tried`."""
        ...


def try_each(
    recipes: Sequence[Recipe], fitting: LabelledPair, held_out: LabelledPair
) -> tuple[dict[str, Trial], dict[str, str]]:
    """Return the trial of each method that can be fitted without the held-out items, and why others cannot.

    Raises
    ------
    SupervisionError, InvalidInputError, NumericalError
        If none can be: what the first was refused for.
    """
    trials: dict[str, Trial] = {}
    errors: dict[str, SolverError] = {}
    for recipe in recipes:
        try:
            trials[recipe.method] = recipe.tried(fitting, held_out)
        except (SupervisionError, InvalidInputError, NumericalError) as error:
            errors[recipe.method] = error
    if not trials:
        raise errors[recipes[0].method]
    return trials, {method: f"without held-out items: {error}" for method, error in errors.items()}


def iteration_of(progress: IterationProgress) -> Iteration:
    """Return an iteration as the report has it."""
    is_known = progress.gap is not None and math.isfinite(progress.gap)
    return Iteration(
        progress.iteration,
        progress.objective,
        progress.gap if is_known else None,
        progress.rank,
        round(progress.seconds, 3),
    )


class LowRankRecipe:
    """The paper's similarity of features, or the same with the squared loss.

    The paper's loss visits every pair of items at each step. The squared one needs sums over items and
    classes only (`solver.losses.squared`), so it is what remains where pairs and classes are too many.

    Parameters
    ----------
    parameters : TrainingParameters
        Penalty weight and scaling are chosen where they are not given.
    report : callable
        Takes progress.
    loss : {"logistic", "squared"}
        The paper's, or that of the method "squared".
    scalings : tuple of str
        Tried where none was given.
    """

    def __init__(
        self,
        parameters: TrainingParameters,
        report: Report,
        loss: str = "logistic",
        scalings: tuple[str, ...] = DEFAULT_SCALINGS,
    ) -> None:
        self.method = _METHOD_OF_LOSS[loss]
        self._loss = loss
        self._parameters = parameters
        self._report = report
        self._scalings = (parameters.scaling,) if parameters.scaling else scalings
        self._scaling = self._scalings[0]
        self._fraction: float | None = None
        self._candidates: list[Candidate] = []

    @property
    def must_choose(self) -> bool:
        """Whether the penalty weight was not given."""
        return self._parameters.alpha is None

    def tried(self, fitting: LabelledPair, held_out: LabelledPair) -> Trial:
        """Choose scaling and penalty weight."""
        if self._parameters.alpha is None:
            self._candidates = select_on(
                fitting,
                held_out,
                scalings=self._scalings,
                alpha_fractions=_FRACTIONS[self._loss],
                loss=self._loss,
                callback=self._report_choosing,
            )
        else:
            self._candidates = self._judged(fitting, held_out, self._scalings, self._parameters.alpha)
        best = self._candidates[0]
        self._scaling = best.scaling
        self._fraction = best.alpha_fraction if self._parameters.alpha is None else None
        projector = self._fit(fitting, self._scaling, self._estimator(_LOOSE_TOL, _TRIAL_STEPS), "judging")
        return Trial(projector, _map(projector, held_out).mean)

    def fitted(self, data: LabelledPair) -> Fitted:
        """Fit with what was chosen."""
        estimator = self._estimator(self._parameters.tol, self._parameters.max_iter)
        projector = self._fit(data, self._scaling, estimator, "fitting")
        candidates = tuple(CandidateQuality(**asdict(candidate)) for candidate in self._candidates)
        return Fitted(projector, estimator, self._scaling, candidates)

    def _judged(
        self, fitting: LabelledPair, held_out: LabelledPair, scalings: tuple[str, ...], alpha: float
    ) -> list[Candidate]:
        """Score a given penalty weight with each scaling."""
        candidates: list[Candidate] = []
        for scaling in scalings:
            # As when weights are chosen: it only has to be good enough to be compared.
            estimator = self._estimator(_LOOSE_TOL, _FEW_STEPS)
            projector = self._fit(fitting, scaling, estimator, "choosing")
            fraction = alpha / estimator.alpha_max_
            quality = _map(projector, held_out)
            candidate = Candidate(scaling, fraction, quality.x_to_z, quality.z_to_x, projector.rank)
            if math.isfinite(candidate.mean):
                candidates.append(candidate)
        if not candidates:
            raise InvalidInputError("the held-out parts of the two modalities have no class in common")
        return sorted(candidates, key=lambda candidate: -candidate.mean)

    def _estimator(self, tol: float, max_iter: int) -> LowRankBilinear:
        estimator = LowRankBilinear(loss=self._loss, tol=tol, max_iter=max_iter)
        if self._parameters.alpha is not None:
            estimator.set_params(alpha=self._parameters.alpha)
        return estimator

    def _fit(
        self, data: LabelledPair, scaling: str, estimator: LowRankBilinear, phase: str
    ) -> AffineProjector:
        def follow(step: IterationProgress) -> None:
            self._report({"phase": phase, **asdict(iteration_of(step))})

        with warnings.catch_warnings():
            # Not converging is a fact of the model, told with it.
            warnings.simplefilter("ignore", ConvergenceWarning)
            return fit_projector(data, scaling, estimator, self._fraction, follow)

    def _report_choosing(self, progress: Progress) -> None:
        if isinstance(progress, IterationProgress):
            self._report({"phase": "choosing", **asdict(iteration_of(progress))})
        elif isinstance(progress, CandidateProgress):
            self._report({"phase": "choosing", "candidate": progress.number, "candidates": progress.total})


class SemanticRecipe:
    """The bilinear similarity of class posteriors, which chooses inside of what it is first fitted on.

    Parameters
    ----------
    parameters : TrainingParameters
        Tolerance and seed.
    report : callable
        Takes progress.
    """

    method = "semantic"
    must_choose = False

    def __init__(self, parameters: TrainingParameters, report: Report) -> None:
        self._parameters = parameters
        self._report = report
        self._chosen: SemanticBilinear | None = None

    def tried(self, fitting: LabelledPair, held_out: LabelledPair) -> Trial:
        """Fit on the one part, score on the other."""
        chosen = self._fit(fitting, "judging")
        projector = PosteriorProjector.of(chosen)
        mean = _map(projector, held_out).mean
        if not math.isfinite(mean):
            raise InvalidInputError("the held-out parts of the two modalities have no class in common")
        self._chosen = chosen
        return Trial(projector, mean)

    def fitted(self, data: LabelledPair) -> Fitted:
        """Fit on all items, with the classifiers that were tried if any were."""
        estimator = self._fit(data, "fitting")
        posteriors = tuple(
            PosteriorsSummary(
                side.log_loss,
                tuple(
                    ClassifierSummary(
                        branch.feature_map.scaler.kind_,
                        branch.feature_map.kernel,
                        member.weight,
                        member.kind,
                    )
                    for branch in side.ensemble.branches
                    for member in branch.classifiers
                ),
            )
            for side in (estimator.x_posteriors_, estimator.z_posteriors_)
        )
        return Fitted(PosteriorProjector.of(estimator), estimator.bilinear_, None, posteriors=posteriors)

    def _fit(self, data: LabelledPair, phase: str) -> SemanticBilinear:
        told = -math.inf
        step = 0

        def follow(_: Progress) -> None:
            nonlocal told, step
            step += 1
            if time.monotonic() - told >= _PAUSE_SECONDS:
                told = time.monotonic()
                self._report({"phase": f"{phase} posteriors", "step": step})

        estimator = SemanticBilinear(tol=self._parameters.tol, random_state=self._parameters.seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return estimator.fit(
                data.X,
                data.Z,
                Labels(data.x_labels, data.z_labels),
                callback=follow,
                reuse=self._chosen,
            )


def default_scalings(data: LabelledPair) -> tuple[str, ...]:
    """Return the scalings to try; "center" makes sparse samples dense, for which very many are too large."""
    sparse = [samples for samples in (data.X, data.Z) if is_sparse(samples)]
    if all(can_be_compact(*samples.shape) for samples in sparse):
        return DEFAULT_SCALINGS
    return tuple(scaling for scaling in DEFAULT_SCALINGS if scaling != "center")


def _map(projector: Projector, held_out: LabelledPair) -> DirectionalMap:
    """Return MAP over the held-out items that can be ranked."""
    return bidirectional_map(*project_what_can_be_ranked(projector, held_out))
