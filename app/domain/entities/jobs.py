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
    """One thing that happened to a job."""

    number: int  # counted from 1 within the job, without gaps
    kind: str  # "state" or "progress"
    data: Mapping[str, Any]  # the new state and what goes with it, or a step of the training


@dataclass(frozen=True, slots=True)
class Job:
    """One retrain; times are UTC."""

    id: str  # random
    collection: str
    state: JobState
    parameters: Mapping[str, Any]  # as requested
    # phase, percent, an estimate of the seconds left; of iterations also objective, gap and rank
    progress: Mapping[str, Any]
    error: str | None  # why it failed
    model_version: int | None  # what it published
    fencing_token: int  # grows with each claim; a worker with an older one can write nothing
    attempts: int  # claims that count: all but those that a stopping worker gave back
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
