"""The composition root: settings in, services out. Nothing else puts parts together."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import make_url

from app.db.migrate import is_current, upgrade
from app.db.session import SqlDatabase, make_engine
from app.domain.errors import SchemaOutdatedError
from app.encoders.registry import ContentLimits, EncoderRegistry
from app.index.exact import ExactIndex, ExactIndexFiles
from app.services.access import AccessService
from app.services.bundles import ModelBundles
from app.services.catalogue import CatalogueService
from app.services.housekeeping import Housekeeping
from app.services.imports import ImportService
from app.services.saved_galleries import SavedGalleries
from app.services.search import SearchService
from app.services.snapshots import Snapshots
from app.services.training import TrainingService
from app.settings import Settings
from app.storage.blobs import FileBlobStore
from app.storage.bundles import BundleStore
from app.storage.spool import ItemSpool
from app.storage.sweeping import belongs_to


@dataclass(frozen=True, slots=True)
class Services:
    """Everything an entry point needs.

    Parameters
    ----------
    settings : Settings
        What they were built from.
    database : SqlDatabase
        Transactions.
    catalogue, imports, search, training, access
        The use cases.
    snapshots : Snapshots
        What is being served.
    housekeeping : Housekeeping
        Removes unused files.
    """

    settings: Settings
    database: SqlDatabase
    catalogue: CatalogueService
    imports: ImportService
    search: SearchService
    training: TrainingService
    access: AccessService
    snapshots: Snapshots
    housekeeping: Housekeeping

    def upgrade_schema(self) -> None:
        """Bring the database to the current schema."""
        upgrade(self.database.engine)

    def schema_is_current(self) -> bool:
        """Return whether the database has the schema this code expects."""
        return is_current(self.database.engine)

    def require_current_schema(self) -> None:
        """Refuse a database of another schema; raises SchemaOutdatedError."""
        if not self.schema_is_current():
            raise SchemaOutdatedError("the database schema is not current: run lrbs db upgrade")


def build(settings: Settings) -> Services:
    """Put the service together.

    Parameters
    ----------
    settings : Settings
        Where data is kept and what is allowed.
    """
    if make_url(settings.resolved_database_url).get_backend_name() == "sqlite":
        settings.data_dir.mkdir(parents=True, exist_ok=True)
    database = SqlDatabase(make_engine(settings.resolved_database_url, settings.lock_wait_seconds))
    encoders = EncoderRegistry(
        ContentLimits(settings.max_picture_bytes, settings.max_picture_pixels, settings.max_text_chars)
    )
    blobs = FileBlobStore(settings.data_dir / "pictures")
    bundle_files = BundleStore(settings.data_dir / "models")

    def owns_files() -> bool:
        return belongs_to(settings.data_dir, _database_name(settings))

    housekeeping = Housekeeping(database, blobs, bundle_files, settings.sweep_grace_seconds, owns_files)
    bundles = ModelBundles(bundle_files, ExactIndexFiles(), encoders)
    saved = SavedGalleries(database, BundleStore(settings.data_dir / "galleries"), ExactIndex, owns_files)
    snapshots = Snapshots(database, bundles, ExactIndex, saved)
    return Services(
        settings=settings,
        database=database,
        catalogue=CatalogueService(database, blobs, encoders, housekeeping),
        imports=ImportService(database, blobs, encoders, lambda: ItemSpool(settings.data_dir / "imports")),
        search=SearchService(database, snapshots, settings.max_batch_hits),
        training=TrainingService(database, bundles, encoders),
        access=AccessService(database),
        snapshots=snapshots,
        housekeeping=housekeeping,
    )


def _database_name(settings: Settings) -> str:
    """Return what tells one database from another, wherever its data folder is moved to."""
    if not settings.database_url:
        return "inside this folder"
    url = make_url(settings.database_url)
    return f"{url.get_backend_name()}://{url.host or ''}:{url.port or ''}/{url.database or ''}"
