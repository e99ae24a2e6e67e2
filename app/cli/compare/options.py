"""Arguments and options of `lrbs compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from app.cli.compare.sources import ProtocolName
from app.cli.console import ENCODER_HELP
from solver.comparison import METHODS

_OF_PAIRS = " and ".join(name for name, method in METHODS.items() if method.learns_from_pairs)
_OPTIONAL = " and ".join(name for name, method in METHODS.items() if method.is_optional)

SetNames = Annotated[
    list[str] | None, typer.Argument(help="such as wikipedia_cnn; NAME@SEED draws another split")
]
ProtocolOption = Annotated[
    ProtocolName | None, typer.Option(help="a published setting, with the files of --data")
]
DataOption = Annotated[
    Path | None, typer.Option(exists=True, file_okay=False, help="folder with the protocol's file")
]
FeaturesOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--features",
        "--npz",
        help="archive (.npz, .mat, .h5, .csv) of x and z; labels, split or is_test, pairs and facet_NAME "
        "where there are such; or files of x, of z (.npy, .csv, ...) and perhaps of labels, one option each",
    ),
]
TableOption = Annotated[Path | None, typer.Option(help="CSV of pictures and texts")]
CollectionOption = Annotated[
    str | None, typer.Option("--collection", "-c", help="stored items; those of one pair_id are partners")
]
FacetsOption = Annotated[
    str,
    typer.Option(help="comma-separated columns or metadata keys; default: those with repeated values"),
]
LabelsOption = Annotated[bool, typer.Option(help="learn from labels, and measure them")]
PairsOption = Annotated[bool, typer.Option(help="partners count; without labels they are learned from")]
SplitColumnOption = Annotated[
    str | None,
    typer.Option(help="'train' and 'test'; default: 'split', or a fifth of each label is drawn to test"),
]
ImageEncoderOption = Annotated[str, typer.Option(help=ENCODER_HELP)]
TextEncoderOption = Annotated[str, typer.Option(help="likewise, of texts")]
MethodsOption = Annotated[
    str,
    typer.Option(
        help=f"comma-separated, of {', '.join(METHODS)}; default: all but {_OPTIONAL}, "
        f"and without labels only {_OF_PAIRS}"
    ),
]
SeedOption = Annotated[int, typer.Option(min=0, help="of folds, drawn splits and resampling")]
SeedsOption = Annotated[
    str | None,
    typer.Option(help="several: a list such as 0,1,2, or how many from --seed on; means and deviations"),
]
FoldsOption = Annotated[int, typer.Option(min=2, help="of the cross-validation")]
JobsOption = Annotated[int | None, typer.Option(min=1, help="processes; default: one a core")]
CacheOption = Annotated[
    Path | None, typer.Option(file_okay=False, help="folder of the cache; default: in LRBS_DATA_DIR")
]
ReportOption = Annotated[
    Path | None,
    typer.Option(
        file_okay=False,
        help="folder for report.html, report.md, tables (results.csv, results.tex) and points of curves "
        "(curves.csv)",
    ),
]
PlotsOption = Annotated[
    Path | None, typer.Option(file_okay=False, help="folder for the plots, as SVG and PNG")
]
TrecOption = Annotated[
    Path | None, typer.Option(file_okay=False, help="folder for TREC runs and qrels (large)")
]
JsonOption = Annotated[bool, typer.Option("--json", help="print the rows as JSON")]
