"""The outcome of one attempt at a training: a built model, or the reason why there is none."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from app.domain.entities import BuiltModel
from app.domain.errors import DISK_FAULTS, DatabaseUnavailableError, JobCancelledError, ServiceError
from app.domain.reports import ENCODERS, TrainingParameters
from solver import EngineError

if TYPE_CHECKING:
    from app.services.training.builder import ModelBuilder
    from app.services.training.progress import Report

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an attempt produced no model."""

    reason: str  # shown as the job's error
    may_pass: bool  # another attempt may succeed
    counts: bool = True  # as an attempt; one that the database refused does not


Outcome = BuiltModel | Failure


class WorkerStoppingError(Exception):
    """The worker was asked to stop and gave up its lease on the job."""


def attempt(builder: ModelBuilder, collection: str, parameters: Mapping[str, Any], report: Report) -> Outcome:
    """Train in this process; what `report` raises because the job was lost reaches the caller."""
    try:
        rest = {name: value for name, value in parameters.items() if name != ENCODERS}
        encoders = parameters.get(ENCODERS, {})
        return builder.build(collection, TrainingParameters.from_json(rest), report, encoders)
    except (JobCancelledError, WorkerStoppingError):
        raise
    except DatabaseUnavailableError as error:
        # There may be no room for a long time: that attempt counts, so that the job ends and says why.
        return Failure(str(error), may_pass=True, counts=error.code in DISK_FAULTS)
    except EngineError as error:
        return Failure(str(error), may_pass=True)
    except ServiceError as error:
        return Failure(str(error), may_pass=False)
    except Exception as error:
        _logger.exception("training %s failed", collection)
        return Failure(f"internal error: {type(error).__name__}", may_pass=False)
