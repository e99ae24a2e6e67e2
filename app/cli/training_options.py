"""Options of a training on the command line."""

from __future__ import annotations

import importlib.util
import math
from typing import Annotated

import typer

from app.domain.names import join_words
from app.domain.reports import Objective
from app.services.training.parameters import LARGEST_SEED, METHODS
from solver import OBJECTIVES, SCALINGS

ENGINES = ("local", "dask")
"""Where large fits are evaluated."""


def positive(value: float | None) -> float | None:
    """Validate that an option is a positive number."""
    if value is not None and not (math.isfinite(value) and value > 0):
        raise typer.BadParameter(f"expected a finite number above 0, got {value}")
    return value


def known_method(value: str) -> str:
    """Validate the name of a method."""
    if value not in METHODS:
        raise typer.BadParameter(f"expected {join_words(METHODS)}, got {value!r}")
    return value


def known_scaling(value: str | None) -> str | None:
    """Validate the kind of scaling."""
    if value is not None and value not in SCALINGS:
        raise typer.BadParameter(f"expected {join_words(SCALINGS)}, got {value!r}")
    return value


def known_objective(value: str | None) -> str | None:
    """Validate the name of an objective, or weights such as ``ndcg=2,recall=1``."""
    if value is not None:
        read_objective(value)
    return value


def read_objective(text: str) -> Objective:
    """Return an objective: its name, or the weights of ``ndcg=2,recall=1``; raises BadParameter."""
    if text in OBJECTIVES:
        return text
    weights: dict[str, float] = {}
    for part in text.split(","):
        name, _, weight = (word.strip() for word in part.partition("="))
        if name not in OBJECTIVES or name in weights or not _is_weight(weight):
            expected = f"{join_words(OBJECTIVES)}, or weights such as ndcg=2,recall=1"
            raise typer.BadParameter(f"expected {expected}, got {text!r}")
        weights[name] = float(weight)
    return weights


def _is_weight(text: str) -> bool:
    try:
        return 0.0 <= float(text) < math.inf
    except ValueError:
        return False


def known_engine(value: str | None) -> str | None:
    """Validate where large fits are evaluated."""
    if value is not None and value not in ENGINES:
        raise typer.BadParameter(f"expected {join_words(ENGINES)}, got {value!r}")
    if value == "dask" and importlib.util.find_spec("distributed") is None:
        raise typer.BadParameter("'dask' needs the extra `dask`")
    return value


def known_scheduler(value: str | None) -> str | None:
    """Validate the form of a scheduler's address."""
    if value is not None and not value.startswith(("tcp://", "tls://")):
        raise typer.BadParameter(f"expected an address such as tcp://host:8786, got {value!r}")
    return value


def engine_settings(engine: str | None, scheduler: str | None) -> dict[str, str]:
    """Return the settings that both options replace; raises BadParameter for a scheduler alone."""
    if scheduler is not None and engine != "dask":
        raise typer.BadParameter("needs --engine dask", param_hint="--scheduler")
    options = {"training_engine": engine, "dask_scheduler": scheduler}
    return {name: value for name, value in options.items() if value is not None}


MethodOption = Annotated[
    str,
    typer.Option(
        callback=known_method,
        help=f"{join_words(METHODS)}: the best on held-out items, the paper's, that of class posteriors, "
        "the paper's with the squared loss, fast for any number of labels, or the sum of similarities "
        "that learns from all that items carry",
    ),
]
AlphaOption = Annotated[
    float | None, typer.Option(callback=positive, help="penalty weight; default: chosen on held-out items")
]
ScalingOption = Annotated[
    str | None,
    typer.Option(callback=known_scaling, help=f"{join_words(SCALINGS)}; default: chosen on held-out items"),
]
SeedOption = Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="of the held-out part")]
FacetOption = Annotated[
    list[str] | None,
    typer.Option(help="metadata key to learn from, once for each; default: all that look categorical"),
]
ObjectiveOption = Annotated[
    str | None,
    typer.Option(
        callback=known_objective,
        help=f"{join_words(OBJECTIVES)}, or weights such as ndcg=2,recall=1: what held-out quality is; "
        "default: ndcg with facets or pairs, map otherwise",
    ),
]
EngineOption = Annotated[
    str | None,
    typer.Option(
        callback=known_engine,
        help="local or dask: where large fits are evaluated, with the same result; "
        "default: LRBS_TRAINING_ENGINE; a worker that claims the job goes by its own settings",
    ),
]
SchedulerOption = Annotated[
    str | None,
    typer.Option(
        callback=known_scheduler,
        metavar="ADDRESS",
        help="of Dask, such as tcp://host:8786, whose workers see the data folder under the same path; "
        "default: LRBS_DASK_SCHEDULER, or worker processes of this machine",
    ),
]
