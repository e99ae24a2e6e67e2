"""Where compared sets come from: their names, a published protocol, or data of one's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from app.bootstrap import build
from app.cli.compare.cache import FileCache
from app.cli.compare.encoding import SetEncoder
from app.cli.compare.sets import ComparedSet, SetLoader, relevance_of
from app.cli.compare.stored import load_collection
from app.cli.compare.tables import TableColumns, load_table
from app.cli.ready import refuse_url
from app.domain.entities import Supervision
from app.domain.errors import InvalidFieldError
from app.encoders.registry import ContentLimits, EncoderRegistry
from app.settings import Settings
from solver.datasets import load_annotated_npz, load_protocol

LIMITS = ContentLimits(max_picture_bytes=10 << 20, max_picture_pixels=40_000_000, max_text_chars=20_000)
"""Largest contents, as a server has them by default."""
Loaders = dict[str, Callable[[], ComparedSet]]
"""What loads a set, by the set's name."""


class ProtocolName(StrEnum):
    """A published setting."""

    WIKIPEDIA = "wikipedia"
    VOC2007 = "voc2007"
    NUS_WIDE = "nus-wide"


@dataclass(frozen=True, slots=True)
class Sources:
    """What a command line names; one kind of source is to be given.

    Parameters
    ----------
    sets : tuple of str
        Names of sets.
    protocol : ProtocolName or None
        A published setting.
    data : Path or None
        Folder of the protocol's file.
    npz, table : Path or None
        Files of one's own.
    collection : str or None
        A stored collection.
    columns : TableColumns
        Of the table.
    supervision : Supervision
        What of one's own data counts: labels, facets, pairs.
    """

    sets: tuple[str, ...]
    protocol: ProtocolName | None
    data: Path | None
    npz: Path | None
    table: Path | None
    collection: str | None
    columns: TableColumns
    supervision: Supervision

    def loaders(self, settings: Settings, cache: FileCache, seed: int) -> Loaders:
        """Return what loads each set; the names of sets are checked before the first is loaded.

        Parameters
        ----------
        settings : Settings
            Where the real data and the collections are.
        cache : FileCache
            Caches features.
        seed : int
            Of splits that are drawn.

        Raises
        ------
        InvalidFieldError
            If none or several kinds of sources are given, or a set is unknown; names the field.
        """
        self._check()
        encoders = EncoderRegistry(LIMITS)
        npz, table, collection, encoder = self.npz, self.table, self.collection, SetEncoder(encoders, cache)
        supervision = self.supervision
        if self.protocol is not None and self.data is not None:
            protocol, folder = self.protocol, self.data
            return {protocol.value: lambda: _load_protocol(protocol, folder)}
        if npz is not None:
            return {npz.stem: lambda: _load_archive(npz, supervision, seed)}
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
        kinds = (self.sets or None, self.protocol, self.npz, self.table, self.collection)
        if sum(kind is not None for kind in kinds) != 1:
            raise InvalidFieldError(
                "sets",
                "give one or more sets, or --protocol with --data, or one of --npz, --table and --collection",
            )
        if self.npz is not None and self.supervision.facets != "auto":
            raise InvalidFieldError("--facets", "the facets of an archive are its arrays facet_NAME")
        if self.are_published and self.supervision != Supervision():
            option = "--facets" if self.supervision.facets != "auto" else "--no-labels and --no-pairs"
            raise InvalidFieldError(option, "of one's own data only: --npz, --table and --collection")


def _load_protocol(protocol: ProtocolName, folder: Path) -> ComparedSet:
    data = load_protocol(protocol.value, folder)
    features = f"pictures: {data.X.shape[1]}-d; texts: {data.Z.shape[1]}-d (from the files given)"
    return ComparedSet(protocol.value, data, features)


def _load_archive(file: Path, supervision: Supervision, seed: int) -> ComparedSet:
    loaded = load_annotated_npz(file, seed, use_labels=supervision.labels, use_pairs=supervision.pairs)
    data = loaded.features
    features = f"x: {data.X.shape[1]}-d; z: {data.Z.shape[1]}-d (from {file.name})"
    return ComparedSet(
        file.stem,
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
    services = build(settings)
    services.schema.set_up()
    return load_collection(services, name, supervision, encoder, seed)
