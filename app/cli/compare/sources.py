"""Where compared sets come from: their names, a published protocol, or data of one's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from app.bootstrap import build_on_existing
from app.cli.compare.cache import FileCache
from app.cli.compare.encoding import SetEncoder
from app.cli.compare.sets import ComparedSet, SetLoader, relevance_of
from app.cli.compare.stored import load_collection
from app.cli.compare.tables import TableColumns, load_table
from app.cli.ready import refuse_url
from app.domain.errors import InvalidFieldError
from app.domain.reports import Supervision
from app.encoders.registry import ContentLimits, EncoderRegistry
from app.settings import Settings
from solver.datasets import load_annotated, load_protocol

LIMITS = ContentLimits(max_picture_bytes=10 << 20, max_picture_pixels=40_000_000, max_text_chars=20_000)
"""Largest contents, as a server has them by default."""
_MOST_FILES = 3
Loaders = dict[str, Callable[[], ComparedSet]]
"""What loads a set, by the set's name."""


class ProtocolName(StrEnum):
    """A published setting."""

    WIKIPEDIA = "wikipedia"
    VOC2007 = "voc2007"
    NUS_WIDE = "nus-wide"


@dataclass(frozen=True, slots=True)
class Sources:
    """What a command line names; one kind of source is to be given."""

    sets: tuple[str, ...]
    protocol: ProtocolName | None  # a published setting
    data: Path | None  # folder of the protocol's file
    features: tuple[Path, ...]  # an archive, or one of each modality and perhaps one of labels
    table: Path | None  # of one's own
    collection: str | None  # a stored one
    columns: TableColumns  # of the table
    supervision: Supervision  # what of one's own data counts

    def loaders(self, settings: Settings, cache: FileCache, seed: int) -> Loaders:
        """Return what loads each set; the names of sets are checked before the first is loaded; the seed is
        of drawn splits."""
        # Raises InvalidFieldError, which names the field, for none or several kinds of sources.
        self._check()
        encoders = EncoderRegistry(LIMITS)
        features, table, collection = self.features, self.table, self.collection
        encoder, supervision = SetEncoder(encoders, cache), self.supervision
        if self.protocol is not None and self.data is not None:
            protocol, folder = self.protocol, self.data
            return {protocol.value: lambda: _load_protocol(protocol, folder)}
        if features:
            return {features[0].stem: lambda: _load_features(features, supervision, seed)}
        if table is not None:
            return {table.stem: lambda: load_table(table, self.columns, supervision, encoder, seed)}
        if collection is not None:
            return {collection: lambda: _load_stored(settings, collection, supervision, encoder, seed)}
        loader = SetLoader(settings.test_data, encoders, cache)
        loader.check(self.sets)
        return {name: lambda name=name: loader.load(name) for name in self.sets}  # type: ignore[misc]

    @property
    def are_published(self) -> bool:
        """Whether the sets may be those of a published protocol."""
        return bool(self.sets) or self.protocol is not None

    def _check(self) -> None:
        if (self.protocol is None) != (self.data is None):
            raise InvalidFieldError("--data", "give --protocol and --data together")
        kinds = (self.sets or None, self.protocol, self.features or None, self.table, self.collection)
        if sum(kind is not None for kind in kinds) != 1:
            raise InvalidFieldError(
                "sets",
                "give one or more sets, or --protocol with --data, or one of --features, --table and "
                "--collection",
            )
        if self.features and self.supervision.facets != "auto":
            raise InvalidFieldError("--facets", "the facets of an archive are its arrays facet_NAME")
        if len(self.features) > _MOST_FILES:
            raise InvalidFieldError("--features", "give an archive, or files of x, of z and of labels")
        if self.are_published and self.supervision != Supervision():
            option = "--facets" if self.supervision.facets != "auto" else "--no-labels and --no-pairs"
            raise InvalidFieldError(option, "of one's own data only: --features, --table and --collection")


def _load_protocol(protocol: ProtocolName, folder: Path) -> ComparedSet:
    data = load_protocol(protocol.value, folder)
    features = f"pictures: {data.X.shape[1]}-d; texts: {data.Z.shape[1]}-d (from the files given)"
    return ComparedSet(protocol.value, data, features)


def _load_features(files: tuple[Path, ...], supervision: Supervision, seed: int) -> ComparedSet:
    loaded = load_annotated(files, seed, use_labels=supervision.labels, use_pairs=supervision.pairs)
    data = loaded.features
    features = f"x: {data.X.shape[1]}-d; z: {data.Z.shape[1]}-d (from {files[0].name})"
    return ComparedSet(
        files[0].stem,
        data,
        features,
        relevance_of(loaded.class_name),
        modalities=("x", "z"),
        annotations=loaded.annotations,
        class_name=loaded.class_name,
    )


def _load_stored(
    settings: Settings, name: str, supervision: Supervision, encoder: SetEncoder, seed: int
) -> ComparedSet:
    refuse_url()
    services = build_on_existing(settings)
    services.schema.require_current()
    return load_collection(services, name, supervision, encoder, seed)
