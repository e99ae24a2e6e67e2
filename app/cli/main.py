"""The command `lrbs`."""

from __future__ import annotations

import json
import sys
from typing import Annotated, NoReturn

import typer
from pydantic import ValidationError
from rich.console import Console
from rich.text import Text
from sqlalchemy import make_url
from sqlalchemy.exc import SQLAlchemyError

from app.api.schemas.searches import MAX_K, SHOWN_FIELDS, hit_fields
from app.bootstrap import Services, build
from app.cli.database import db
from app.cli.deferred import DeferringGroup
from app.cli.feedback import feedback
from app.cli.imports import ingest
from app.cli.keys import keys
from app.cli.models import models
from app.cli.queries import ItemQuery, PictureQuery, TextQuery, read_query
from app.cli.train import train
from app.domain.entities import ItemFilter
from app.domain.errors import (
    CollectionNotFoundError,
    ModelNotTrainedError,
    ServiceError,
)
from app.settings import Settings
from solver import SolverError

cli = typer.Typer(
    cls=DeferringGroup,
    no_args_is_help=True,
    add_completion=False,
    help="Search pictures by text, and texts by picture.",
)
cli.add_typer(feedback, name="feedback")
cli.add_typer(keys, name="keys")
cli.add_typer(db, name="db")
cli.add_typer(ingest, name="ingest")
cli.command("models")(models)
cli.command("train")(train)
_out, _log = Console(soft_wrap=True), Console(stderr=True, soft_wrap=True)

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
    (result,) = services.search.search(collection, source, target, [query], k, 0, ItemFilter(), SHOWN_FIELDS)
    for notice in result.notices:
        _log.print(Text(notice.message))
    for hit in result.hits:
        line = (
            f"{hit.rank:3d}  {hit.score:8.4f}  {hit.id}  {', '.join(hit.item.labels)}  {hit.item.text or ''}"
        )
        typer.echo(json.dumps(hit_fields(collection, hit, SHOWN_FIELDS)) if as_json else line)


def _ready(settings: Settings) -> Services:
    services = build(settings)
    services.schema.set_up()
    return services
