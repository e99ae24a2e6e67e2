"""Training methods, and what is chosen by held-out quality: which take part, the best one, its parameters."""

from __future__ import annotations

import logging
import math
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from types import MappingProxyType

import numpy as np

import solver
from app.domain import reports
from app.domain.entities import value_of
from app.domain.errors import ConflictError, not_trainable
from app.services.models.model_bundles import HeldOutModel
from app.services.training import requests
from app.services.training.data import LabelledItems, short_queries, with_labels, with_names
from app.services.training.evaluation import describe_progress, held_out_quality, is_better, measure
from app.services.training.progress import Report, StagedReport

_logger = logging.getLogger(__name__)
_LOOSE_TOL, _FEW_STEPS, _TRIAL_STEPS = 1e-2, 3, 30
"""Tolerance, and iterations of a candidate and of an evaluation: enough to compare, not to serve."""
PAUSE_SECONDS = 0.5
"""Between two reports of progress: each is a write to the database."""
_LONGEST_HISTORY = 1000  # iterations in a report: more than a curve on a page can show
_METHOD_OF_LOSS = {"logistic": "lrbs", "squared": "squared"}
_FRACTIONS = {"logistic": solver.DEFAULT_FRACTIONS, "squared": (0.03, 0.01, 0.003, 0.001, 0.0003)}
"""Shares of `alpha_max` to try; under the squared loss weak penalties cost little, and suit many classes."""


@dataclass(frozen=True, slots=True, eq=False)
class FullFit:
    """A method fitted on all items."""

    projector: solver.Projector  # which serves
    report: reports.Fit
    candidates: tuple[reports.CandidateQuality, ...] = ()  # combinations that were evaluated, the best first
    unused: Mapping[str, str] = field(default_factory=dict)  # why facets have no term
    contradictions: tuple[solver.Contradiction, ...] = ()  # of items, the surest first


class TrainingMethod(ABC):
    """A training method with its parameters."""

    name: str
    must_choose = False
    """Whether `evaluate` has to choose parameters before `fit`."""
    keeps_space = False
    """Whether what `evaluate` returned keeps what a space of both modalities knows beside labels."""
    served: Mapping[str, float] = MappingProxyType({})
    """Weights of the active version, which an objective's floors are shares of."""

    def __init__(self, parameters: reports.TrainingParameters, report: Report) -> None:
        self._parameters = parameters
        self._report = report

    @abstractmethod
    def evaluate(self, fitting: LabelledItems, held_out: LabelledItems) -> solver.Projector:
        """Choose parameters by their held-out quality, and return what is fitted without the held-out items;
        raises SolverError if that is impossible."""

    @abstractmethod
    def fit(self, data: LabelledItems) -> FullFit:
        """Fit on all items, with the parameters that `evaluate` chose."""

    def _follow_steps(self, phase: str) -> Callable[[solver.Progress], None]:
        """Return what reports the steps of an estimator, not too often."""
        reported_at = -math.inf

        def follow(progress: solver.Progress) -> None:
            nonlocal reported_at
            if isinstance(progress, solver.StepProgress) and time.monotonic() - reported_at >= PAUSE_SECONDS:
                reported_at = time.monotonic()
                self._report({"phase": phase, **step_of(progress)})

        return follow


def evaluate_all(
    methods: Sequence[TrainingMethod],
    fitting: LabelledItems,
    held_out: LabelledItems,
    begin: Callable[[int], None],
) -> tuple[dict[str, solver.Projector], dict[str, str]]:
    """Return the fits of every method that could be fitted, and the reasons of the others, by name; raises
    the first's error if none could. `begin` is called before each with its number, from 0."""
    fits: dict[str, solver.Projector] = {}
    errors: dict[str, solver.SolverError] = {}
    for number, method in enumerate(methods):
        begin(number)
        try:
            fits[method.name] = method.evaluate(fitting, held_out)
        except (solver.SupervisionError, solver.InvalidInputError, solver.NumericalError) as error:
            errors[method.name] = error
    if not fits:
        raise errors[methods[0].name]
    return fits, {
        name: f"it cannot be fitted without held-out items: {error}" for name, error in errors.items()
    }


def _fit_of_m(
    bilinear: solver.LowRankBilinear,
    tol: float,
    scaling: str | None = None,
    posteriors: tuple[reports.PosteriorsSummary, ...] = (),
) -> reports.Fit:
    """Return the report of a fit of M, with its certificate."""
    convergence = reports.Convergence(
        bilinear.n_iter_,
        bilinear.objective_,
        bilinear.duality_gap_,
        bilinear.rank_,
        bilinear.converged_,
        tol,
        bilinear.history_[-1].seconds,
    )
    history = tuple(iteration_of(step) for step in _thin(bilinear.history_))
    values = tuple(bilinear.singular_values_.tolist())
    return reports.Fit(bilinear.alpha_, scaling, bilinear.rank_, values, convergence, history, posteriors)


def _thin(history: Sequence[solver.IterationProgress]) -> list[solver.IterationProgress]:
    """Return at most `_LONGEST_HISTORY` iterations, evenly spaced, including the first and the last."""
    if len(history) <= _LONGEST_HISTORY:
        return list(history)
    return [history[place] for place in np.linspace(0, len(history) - 1, _LONGEST_HISTORY).astype(int)]


def iteration_of(progress: solver.IterationProgress) -> reports.Iteration:
    """Return an iteration in the form of the report."""
    gap = progress.gap if progress.gap is not None and math.isfinite(progress.gap) else None
    return value_of(reports.Iteration, progress, gap=gap, seconds=round(progress.seconds, 3))


def step_of(progress: solver.StepProgress) -> dict[str, float]:
    """Return a step as progress of a training: its number, and the share of the work that is done."""
    return {"step": progress.number, **({} if progress.share is None else {"share": progress.share})}


class LowRankMethod(TrainingMethod):
    """The paper's similarity of features, or that with the squared loss; parameters of None are chosen."""

    # The paper's loss visits every pair of items at each step. The squared one needs sums over items and
    # classes only (`solver.losses.pair_losses`), so it is what remains where pairs and classes are too many.

    def __init__(
        self,
        parameters: reports.TrainingParameters,
        report: Report,
        loss: str = "logistic",
        scalings: tuple[str, ...] = solver.DEFAULT_SCALINGS,
    ) -> None:
        self.name = _METHOD_OF_LOSS[loss]
        super().__init__(parameters, report)
        self.must_choose = parameters.alpha is None  # the penalty weight
        self._loss = loss
        self._scalings = (parameters.scaling,) if parameters.scaling else scalings
        self._scaling = self._scalings[0]
        self._fraction: float | None = None
        self._candidates: list[solver.Candidate] = []

    def evaluate(self, fitting: solver.LabelledPair, held_out: solver.LabelledPair) -> solver.Projector:
        """Choose scaling and penalty weight."""
        fitting, held_out = with_labels(fitting), with_labels(held_out)
        if self._parameters.alpha is None:
            self._candidates = solver.select_on(
                fitting,
                held_out,
                scalings=self._scalings,
                alpha_fractions=_FRACTIONS[self._loss],
                loss=self._loss,
                callback=self._report_choosing,
            )
        else:
            self._candidates = self._score_scalings(fitting, held_out, self._parameters.alpha)
        best = self._candidates[0]
        self._scaling = best.scaling
        self._fraction = best.alpha_fraction if self._parameters.alpha is None else None
        return self._fit(fitting, self._scaling, self._estimator(_LOOSE_TOL, _TRIAL_STEPS), "judging")

    def fit(self, data: solver.LabelledPair) -> FullFit:
        """Fit with the chosen scaling and penalty weight."""
        estimator = self._estimator(self._parameters.tol, self._parameters.max_iter)
        projector = self._fit(with_labels(data), self._scaling, estimator, "fitting")
        candidates = tuple(reports.CandidateQuality(**asdict(candidate)) for candidate in self._candidates)
        return FullFit(projector, _fit_of_m(estimator, self._parameters.tol, self._scaling), candidates)

    def _score_scalings(
        self, fitting: solver.LabelledPair, held_out: solver.LabelledPair, alpha: float
    ) -> list[solver.Candidate]:
        """Score a given penalty weight with each scaling."""
        candidates: list[solver.Candidate] = []
        for scaling in self._scalings:
            # Loose, as when weights are chosen: the fit only has to be good enough to be compared.
            estimator = self._estimator(_LOOSE_TOL, _FEW_STEPS)
            projector = self._fit(fitting, scaling, estimator, "choosing")
            fraction = alpha / estimator.alpha_max_
            quality = solver.bidirectional_map(*solver.project_what_can_be_ranked(projector, held_out))
            candidate = solver.Candidate(scaling, fraction, quality.x_to_z, quality.z_to_x, projector.rank)
            if math.isfinite(candidate.mean):
                candidates.append(candidate)
        if not candidates:
            raise solver.InvalidInputError("the held-out parts of the two modalities have no class in common")
        return sorted(candidates, key=lambda candidate: -candidate.mean)

    def _estimator(self, tol: float, max_iter: int) -> solver.LowRankBilinear:
        estimator = solver.LowRankBilinear(loss=self._loss, tol=tol, max_iter=max_iter)
        if self._parameters.alpha is not None:
            estimator.set_params(alpha=self._parameters.alpha)
        return estimator

    def _fit(
        self, data: solver.LabelledPair, scaling: str, estimator: solver.LowRankBilinear, phase: str
    ) -> solver.AffineProjector:
        def follow(step: solver.IterationProgress) -> None:
            event = {"phase": phase, **asdict(iteration_of(step))}
            if phase == "fitting" and event["gap"] is not None:
                event["share"] = _converged_share(event["gap"], estimator.tol)
            self._report(event)

        with warnings.catch_warnings():
            # The report says whether the fit converged.
            warnings.simplefilter("ignore", solver.ConvergenceWarning)
            return solver.fit_projector(data, scaling, estimator, self._fraction, follow)

    def _report_choosing(self, progress: solver.Progress) -> None:
        if isinstance(progress, solver.IterationProgress):
            self._report({"phase": "choosing", **asdict(iteration_of(progress))})
        elif isinstance(progress, solver.CandidateProgress):
            share = progress.number / progress.total
            event = {"phase": "choosing", "candidate": progress.number, "candidates": progress.total}
            self._report({**event, "share": share})


class SemanticMethod(TrainingMethod):
    """The bilinear similarity of class posteriors; `fit` reuses the classifiers that `evaluate` selected."""

    name = "semantic"

    _chosen: solver.SemanticBilinear | None = None

    def evaluate(self, fitting: solver.LabelledPair, held_out: solver.LabelledPair) -> solver.Projector:
        """Fit without the held-out items."""
        held_out = with_labels(held_out)
        if not np.intersect1d(held_out.x_labels, held_out.z_labels).size:
            raise solver.InvalidInputError("the held-out parts of the two modalities have no class in common")
        self._chosen = self._fit(with_labels(fitting), "judging")
        return solver.PosteriorProjector.of(self._chosen)

    def fit(self, data: solver.LabelledPair) -> FullFit:
        """Fit on all items, with the classifiers that `evaluate` selected, if it was called."""
        estimator = self._fit(with_labels(data), "fitting")
        posteriors = tuple(
            reports.PosteriorsSummary(
                side.log_loss,
                tuple(
                    reports.ClassifierSummary(
                        branch.feature_map.scaler.kind_, branch.feature_map.kernel, member.weight, member.kind
                    )
                    for branch in side.ensemble.branches
                    for member in branch.classifiers
                ),
            )
            for side in (estimator.x_posteriors_, estimator.z_posteriors_)
        )
        projector = solver.PosteriorProjector.of(estimator)
        if estimator.bilinear_ is None:  # M is the identity
            return FullFit(projector, reports.Fit(None, None, projector.rank, (), None, (), posteriors))
        return FullFit(projector, _fit_of_m(estimator.bilinear_, self._parameters.tol, None, posteriors))

    def _fit(self, data: solver.LabelledPair, phase: str) -> solver.SemanticBilinear:
        estimator = solver.SemanticBilinear(tol=self._parameters.tol, random_state=self._parameters.seed)
        with warnings.catch_warnings(record=True) as rank_warnings:
            warnings.simplefilter("ignore", solver.ConvergenceWarning)
            warnings.simplefilter("always", solver.RankWarning)
            estimator.fit(
                data.X,
                data.Z,
                solver.Labels(data.x_labels, data.z_labels),
                callback=self._follow_steps(f"{phase} posteriors"),
                reuse=self._chosen,
            )
        for warning in rank_warnings:
            _logger.warning("%s: %s", phase, warning.message)
        return estimator


def default_scalings(data: solver.LabelledPair) -> tuple[str, ...]:
    """Return the candidate scalings: "center" is left out where it would make large sparse samples dense."""
    sparse = [samples for samples in (data.X, data.Z) if solver.is_sparse(samples)]
    if all(solver.can_be_compact(*samples.shape) for samples in sparse):
        return solver.DEFAULT_SCALINGS
    return tuple(scaling for scaling in solver.DEFAULT_SCALINGS if scaling != "center")


def _converged_share(gap: float, tol: float) -> float:
    """Return how far a fit is, from 0 to 1: the logarithm of the gap falls about evenly."""
    if not math.isfinite(gap):
        return 0.0
    return min(max(1.0 - math.log(max(gap, tol) / tol) / math.log(1.0 / tol), 0.0), 1.0)


class CompositeMethod(TrainingMethod):
    """A weighted sum of similarities of facets, pairs and feedback; of the parameters the seed is used."""

    name = "composite"

    _chosen: solver.CompositeBilinear | None = None

    def evaluate(self, fitting: LabelledItems, held_out: LabelledItems) -> solver.Projector:
        """Fit without the held-out items; the weights are chosen inside the fitting part."""
        self._chosen = self._fit(fitting, "judging")
        self.keeps_space = not fitting.has_more_than_labels and self._chosen.weights_.get("cosine", 0.0) > 0.0
        return self._chosen.projector_

    def fit(self, data: LabelledItems) -> FullFit:
        """Fit on all items, with what `evaluate` chose, if it was called."""
        estimator = self._fit(data, "fitting")
        weights = {name: float(weight) for name, weight in estimator.weights_.items()}
        projector, dimensions = estimator.projector_, estimator.dimensions_
        emphases = estimator.choice_.emphases
        fit = reports.Fit(None, None, projector.rank, (), None, (), (), weights, dimensions, emphases)
        ids = data.x_ids, data.z_ids  # names have none
        of_items = tuple(one for one in estimator.contradictions_ if ids[one.side][one.row])
        return FullFit(projector, fit, (), estimator.choice_.unused, of_items)

    def _fit(self, data: LabelledItems, phase: str) -> solver.CompositeBilinear:
        estimator = solver.CompositeBilinear(
            random_state=self._parameters.seed, objective=self._parameters.objective
        )
        annotations = data.annotations()
        sides = zip(data.encoders or (), (data.x_ids, data.z_ids), strict=False)
        few = [
            one.content_form in ("picture", "sound") and len(ids) <= _FEW_PICTURES for one, ids in sides
        ] or [False, False]
        has_words = [encoder.content_form == "text" for encoder in data.encoders or ()] or [False, False]
        estimator.fit(
            data.X,
            data.Z,
            annotations,
            callback=self._follow_steps(f"{phase} terms"),
            reuse=self._chosen,
            queries=partial(short_queries, data),
            with_content=(has_words[0], has_words[1]),
            keep=() if self._parameters.supervision.facets == "auto" else tuple(annotations.facets),
            served=self.served,
            n_further=data.n_further,
            with_likeness=(few[0], few[1]),
        )
        return estimator


_FEW_PICTURES = 400
"""Or sounds, with which what they are like says more than what was learned. With 20, 50, 100 and 300 products
it took nDCG@10 of names by 500 other pictures for training from .32, .56, .72, .78 to .68, .70, .73, .79."""
_FEW_ITEMS = 1000  # of both modalities: "lrbs" takes seconds then; of 4000 it took 80 seconds
_FEW_LABELS = 200  # with which "composite" is tried for a space that both modalities may share
_LABEL_ALONE = (
    "it learns from one label of each item alone; "
    "where items carry more (labels, facets, pairs), 'composite' is tried"
)


def affordable_methods(
    parameters: reports.TrainingParameters, data: LabelledItems, report: Report
) -> tuple[list[TrainingMethod], dict[str, str]]:
    """Return the candidate methods, the first to try first, and the reasons why others do not take part.
    Raises ConflictError if not even the requested method can be used."""
    requested = parameters.method
    if requested == "auto" and parameters.alpha is not None:
        requested = "lrbs"
    refused: dict[str, str] = {}
    names = [requested]
    if requested == "auto" and solver.floors_of(parameters.objective or "map"):
        names = ["composite"]  # the only one that keeps floors
    elif requested == "auto" and (parameters.scaling or not data.has_more_than_labels):
        names = ["lrbs"] if parameters.scaling else ["lrbs", "semantic"]
        few = sum(data.n_values().values()) <= _FEW_LABELS
        may_share_space = few and data.X.shape[1] == data.Z.shape[1]
        if not parameters.scaling and (may_share_space or (data.has_texts and _is_small(data))):
            names.append("composite")  # which compares words, too: of few texts little is learned
    elif requested == "auto":
        names, refused = _methods_of_all(data)
    if names[0] != "composite" and not data.has_labels:
        raise not_trainable(f"method {names[0]!r} learns from labels: no items of both modalities have any")
    too_costly = _too_costly(data, requested)
    may_fall_back = (
        requested == "auto" and data.has_labels and not solver.floors_of(parameters.objective or "map")
    )
    if may_fall_back and any(too_costly[name] for name in names):
        names += [name for name in ("lrbs", "squared") if name not in names]
    reasons = {name: reason for name in names if (reason := too_costly[name]) is not None}
    if len(reasons) == len(names):
        raise not_trainable("; ".join(f"method {name!r}: {reason}" for name, reason in reasons.items()))
    affordable = [_method(name, parameters, data, report) for name in names if name not in reasons]
    return affordable, {name: reason for name, reason in refused.items() if name not in names} | reasons


def _is_small(data: LabelledItems) -> bool:
    return len(data.x_ids) + len(data.z_ids) <= _FEW_ITEMS


def _methods_of_all(data: LabelledItems) -> tuple[list[str], dict[str, str]]:
    """Return the methods to try where items carry more than one label each, and why others are not tried."""
    if not data.has_labels:
        return ["composite"], {}
    if _is_small(data) and not data.has_names_of_facets:
        return ["composite", "lrbs"], {"semantic": _LABEL_ALONE}
    return ["composite"], {"lrbs": _LABEL_ALONE, "semantic": _LABEL_ALONE}


def _too_costly(data: LabelledItems, requested: str) -> dict[str, str | None]:
    """Return why methods would take too much time or memory; None for those that would not."""
    n_values = sum(data.n_values().values())
    reasons = {"composite": requests.composite_too_large(len(data.x_ids) + len(data.z_ids), n_values)}
    if not data.has_labels:
        return reasons
    labelled = with_labels(data)
    sizes = requests.Sizes.of(labelled)
    widths = min(labelled.X.shape), min(labelled.Z.shape)
    features = labelled.X.shape[1], labelled.Z.shape[1]
    are_sparse = solver.is_sparse(labelled.X), solver.is_sparse(labelled.Z)
    return reasons | {
        "lrbs": None if requested == "lrbs" else requests.pairs_too_slow(sizes, min(widths)),
        "semantic": requests.posteriors_too_large(sizes, features, are_sparse)
        or (requests.posteriors_too_slow(sizes) if requested == "auto" else None),
        "squared": requests.sums_too_large(*widths),
    }


def _method(
    name: str, parameters: reports.TrainingParameters, data: LabelledItems, report: Report
) -> TrainingMethod:
    if name == "composite":
        return CompositeMethod(parameters, report)
    if name == "semantic":
        return SemanticMethod(parameters, report)
    loss = "squared" if name == "squared" else "logistic"
    return LowRankMethod(parameters, report, loss, default_scalings(data))


_HELD_OUT_SHARE = 0.2  # of the items of each modality: as in five-fold cross-validation
_MOST_SAMPLES = 3000
"""Items of a modality that methods are compared on: more hardly change which one is better."""
_SPACE_LOSS = 0.05
"""Of the objective, relative, for a method that keeps what a space of both modalities knows beside labels."""
_EVALUATION_SHARE = 0.65
"""Of the time of a training, as measured of "composite": choosing takes longer than the final fit."""
_FEWER_SHARE = 0.67  # likewise, once fewer items were learned from
_NOT_LEARNED = 0.75
"""Share of the items that a gain is foreseen without: of products, a quarter said as much as half."""
_FEWEST_FORESEEN = 50  # held-out items of a modality by which a gain is foreseen
_MOST_DOUBTFUL, _DIGITS = 50, 4
_Parts = tuple[LabelledItems, LabelledItems]


@dataclass(frozen=True, slots=True, eq=False)
class SelectedModel:
    """The result of `select_and_fit`."""

    projector: solver.Projector  # fitted on all training items: the one that serves
    method: str
    selection: reports.Selection
    fit: reports.Fit
    held_out_quality: reports.HeldOutQuality
    unused: Mapping[str, str]  # why facets have no term
    doubtful: tuple[reports.Doubt, ...]
    judged: HeldOutModel | None  # fitted without the held-out items; None if too few could be held out
    held_out: LabelledItems | None


def select_and_fit(
    data: LabelledItems,
    parameters: reports.TrainingParameters,
    names: tuple[str, str],
    report: Report,
    served: Mapping[str, float] = MappingProxyType({}),
) -> SelectedModel:
    """Select method and parameters by the held-out value of the objective, then fit on all training items.
    Raises SolverError if these cannot be learned from; `report` raises to end the training."""
    objective = parameters.objective or data.default_objective
    staged = StagedReport(report)
    named = with_names(data)
    methods, too_costly = affordable_methods(parameters, named, staged)
    for method in methods:
        method.served = served
    selection, fits, parts = _evaluate(methods, data, parameters, objective, staged)
    held_out, best = None, methods[0]
    judged, quality = None, reports.HeldOutQuality()
    if parts is not None:
        fitting, held_out = parts
        evaluated = [method for method in methods if method.name in selection.values]
        best = max(evaluated, key=lambda method: selection.values[method.name])
        if parameters.objective is None:
            best, selection = _keep_space(evaluated, best, selection)
        best, selection = _keep_placement(evaluated, best, selection, fits, held_out)
        fitting_ids = frozenset([*fitting.x_ids.tolist(), *fitting.z_ids.tolist()])
        judged = HeldOutModel(fits[best.name], fitting_ids)
        quality = held_out_quality(fits, best.name, held_out, names, data)
        staged.enter(_EVALUATION_SHARE, _FEWER_SHARE)
        n_items = dict(zip(names, (len(data.x_ids), len(data.z_ids)), strict=True))
        gain = _foresee(best, quality, parts, sum(n_items.values()))
        quality = replace(quality, progress=describe_progress(quality, gain, n_items))
    staged.enter(_FEWER_SHARE, 1.0)
    full_fit = best.fit(named)
    return SelectedModel(
        full_fit.projector,
        best.name,
        replace(selection, refused={**too_costly, **selection.refused}, candidates=full_fit.candidates),
        full_fit.report,
        quality,
        full_fit.unused,
        _doubts(full_fit, named, names),
        judged,
        held_out,
    )


def _foresee(
    method: TrainingMethod, quality: reports.HeldOutQuality, parts: _Parts, n_items: int
) -> float | None:
    """Return about how much nDCG@10, by content among all items, as many items again would bring; None where
    too few are held out, or the method says nothing of all items."""
    # What is missing falls by a power of the number of items, and by which one, a fit on fewer of them says.
    directions = [(one.ndcg_at_10, one.served) for one in quality.directions.values()]
    figures = [(own or 0.0, among_all.ndcg_at_10 or 0.0) for own, among_all in directions if among_all]
    fitting, held_out = parts
    n_fitted = len(fitting.x_ids) + len(fitting.z_ids)
    if not figures or min(quality.items.values()) < _FEWEST_FORESEEN or 2 * n_fitted < n_items:
        return None
    try:
        fewer, _ = fitting.split(_NOT_LEARNED, _MOST_SAMPLES, 0)
        before = 1.0 - measure(method.fit(with_names(fewer)).projector, held_out).mean.ndcg
    except solver.EngineError:
        raise
    except (solver.SolverError, ConflictError):
        return None
    after, missing = (1.0 - float(value) for value in np.mean(figures, axis=0))
    if not (math.isfinite(before) and after > 0.0):
        return None
    if after >= before:
        return 0.0
    power = math.log(before / after) / math.log(n_fitted / (len(fewer.x_ids) + len(fewer.z_ids)))
    gain: float = missing * (n_items / n_fitted) ** -power * (1.0 - 2.0**-power)
    return gain


def _keep_space(
    evaluated: Sequence[TrainingMethod], best: TrainingMethod, selection: reports.Selection
) -> tuple[TrainingMethod, reports.Selection]:
    """Return the method that keeps a space of both modalities rather than a slightly better one, and why."""
    least = (1.0 - _SPACE_LOSS) * selection.values[best.name]
    for method in evaluated:
        if method.keeps_space and method is not best and selection.values[method.name] >= least:
            reason = f"it is better by less than {_SPACE_LOSS:.0%}, and forgets the space that both share"
            return method, replace(selection, refused={**selection.refused, best.name: reason})
    return best, selection


def _keep_placement(
    evaluated: Sequence[TrainingMethod],
    best: TrainingMethod,
    selection: reports.Selection,
    fits: Mapping[str, solver.Projector],
    held_out: LabelledItems,
) -> tuple[TrainingMethod, reports.Selection]:
    """Return the method that ranks items by all that they carry, too, rather than one that may be better by
    chance, and why: held-out items are compared by their content alone."""
    places = {name: (fit.uses_partners, bool(fit.facets), fit.uses_words) for name, fit in fits.items()}
    for method in sorted(evaluated, key=lambda one: places[one.name], reverse=True):
        if places[method.name] <= places[best.name]:
            break
        if not is_better(fits[best.name], fits[method.name], held_out, selection.objective):
            reason = "it is not better beyond chance, and ranks items by less of what is known of them"
            return method, replace(selection, refused={**selection.refused, best.name: reason})
    return best, selection


def _doubts(fit: FullFit, items: LabelledItems, names: tuple[str, str]) -> tuple[reports.Doubt, ...]:
    ids = items.x_ids, items.z_ids
    return tuple(
        reports.Doubt(
            str(ids[entry.side][entry.row]),
            names[entry.side],
            reports.cut(entry.facet),
            reports.cut(entry.carried),
            reports.cut(entry.likely),
            round(entry.probability, _DIGITS),
        )
        for entry in fit.contradictions[:_MOST_DOUBTFUL]
    )


def _evaluate(
    methods: Sequence[TrainingMethod],
    data: LabelledItems,
    parameters: reports.TrainingParameters,
    objective: reports.Objective,
    staged: StagedReport,
) -> tuple[reports.Selection, Mapping[str, solver.Projector], _Parts | None]:
    """Return what methods that were fitted without the held-out items are worth on these, without candidates,
    their fits by name, and both parts; None where a method that needs no choice cannot be compared."""
    step = _EVALUATION_SHARE / len(methods)

    def begin(number: int) -> None:
        staged.enter(number * step, (number + 1) * step)

    # If no costlier method takes part, the evaluated model learns from as many items as the served one.
    is_cheap = all(method.name == "squared" for method in methods)
    try:
        fitting, held_out = data.split(_HELD_OUT_SHARE, _MOST_SAMPLES, parameters.seed, is_cheap)
        fits, refused = evaluate_all(methods, with_names(fitting), held_out, begin)
        qualities = {name: measure(fit, held_out) for name, fit in fits.items()}
    except (solver.SupervisionError, solver.InvalidInputError) as error:
        if methods[0].must_choose:
            raise
        return _without_evaluation(methods[0].name, str(error), objective)
    values = {name: solver.objective_value(quality, objective) for name, quality in qualities.items()}
    values = {name: value for name, value in values.items() if math.isfinite(value)}
    if not values:
        reason = f"its {reports.measure_of(objective)} cannot be measured on the held-out items"
        if parameters.objective is not None or methods[0].must_choose:
            raise not_trainable(f"objective {objective!r}: {reason}")
        return _without_evaluation(methods[0].name, reason, objective)
    maps = {name: quality.mean.map for name, quality in qualities.items() if held_out.main_label}
    finite_maps = {name: value for name, value in maps.items() if math.isfinite(value)}
    return reports.Selection(finite_maps, refused, (), objective, values), fits, (fitting, held_out)


def _without_evaluation(
    method: str, reason: str, objective: reports.Objective
) -> tuple[reports.Selection, Mapping[str, solver.Projector], None]:
    refused = {method: f"without held-out items: {reason}"}
    return reports.Selection({}, refused, (), objective, {}), {}, None
