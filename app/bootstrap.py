"""The composition root: settings in, services out. Objects are wired together nowhere else."""

from __future__ import annotations

import errno
import hashlib
import logging
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from sqlalchemy import Engine, event, make_url

from app.db.copies import Counts, DatabaseCopies, Note
from app.db.schema import DatabaseSchema
from app.db.session import Database, make_engine
from app.db.sqlite_file import file_of
from app.domain.errors import InvalidFieldError
from app.domain.ports import EncodeBatches, VectorEngine
from app.services.access import AccessService, RateLimits
from app.services.storage.backup import Backup
from app.services.storage.ownership import ManagedFiles, Ownership, SchemaService
from app.services.storage.pacing import MAX_RELOADS
from app.services.storage.sweeping import EngineSweeper, GarbageCollector, Removal, Tombstones
from app.settings import DATABASE_FILE, Settings
from app.storage.folders import sweep_leftovers
from app.storage.one_host import hold_for_this_host, is_within_reach_of_others
from app.storage.stores import FileFolderMark, Stores, local_stores, remote_stores

if TYPE_CHECKING:
    from app.encoders.registry import ContentLimits, EncoderRegistry
    from app.services.catalogue.imports import ImportService
    from app.services.catalogue.preparation import Preparation
    from app.services.catalogue.service import CatalogueService, FeedbackService
    from app.services.health import HealthService
    from app.services.models.model_bundles import ModelBundles
    from app.services.models.originals import Originals
    from app.services.models.registry import ModelRegistry
    from app.services.serving.overviews import GalleryOverviews
    from app.services.serving.recall_monitor import RecallMonitor
    from app.services.serving.reloads import ColumnReader
    from app.services.serving.search import SearchService
    from app.services.serving.snapshot_loader import VersionSnapshots
    from app.services.serving.snapshots import Snapshots
    from app.services.training.automatic import AutomaticRetraining, BundleRepair
    from app.services.training.builder import ModelBuilder
    from app.services.training.requests import TrainingService
    from solver import DaskEngine, FitCheckpoints

_OTHER_CONNECTIONS = 8
"""For keys, event streams, health, and saving galleries: short uses that can wait for each other."""
_INDEX_RECALL = 0.99
"""Recall@10 that an approximate index needs to serve: a plain graph fell to 0.36 on class-clustered data."""
_MAX_HITS = 100_000
"""Maximum number of results ranked in one call, those before the offset included; bounds time and memory."""
_MAX_FEEDBACK = 100_000  # feedback of a collection that is kept, the newest: every retrain reads all of it
_BLOCKS_FOLDER, _LOCKS_FOLDER, _CHECKPOINTS_FOLDER = "blocks", "locks", "checkpoints"
"""Beside the stores: samples of a training that runs on other hosts, locks of engines, states of fits."""
_CHECKPOINT_SECONDS = 7 * 86_400.0
"""How long a checkpoint waits for its training to be tried again: over a weekend, and longer than any job."""
_logger = logging.getLogger(__name__)
_Serving: TypeAlias = (
    "tuple[Snapshots, VersionSnapshots, RecallMonitor, ColumnReader, Callable[[str], dict[str, int]] | None]"
)


@dataclass(eq=False)
class Services:
    """Everything an entry point needs; what short commands do without is imported and made on first use."""

    settings: Settings
    database: Database
    schema: SchemaService
    access: AccessService
    ownership: Ownership  # checks that database and data folder belong together
    garbage_collector: GarbageCollector
    backup: Backup
    _stores: Stores
    _engine: VectorEngine | None

    @cached_property
    def catalogue(self) -> CatalogueService:
        from app.services.catalogue.service import CatalogueService

        settings, collector = self.settings, self.garbage_collector
        limits = settings.max_answer_bytes, settings.lock_wait_seconds
        return CatalogueService(self.database, self._preparation, collector, self.removal, *limits)

    @cached_property
    def imports(self) -> ImportService:
        from app.services.catalogue.imports import ImportService, ItemSpool

        return ImportService(
            self.database,
            self._preparation,
            lambda: ItemSpool(self.settings.data_dir / "imports"),
            lambda: self.snapshots.is_searched(),
            self.garbage_collector.sweep_after_delete,
            self.settings.lock_wait_seconds,
            self.settings.lease_seconds,
        )

    @cached_property
    def feedback(self) -> FeedbackService:
        from app.services.catalogue.service import FeedbackService

        limits = _MAX_FEEDBACK, self.settings.max_answer_bytes
        return FeedbackService(self.database, self._preparation, self.garbage_collector, *limits)

    @cached_property
    def search(self) -> SearchService:
        from app.services.serving.search import SearchService

        snapshots, versions, monitor, columns, _ = self._serving
        return SearchService(snapshots, versions, monitor, columns, _MAX_HITS, self.settings.max_answer_bytes)

    @cached_property
    def overviews(self) -> GalleryOverviews:
        from app.services.serving.overviews import GalleryOverviews

        return GalleryOverviews(self.snapshots, self._serving[3])

    @cached_property
    def training(self) -> TrainingService:
        from app.services.training.requests import TrainingService

        return TrainingService(self.database, self._encoders)

    @cached_property
    def versions(self) -> ModelRegistry:
        from app.services.models.registry import ModelRegistry

        most = self.settings.keep_versions
        return ModelRegistry(self.database, self._bundles, self.garbage_collector, most)

    @cached_property
    def originals(self) -> Originals:
        """What encodes items that were stored with other encoders."""
        from app.services.models.originals import Originals

        return Originals(self._stores.pictures, self._encoders)

    @cached_property
    def builder(self) -> ModelBuilder:
        """What trains a model, in a process of its own."""
        from app.services.training.builder import ModelBuilder
        from app.services.training.index_tuning import IndexTuner
        from app.services.training.reencoding import Reencoder

        settings, elsewhere = self.settings, _encode_elsewhere(self.settings)
        return ModelBuilder(
            self.database,
            self._bundles,
            self.originals,
            Reencoder(self.database, self.originals, self._encoders, elsewhere),
            IndexTuner(_INDEX_RECALL, settings.approximate_from_items),
            settings.gate_tolerance,
            settings.model_write_seconds,
            partial(_fit_checkpoints, settings),
            partial(_training_engine, settings),
        )

    @property
    def snapshots(self) -> Snapshots:
        """The models and galleries being served."""
        return self._serving[0]

    @property
    def rebuild_galleries(self) -> Callable[[str], dict[str, int]] | None:
        """What builds those of a collection again, where there is a vector engine."""
        return self._serving[-1]

    @cached_property
    def engine_sweeper(self) -> EngineSweeper | None:
        """What sweeps the vector engine, where there is one."""
        engine = self._engine
        return None if engine is None else EngineSweeper(self.database, engine, self.ownership.identity)

    @cached_property
    def removal(self) -> Removal:
        """What removes rows and files of deleted collections."""
        return Removal(self.database, self.garbage_collector, self._evict)

    @cached_property
    def tombstones(self) -> Tombstones:
        return Tombstones(self.database, self.settings.sweep_grace_seconds)

    @cached_property
    def repair(self) -> BundleRepair:
        """What queues a retrain for damaged bundles."""
        from app.services.training.automatic import BundleRepair

        return BundleRepair(self.database, self.training, self._bundles, self.ownership.is_current)

    @cached_property
    def retraining(self) -> AutomaticRetraining:
        """What queues one as collections' policies say."""
        from app.services.training.automatic import AutomaticRetraining

        return AutomaticRetraining(self.database, self.training)

    @cached_property
    def health(self) -> HealthService:
        """Whether this process can serve, and statistics for monitoring."""
        from app.services.health import HealthService

        paths = _written_paths(self.settings)
        backends = _backends(self.settings, self._stores, self._engine)
        serving = self.snapshots, self.database, self.schema, self.ownership, self._serving[2]
        return HealthService(*serving, paths, backends)

    def copy_to(self, url: str, names: Sequence[str], note: Note = lambda *_: None) -> tuple[Counts, Counts]:
        """Copy the database into that of a URL, which takes its place; as `DatabaseCopies.copy_to`."""
        self.ownership.require()
        folder = self.settings.data_dir
        settings = Settings(
            data_dir=folder, database_url=url, database_password_file=None, vector_engine="faiss"
        )
        target = _open_database(settings)
        try:
            schema = DatabaseSchema(target)
            if schema.is_empty():
                schema.upgrade()
            elif not schema.is_current():
                raise InvalidFieldError("TARGET_URL", "the database has the schema of another release")
            return DatabaseCopies(self.database.engine, DATABASE_FILE).copy_to(target, names, note)
        finally:
            target.dispose()

    def _evict(self, deleted: int) -> None:
        if "_serving" in vars(self):  # else nothing was searched here, and a command starts without all that
            self.snapshots.evict([deleted])

    @cached_property
    def _encoders(self) -> EncoderRegistry:
        from app.encoders.registry import EncoderRegistry

        return EncoderRegistry(_limits_of(self.settings))

    @cached_property
    def _preparation(self) -> Preparation:
        from app.services.catalogue.preparation import Preparation

        return Preparation(self._stores.pictures, self._encoders)

    @cached_property
    def _bundles(self) -> ModelBundles:
        from app.services.models.model_bundles import ModelBundles

        return ModelBundles(self._stores.bundles, self._encoders, self.originals)

    @cached_property
    def _serving(self) -> _Serving:
        from app.services.serving.engine_galleries import EngineGalleries
        from app.services.serving.recall_monitor import RecallMonitor
        from app.services.serving.reloads import ColumnReader
        from app.services.serving.saved_galleries import SavedGalleries
        from app.services.serving.snapshot import SnapshotCache
        from app.services.serving.snapshot_loader import SnapshotLoader, VersionSnapshots, rebuild_galleries
        from app.services.serving.snapshots import Snapshots

        settings, database, engine = self.settings, self.database, self._engine
        galleries, is_current = self._stores.galleries, self.ownership.is_current
        saved = SavedGalleries(database, galleries, is_current, settings.save_after_items)
        cache = SnapshotCache(settings.resolved_snapshot_bytes)
        loader = SnapshotLoader(self._bundles, saved, None if engine is None else EngineGalleries(engine))
        snapshots = Snapshots(database, cache, loader, saved)
        monitor = RecallMonitor(cache, _INDEX_RECALL, snapshots.search_exactly)
        columns = ColumnReader(snapshots.waiting_room, snapshots.is_searched)
        rebuild = None if engine is None else partial(rebuild_galleries, database, loader, engine)
        return snapshots, VersionSnapshots(database, loader, cache), monitor, columns, rebuild


def build_on_existing(settings: Settings) -> Services:
    """Build the services on an existing database; creates nothing, raises FileNotFoundError without one."""
    file = file_of(settings.resolved_database_url)
    if file is not None and not file.is_file():
        setting = "LRBS_DATABASE_URL" if settings.database_url else "LRBS_DATA_DIR"
        missing = "there is no database" if file.parent.is_dir() else "there is no database, nor its folder"
        raise FileNotFoundError(errno.ENOENT, f"{missing} ({setting})", str(file))
    return build(settings)


def build(settings: Settings) -> Services:
    """Build the services."""
    engine = _open_database(settings)
    stores = _build_stores(settings)
    ownership, garbage_collector = _keep_consistent(settings, stores, Database(engine))
    database = Database(engine, ownership.require, ownership.require_readable)
    schema = SchemaService(DatabaseSchema(engine), ownership)
    vector_engine = open_vector_engine(settings)
    if vector_engine is not None:
        event.listen(engine, "engine_disposed", lambda _: vector_engine.close())
    backup = Backup(
        settings.data_dir,
        schema,
        ownership,
        DatabaseCopies(engine, DATABASE_FILE),
        stores.copy_files,
        lambda folder: stores.mark if folder == settings.data_dir else _mark_of(settings, folder),
        DatabaseSchema(engine).upgrade,
        partial(_clear, settings, vector_engine),
    )
    access = AccessService(database, RateLimits(settings.rate_limit, _calls_file(settings)))
    return Services(
        settings, database, schema, access, ownership, garbage_collector, backup, stores, vector_engine
    )


def open_vector_engine(settings: Settings) -> VectorEngine | None:
    """Return the engine that keeps the galleries; None where each process does, in its memory."""
    if settings.vector_engine == "faiss":
        return None
    # With connections of its own: a search has one of the others open while it asks for one of these.
    url = settings.resolved_database_url
    connections = make_engine(url, settings.lock_wait_seconds, _connections(settings))
    try:
        if settings.vector_engine == "postgresql":
            from app.engines.postgresql import PostgresEngine

            return PostgresEngine(connections)
        from app.engines.common import lock_file, lock_in_database
        from app.engines.milvus import MilvusEngine

        is_shared = make_url(url).get_backend_name() == "postgresql"
        folder = settings.data_dir.resolve() / _LOCKS_FOLDER
        of_files = partial(lock_file, folder, settings.lock_wait_seconds)
        hold_lock = partial(lock_in_database, connections) if is_shared else of_files
        return MilvusEngine(settings.milvus_uri, settings.milvus_token, hold_lock, connections.dispose)
    except ImportError as error:
        extra = "postgres" if settings.vector_engine == "postgresql" else settings.vector_engine
        need = f"LRBS_VECTOR_ENGINE={settings.vector_engine} needs {error.name}"
        raise ImportError(f"{need}: pip install 'lrbs[{extra}]'", name=error.name) from error


def _clear(settings: Settings, vector_engine: VectorEngine | None, may_remove: bool) -> None:
    """Remove all galleries of an engine: every process makes those that it needs again. Of a server beside
    the database only where that was asked for: they may be those of a service that runs."""
    keys = [] if vector_engine is None else vector_engine.keys()
    if keys and settings.vector_engine == "milvus" and not may_remove:
        raise InvalidFieldError(
            "LRBS_MILVUS_URI",
            "the Milvus server has galleries, which a service may be searching: name another database of it, "
            "or have them removed (--remove-galleries)",
        )
    for key in keys:
        assert vector_engine is not None
        vector_engine.drop(key)


def _open_database(settings: Settings) -> Engine:
    url = settings.resolved_database_url
    if make_url(url).get_backend_name() == "sqlite":
        settings.data_dir.mkdir(parents=True, exist_ok=True)
    try:
        engine = make_engine(url, settings.lock_wait_seconds, _connections(settings))
    except ImportError as error:
        need = f"LRBS_DATABASE_URL needs {error.name}"
        raise ImportError(f"{need}: pip install 'lrbs[postgres]'", name=error.name) from error
    file = file_of(url)
    lock = None if file is None else hold_for_this_host(file)
    if lock is not None:
        event.listen(engine, "engine_disposed", lambda _: lock.close())
    return engine


def sweep_checkpoints(settings: Settings) -> int:
    """Remove checkpoints of trainings that were not tried again; return their number."""
    folder = settings.data_dir.resolve() / _CHECKPOINTS_FOLDER
    if not folder.is_dir():
        return 0
    from solver import FitCheckpoints

    return sweep_leftovers(folder, [FitCheckpoints.PREFIX], time.time() - _CHECKPOINT_SECONDS)


def _fit_checkpoints(settings: Settings) -> FitCheckpoints:
    """Return where the fits of a training write checkpoints."""
    from solver import FitCheckpoints

    try:
        sweep_checkpoints(settings)
    except OSError as error:
        _logger.warning("checkpoints of earlier trainings are kept until the next one: %s", error)
    return FitCheckpoints(settings.data_dir.resolve() / _CHECKPOINTS_FOLDER, settings.checkpoint_seconds)


def _training_engine(settings: Settings) -> AbstractContextManager[object]:
    """Return the context within which large fits are evaluated."""
    if settings.training_engine == "local":
        return nullcontext()
    from solver import DaskEngine

    # Also for workers of this machine: in a container, temporary files may be in a small part of its memory.
    folder = settings.data_dir.resolve() / _BLOCKS_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    # Of trainers that were killed: no training takes longer.
    sweep_leftovers(folder, [DaskEngine.PREFIX], time.time() - settings.max_training_seconds)
    return DaskEngine(
        settings.dask_scheduler or None,
        folder,
        least_pairs=settings.dask_from_pairs,
        announce=partial(_logger.info, "training on Dask: %s"),
    )


def _limits_of(settings: Settings) -> ContentLimits:
    from app.encoders.registry import ContentLimits

    return ContentLimits(settings.max_picture_bytes, settings.max_picture_pixels, settings.max_text_chars)


def _encode_elsewhere(settings: Settings) -> EncodeBatches | None:
    """Return what encodes on Dask workers; None where all of them would be of this machine."""
    if settings.training_engine == "local" or not settings.dask_scheduler:
        return None

    from app.engines.dask_encoding import encode_on_workers

    def open_engine() -> DaskEngine:
        from solver import DaskEngine

        return DaskEngine(settings.dask_scheduler)

    return partial(encode_on_workers, open_engine, _limits_of(settings))


def _calls_file(settings: Settings) -> Path:
    """Return where the processes of this host count calls; not across a network, which takes too long."""
    folder = settings.data_dir.resolve()
    if not is_within_reach_of_others(folder):
        return folder / "calls"
    name = hashlib.sha256(str(folder).encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir(), f"lrbs-calls-{name}")


def _backends(
    settings: Settings, stores: Stores, vector_engine: VectorEngine | None
) -> dict[str, Callable[[], str | None]]:
    """Return what is needed beside the database and the data folder; see `HealthService`."""
    from app.services.health import ENGINE, STORAGE

    backends: dict[str, Callable[[], str | None]] = {}
    if settings.storage_url:
        backends[STORAGE] = stores.find_fault
    if vector_engine is not None:
        from app.services.serving.engine_galleries import watch_engine

        backends[ENGINE] = watch_engine(vector_engine.keys).read
    return backends


def _build_stores(settings: Settings) -> Stores:
    folder, seconds = settings.data_dir, settings.trash_seconds
    if settings.storage_url:
        return remote_stores(settings.storage_url, folder, seconds, settings.storage_cache_bytes)
    return local_stores(folder, seconds, _mark_of(settings, folder))


def _keep_consistent(
    settings: Settings, stores: Stores, database: Database
) -> tuple[Ownership, GarbageCollector]:
    """Return what pairs files and database, which permits writes even if they do not belong together, and
    what sweeps the files."""

    def now() -> float:
        with database.read() as work:
            return work.now().timestamp()

    pictures = ManagedFiles.of_rows(
        "pictures", stores.pictures, database, lambda work, names: work.items.used_content(names)
    )
    bundles = ManagedFiles.of_rows(
        "models", stores.bundles, database, lambda work, names: work.models.used_bundles(names)
    )
    ownership = Ownership(database, stores.mark, (pictures, bundles))
    grace_seconds = settings.sweep_grace_seconds
    return ownership, GarbageCollector(pictures, bundles, grace_seconds, ownership.is_current, now)


def _mark_of(settings: Settings, folder: Path) -> FileFolderMark:
    """Return the mark of a folder that holds the data of the database in use."""
    url = make_url(settings.resolved_database_url)
    location = f"{url.get_backend_name()}://{url.host or ''}:{url.port or ''}/{url.database or ''}"
    return FileFolderMark(folder, location, DATABASE_FILE)


def _written_paths(settings: Settings) -> dict[str, Path]:
    paths = {"the data folder": settings.data_dir}
    file = file_of(settings.resolved_database_url)
    if file is not None:
        paths |= {"the database file": file, "the folder of the database": file.parent}
    return paths


def _connections(settings: Settings) -> int:
    """Return how many connections searches, writes, imports and everything else may need at the same time."""
    return 3 * settings.max_running + MAX_RELOADS + _OTHER_CONNECTIONS
