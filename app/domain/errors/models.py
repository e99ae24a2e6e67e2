"""Errors of models, their versions and encoders, and the jobs that train them."""

from __future__ import annotations

from collections.abc import Sequence

from app.domain.errors.base import ConflictError, NotFoundError, UnavailableError

_SHOWN = 5
"""Names of files in a message."""


class ModelNotTrainedError(ConflictError):
    """The collection has no active model yet; says why its last retrain failed, if it did."""

    code = "model-not-trained"
    title = "No trained model"

    def __init__(self, collection: str, last_failure: str | None = None) -> None:
        self.collection = collection
        self.last_failure = last_failure
        super().__init__(self.message("train"))

    def message(self, how_to_train: str) -> str:
        """Return the message for a caller who starts a training by `how_to_train`."""
        failure = f"; its last retrain failed: {self.last_failure}" if self.last_failure else ""
        return (
            f"collection {self.collection!r} has no trained model: add labelled items of both modalities, "
            f"then {how_to_train}{failure}"
        )


class ModelNotFoundError(NotFoundError):
    """No model version of that number."""

    code = "model-not-found"
    title = "Model version not found"

    def __init__(self, collection: str, version: int) -> None:
        super().__init__(f"collection {collection!r} has no model version {version}")


class PlotNotFoundError(NotFoundError):
    """The report of a version holds nothing to draw such a plot from."""

    code = "plot-not-found"
    title = "Nothing to plot"


class PlotsUnavailableError(UnavailableError):
    """The library that draws plots is not installed."""

    code = "plots-unavailable"
    title = "Plots unavailable"

    retry_after_seconds = 3600
    """An operator has to install it first."""


class TrainingAlreadyRunningError(ConflictError):
    """A retrain of the collection is queued or running."""

    code = "training-already-running"
    title = "Training already running"

    def __init__(self, collection: str) -> None:
        super().__init__(f"a retrain of {collection!r} is already queued or running")


class TrainingDataError(ConflictError):
    """The items at hand cannot be trained on."""

    code = "training-data"
    title = "Nothing to train on"


class JobNotFoundError(NotFoundError):
    """No job of that id."""

    code = "job-not-found"
    title = "Job not found"

    def __init__(self, job_id: str) -> None:
        super().__init__(f"there is no job {job_id!r}")


class JobCancelledError(ConflictError):
    """The job was asked to stop, or belongs to another worker by now."""

    code = "job-cancelled"
    title = "Job cancelled"


class DamagedBundleError(UnavailableError):
    """A model bundle on disk is incomplete or does not match its sums."""

    code = "damaged-bundle"
    title = "Model bundle damaged"


class DamagedFilesError(UnavailableError):
    """Pictures or files of models that were to be copied are missing, or do not match their sums."""

    code = "damaged-files"
    title = "Stored files damaged"

    def __init__(self, names: Sequence[str], advice: str) -> None:
        others = f" and {len(names) - _SHOWN} others" if len(names) > _SHOWN else ""
        super().__init__(f"damaged: {', '.join(names[:_SHOWN])}{others}; {advice}")


class DamagedVersionError(ConflictError):
    """A version that was to serve has a damaged bundle; whatever serves goes on."""

    code = "damaged-version"
    title = "Model version damaged"

    def __init__(self, collection: str, version: int, damage: str) -> None:
        super().__init__(f"version {version} of {collection!r} cannot serve: {damage}; nothing was changed")


class ActiveVersionConflictError(ConflictError):
    """Another version is active than the caller took for granted."""

    code = "active-version-conflict"
    title = "Another version is active"

    def __init__(self, collection: str, expected: int | None, active: int | None) -> None:
        super().__init__(
            f"{_version(expected)} was expected to be active in {collection!r}, but {_version(active)} is"
        )


class NoPreviousVersionError(ConflictError):
    """There is nothing to roll back to."""

    code = "no-previous-version"
    title = "Nothing to roll back to"

    def __init__(self, collection: str) -> None:
        super().__init__(f"collection {collection!r} had no other version active before: nothing was changed")


class EncoderUnavailableError(UnavailableError):
    """An encoder needs a library or a file that is not there, or not as it was."""

    code = "encoder-unavailable"
    title = "Encoder unavailable"


class VectorEngineUnavailableError(UnavailableError):
    """The engine that keeps the galleries cannot do its work."""

    code = "vector-engine-unavailable"
    title = "Vector engine unavailable"

    def __init__(self, reason: str) -> None:
        super().__init__(f"the vector engine cannot be used: {reason}")


class GalleriesGoneError(VectorEngineUnavailableError):
    """The engine has no such gallery any more; the next search has it made again."""

    def __init__(self) -> None:
        super().__init__("its galleries are gone, and are made again: try again")


def _version(number: int | None) -> str:
    return "no version" if number is None else f"version {number}"
