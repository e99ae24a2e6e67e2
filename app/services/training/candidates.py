"""Which methods take part in a training."""

from __future__ import annotations

from app.domain.errors import ConflictError
from app.domain.reports import TrainingParameters
from app.services.training.composite import CompositeMethod
from app.services.training.costs import (
    Sizes,
    composite_too_large,
    pairs_too_slow,
    posteriors_too_large,
    posteriors_too_slow,
    sums_too_large,
)
from app.services.training.items import LabelledItems, with_labels
from app.services.training.methods import (
    LowRankMethod,
    SemanticMethod,
    TrainingMethod,
    default_scalings,
)
from app.services.training.progress import Report
from solver import is_sparse

_FEW_ITEMS = 1000  # of both modalities: "lrbs" takes seconds then; of 4000 it took 80 seconds
_LABEL_ALONE = (
    "it learns from one label of each item alone; "
    "where items carry more (labels, facets, pairs), 'composite' is tried"
)


def affordable_methods(
    parameters: TrainingParameters, data: LabelledItems, report: Report
) -> tuple[list[TrainingMethod], dict[str, str]]:
    """Return the candidate methods, the first to try first, and the reasons why others do not take part.
    Raises ConflictError if not even the requested method can be used."""
    requested = parameters.method
    if requested == "auto" and parameters.alpha is not None:
        requested = "lrbs"
    refused: dict[str, str] = {}
    names = [requested]
    if requested == "auto" and (parameters.scaling or not data.has_more_than_labels):
        names = ["lrbs"] if parameters.scaling else ["lrbs", "semantic"]
    elif requested == "auto":
        names, refused = _methods_of_all(data)
    if names[0] != "composite" and not data.has_labels:
        raise ConflictError(
            "training-data", f"method {names[0]!r} learns from labels: no items of both modalities have any"
        )
    too_costly = _too_costly(data, requested)
    if requested == "auto" and data.has_labels and any(too_costly[name] for name in names):
        names += [name for name in ("lrbs", "squared") if name not in names]
    reasons = {name: reason for name in names if (reason := too_costly[name]) is not None}
    if len(reasons) == len(names):
        raise ConflictError(
            "training-data", "; ".join(f"method {name!r}: {reason}" for name, reason in reasons.items())
        )
    affordable = [_method(name, parameters, data, report) for name in names if name not in reasons]
    return affordable, {name: reason for name, reason in refused.items() if name not in names} | reasons


def _methods_of_all(data: LabelledItems) -> tuple[list[str], dict[str, str]]:
    """Return the methods to try where items carry more than one label each, and why others are not tried."""
    if not data.has_labels:
        return ["composite"], {}
    if len(data.x_ids) + len(data.z_ids) <= _FEW_ITEMS and not data.has_names_of_facets:
        return ["composite", "lrbs"], {"semantic": _LABEL_ALONE}
    return ["composite"], {"lrbs": _LABEL_ALONE, "semantic": _LABEL_ALONE}


def _too_costly(data: LabelledItems, requested: str) -> dict[str, str | None]:
    """Return why methods would take too much time or memory; None for those that would not."""
    n_values = sum(data.n_values().values())
    reasons = {"composite": composite_too_large(len(data.x_ids) + len(data.z_ids), n_values)}
    if not data.has_labels:
        return reasons
    labelled = with_labels(data)
    sizes = Sizes.of(labelled)
    widths = min(labelled.X.shape), min(labelled.Z.shape)
    features = labelled.X.shape[1], labelled.Z.shape[1]
    are_sparse = is_sparse(labelled.X), is_sparse(labelled.Z)
    return reasons | {
        "lrbs": None if requested == "lrbs" else pairs_too_slow(sizes, min(widths)),
        "semantic": posteriors_too_large(sizes, features, are_sparse)
        or (posteriors_too_slow(sizes) if requested == "auto" else None),
        "squared": sums_too_large(*widths),
    }


def _method(name: str, parameters: TrainingParameters, data: LabelledItems, report: Report) -> TrainingMethod:
    if name == "composite":
        return CompositeMethod(parameters, report)
    if name == "semantic":
        return SemanticMethod(parameters, report)
    loss = "squared" if name == "squared" else "logistic"
    return LowRankMethod(parameters, report, loss, default_scalings(data))
