"""What the commands say of expected errors."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import ValidationError
from rich.text import Text
from sqlalchemy import make_url
from sqlalchemy.exc import SQLAlchemyError

from app.cli.console import LOG
from app.domain.errors import CollectionNotFoundError, ModelNotTrainedError, ServiceError
from app.settings import Settings
from solver import SolverError


@dataclass(frozen=True, slots=True)
class Failure:
    """An expected error.

    Parameters
    ----------
    message : str
        What went wrong.
    status : int
        With which the command exits.
    """

    message: str
    status: int = 1

    def print(self) -> None:
        """Print one line on standard error."""
        # Not as markup: a message may hold brackets.
        LOG.print(Text.assemble(("error: ", "red"), " ".join(self.message.split())))


def describe_failure(error: Exception) -> Failure | None:
    """Return what to say of an error; None if it is not an expected one."""
    match error:
        case ValidationError():
            return Failure(_settings_line(error), 2)
        case SQLAlchemyError():
            return Failure(f"the database: {getattr(error, 'orig', None) or error}")
        case OSError():
            place = f"{error.filename}: " if error.filename else ""
            return Failure(f"{place}{error.strerror or error}")
        case ModelNotTrainedError():
            return Failure(error.message(f"run lrbs train {error.collection}"))
        case CollectionNotFoundError():
            return Failure(f"{error} in {_place_of_data(Settings())}")
        case ServiceError() | SolverError() | ImportError():
            return Failure(str(error))
    return None


def _place_of_data(settings: Settings) -> str:
    if settings.database_url:
        return f"the database {make_url(settings.database_url)!r} (LRBS_DATABASE_URL)"  # without password
    return f"the data folder {settings.data_dir.resolve()} (LRBS_DATA_DIR)"


def _settings_line(error: ValidationError) -> str:
    problems = [f"LRBS_{entry['loc'][0]}".upper() + f": {entry['msg']}" for entry in error.errors()]
    return "; ".join(problems)
