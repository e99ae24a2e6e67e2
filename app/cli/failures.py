"""What the commands say of expected errors."""

from __future__ import annotations

from dataclasses import dataclass

from rich.text import Text

from app.cli.backend import KEY_VARIABLE, suggest_name
from app.cli.console import LOG
from app.client.problems import ConnectionFailedError, LrbsError, NotAllowedError, RejectedError
from app.domain.errors import CollectionNotFoundError, ConflictError, ServiceError
from app.domain.names import plain_message


@dataclass(frozen=True, slots=True)
class Failure:
    """An expected error, and the status with which the command exits."""

    message: str
    status: int = 1

    def print(self) -> None:
        # Not as markup: a message may hold brackets.
        LOG.print(Text.assemble(("error: ", "red"), " ".join(self.message.split())))


def describe_failure(error: Exception) -> Failure | None:
    """Return what to say of an error; None if it is not an expected one."""
    match error:
        case LrbsError():
            return Failure(_service_line(error))
        case UnicodeEncodeError(reason="surrogates not allowed"):
            return Failure(f"an argument is no UTF-8: {error.object!r}", 2)
        case ConflictError(code="model-not-trained"):
            return Failure(f"run lrbs train {error.facts['collection']}".join(error.facts["parts"]))
        case CollectionNotFoundError():
            from app.cli.backend import local_services

            names = [collection.name for collection in local_services(False).catalogue.collections()]
            return Failure(suggest_name(f"{error} in {_place_of_data()}", names))
        case ServiceError() | ImportError():
            return Failure(str(error))
        case OSError():
            place = f"{error.filename}: " if error.filename else ""
            return Failure(f"{place}{error.strerror or error}")
    return _describe_local_failure(error)


def _service_line(error: LrbsError) -> str:
    """Return what a service over HTTP said, or that it said nothing."""
    match error:
        case ConnectionFailedError():
            return f"the service does not answer: {error}"
        case NotAllowedError() if error.detail:
            return f"{error.detail}: the secret of a key is taken from --key or {KEY_VARIABLE}"
        case RejectedError() if error.detail:
            place = "" if error.field is None or error.field in error.detail else f" ({error.field})"
            return f"{error.detail}{place}"
        case RejectedError():
            return f"the service answered {error.status} without a reason"
    return str(error)


def _describe_local_failure(error: Exception) -> Failure | None:
    """Describe an error of the libraries below the services, which a command over HTTP does not import."""
    from pydantic import ValidationError
    from sqlalchemy.exc import SQLAlchemyError

    from solver import SolverError

    match error:
        case ValidationError():
            # Each setting stands before what is wrong with it; a message on several names them itself.
            faults = (
                (f"LRBS_{entry['loc'][0]}".upper() + ": " if entry["loc"] else "")
                + plain_message(entry["msg"])
                for entry in error.errors()
            )
            return Failure("; ".join(faults), 2)
        case SQLAlchemyError():
            return Failure(f"the database: {getattr(error, 'orig', None) or error}")
        case SolverError():
            return Failure(str(error))
    return None


def _place_of_data() -> str:
    from sqlalchemy import make_url

    from app.settings import Settings

    settings = Settings()
    if settings.database_url:
        return f"the database {make_url(settings.database_url)!r} (LRBS_DATABASE_URL)"  # without password
    return f"the data folder {settings.data_dir.resolve()} (LRBS_DATA_DIR)"
