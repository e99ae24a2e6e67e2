"""Model versions: what was built, what is stored, what was active when."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from app.domain.entities.collections import Modality
from app.domain.entities.training_report import TrainingReport


@dataclass(frozen=True, slots=True)
class ModelVersion:
    """One trained model, as the database knows it."""

    version: int  # counted from 1 within the collection
    bundle: str  # folder name
    manifest_hash: str  # SHA-256
    index_revision: int  # of the collection, whose items the bundle's indexes hold
    report: TrainingReport
    created_at: datetime  # UTC
    is_active: bool  # serves
    # with the encoders it was trained with; those of the collection when None
    modalities: tuple[Modality, Modality] | None = None


@dataclass(frozen=True, slots=True)
class SavedGallery:
    """Where the galleries of a collection are saved, so that a start need not read all items."""

    model_bundle: str  # folder of the model they were projected by
    revision: int  # of the collection they hold
    folder: str
    manifest_hash: str  # SHA-256


@dataclass(frozen=True, slots=True)
class BuiltModel:
    """A trained model whose bundle is on disk, and that no row refers to yet; fields as of `ModelVersion`."""

    version: int  # the number it was built under
    bundle: str
    manifest_hash: str
    index_revision: int
    report: TrainingReport  # as in the manifest
    expected_active: int | None  # when the training began; the new one was compared with it
    modalities: tuple[Modality, Modality] | None = None
