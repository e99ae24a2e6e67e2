"""`lrbs compare`."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from app.comparison.cache import FileCache
from app.comparison.sets import ComparedSet, SetLoader
from app.console import progress
from app.domain.errors import InvalidFieldError
from app.encoders.registry import ContentLimits, EncoderRegistry
from app.settings import Settings
from solver.comparison import METHODS, Comparison, Row, chosen_methods
from solver.comparison import compare as compare_methods
from solver.errors import InvalidParameterError

_out, _log = Console(soft_wrap=True), Console(stderr=True, soft_wrap=True)


def compare(
    sets: Annotated[list[str], typer.Argument(help="such as wikipedia_cnn; NAME@SEED splits the rows anew")],
    methods: Annotated[str, typer.Option(help=f"comma-separated, of {', '.join(METHODS)}")] = "",
    seed: Annotated[int, typer.Option(min=0, help="of folds and resampling")] = 0,
    folds: Annotated[int, typer.Option(min=2, help="of the cross-validation")] = 3,
    jobs: Annotated[int | None, typer.Option(min=1, help="processes; as many as cores when absent")] = None,
    cache: Annotated[
        Path | None, typer.Option(file_okay=False, help="kept results; in LRBS_DATA_DIR when absent")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the rows as JSON")] = False,
) -> None:
    """Compare methods: tuned by cross-validation in the training split, then judged on the test split."""
    settings = Settings()
    chosen = _methods(methods)
    kept = FileCache(cache or settings.data_dir / "comparisons")
    loader = SetLoader(_data_folder(settings), _encoders(settings), kept)
    comparisons = []
    what = f"Compares {len(chosen)} methods on {', '.join(sets)}, seed {seed}; {machine()}."
    with progress(_log, what) as show:
        for name in sets:
            show(f"{name}: loading", 0, 0, "")
            found = loader.load(name)
            _log.print(_size_line(found), highlight=False)
            comparisons.append(
                compare_methods(
                    found.data,
                    dataset=found.name,
                    methods=chosen,
                    n_folds=folds,
                    random_state=seed,
                    n_jobs=jobs,
                    store=kept,
                    on_outcome=lambda done, total, outcome, was_kept, name=name: show(  # type: ignore[misc]
                        name, done, total, f"{outcome.method}{' (kept)' if was_kept else ''}"
                    ),
                )
            )
    if as_json:
        typer.echo(json.dumps([row.as_dict() for each in comparisons for row in each.rows], indent=2))
        return
    for each in comparisons:
        _out.print(_table(each))


def machine() -> str:
    """Return what the seconds were measured on."""
    return f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"


def _methods(names: str) -> list[str]:
    try:
        chosen = chosen_methods([name.strip() for name in names.split(",")] if names else None)
    except InvalidParameterError as error:
        raise InvalidFieldError("--methods", str(error)) from error
    return [method.name for method in chosen]


def _data_folder(settings: Settings) -> Path:
    if settings.test_data is None:
        raise InvalidFieldError("LRBS_TEST_DATA", "expected the folder that holds the sets, it is not set")
    return settings.test_data


def _encoders(settings: Settings) -> EncoderRegistry:
    limits = ContentLimits(settings.max_picture_bytes, settings.max_picture_pixels, settings.max_text_chars)
    return EncoderRegistry(limits)


def _size_line(found: ComparedSet) -> str:
    data = found.data
    n_train = int(data.is_train.sum())
    return (
        f"{found.name}: {n_train} rows to train, {len(data.labels) - n_train} to test, "
        f"{len(set(data.labels.tolist()))} classes; {found.features}"
    )


def _table(comparison: Comparison) -> Table:
    table = Table(title=f"{comparison.dataset}: test MAP in %, chance {comparison.chance:.1%}")
    for column in ("method", "PCA", "image query", "text query", "average", "95 % interval", "p", "fit, s"):
        table.add_column(column, justify="left" if column in ("method", "PCA") else "right")
    for row in comparison.rows:
        table.add_row(*_cells(row))
    return table


def _cells(row: Row) -> tuple[Any, ...]:
    low, high = row.intervals["average"]
    return (
        row.method,
        "99 %" if row.pca else "none",
        f"{100 * row.image_query:.2f}",
        f"{100 * row.text_query:.2f}",
        f"{100 * row.average:.2f}",
        f"{100 * low:.1f} to {100 * high:.1f}",
        "" if row.p_value is None else f"{row.p_value:.4f}",
        f"{row.fit_seconds:.2f}",
    )
