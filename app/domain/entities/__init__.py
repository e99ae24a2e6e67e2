"""The values that travel between the layers; none of them changes after it was made."""

from app.answers import Activation, Notice
from app.domain.entities.access import ApiKey, CallCount, KeyBounds
from app.domain.entities.collections import (
    Carried,
    Change,
    Collection,
    Content,
    Counts,
    Features,
    Feedback,
    Item,
    Matrix,
    Modality,
    RunningImport,
    Vector,
    json_bytes,
    vector_bytes,
    vector_of,
)
from app.domain.entities.installation import CopiedFiles, Installation, Mark
from app.domain.entities.jobs import Job, JobEvent, JobState
from app.domain.entities.searches import (
    HIT_FIELDS,
    WHOLE_ITEM,
    Hit,
    ItemFilter,
    SearchResult,
    ShownItem,
    WordReport,
    comparable,
)
from app.domain.entities.training import Supervision, TrainingParameters
from app.domain.entities.training_report import TrainingReport
from app.domain.entities.versions import BuiltModel, ModelVersion, SavedGallery
from app.domain.scopes import Scope

__all__ = [
    "Activation",
    "ApiKey",
    "BuiltModel",
    "CallCount",
    "Carried",
    "Change",
    "Collection",
    "Content",
    "CopiedFiles",
    "Counts",
    "Feedback",
    "HIT_FIELDS",
    "WHOLE_ITEM",
    "Hit",
    "Installation",
    "Item",
    "ItemFilter",
    "Job",
    "JobEvent",
    "JobState",
    "KeyBounds",
    "Mark",
    "Features",
    "Matrix",
    "Modality",
    "ModelVersion",
    "Notice",
    "RunningImport",
    "SavedGallery",
    "Scope",
    "SearchResult",
    "ShownItem",
    "Supervision",
    "TrainingParameters",
    "TrainingReport",
    "Vector",
    "WordReport",
    "comparable",
    "json_bytes",
    "vector_bytes",
    "vector_of",
]
