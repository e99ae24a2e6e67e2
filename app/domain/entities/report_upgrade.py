"""Upgrade of training reports that earlier releases stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_FIRST_LABELS_ONLY = {"labels": True, "facets": [], "pairs": False, "feedback": False}
"""What trainings learned from before reports of format 3."""


def upgraded_to_format_3(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a report of format 2 in format 3, which names the objective."""
    selection, gate = values["selection"], values["gate"]
    return {
        **values,
        "format": 3,
        "parameters": {"supervision": _FIRST_LABELS_ONLY, **values["parameters"]},
        "selection": {**selection, "objective": "map", "values": selection["held_out_map"]},
        "gate": {
            **gate,
            "objective": "map",
            "new_value": gate["new_map"],
            "active_value": gate["active_map"],
        },
    }


def upgraded_to_format_4(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a report of format 3 in format 4, which adds curves, examples and reliability."""
    return {**values, "format": 4}


def upgraded_report(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a report in format 2, from one flat object as stored in bundles up to format 1.
    Early releases wrote fewer fields; what they did not record becomes None, zero or empty."""
    return {
        "method": facts.get("method", "lrbs"),
        "parameters": {"seed": facts.get("seed", 0), **facts.get("parameters", {})},
        "code_version": facts.get("code_version", ""),
        "data": {
            "items": facts.get("train_items", {}),
            "classes": facts.get("classes", []),
            "unmatched_labels": facts.get("unmatched_labels", {}),
            "sha256": facts.get("data_hash", ""),
            "not_learned_from": facts.get("not_learned_from", {}),
            "not_ranked": facts.get("not_ranked", {}),
        },
        "selection": {
            "held_out_map": facts.get("methods", {}),
            "refused": facts.get("refused", {}),
            "candidates": facts.get("candidates", []),
        },
        "fit": _fit(facts),
        "held_out": _held_out(facts),
        "gate": _gate(facts.get("gate", {})),
        "index": {"recall_at_10": {}, "needed": 0.0, **facts.get("index", {})},
        "not_activated": facts.get("not_activated"),
    }


def _fit(facts: Mapping[str, Any]) -> dict[str, Any]:
    unknown = {"iteration": 0, "objective": 0.0, "gap": 0.0, "rank": 0, "converged": True, "seconds": 0.0}
    return {
        "alpha": facts.get("alpha", 0.0),
        "scaling": facts.get("scaling"),
        "rank": facts.get("rank", 0),
        "singular_values": facts.get("singular_values", []),
        "convergence": {"tol": None, **facts.get("convergence", unknown)},
        "history": facts.get("history", []),
        "posteriors": [
            {**side, "classifiers": [_classifier(classifier) for classifier in side["classifiers"]]}
            for side in facts.get("posteriors", [])
        ],
    }


def _classifier(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return a classifier of an ensemble; neighbour classifiers were called read-outs."""
    return {**facts, "kind": "neighbours" if facts.get("is_read_out") else "linear"}


def _held_out(facts: Mapping[str, Any]) -> dict[str, Any]:
    chance, curves = facts.get("chance") or {}, facts.get("curves") or {}
    return {
        "items": facts.get("held_out_items") or {},
        "directions": {
            direction: {
                "map": value,
                "chance": chance.get(direction),
                "curve": curves.get(direction),
            }
            for direction, value in facts.get("held_out", {}).items()
        },
    }


def _gate(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the gate; whether it was passed is not stored, since the figures say so."""
    return {
        "compared_with": facts.get("compared_with"),
        "skipped": facts.get("skipped"),
        "items": facts.get("items", {}),
        "new_map": facts.get("map", {}).get("new"),
        "active_map": facts.get("map", {}).get("active"),
        "tolerance": facts.get("tolerance", 0.0),
    }
