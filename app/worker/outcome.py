"""What one attempt at a training ends with: a built model, or why there is none."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from app.bootstrap import Services
from app.domain.entities import BuiltModel, TrainingParameters
from app.domain.errors import (
    DatabaseUnavailableError,
    JobCancelledError,
    ServiceError,
    StorageFullError,
    StorageReadOnlyError,
)

if TYPE_CHECKING:
    from app.services.training.select_and_fit import Report

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an attempt gave no model.

    Parameters
    ----------
    reason : str
        For whoever asked for the retrain.
    may_pass : bool
        Whether another attempt may succeed.
    counts : bool
        Whether it was an attempt at all: one that the database refused was none.
    """

    reason: str
    may_pass: bool
    counts: bool = True


Outcome = BuiltModel | Failure


class WorkerStoppingError(Exception):
    """The worker was asked to end: the job is not its own any longer."""


def attempt(services: Services, collection: str, parameters: Mapping[str, Any], report: Report) -> Outcome:
    """Train in this process.

    Parameters
    ----------
    services : Services
        As built by `app.bootstrap.build`.
    collection : str
        Its name.
    parameters : mapping
        Of the job.
    report : callable
        Takes progress. What it raises because the job was lost reaches the caller.
    """
    try:
        return services.builder.build(collection, TrainingParameters(**parameters), report)
    except (JobCancelledError, WorkerStoppingError):
        raise
    except (StorageFullError, StorageReadOnlyError) as error:
        # Nobody knows when there is room again: each attempt counts, so that the job ends and says why.
        return Failure(str(error), may_pass=True)
    except DatabaseUnavailableError as error:
        return Failure(str(error), may_pass=True, counts=False)
    except ServiceError as error:
        return Failure(str(error), may_pass=False)
    except Exception as error:
        _logger.exception("training %s failed", collection)
        return Failure(f"internal error: {type(error).__name__}", may_pass=False)
