"""The commands `lrbs ingest`."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

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
from app.cli.ready import ready_services
from app.domain.entities import Modality
from app.domain.errors import InvalidFieldError, ServiceError
from app.domain.names import join_words

if TYPE_CHECKING:
    from app.bootstrap import Services
    from app.cli.ingest import Tally
    from app.cli.sources.rows import Source
    from solver.datasets import PairedFeatures

ingest = typer.Typer(no_args_is_help=True, help="Import data into a collection.")
_REFUSED = 3
"""Exit status when everything is stored but what was named: neither success nor an error."""

CollectionOption = Annotated[str, typer.Option("--collection", "-c", help="collection; created if missing")]
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
    """Import arrays <modality>_tr, <modality>_te, y_tr, y_te; or x and z, whose rows are partners."""
    from app.cli.sources.arrays import is_of_rows, read_rows
    from solver.datasets import load_npz

    if is_of_rows(file):
        _store_vectors(collection, modalities, read_rows(file, pair_of_names(modalities)), False, as_json)
        return
    _ingest_features(load_npz(file, x, z), collection, modalities, as_json)


@ingest.command("npy")
def ingest_npy(
    x: Annotated[Path, typer.Argument(help="array of the first modality, an .npy file")],
    z: Annotated[Path, typer.Argument(help="array of the second, whose rows are partners of the first's")],
    collection: CollectionOption,
    labels: Annotated[
        Path | None, typer.Option(help="label of each row: an .npy file, or a text file of one a line")
    ] = None,
    modalities: ModalitiesOption = "image,text",
    strict: StrictFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Import two arrays of features, .npy files."""
    from app.cli.sources.arrays import open_pair

    source = open_pair((x, z), labels, pair_of_names(modalities))
    _store_vectors(collection, modalities, source, strict, as_json)


@ingest.command("table")
def ingest_table(
    file: Path,
    collection: CollectionOption,
    id_column: str = "id",
    picture_column: str = "image",
    text_column: str = "text",
    label_column: LabelColumnOption = None,
    label_separator: Annotated[
        str | None, typer.Option(help="what stands between several labels in one cell")
    ] = None,
    pair_column: PairColumnOption = None,
    split_column: Annotated[str | None, typer.Option(help="column with 'train' for training rows")] = None,
    encoding: Annotated[
        str | None, typer.Option(help="of the file; default: UTF-8, UTF-16 or Windows-1252, whichever it is")
    ] = None,
    modalities: ModalitiesOption = "image,text",
    image_encoder: ImageEncoderOption = "hog-color",
    text_encoder: TextEncoderOption = "tfidf",
    onnx: Annotated[Path | None, typer.Option(help="ONNX model, in place of --image-encoder")] = None,
    strict: StrictFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Import a CSV or Parquet file of pictures (or sounds) and texts; its rows are pairs."""
    from app.cli.encoder_options import read_modalities
    from app.cli.ingest import used_modalities
    from app.cli.sources.contents import file_form
    from app.cli.sources.parquet import ParquetColumns, ParquetTable, is_parquet
    from app.cli.sources.tables import read_table
    from app.encoders.registry import content_form

    if onnx is not None:
        image_encoder = json.dumps({"type": "onnx", "path": str(onnx.resolve())})
    services, described = ready_services(), read_modalities(modalities, image_encoder, text_encoder)
    files, texts = used_modalities(services, collection, described)
    names = (described[0].name, described[1].name)
    label_columns = None if label_column is None else read_names(label_column)
    if is_parquet(file):
        columns = ParquetColumns(
            id_column,
            picture_column,
            text_column,
            label_columns,
            label_separator or None,
            pair_column,
            split_column,
        )
        forms = content_form(files.encoder), content_form(texts.encoder)
        rows = ParquetTable(file, columns, names, forms).check_columns()
        _store(services, collection, described, rows, strict, as_json)
        return
    table = read_table(
        file,
        names,
        pair_column,
        lambda used: LOG.print(f"{file} is not UTF-8: read as {used}; --encoding names another"),
        file_form(files.encoder),
        id_column=id_column,
        picture_column=picture_column,
        text_column=text_column,
        label_columns=label_columns,
        label_separator=label_separator or None,
        split_column=split_column,
        encoding=encoding,
    )
    _store(services, collection, described, table, strict, as_json)


@ingest.command("folder")
def ingest_folder(
    folder: Path,
    collection: CollectionOption,
    classes: Annotated[
        bool, typer.Option("--classes/--no-classes", help="names of folders in it are labels")
    ] = True,
    modalities: ModalitiesOption = "image,text",
    image_encoder: ImageEncoderOption = "hog-color",
    text_encoder: TextEncoderOption = "tfidf",
    strict: StrictFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Import the pictures (or sounds) of a folder, and the .txt files beside them of the same names."""
    from app.cli.encoder_options import read_modalities
    from app.cli.sources.folders import Folder, find_files

    services, described = ready_services(), read_modalities(modalities, image_encoder, text_encoder)
    by_form = _names_by_form(services, collection, described)
    names, n_others = find_files(folder, by_form)
    if n_others:
        kinds = join_words([f"{form}s" for form in by_form], "nor")
        LOG.print(f"{n_others} other files are no {kinds}, and are left out", highlight=False)
    _store(services, collection, described, Folder(folder, names, by_form, classes), strict, as_json)


@ingest.command("tar")
def ingest_tar(
    files: list[Path],
    collection: CollectionOption,
    modalities: ModalitiesOption = "image,text",
    image_encoder: ImageEncoderOption = "hog-color",
    text_encoder: TextEncoderOption = "tfidf",
    strict: StrictFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Import tar files as WebDataset writes them: pictures or sounds, .txt, .cls (labels), .json (facts)."""
    from app.cli.encoder_options import read_modalities
    from app.cli.sources.archives import Archives

    services, described = ready_services(), read_modalities(modalities, image_encoder, text_encoder)
    source = Archives(files, _names_by_form(services, collection, described))
    _store(services, collection, described, source, strict, as_json)


@ingest.command("ndjson")
def ingest_ndjson(
    file: Path,
    collection: CollectionOption,
    modalities: ModalitiesOption = "image,text",
    image_encoder: ImageEncoderOption = "hog-color",
    text_encoder: TextEncoderOption = "tfidf",
    strict: StrictFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Import a file of one item a line, with the fields that items have over HTTP."""
    from app.cli.encoder_options import read_modalities
    from app.cli.sources.lines import Lines

    described = read_modalities(modalities, image_encoder, text_encoder)
    _store(ready_services(), collection, described, Lines(file), strict, as_json)


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
    from app.cli.encoder_options import read_encoder
    from app.cli.sources.stored import StoredItems

    services = ready_services()
    stored, _ = services.catalogue.collection(source)
    if source == collection:
        raise InvalidFieldError("--collection", "name another one: encoders of a collection never change")
    options = (("--image-encoder", image_encoder), ("--text-encoder", text_encoder))
    described = [
        modality if encoder is None else Modality(modality.name, read_encoder(option, encoder))
        for modality, (option, encoder) in zip(stored.modalities, options, strict=True)
    ]
    _store(services, collection, described, StoredItems(services, source), strict, as_json)


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
    from app.cli.sources.embeddings import Embeddings, open_embeddings

    shards = open_embeddings(folder, metadata)
    source = Embeddings(shards, pair_of_names(modalities), read_names(label_column))
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
    from app.cli.encoder_options import read_modalities
    from app.cli.sources.voc import VocFolder, read_lists

    described = read_modalities(modalities, image_encoder, text_encoder)
    source = VocFolder(folder, read_lists(folder, single=single), texts, pair_of_names(modalities))
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
    from app.cli.encoder_options import read_modalities
    from app.cli.sources.nus_wide import open_nus_wide

    described = read_modalities(modalities, "vector", text_encoder)
    source = open_nus_wide(folder, concepts, pair_of_names(modalities))
    _store(ready_services(), collection, described, source, strict, as_json)


def _names_by_form(services: Services, collection: str, described: list[Modality]) -> dict[str, str]:
    """Return which modality takes pictures, sounds, or texts; a collection that exists says it itself."""
    from app.cli.ingest import used_modalities
    from app.cli.sources.contents import names_by_form

    return names_by_form(used_modalities(services, collection, described))


def _ingest_features(data: PairedFeatures, collection: str, names: str, as_json: bool) -> None:
    from app.cli.sources.features import Features

    _store_vectors(collection, names, Features(data, pair_of_names(names)), False, as_json)


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
) -> None:
    from app.cli.ingest import ensure_collection, store

    ensure_collection(services, collection, modalities)
    done, began = 0, time.monotonic()
    with progress(LOG, f"Importing {source.total or 'all'} items into {collection!r}.") as show:

        def on_stored(count: int) -> None:
            nonlocal done
            done += count
            show("storing", done, source.total, pace(done, source.total, time.monotonic() - began))

        try:
            tally = store(
                services, collection, source.rows(), on_stored, None if is_strict else _print_refusal
            )
        except ServiceError:
            LOG.print(f"{done} items were stored in {collection!r} before this error: correct it, run again")
            raise
    revision = services.catalogue.collection(collection)[0].revision
    _print_tally(collection, revision, tally, as_json)
    if tally.refused:
        raise typer.Exit(_REFUSED)


def _print_refusal(reason: str) -> None:
    LOG.print(f"refused: {reason}", highlight=False, markup=False)


def _print_tally(collection: str, revision: int, tally: Tally, as_json: bool) -> None:
    counts = tally.counts
    if as_json:
        fields = {
            "revision": revision,
            "created": counts.created,
            "updated": counts.updated,
            "unchanged": counts.unchanged,
            "refused": tally.refused,
        }
        typer.echo(json.dumps(fields))
        return
    what = f"{counts.created} new, {counts.updated} changed, {counts.unchanged} unchanged"
    refused = f"; {tally.refused} refused" if tally.refused else ""
    OUT.print(f"{tally.stored} items stored in {collection!r}: {what}{refused}", highlight=False)
