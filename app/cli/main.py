"""The command `lrbs`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from pydantic import ValidationError
from rich.console import Console
from rich.text import Text
from sqlalchemy import make_url
from sqlalchemy.exc import SQLAlchemyError

from app.api.schemas.searches import MAX_K
from app.bootstrap import Services, build
from app.cli import ingest as ingestion
from app.cli.console import LabelColumnOption, PairColumnOption, progress, read_names
from app.cli.database import db
from app.cli.deferred import DeferringGroup
from app.cli.encoder_options import ENCODER_HELP, read_encoder
from app.cli.feedback import feedback
from app.cli.keys import keys
from app.cli.models import models
from app.cli.queries import ItemQuery, PictureQuery, TextQuery, read_query
from app.cli.train import train
from app.domain.entities import ItemFilter, Modality
from app.domain.errors import (
    CollectionNotFoundError,
    ModelNotTrainedError,
    ServiceError,
)
from app.settings import Settings
from solver import SolverError
from solver.datasets import load_npz, load_wikipedia

cli = typer.Typer(
    cls=DeferringGroup,
    no_args_is_help=True,
    add_completion=False,
    help="Search pictures by text, and texts by picture.",
)
ingest = typer.Typer(no_args_is_help=True, help="Import data into a collection.")
cli.add_typer(feedback, name="feedback")
cli.add_typer(keys, name="keys")
cli.add_typer(db, name="db")
cli.add_typer(ingest, name="ingest")
cli.command("models")(models)
cli.command("train")(train)
_out, _log = Console(soft_wrap=True), Console(stderr=True, soft_wrap=True)

CollectionOption = Annotated[str, typer.Option("--collection", "-c", help="collection; created if missing")]
JsonFlag = Annotated[bool, typer.Option("--json", help="print JSON")]


def main() -> None:
    """Run a command; an expected error prints one line and exits with status 1 (2 for a bad setting)."""
    try:
        cli()
    except ValidationError as error:
        _fail(_settings_line(error), 2)
    except SQLAlchemyError as error:
        _fail(f"the database: {getattr(error, 'orig', None) or error}", 1)
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        _fail(f"{place}{error.strerror or error}", 1)
    except ModelNotTrainedError as error:
        _fail(error.message(f"run lrbs train {error.collection}"), 1)
    except CollectionNotFoundError as error:
        _fail(f"{error} in {_place_of_data(Settings())}", 1)
    except (ServiceError, SolverError, ImportError) as error:
        _fail(str(error), 1)


def _fail(message: str, status: int) -> NoReturn:
    # Not as markup: a message may hold brackets.
    _log.print(Text.assemble(("error: ", "red"), " ".join(message.split())))
    sys.exit(status)


def _place_of_data(settings: Settings) -> str:
    if settings.database_url:
        return f"the database {make_url(settings.database_url)!r} (LRBS_DATABASE_URL)"  # without password
    return f"the data folder {settings.data_dir.resolve()} (LRBS_DATA_DIR)"


def _settings_line(error: ValidationError) -> str:
    problems = [f"LRBS_{entry['loc'][0]}".upper() + f": {entry['msg']}" for entry in error.errors()]
    return "; ".join(problems)


@cli.command()
def search(
    collection: str,
    text: TextQuery = None,
    picture: PictureQuery = None,
    item: ItemQuery = None,
    k: Annotated[int, typer.Option("-k", min=1, max=MAX_K, help="number of results")] = 10,
    as_json: JsonFlag = False,
) -> None:
    """Search a collection from the command line."""
    services = _ready(Settings())
    source, query = read_query(services, collection, text, picture, item)
    entry, _ = services.catalogue.collection(collection)
    target = next(name for name in entry.modality_names if name != source)
    (result,) = services.search.search(collection, source, target, [query], k, 0, ItemFilter())
    for notice in result.notices:
        _log.print(Text(notice.message))
    for hit in result.hits:
        fields: dict[str, Any] = {
            "rank": hit.rank,
            "id": hit.id,
            "score": hit.score,
            "labels": list(hit.item.labels),
        }
        line = (
            f"{hit.rank:3d}  {hit.score:8.4f}  {hit.id}  {', '.join(hit.item.labels)}  {hit.item.text or ''}"
        )
        typer.echo(json.dumps(fields | {"text": hit.item.text}) if as_json else line)


@ingest.command("wikipedia")
def ingest_wikipedia(directory: Path, collection: CollectionOption = "wikipedia") -> None:
    """Import the release files of the Wikipedia image-text set."""
    _ingest_features(load_wikipedia(directory), collection)


@ingest.command("npz")
def ingest_npz(
    file: Path,
    collection: CollectionOption,
    x: Annotated[str | None, typer.Option(help="first modality in the archive")] = None,
    z: Annotated[str | None, typer.Option(help="second modality in the archive")] = None,
) -> None:
    """Import arrays named <modality>_tr, <modality>_te, y_tr, y_te."""
    _ingest_features(load_npz(file, x, z), collection)


@ingest.command("table")
def ingest_table(
    file: Path,
    collection: CollectionOption,
    id_column: str = "id",
    picture_column: str = "image",
    text_column: str = "text",
    label_column: LabelColumnOption = None,
    pair_column: PairColumnOption = None,
    split_column: Annotated[str | None, typer.Option(help="column with 'train' for training rows")] = None,
    image_encoder: Annotated[str, typer.Option(help=ENCODER_HELP)] = "hog-color",
    text_encoder: Annotated[str, typer.Option(help="likewise, of texts")] = "tfidf",
    onnx: Annotated[Path | None, typer.Option(help="ONNX model, in place of --image-encoder")] = None,
) -> None:
    """Import a CSV of pictures and texts."""
    encoder = read_encoder("--image-encoder", image_encoder)
    if onnx is not None:
        encoder = {"type": "onnx", "path": str(onnx.resolve())}
    modalities = [Modality("image", encoder), Modality("text", read_encoder("--text-encoder", text_encoder))]
    rows = ingestion.read_table(
        file,
        pair_column,
        id_column=id_column,
        picture_column=picture_column,
        text_column=text_column,
        label_columns=None if label_column is None else read_names(label_column),
        split_column=split_column,
    )
    names = modalities[0].name, modalities[1].name
    _store(collection, modalities, lambda: ingestion.table_items(rows, names, pair_column), 2 * len(rows))


def _ready(settings: Settings) -> Services:
    services = build(settings)
    services.schema.set_up()
    return services


def _ingest_features(data: Any, collection: str) -> None:
    modalities = [Modality(name, {"type": "vector"}) for name in ("image", "text")]
    _store(
        collection, modalities, lambda: ingestion.feature_items(data, ("image", "text")), 2 * len(data.labels)
    )


def _store(collection: str, modalities: list[Modality], items: Callable[[], Any], total: int) -> None:
    services = _ready(Settings())
    ingestion.ensure_collection(services, collection, modalities)
    done = 0
    with progress(_log, f"Importing {total} items into {collection!r}: some hundreds per second.") as show:

        def on_stored(count: int) -> None:
            nonlocal done
            done += count
            show("storing", done, total, "")

        try:
            stored = ingestion.store(services, collection, items(), on_stored)
        except ServiceError:
            _log.print(f"{done} items were stored in {collection!r} before this error: correct it, run again")
            raise
    _out.print(f"{stored} items stored in {collection!r}")
