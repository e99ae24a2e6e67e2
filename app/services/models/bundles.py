"""What a model bundle holds, and how it is read back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from app.domain.entities import Collection, Features, Matrix, ModelVersion, TrainingReport
from app.domain.errors import DamagedBundleError
from app.domain.ports import BundleFiles, EncoderSource, IndexFiles
from solver import ArtifactError, Projector, load_projector, save_projector

_GALLERIES = "galleries.json"
_ENCODERS = "encoders.json"
_JUDGED = "judged"


@dataclass(frozen=True, slots=True, eq=False)
class HeldOutModel:
    """What the held-out figures of a version are of: its recipe, fitted without the held-out items.

    Parameters
    ----------
    projector : Projector
        Never serves; a later version is compared with it.
    fitted : frozenset of str
        Items it learned from.
    """

    projector: Projector
    fitted: frozenset[str]


@dataclass(frozen=True, slots=True, eq=False)
class LoadedModel:
    """A model version in memory.

    Parameters
    ----------
    version : int
        Its number.
    index_revision : int
        Collection revision its stored galleries stand at.
    projector : Projector
        Maps features of both modalities into one space.
    encoders : mapping of str to Encoder
        By modality.
    modality_names : tuple of str
        X first.
    galleries : mapping
        By modality: item ids and their projected rows.
    held_out_damage : str or None
        What is wrong with the part of its bundle that later versions are compared with, and no search reads.
    """

    version: int
    index_revision: int
    projector: Projector
    encoders: Mapping[str, Any]
    modality_names: tuple[str, str]
    galleries: Mapping[str, tuple[tuple[str, ...], Matrix]]
    held_out_damage: str | None = None

    def project(self, modality: str, features: Features) -> Matrix:
        """Return the (n, rank) projections of features of one modality; `can_be_ranked` judges them."""
        is_x = modality == self.modality_names[0]
        projected: Matrix = self.projector.project_x(features) if is_x else self.projector.project_z(features)
        return projected


class ModelBundles:
    """Writes and reads model bundles.

    Parameters
    ----------
    files : BundleFiles
        Where they are kept.
    index_files : IndexFiles
        Format of the stored galleries.
    encoders : EncoderSource
        Makes the encoders that a bundle's state is put into.
    """

    def __init__(self, files: BundleFiles, index_files: IndexFiles, encoders: EncoderSource) -> None:
        self._files = files
        self._index_files = index_files
        self._encoders = encoders

    def publish(
        self,
        collection: Collection,
        model: LoadedModel,
        report: TrainingReport,
        judged: HeldOutModel | None = None,
    ) -> tuple[str, str]:
        """Write a bundle and return its folder name and manifest hash."""
        facts = report.to_json()

        def fill(folder: Path) -> None:
            save_projector(model.projector, folder, facts)
            if judged is not None:
                (folder / _JUDGED).mkdir()
                save_projector(judged.projector, folder / _JUDGED, {"fitted": sorted(judged.fitted)})
            states = {name: encoder.state() for name, encoder in model.encoders.items()}
            _write_json(folder / _ENCODERS, states)
            _write_json(folder / _GALLERIES, {name: ids for name, (ids, _) in model.galleries.items()})
            for side, name in zip("xz", model.modality_names, strict=True):
                self._index_files.save(model.galleries[name][1], folder / f"{side}.faiss")

        return self._files.write(f"{collection.id}-v{model.version}", fill, facts)

    def check(self, version: ModelVersion) -> None:
        """Compare a bundle with its sums; raises DamagedBundleError."""
        self._files.open(version.bundle, version.manifest_hash)

    def load_judged(self, version: ModelVersion) -> HeldOutModel | None:
        """Return what a later version is compared with, if this one has it; raises DamagedBundleError."""
        folder = self._files.open(version.bundle, version.manifest_hash) / _JUDGED
        if not folder.is_dir():
            return None
        try:
            projector, facts = load_projector(folder)
        except ArtifactError as error:
            raise DamagedBundleError(f"bundle {version.bundle}: its model cannot be read") from error
        return HeldOutModel(projector, frozenset(facts["fitted"]))

    def load(self, collection: Collection, version: ModelVersion) -> LoadedModel:
        """Read a bundle back; raises DamagedBundleError when anything that serves is not as published."""
        folder, held_out_damage = self._checked(version)
        try:
            projector, _ = load_projector(folder)
            states = json.loads((folder / _ENCODERS).read_text(encoding="utf-8"))
            ids = json.loads((folder / _GALLERIES).read_text(encoding="utf-8"))
        except (ArtifactError, OSError, ValueError) as error:
            raise DamagedBundleError(f"bundle {version.bundle}: its model cannot be read") from error
        encoders, galleries = {}, {}
        for side, modality in zip("xz", collection.modalities, strict=True):
            # Releases before this one kept no state of an encoder that learns nothing.
            state = states.get(modality.name, {})
            encoders[modality.name] = self._encoders.restored(modality.encoder, state)
            index = self._index_files.load(folder / f"{side}.faiss", projector.rank)
            names = tuple(ids[modality.name])
            vectors = index.vectors if projector.rank else np.zeros((len(names), 0), np.float32)
            if len(vectors) != len(names):
                raise DamagedBundleError(
                    f"bundle {version.bundle}: {len(vectors)} rows, {len(names)} items of {modality.name!r}"
                )
            galleries[modality.name] = (names, vectors)
        return LoadedModel(
            version.version,
            version.index_revision,
            projector,
            encoders,
            collection.modality_names,
            galleries,
            held_out_damage,
        )

    def _checked(self, version: ModelVersion) -> tuple[Path, str | None]:
        """Return a bundle's folder once what serves is whole, and what is wrong with the rest of it."""
        try:
            return self._files.open(version.bundle, version.manifest_hash), None
        except DamagedBundleError as error:
            # Raises again unless only the part that no search reads is damaged.
            folder = self._files.open(version.bundle, version.manifest_hash, without=_JUDGED)
            return folder, str(error)


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")
