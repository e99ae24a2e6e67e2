"""The report of a training in lines of text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.domain.names import some_of

if TYPE_CHECKING:
    from app.cli.short_report import ShortQuality, ShortReport, ShortSpec
    from app.domain.reports import DirectionQuality, IndexSpec, TrainingReport

FEW_RELEVANT = "(lower than 1 where a gallery has fewer than ten relevant items)"
"""What bounds a precision at ten on a small gallery."""


def validation_lines(report: TrainingReport) -> list[str]:
    """Return lines for each direction with the quality on held-out training items."""
    lines = []
    for direction, quality in report.held_out.directions.items():
        figures = [] if quality.map is None else [f"MAP {quality.map:.4f}"]
        figures += graded_figures(report, quality)
        chance = "" if quality.chance is None else f" (chance {quality.chance:.4f})"
        what = f"validation {', '.join(figures)}"
        lines.append(f"{direction}: {what} on {item_counts(report)} items held out of training{chance}")
        lines += [f"{direction}: {text}" for text in _details(report, quality)]
    return lines


def graded_figures(
    report: TrainingReport | ShortReport, quality: DirectionQuality | ShortQuality
) -> list[str]:
    """Return figures beyond MAP, where more than one label each could be learned from."""
    if quality.ndcg_at_10 is None or not _has_more_than_labels(report):
        return []
    partner = [] if quality.recall_at_10 is None else [f"partner in the first ten {quality.recall_at_10:.4f}"]
    return [f"nDCG@10 {quality.ndcg_at_10:.4f}", *partner]


def _has_more_than_labels(report: TrainingReport | ShortReport) -> bool:
    return len(report.data.facets) > 1 or report.data.n_pairs > 0


def _details(report: TrainingReport, quality: DirectionQuality) -> list[str]:
    if not _has_more_than_labels(report) or quality.n_queries is None:
        return []
    shares = ", ".join(f"{name} {value:.4f}" for name, value in quality.precision_at_10.items())
    lines = [f"right in the first ten: {shares} {FEW_RELEVANT}"] if shares else []
    if quality.median_rank is not None:
        first = 0.0 if quality.recall_at_1 is None else quality.recall_at_1
        lines.append(f"partner comes first {first:.4f}, median rank {quality.median_rank:g}")
    return [*lines, f"{quality.distinct_lists} different first pages for {quality.n_queries} queries"]


def data_lines(report: TrainingReport) -> list[str]:
    """Return a line that says what was learned from beside one label each, and one for the terms' weights."""
    data = report.data
    if not _has_more_than_labels(report) and not data.n_signs:
        return []
    facets = ", ".join(f"{name} ({count})" for name, count in data.facets.items())
    parts = [f"facets {facets}"] if facets else []
    parts += [f"{data.n_pairs} pairs"] if data.n_pairs else []
    parts += [f"{data.n_signs} judged pairs"] if data.n_signs else []
    fit = report.fit
    weights = ", ".join(f"{name} {weight:.3g}" for name, weight in fit.weights.items())
    dimensions = ", ".join(f"{name} {width}" for name, width in fit.dimensions.items())
    return [
        "learned from " + "; ".join(parts),
        *([f"weights: {weights}"] if weights else []),
        *([f"dimensions: {dimensions}, together {fit.rank}"] if dimensions else []),
    ]


def item_counts(report: TrainingReport | ShortReport) -> str:
    """Return the number of held-out items of each modality, in words."""
    return " and ".join(f"{count} {name}" for name, count in report.held_out.items.items()) or "unknown"


def label_lines(report: TrainingReport) -> list[str]:
    """Return a warning for classes that only one modality has training items of."""
    return [
        f"no training item of the other modality is of these classes of {name!r}: {some_of(labels)}"
        for name, labels in report.data.unmatched_labels.items()
        if labels
    ]


def choice_lines(report: TrainingReport) -> list[str]:
    """Return lines that explain the choice of the method, where there was one."""
    selection = report.selection
    lines = [f"{method!r} could not be tried: {reason}" for method, reason in selection.refused.items()]
    if len(selection.values) < 2:
        return lines
    figures = ", ".join(f"{method} {value:.4f}" for method, value in selection.values.items())
    return [f"chose {report.method!r} by held-out {selection.measure}: {figures}", *lines]


def index_lines(report: TrainingReport | ShortReport) -> list[str]:
    """Return lines that explain the choice of the index of each large gallery."""
    lines = []
    for name, choice in report.index.choices.items():
        spec, recall = choice.spec, report.index.recall_at_10.get(name)
        if not spec.lists or recall is None:  # an exact index has none
            lines.append(f"{name} is searched exactly: {choice.reason}")
            lines += [
                f"{name} is not searched by {_describe(trial.spec)}: {trial.rejected}"
                for trial in choice.trials
                if trial.rejected is not None
            ]
        else:
            lines.append(f"{name} is searched by {_describe(spec)}, recall@10 {recall:.4f}: {choice.reason}")
    return lines


def _describe(spec: IndexSpec | ShortSpec) -> str:
    return f"{spec.kind} ({spec.lists} lists, {spec.probes} probes)"


def gate_lines(report: TrainingReport) -> list[str]:
    """Return a line that compares the version with the active one, and says how sure the difference is."""
    from app.domain.reports import measure_of  # with numpy, which other commands go without

    gate = report.gate
    if gate.new_value is None or gate.active_value is None:
        return []
    counts = " and ".join(f"{count} {name}" for name, count in gate.items.items())
    certainty = "" if gate.certainty is None else f", different {gate.certainty}"
    return [
        f"{measure_of(gate.objective)} {gate.new_value:.4f} against {gate.active_value:.4f} of version "
        f"{gate.compared_with}, on {counts} new to both{certainty}"
    ]


def convergence_line(report: TrainingReport | ShortReport) -> str | None:
    """Return a warning if the fit did not converge."""
    end = report.fit.convergence
    if end is None or end.converged:
        return None
    tolerance = "" if end.tol is None else f", {end.tol:.2%} was asked for"
    return (
        f"The fit did not converge: after {end.iteration} iterations its objective may still fall "
        f"by up to {end.gap:.2%}{tolerance}."
    )
