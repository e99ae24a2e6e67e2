"""Model versions: what was built, what is stored, what was active when."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from app.domain.entities.collections import Modality
from app.domain.entities.training_report import TrainingReport


@dataclass(frozen=True, slots=True)
class ModelVersion:
    """One trained model, as the database knows it.

    Parameters
    ----------
    version : int
        Counted from 1 within the collection.
    bundle : str
        Folder name of the bundle.
    manifest_hash : str
        SHA-256 of the bundle's manifest.
    index_revision : int
        Collection revision whose items the bundle's indexes hold.
    report : TrainingReport
        How it was trained, and how good it is.
    created_at : datetime
        UTC.
    is_active : bool
        Whether it serves.
    modalities : tuple of Modality or None
        With the encoders it was trained with; those of the collection when None.
    """

    version: int
    bundle: str
    manifest_hash: str
    index_revision: int
    report: TrainingReport
    created_at: datetime
    is_active: bool
    modalities: tuple[Modality, Modality] | None = None


@dataclass(frozen=True, slots=True)
class SavedGallery:
    """Where the galleries of a collection are saved, so that a start need not read all items.

    Parameters
    ----------
    model_bundle : str
        Folder name of the model they were projected by.
    revision : int
        Of the collection they hold.
    folder : str
        Their own.
    manifest_hash : str
        SHA-256 of its manifest.
    """

    model_bundle: str
    revision: int
    folder: str
    manifest_hash: str


@dataclass(frozen=True, slots=True)
class BuiltModel:
    """A trained model whose bundle is on disk, and that no row refers to yet.

    Parameters
    ----------
    version : int
        The number it was built under.
    bundle, manifest_hash : str
        Folder name and SHA-256 of the manifest.
    index_revision : int
        Collection revision whose items the bundle's indexes hold.
    report : TrainingReport
        As in the manifest.
    expected_active : int or None
        Version that was active when the training began, and that the new one was compared with.
    modalities : tuple of Modality or None
        As of `ModelVersion`.
    """

    version: int
    bundle: str
    manifest_hash: str
    index_revision: int
    report: TrainingReport
    expected_active: int | None
    modalities: tuple[Modality, Modality] | None = None


@dataclass(frozen=True, slots=True)
class Activation:
    """Record of a version becoming active.

    Parameters
    ----------
    version : int
        The version that became active.
    previous : int or None
        The version that was active before; None if there was none.
    at : datetime
        UTC.
    by : str
        A job, a key or the command line.
    reason : str or None
        As given.
    """

    version: int
    previous: int | None
    at: datetime
    by: str
    reason: str | None
