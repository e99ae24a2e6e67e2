"""What the services need from the outside world, as Protocols."""

from app.domain.ports.database import Database, DatabaseCopies, DatabaseSchema, UnitOfWork
from app.domain.ports.encoders import EncodeBatches, Encoder, EncoderSource, StatefulEncoder
from app.domain.ports.files import BlobStore, BundleFiles, FolderMark, IndexFiles, Spool, StoredFiles
from app.domain.ports.imports import ImportRepository, PlannedWrite
from app.domain.ports.index import (
    ApproximateIndex,
    ApproximateIndexes,
    BestRows,
    GalleryIndex,
    RowSearch,
    VisitedRows,
)
from app.domain.ports.jobs import JobQueue
from app.domain.ports.repositories import (
    CallRepository,
    CollectionRepository,
    EncodedContentRepository,
    FeedbackRepository,
    InstallationRepository,
    ItemRepository,
    KeyRepository,
    ModelRepository,
)

__all__ = [
    "ApproximateIndex",
    "ApproximateIndexes",
    "BestRows",
    "BlobStore",
    "BundleFiles",
    "CallRepository",
    "CollectionRepository",
    "Database",
    "DatabaseCopies",
    "DatabaseSchema",
    "EncodeBatches",
    "EncodedContentRepository",
    "Encoder",
    "EncoderSource",
    "FeedbackRepository",
    "FolderMark",
    "GalleryIndex",
    "ImportRepository",
    "IndexFiles",
    "InstallationRepository",
    "ItemRepository",
    "JobQueue",
    "KeyRepository",
    "ModelRepository",
    "PlannedWrite",
    "RowSearch",
    "Spool",
    "StatefulEncoder",
    "StoredFiles",
    "UnitOfWork",
    "VisitedRows",
]
