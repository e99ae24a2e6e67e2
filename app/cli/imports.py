"""The commands `lrbs ingest`."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from app.cli.backend import ready_services
from app.cli.console import (
    ENCODER_HELP,
    LOG,
    OUT,
    ImageEncoderOption,
    JsonFlag,
    LabelColumnOption,
    ModalitiesOption,
    PairColumnOption,
    TextEncoderOption,
    pace,
    pair_of_names,
    progress,
    read_names,
)
from app.domain.entities import Modality
from app.domain.errors import InvalidFieldError, ServiceError
from app.domain.filters import ItemFilter

if TYPE_CHECKING:
    from app.bootstrap import Services
    from app.cli.ingest import KeptIds
    from app.cli.sources.rows import Source
    from solver.datasets import PairedFeatures

ingest = typer.Typer(no_args_is_help=True, help="Import data into a collection.")
_Pruning = Literal["only said", "asked", "unasked"]
"""How what is gone from a source is deleted."""
_NOTHING, _REFUSED = 1, 3
"""Exit status when nothing is stored; when all is but what was named: neither success nor an error."""

CollectionOption = Annotated[str, typer.Option("--collection", "-c", help="collection; created if missing")]
SplitsOption = Annotated[
    bool | None,
    typer.Option(
        "--splits/--no-splits",
        help="whether folders named train, valid, test or the like say what is learned from; default: where "
        "all folders beside each other do, or both kinds are there",
    ),
]
PruneFlag = Annotated[
    bool,
    typer.Option(
        "--prune",
        help="then delete all other items of the collection, as those of rows that are gone; asks first",
    ),
]
DryRunFlag = Annotated[bool, typer.Option("--dry-run", help="store nothing; say what --prune would delete")]
YesFlag = Annotated[bool, typer.Option("--yes", help="delete without asking")]
StrictFlag = Annotated[bool, typer.Option("--strict", help="stop at the first bad row")]


@ingest.command("wikipedia")
def ingest_wikipedia(
    directory: Path,
    collection: CollectionOption = "wikipedia",
    modalities: ModalitiesOption = "image,text",
    as_json: JsonFlag = False,
) -> None:
    """Import the release files of the Wikipedia image-text set."""
    from solver.datasets import load_wikipedia

    _ingest_features(load_wikipedia(directory), collection, modalities, as_json)


@ingest.command("npz")
def ingest_npz(
    file: Path,
    collection: CollectionOption,
    x: Annotated[str | None, typer.Option(help="first modality in the archive")] = None,
    z: Annotated[str | None, typer.Option(help="second modality in the archive")] = None,
    modalities: ModalitiesOption = "image,text",
    as_json: JsonFlag = False,
) -> None:
    """Import arrays <modality>_tr, <modality>_te, y_tr, y_te; or x and z, whose rows are partners.

    The archive is .npz, .mat of MATLAB, .h5 or .hdf5, or .csv with columns x0, x1, ..., z0, z1, ..., label.
    """
    from app.cli.sources.arrays import read_rows
    from solver.datasets import load_npz

    rows = read_rows(file, pair_of_names(modalities))
    if rows is not None:
        _store_vectors(collection, modalities, rows, False, as_json)
        return
    _ingest_features(load_npz(file, x, z), collection, modalities, as_json, f"{file.stem}/")


@ingest.command("npy")
def ingest_npy(
    x: Annotated[Path, typer.Argument(help="array of the first modality: .npy, .csv, .mat or .h5")],
    z: Annotated[Path, typer.Argument(help="array of the second, whose rows are partners of the first's")],
    collection: CollectionOption,
    labels: Annotated[
        Path | None, typer.Option(help="label of each row: such a file, or a text of one a line")
    ] = None,
    modalities: ModalitiesOption = "image,text",
    strict: StrictFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Import two arrays of features, a file each."""
    from app.cli.sources.arrays import open_pair

    source = open_pair((x, z), labels, pair_of_names(modalities))
    _store_vectors(collection, modalities, source, strict, as_json)


@ingest.command("table")
def ingest_table(
    file: Path,
    collection: CollectionOption,
    id_column: Annotated[
        str | None, typer.Option(help="default: 'id'; '' of this and others: there is none")
    ] = None,
    picture_column: Annotated[
        str | None, typer.Option(help="names of files of pictures or sounds; default: 'image'")
    ] = None,
    text_column: Annotated[str | None, typer.Option(help="default: 'text'")] = None,
    label_column: LabelColumnOption = None,
    label_separator: Annotated[
        str | None, typer.Option(help="what stands between several labels in one cell")
    ] = None,
    pair_column: PairColumnOption = None,
    split_column: Annotated[
        str | None,
        typer.Option(help="column with 'train' for training rows; default: 'split', if it has splits"),
    ] = None,
    pictures: Annotated[
        Path | None, typer.Option(help="folder in which the files are; default: that of the table")
    ] = None,
    types: Annotated[
        list[str] | None,
        typer.Option(
            "--type", metavar="COLUMN=KIND", help="text, number, decimal-comma, date, day-first, ..."
        ),
    ] = None,
    sheet: Annotated[str | None, typer.Option(help="of a workbook; default: its first")] = None,
    encoding: Annotated[
        str | None, typer.Option(help="of the file; default: UTF-8, UTF-16 or Windows-1252, whichever it is")
    ] = None,
    modalities: ModalitiesOption = "image,text",
    image_encoder: ImageEncoderOption = "hog-color",
    text_encoder: TextEncoderOption = "tfidf",
    onnx: Annotated[Path | None, typer.Option(help="ONNX model, in place of --image-encoder")] = None,
    prune: PruneFlag = False,
    dry_run: DryRunFlag = False,
    yes: YesFlag = False,
    strict: StrictFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Import a CSV, Excel or Parquet file of pictures (or sounds) and texts; its rows are pairs."""
    from app.cli.encoders import read_modalities
    from app.cli.ingest import used_modalities
    from app.cli.sources.columns import read_kinds
    from app.cli.sources.rows import Source
    from app.cli.sources.tables import TableColumns, open_table
    from app.encoders.registry import content_form

    if onnx is not None:
        image_encoder = json.dumps({"type": "onnx", "path": str(onnx.resolve())})
    services, described = ready_services(), read_modalities(modalities, image_encoder, text_encoder)
    first, second = used_modalities(services, collection, described)
    request = TableColumns(
        id_column,
        picture_column,
        text_column,
        None if label_column is None else read_names(label_column),
        label_separator or None,
        pair_column,
        split_column,
    )
    names = described[0].name, described[1].name
    forms = content_form(first.encoder), content_form(second.encoder)
    kinds = read_kinds(types or ())
    with _offer_columns(file, collection):
        table = open_table(
            file, request, names, forms, pictures=pictures, kinds=kinds, sheet=sheet, encoding=encoding
        )
    names_there = [stored.name for stored in services.catalogue.collections()]
    if not (table.columns.picture or table.columns.text or collection in names_there):
        reason = "has neither a column of pictures nor one of texts, and there is no collection to change"
        raise InvalidFieldError(str(file), reason)
    source = Source(table.rows, table.total, table.notes)
    pruning = _pruning(prune, dry_run, yes, as_json)
    _store(services, collection, described, source, strict, as_json, pruning)


@contextmanager
def _offer_columns(file: Path, collection: str) -> Iterator[None]:
    """Say how a table that is refused may be brought in."""
    try:
        yield
    except InvalidFieldError as error:
        for options in getattr(error, "__notes__", ()):
            command = f"lrbs ingest table {shlex.quote(str(file))} -c {collection} {options}"
            _print_note(f"Say which column is what, for instance:\n  {command}")
        raise


@ingest.command("folder")
def ingest_folder(
    folder: Path,
    collection: CollectionOption,
    classes: Annotated[
        bool, typer.Option("--classes/--no-classes", help="names of folders in it are labels")
    ] = True,
    splits: SplitsOption = None,
    modalities: ModalitiesOption = "image,text",
    image_encoder: ImageEncoderOption = "hog-color",
    text_encoder: TextEncoderOption = "tfidf",
    prune: PruneFlag = False,
    dry_run: DryRunFlag = False,
    yes: YesFlag = False,
    strict: StrictFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Import the pictures (or sounds) of a folder, and the .txt files beside them of the same names."""
    from app.cli.encoders import read_modalities
    from app.cli.sources.folders import open_folder

    services, described = ready_services(), read_modalities(modalities, image_encoder, text_encoder)
    by_form = _names_by_form(services, collection, described)
    source = open_folder(folder, by_form, classes, splits)
    _store(services, collection, described, source, strict, as_json, _pruning(prune, dry_run, yes, as_json))


@ingest.command("tar")
def ingest_tar(
    files: Annotated[list[Path], typer.Argument(exists=True, dir_okay=False)],
    collection: CollectionOption,
    splits: SplitsOption = None,
    modalities: ModalitiesOption = "image,text",
    image_encoder: ImageEncoderOption = "hog-color",
    text_encoder: TextEncoderOption = "tfidf",
    prune: PruneFlag = False,
    dry_run: DryRunFlag = False,
    yes: YesFlag = False,
    strict: StrictFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Import tar files as WebDataset writes them: pictures or sounds, .txt, .cls (labels), .json (facts)."""
    from app.cli.encoders import read_modalities
    from app.cli.sources.folders import open_archives

    services, described = ready_services(), read_modalities(modalities, image_encoder, text_encoder)
    by_form = _names_by_form(services, collection, described)
    source = open_archives(files, by_form, _print_note, splits)
    pruning = _pruning(prune, dry_run, yes, as_json)
    _store(services, collection, described, source, strict, as_json, pruning)


@ingest.command("ndjson")
def ingest_ndjson(
    file: Path,
    collection: CollectionOption,
    modalities: ModalitiesOption = "image,text",
    image_encoder: ImageEncoderOption = "hog-color",
    text_encoder: TextEncoderOption = "tfidf",
    prune: PruneFlag = False,
    dry_run: DryRunFlag = False,
    yes: YesFlag = False,
    strict: StrictFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Import a file of one item a line, with the fields that items have over HTTP."""
    from app.cli.encoders import read_modalities
    from app.cli.sources.items import open_lines

    described = read_modalities(modalities, image_encoder, text_encoder)
    pruning = _pruning(prune, dry_run, yes, as_json)
    _store(ready_services(), collection, described, open_lines(file), strict, as_json, pruning)


@ingest.command("collection")
def ingest_collection(
    source: Annotated[str, typer.Argument(help="collection whose items are read")],
    collection: CollectionOption,
    image_encoder: Annotated[str | None, typer.Option(help=f"of its first modality; {ENCODER_HELP}")] = None,
    text_encoder: Annotated[str | None, typer.Option(help="likewise, of its second")] = None,
    strict: StrictFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Import the items of another collection from their originals, which other encoders may encode."""
    from app.cli.encoders import read_encoder
    from app.cli.sources.items import open_stored

    services = ready_services(may_create=False)
    stored, _ = services.catalogue.collection(source)
    if source == collection:
        raise InvalidFieldError("--collection", "name another one: encoders of a collection never change")
    options = (("--image-encoder", image_encoder), ("--text-encoder", text_encoder))
    described = [
        modality if encoder is None else Modality(modality.name, read_encoder(option, encoder))
        for modality, (option, encoder) in zip(stored.modalities, options, strict=True)
    ]
    _store(services, collection, described, open_stored(services, source), strict, as_json)


@ingest.command("embeddings")
def ingest_embeddings(
    folder: Path,
    collection: CollectionOption,
    metadata: Annotated[bool, typer.Option(help="read metadata/metadata_<n>.parquet where it is")] = True,
    label_column: Annotated[str, typer.Option(help="columns of the metadata, comma-separated")] = "",
    modalities: ModalitiesOption = "image,text",
    strict: StrictFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Import img_emb/img_emb_<n>.npy and text_emb/text_emb_<n>.npy, whose rows are partners."""
    from app.cli.sources.arrays import open_embeddings

    source = open_embeddings(folder, pair_of_names(modalities), read_names(label_column), metadata)
    _store_vectors(collection, modalities, source, strict, as_json)


@ingest.command("voc2007")
def ingest_voc2007(
    folder: Annotated[Path, typer.Argument(help="VOC2007, with JPEGImages and ImageSets/Main")],
    collection: CollectionOption = "voc2007",
    texts: Annotated[Path | None, typer.Option(help="folder of texts, <picture>.txt; VOC has none")] = None,
    single: Annotated[
        bool, typer.Option("--single", help="only pictures of one class, as papers do")
    ] = False,
    modalities: ModalitiesOption = "image,text",
    image_encoder: ImageEncoderOption = "hog-color",
    text_encoder: TextEncoderOption = "word-frequency",
    strict: StrictFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Import PASCAL VOC2007: pictures, their classes, and "trainval" to learn from."""
    from app.cli.encoders import read_modalities
    from app.cli.sources.published import open_voc

    described = read_modalities(modalities, image_encoder, text_encoder)
    source = open_voc(folder, texts, pair_of_names(modalities), single=single)
    _store(ready_services(), collection, described, source, strict, as_json)


@ingest.command("nus-wide")
def ingest_nus_wide(
    folder: Annotated[Path, typer.Argument(help="with the unpacked features, tags and groundtruth")],
    collection: CollectionOption = "nus-wide",
    concepts: Annotated[
        int | None, typer.Option(min=2, help="only pictures of exactly one of this many most frequent ones")
    ] = None,
    modalities: ModalitiesOption = "image,text",
    text_encoder: TextEncoderOption = "word-frequency",
    strict: StrictFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Import NUS-WIDE: 500 visual words of each picture, its tags as text, its concepts as labels."""
    from app.cli.encoders import read_modalities
    from app.cli.sources.published import open_nus_wide

    described = read_modalities(modalities, "vector", text_encoder)
    source = open_nus_wide(folder, concepts, pair_of_names(modalities))
    _store(ready_services(), collection, described, source, strict, as_json)


def _names_by_form(services: Services, collection: str, described: list[Modality]) -> dict[str, str]:
    """Return which modality takes pictures, sounds, or texts; a collection that exists says it itself."""
    from app.cli.ingest import used_modalities
    from app.cli.sources.rows import names_by_form

    return names_by_form(used_modalities(services, collection, described))


def _ingest_features(
    data: PairedFeatures, collection: str, names: str, as_json: bool, prefix: str = ""
) -> None:
    from app.cli.sources.arrays import open_features

    _store_vectors(collection, names, open_features(data, pair_of_names(names), prefix), False, as_json)


def _store_vectors(collection: str, names: str, source: Source, is_strict: bool, as_json: bool) -> None:
    modalities = [Modality(name, {"type": "vector"}) for name in read_names(names)]
    _store(ready_services(), collection, modalities, source, is_strict, as_json)


def _store(
    services: Services,
    collection: str,
    modalities: list[Modality],
    source: Source,
    is_strict: bool,
    as_json: bool,
    pruning: _Pruning | None = None,
) -> None:
    from app.cli.ingest import KeptIds, Refusals, ensure_collection, store

    for note in source.notes:
        _print_note(note)
    kept_ids = KeptIds()
    rows = source.rows() if pruning is None else kept_ids.watch(source.rows())
    if pruning == "only said":
        for _ in rows:
            continue
        n_deleted = _prune(services, collection, kept_ids, pruning, kept_ids.n_refusals)
        if as_json:
            typer.echo(json.dumps({"deleted": n_deleted, "dry_run": True}))
        return
    is_new = ensure_collection(services, collection, modalities)
    last = services.catalogue.last_position(collection)
    refusals = Refusals(_print_note)
    done, began = 0, time.monotonic()

    def on_stored(count: int) -> None:
        nonlocal done
        done += count
        show("storing", done, source.total, pace(done, source.total, time.monotonic() - began))

    try:
        with progress(LOG, f"Importing {source.total or 'all'} items into {collection!r}.") as show:
            counts = store(services, collection, rows, on_stored, None if is_strict else refusals.add)
    except ServiceError:
        n_stored = sum(services.catalogue.collection(collection)[1].values()) if is_new else done
        _print_note(
            f"{n_stored} items were stored in {collection!r} before this error: correct it, run again"
        )
        raise
    finally:
        refusals.print_rest()
        current, sizes = services.catalogue.collection(collection)
        if is_new and not any(sizes.values()):
            services.catalogue.delete_collection(collection)
    copies = services.catalogue.count_copies(collection, last) if counts.created and last else 0
    if copies:
        _print_note(f"{copies} of the new items have the content of one that was there under another id")
    n_stored = counts.changed + counts.unchanged
    refused = f"; {refusals.total} refused" if refusals.total else ""
    pruned: dict[str, int] = {}
    if pruning is not None and n_stored:
        pruned["deleted"] = _prune(services, collection, kept_ids, pruning, refusals.total)
        current, _ = services.catalogue.collection(collection)
    if as_json:
        fields = {"revision": current.revision, **asdict(counts), **pruned}
        typer.echo(json.dumps({**fields, "refused": refusals.total, "reasons": refusals.reasons}))
    elif not n_stored:
        _print_note(f"nothing is stored in {collection!r}{refused or ': there are no items'}")
    else:
        what = f"{counts.created} new, {counts.updated} changed, {counts.unchanged} unchanged"
        OUT.print(f"{n_stored} items stored in {collection!r}: {what}{refused}", highlight=False)
    if not n_stored:
        raise typer.Exit(_NOTHING)
    if refusals.total:
        raise typer.Exit(_REFUSED)


def _pruning(prune: bool, is_dry: bool, yes: bool, as_json: bool) -> _Pruning | None:
    if (is_dry or yes) and not prune:
        raise typer.BadParameter("takes --prune beside it", param_hint="--dry-run" if is_dry else "--yes")
    if prune and as_json and not (is_dry or yes):
        raise typer.BadParameter("takes --dry-run or --yes beside it", param_hint="--prune --json")
    if not prune:
        return None
    return "only said" if is_dry else "unasked" if yes else "asked"


def _prune(services: Services, collection: str, kept_ids: KeptIds, pruning: _Pruning, n_refused: int) -> int:
    """Delete the items of a collection that are not kept; return how many they are, or would be."""
    # Of a file that was damaged since, the id may be another one: its item would go, and none would come.
    if n_refused or not kept_ids.n_items:
        reason = f"{n_refused} rows are no items" if n_refused else "there are no rows"
        _print_note(f"nothing is deleted: {reason}, so what else is gone is not known")
        return 0
    catalogue, every = services.catalogue, ItemFilter()
    last = catalogue.last_position(collection)  # what comes while the question stands is not asked about
    gone = catalogue.delete_passing(collection, every, is_dry=True, is_kept=kept_ids.has, last=last)
    if not gone.matched:
        _print_note("nothing to delete")
        return 0
    more = ", ..." if gone.matched > len(gone.ids) else ""
    _print_note(
        f"{gone.matched} items of {collection!r} are gone from the source: {', '.join(gone.ids)}{more}"
    )
    if pruning == "only said":
        return gone.matched
    if pruning == "asked":
        typer.confirm("Delete them?", abort=True, err=True)
    deleted = catalogue.delete_passing(collection, every, is_kept=kept_ids.has, last=last).changed
    _print_note(f"{deleted} items deleted from {collection!r}")
    return deleted


def _print_note(line: str) -> None:
    LOG.print(line, highlight=False, markup=False)
