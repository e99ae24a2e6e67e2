"""The composition root: settings in, services out. Objects are wired together nowhere else."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sqlalchemy import Engine, make_url

from app.db.copies import copy_sqlite
from app.db.schema import is_current, is_empty
from app.db.session import SqlDatabase, make_engine
from app.db.sqlite_file import file_of
from app.domain.errors import InvalidFieldError, SchemaOutdatedError
from app.encoders.registry import ContentLimits, EncoderRegistry
from app.index.exact import ExactIndex, ExactIndexFiles
from app.services.access.rates import RateLimits
from app.services.access.service import AccessService
from app.services.catalogue.imports import ImportService
from app.services.catalogue.service import CatalogueService
from app.services.health.readiness import ReadinessService
from app.services.health.status import DATABASE_TIMEOUT_SECONDS, StatusService
from app.services.models.model_bundles import ModelBundles
from app.services.models.registry import ModelRegistry
from app.services.serving.fallback import FallbackPolicy
from app.services.serving.gallery_saver import GallerySaver
from app.services.serving.reload_scheduler import MAX_RELOADS
from app.services.serving.saved_galleries import SavedGalleries
from app.services.serving.search import SearchService
from app.services.serving.snapshot_cache import SnapshotCache
from app.services.serving.snapshot_loader import SnapshotLoader
from app.services.serving.snapshot_reader import SnapshotReader
from app.services.storage.garbage_collector import GarbageCollector
from app.services.storage.ownership import ManagedFiles, Ownership
from app.services.storage.removal import Removal
from app.services.storage.tombstones import Tombstones
from app.services.training.builder import ModelBuilder
from app.services.training.evaluation import PromotionGates
from app.services.training.repair import BundleRepair
from app.services.training.requests import TrainingService
from app.settings import DATABASE_FILE, Settings
from app.storage.blobs import FileBlobStore
from app.storage.bundles import BundleStore
from app.storage.copies import copy_new_files
from app.storage.faults import fault_of_disk
from app.storage.ownership import FileFolderMark
from app.storage.spool import ItemSpool

_OTHER_CONNECTIONS = 8
"""For keys, event streams, health, and saving galleries: short uses that can wait for each other."""
_INDEX_RECALL = 0.99
"""Recall@10 that an approximate index needs to serve: a plain graph fell to 0.36 on class-clustered data."""
_MAX_HITS = 100_000
"""Maximum number of results ranked in one call, those before the offset included; bounds time and memory."""
_PICTURES, _BUNDLES = "pictures", "models"


@dataclass(frozen=True, slots=True)
class Services:
    """Everything an entry point needs.

    Parameters
    ----------
    settings : Settings
        The settings the services were built from.
    database : SqlDatabase
        Opens transactions.
    catalogue, imports, search, training, versions, access
        The use cases.
    builder : ModelBuilder
        Trains a model, in a process of its own.
    snapshots : SnapshotReader
        The models and galleries being served.
    garbage_collector : GarbageCollector
        Removes unused files.
    removal : Removal
        Removes the rows and files of deleted collections.
    tombstones : Tombstones
        Purges the tombstones of deleted items.
    ownership : Ownership
        Checks that database and data folder belong together.
    repair : BundleRepair
        Queues a retrain for damaged bundles.
    status : StatusService
        Statistics for monitoring.
    readiness : ReadinessService
        Checks whether this process can serve.
    """

    settings: Settings
    database: SqlDatabase
    catalogue: CatalogueService
    imports: ImportService
    search: SearchService
    training: TrainingService
    versions: ModelRegistry
    builder: ModelBuilder
    access: AccessService
    snapshots: SnapshotReader
    garbage_collector: GarbageCollector
    removal: Removal
    tombstones: Tombstones
    ownership: Ownership
    repair: BundleRepair
    status: StatusService
    readiness: ReadinessService

    def set_up(self) -> None:
        """Create the schema in an empty database; raises SchemaOutdatedError if it has another one."""
        if is_empty(self.database.engine):
            self.upgrade_schema()
        self.require_current_schema()

    def upgrade_schema(self) -> None:
        """Migrate to the current schema; raises WrongDatabaseError if the data folder is bound to another."""
        self.ownership.require_database(lambda: is_empty(self.database.engine))
        _upgrade(self.database.engine)

    def adopt(self) -> None:
        """Bind database and data folder to each other as they are; an empty database gets its schema."""
        if is_empty(self.database.engine):
            _upgrade(self.database.engine)
        self.require_current_schema()
        self.ownership.adopt()

    def back_up(self, folder: Path) -> int:
        """Copy a SQLite database, pictures and bundles into a new folder, while the service keeps running.

        The copy can be used as a data folder. Returns the number of pictures and bundle files in it.

        Parameters
        ----------
        folder : Path
            Created here; its parent has to exist.

        Raises
        ------
        InvalidFieldError
            If the folder exists, has no parent, or lies in the data folder; and if the database is not
            SQLite.
        SchemaOutdatedError
            If the database does not have the current schema.
        """
        if self.database.engine.dialect.name != "sqlite":
            raise InvalidFieldError(
                "LRBS_DATABASE_URL",
                "is no SQLite database: copy LRBS_DATA_DIR, run pg_dump, copy it again except .database",
            )
        if folder.exists():
            raise InvalidFieldError("folder", f"{folder} exists: name a new one")
        if not folder.absolute().parent.is_dir():
            raise InvalidFieldError("folder", f"there is no folder {folder.absolute().parent} to make it in")
        if self.settings.data_dir.resolve() in folder.resolve().parents:
            raise InvalidFieldError("folder", f"{folder} lies in the data folder, which is what is copied")
        self.require_current_schema()
        folder.mkdir()
        # Files before the database and again after it: those that the copied rows refer to existed before
        # the database was copied, or are too young to have been swept.
        copied = self._copy_files(folder)
        copy_sqlite(self.database.engine, folder / DATABASE_FILE)
        copy = build(Settings(data_dir=folder, database_url=""))
        copy.ownership.mark_copy()
        copy.database.engine.dispose()
        self.ownership.diverge_from_copy()
        return copied + self._copy_files(folder)

    def _copy_files(self, folder: Path) -> int:
        kinds = (_PICTURES, _BUNDLES)
        return sum(copy_new_files(self.settings.data_dir / kind, folder / kind) for kind in kinds)

    def require_current_schema(self) -> None:
        """Check that the database has the current schema; raises SchemaOutdatedError, WrongDatabaseError."""
        _require_current_schema(self.ownership, self.database.engine)


def build_on_existing(settings: Settings) -> Services:
    """Build the services on an existing database; creates nothing, raises FileNotFoundError without one."""
    url = make_url(settings.resolved_database_url)
    if url.get_backend_name() == "sqlite" and not Path(url.database or "").is_file():
        raise FileNotFoundError(errno.ENOENT, "there is no database", url.database)
    return build(settings)


def build(settings: Settings) -> Services:
    """Build the services.

    Parameters
    ----------
    settings : Settings
        Locations of the data, and limits.
    """
    if make_url(settings.resolved_database_url).get_backend_name() == "sqlite":
        settings.data_dir.mkdir(parents=True, exist_ok=True)
    engine = make_engine(settings.resolved_database_url, settings.lock_wait_seconds, _connections(settings))
    encoders = EncoderRegistry(
        ContentLimits(settings.max_picture_bytes, settings.max_picture_pixels, settings.max_text_chars)
    )
    blobs = FileBlobStore(settings.data_dir / _PICTURES, settings.trash_seconds)
    bundle_files = BundleStore(settings.data_dir / _BUNDLES, settings.trash_seconds)
    unchecked_database = SqlDatabase(engine)
    stores = (
        ManagedFiles("pictures", blobs, partial(_used_content, unchecked_database)),
        ManagedFiles("models", bundle_files, partial(_used_bundles, unchecked_database)),
    )
    mark = FileFolderMark(settings.data_dir, _database_name(settings), DATABASE_FILE)
    ownership = Ownership(unchecked_database, mark, stores)
    database = SqlDatabase(engine, ownership.require)
    garbage_collector = GarbageCollector(*stores, settings.sweep_grace_seconds, ownership.is_current)
    bundles = ModelBundles(bundle_files, ExactIndexFiles(), encoders)
    saved = SavedGalleries(
        database,
        BundleStore(settings.data_dir / "galleries"),
        ExactIndex,
        ownership.is_current,
    )
    fallback = FallbackPolicy()
    snapshots = SnapshotReader(
        database,
        SnapshotLoader(bundles, ExactIndex, saved, fallback),
        fallback,
        GallerySaver(saved, settings.save_after_items),
        SnapshotCache(settings.resolved_snapshot_bytes),
    )
    removal = Removal(database, garbage_collector, lambda deleted: snapshots.evict([deleted]))
    training = TrainingService(database)
    gates = PromotionGates(settings.gate_tolerance, _INDEX_RECALL)
    return Services(
        settings=settings,
        database=database,
        catalogue=CatalogueService(
            database,
            blobs,
            encoders,
            garbage_collector,
            removal,
            snapshots.record_write,
            settings.max_answer_bytes,
            settings.lock_wait_seconds,
        ),
        imports=ImportService(
            database,
            blobs,
            encoders,
            lambda: ItemSpool(settings.data_dir / "imports"),
            snapshots.record_write,
            garbage_collector.sweep_after_delete,
            settings.lock_wait_seconds,
            settings.lease_seconds,
        ),
        search=SearchService(snapshots, _MAX_HITS, settings.max_answer_bytes),
        training=training,
        versions=ModelRegistry(database, bundles, garbage_collector, settings.keep_versions),
        builder=ModelBuilder(database, bundles, encoders, ExactIndex, gates, settings.model_write_seconds),
        access=AccessService(database, RateLimits(settings.rate_limit)),
        snapshots=snapshots,
        garbage_collector=garbage_collector,
        removal=removal,
        tombstones=Tombstones(database, settings.sweep_grace_seconds),
        ownership=ownership,
        repair=BundleRepair(database, bundles, training, ownership.is_current),
        status=StatusService(database, snapshots),
        readiness=ReadinessService(
            snapshots,
            lambda: _require_current_schema(ownership, engine, DATABASE_TIMEOUT_SECONDS),
            ownership.status,
            lambda: _faults_of_writes(settings, database),
        ),
    )


def _upgrade(engine: Engine) -> None:
    from app.db.migrate import upgrade  # imports Alembic, which nothing else needs

    upgrade(engine)


def _require_current_schema(
    ownership: Ownership, engine: Engine, patience_seconds: float | None = None
) -> None:
    ownership.require_database(lambda: is_empty(engine, patience_seconds))
    if not is_current(engine, patience_seconds):
        raise SchemaOutdatedError


def _faults_of_writes(settings: Settings, database: SqlDatabase) -> list[str]:
    paths = {"the data folder": settings.data_dir}
    file = file_of(settings.resolved_database_url)
    if file is not None:
        paths |= {"the database file": file, "the folder of the database": file.parent}
    faults: dict[str | None, str] = {}
    for name, path in paths.items():
        faults.setdefault(fault_of_disk(path), name)  # usually all on one disk, whose fault is reported once
    refusal = database.fault_of_writes(DATABASE_TIMEOUT_SECONDS)
    messages = [f"{name} is {fault}" for fault, name in faults.items() if fault is not None]
    return messages if refusal is None else [refusal, *messages]


def _used_content(database: SqlDatabase, content_hashes: Sequence[str]) -> set[str]:
    with database.read() as work:
        return work.items.used_content(content_hashes)


def _used_bundles(database: SqlDatabase, bundles: Sequence[str]) -> set[str]:
    with database.read() as work:
        return work.models.used_bundles(bundles)


def _connections(settings: Settings) -> int:
    """Return how many connections searches, writes, imports and everything else may need at the same time."""
    return 3 * settings.max_running + MAX_RELOADS + _OTHER_CONNECTIONS


def _database_name(settings: Settings) -> str:
    """Return a name that identifies the database, without user and password."""
    url = make_url(settings.resolved_database_url)
    return f"{url.get_backend_name()}://{url.host or ''}:{url.port or ''}/{url.database or ''}"
