"""Jobs, what they may become, and what happened to them."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any


class JobState(enum.StrEnum):
    """Life of a job."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_open(self) -> bool:
        """Whether work remains."""
        return self in (JobState.QUEUED, JobState.RUNNING)


@dataclass(frozen=True, slots=True)
class JobEvent:
    """One thing that happened to a job.

    Parameters
    ----------
    number : int
        Counted from 1 within the job, without gaps.
    kind : {"state", "progress"}
        What the data describe.
    data : mapping
        The new state and what goes with it, or a step of the training.
    """

    number: int
    kind: str
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Job:
    """One retrain.

    Parameters
    ----------
    id : str
        Random.
    collection : str
        Name of the collection.
    state : JobState
        Where it stands.
    parameters : mapping
        As requested.
    progress : mapping
        Phase, percent, an estimate of the seconds left; of iterations also objective, gap and rank.
    error : str or None
        Why it failed.
    model_version : int or None
        What it published.
    fencing_token : int
        Grows with each claim; a worker with an older one can write nothing.
    attempts : int
        Claims that count: all but those that a stopping worker gave back.
    created_at, started_at, finished_at : datetime or None
        UTC.
    """

    id: str
    collection: str
    state: JobState
    parameters: Mapping[str, Any]
    progress: Mapping[str, Any]
    error: str | None
    model_version: int | None
    fencing_token: int
    attempts: int
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
