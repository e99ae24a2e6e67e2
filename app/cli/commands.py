"""Commands that work on a running service or on the database here: `lrbs collections`, `items`, `export`,
`search`, `feedback`, `keys` and `models`; and the report of a training in lines of text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.text import Text

from app.cli.backend import KeyOption, UrlOption, open_backend
from app.cli.console import (
    LOG,
    ImageEncoderOption,
    JsonFlag,
    JsonLinesFlag,
    LabelFilter,
    ModalitiesOption,
    TextEncoderOption,
    WhereFilter,
    print_json,
    print_one,
    progress,
    read_filter,
    read_names,
    shorten,
    whole_file,
)
from app.domain.errors import InvalidFieldError
from app.domain.names import (
    LARGEST_FEEDBACK_ID,
    LARGEST_VERSION,
    MAX_EMPHASIS,
    MAX_K,
    MAX_PARTS,
    Scope,
    is_storable,
    some_of,
)

if TYPE_CHECKING:
    from app import answers
    from app.cli.backend import Backend


collections = typer.Typer(no_args_is_help=True, help="Collections: two modalities, their items and models.")
_PAGE = 1000  # items or entries that are read at a time, as many as a page over HTTP may have
_HOURS = re.compile(r"(\d|1\d|2[0-3])-(\d|1\d|2[0-3])")


@collections.command("list")
def list_collections(as_json: JsonLinesFlag = False, url: UrlOption = None, key: KeyOption = None) -> None:
    """List collections."""
    with open_backend(url, key) as backend:
        for collection in backend.list_collections().collections:
            print_one(collection, as_json, _collection_line)


@collections.command("show")
def show_collection(
    collection: str, as_json: JsonFlag = False, url: UrlOption = None, key: KeyOption = None
) -> None:
    """Show one collection with its numbers of items, and when it is trained by itself."""
    with open_backend(url, key) as backend:
        shown = backend.get_collection(collection)
        print_one(shown, as_json, _collection_line)
        policy = shown.retraining
        if not as_json and (policy.changed_items or policy.judgements or policy.hours):
            typer.echo(_retraining_line(shown))


@collections.command("create")
def create_collection(
    name: str,
    modalities: ModalitiesOption = "image,text",
    image_encoder: ImageEncoderOption = "hog-color",
    text_encoder: TextEncoderOption = "tfidf",
    as_json: JsonFlag = False,
    url: UrlOption = None,
    key: KeyOption = None,
) -> None:
    """Create a collection; `lrbs ingest` does so, too."""
    from app.cli.encoders import parse_modalities

    described = parse_modalities(modalities, image_encoder, text_encoder)
    with open_backend(url, key, may_create=True) as backend:
        print_one(backend.create_collection(name, described), as_json, _collection_line)


@collections.command("delete")
def delete_collection(
    collection: str,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
    url: UrlOption = None,
    key: KeyOption = None,
) -> None:
    """Delete a collection with its items and models."""
    with open_backend(url, key) as backend:
        counts = backend.get_collection(collection).items or {}
        if not yes:
            size = " and ".join(f"{count} {name}" for name, count in counts.items() if count) or "no"
            question = f"Delete {collection!r} with {size} items and all its models?"
            typer.confirm(question, abort=True, err=True)
        backend.delete_collection(collection)


@collections.command("retraining")
def set_retraining(
    collection: str,
    changed_items: Annotated[int | None, typer.Option(min=1, help="items written or deleted")] = None,
    judgements: Annotated[int | None, typer.Option(min=1, help="feedback stored")] = None,
    hours: Annotated[float | None, typer.Option(min=0.0, max=1e6, help="if anything has changed")] = None,
    quiet_hours: Annotated[
        str | None, typer.Option(metavar="FROM-TO", help="UTC, two different hours, to begin between: 22-6")
    ] = None,
    never: Annotated[bool, typer.Option("--never", help="only when somebody asks for it")] = False,
    url: UrlOption = None,
    key: KeyOption = None,
) -> None:
    """Say when a worker trains a collection by itself: once a limit is reached after the newest version.
    Without options it is only shown; --quiet-hours alone keeps the limits."""
    hours_of_day = None if quiet_hours is None else _HOURS.fullmatch(quiet_hours)
    if quiet_hours is not None and (hours_of_day is None or hours_of_day[1] == hours_of_day[2]):
        fault = f"expected two different hours as 22-6, got {quiet_hours!r}"
        raise typer.BadParameter(fault, param_hint="--quiet-hours")
    limits: dict[str, Any] = {"changed_items": changed_items, "judgements": judgements, "hours": hours}
    has_limit = any(limit is not None for limit in limits.values())
    if never and (has_limit or hours_of_day is not None):
        raise typer.BadParameter("give --never alone")
    with open_backend(url, key) as backend:
        shown = backend.get_collection(collection)
        if hours_of_day is not None and not has_limit:
            limits = {name: getattr(shown.retraining, name) for name in limits}
            if not any(limits.values()):
                fault = f"{shown.name} has no limit yet: give --changed-items, --judgements or --hours too"
                raise typer.BadParameter(fault, param_hint="--quiet-hours")
        if never or has_limit or hours_of_day is not None:
            begin = None if hours_of_day is None else (int(hours_of_day[1]), int(hours_of_day[2]))
            shown = backend.set_retraining(collection, **limits, quiet_hours=begin)
        typer.echo(_retraining_line(shown))


def _retraining_line(shown: answers.Collection) -> str:
    policy = shown.retraining
    limits = [
        f"{value:.15g} {name}"
        for name, value in (
            ("changed items", policy.changed_items),
            ("judgements", policy.judgements),
            ("hours with changes", policy.hours),
        )
        if value is not None
    ]
    if not limits:
        return f"{shown.name} is trained when somebody asks for it"
    hours = policy.quiet_hours
    when = "" if hours is None else f", from {hours[0]}:00 to {hours[1]}:00 UTC"
    return f"{shown.name} is trained by itself after {' or '.join(limits)}{when}"


def _collection_line(shown: answers.Collection) -> str:
    counts = {name: f"{count} " for name, count in (shown.items or {}).items()}
    parts = [
        f"{counts.get(name, '')}{name} ({modality.encoder['type']})"
        for name, modality in shown.modalities.items()
    ]
    version = "no model yet" if shown.active_version is None else f"version {shown.active_version}"
    return f"{shown.name}  {', '.join(parts)}  {version}  {shown.created_at:%Y-%m-%d %H:%M}"


items = typer.Typer(
    no_args_is_help=True, help="Items of a collection: list, show, label, change and delete them."
)


@items.command("list")
def list_items(
    collection: str,
    modality: Annotated[str | None, typer.Option(help="only items of this modality")] = None,
    pair: Annotated[str | None, typer.Option(help="only items of this pair_id")] = None,
    label: LabelFilter = None,
    where: WhereFilter = None,
    limit: Annotated[int | None, typer.Option(min=1, help="list this many at most; default: all")] = None,
    as_json: JsonLinesFlag = False,
    url: UrlOption = None,
    key: KeyOption = None,
) -> None:
    """List items in order of creation."""
    read_filter(label, where)
    n_left, cursor = limit, None
    with open_backend(url, key) as backend:
        while n_left is None or n_left > 0:
            page = backend.list_items(
                collection,
                modality=modality,
                pair_id=pair,
                label=label or (),
                where=where or (),
                cursor=cursor,
                limit=min(n_left or _PAGE, _PAGE),
            )
            for notice in page.notices:
                LOG.print(Text(notice.message))
            for item in page.items:
                print_one(item, as_json, _item_line)
            n_left = None if n_left is None else n_left - len(page.items)
            cursor = page.next_cursor
            if cursor is None:
                return


@items.command("show")
def show_item(
    collection: str, item_id: str, as_json: JsonFlag = False, url: UrlOption = None, key: KeyOption = None
) -> None:
    """Show one item."""
    with open_backend(url, key) as backend:
        print_one(backend.get_item(collection, item_id), as_json, _item_line)


@items.command("label")
def label_item(
    collection: str,
    item_id: str,
    labels: Annotated[
        list[str] | None, typer.Argument(help="the main one first; none takes all away")
    ] = None,
    as_json: JsonFlag = False,
    url: UrlOption = None,
    key: KeyOption = None,
) -> None:
    """Give an item these labels in place of all that it has."""
    with open_backend(url, key) as backend:
        written = backend.put_labels(collection, item_id, labels or [])
    if as_json:
        print_json(written)


AllFlag = Annotated[bool, typer.Option("--all", help="every item, in place of --label and --where")]
DryRunFlag = Annotated[bool, typer.Option("--dry-run", help="only say which items they are")]
YesFlag = Annotated[bool, typer.Option("--yes", help="do not ask")]


@items.command("update")
def update_items(
    collection: str,
    label: LabelFilter = None,
    where: WhereFilter = None,
    every: AllFlag = False,
    labels: Annotated[
        str | None, typer.Option(help="comma-separated, in place of all that they have; '': none")
    ] = None,
    add_label: Annotated[list[str] | None, typer.Option(help="added to their labels")] = None,
    remove_label: Annotated[list[str] | None, typer.Option(help="taken away")] = None,
    values: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="metadata, in JSON or as text; null removes a key"),
    ] = None,
    dry_run: DryRunFlag = False,
    yes: YesFlag = False,
    as_json: JsonFlag = False,
    url: UrlOption = None,
    key: KeyOption = None,
) -> None:
    """Change labels and metadata of the items that --label and --where ask for, or of --all."""
    change: dict[str, Any] = {
        "add_labels": add_label or [],
        "remove_labels": remove_label or [],
        "metadata": dict(map(_read_value, values or ())),
        **({} if labels is None else {"labels": list(read_names(labels))}),
    }
    if not any(change.values()) and labels is None:
        raise typer.BadParameter("say what to change: --labels, --add-label, --remove-label or --set")
    which = _which(label, where, every)
    with open_backend(url, key) as backend:
        update = partial(backend.update_items, collection, **which, **change)
        _affect(update, "change", dry_run, yes, as_json)


@items.command("delete")
def delete_items(
    collection: str,
    item_id: Annotated[str | None, typer.Argument(help="one item, in place of the options")] = None,
    label: LabelFilter = None,
    where: WhereFilter = None,
    every: AllFlag = False,
    dry_run: DryRunFlag = False,
    yes: YesFlag = False,
    as_json: JsonFlag = False,
    url: UrlOption = None,
    key: KeyOption = None,
) -> None:
    """Delete an item, or those that --label and --where ask for, or --all; feedback that names them, too."""
    if item_id is not None:
        if label or where or every or dry_run:
            raise typer.BadParameter("give an item, or the options, not both")
        with open_backend(url, key) as backend:
            written = backend.delete_item(collection, item_id)
        if as_json:
            print_json(written)
        return
    which = _which(label, where, every)
    with open_backend(url, key) as backend:
        _affect(partial(backend.delete_items, collection, **which), "delete", dry_run, yes, as_json)


def _which(labels: list[str] | None, conditions: list[str] | None, every: bool) -> dict[str, Any]:
    item_filter = read_filter(labels, conditions)
    if bool(item_filter) == every:
        raise typer.BadParameter("say which items: --label or --where, or else --all")
    return {"all": True} if every else {"filter": item_filter}


def _affect(run: Callable[..., answers.Affected], verb: str, is_dry: bool, yes: bool, as_json: bool) -> None:
    """Say what a call is about, ask, and make it."""
    if as_json and not (is_dry or yes):
        raise typer.BadParameter("takes --dry-run or --yes beside it", param_hint="--json")

    def describe(affected: answers.Affected) -> str:
        more = ", ..." if affected.matched > len(affected.ids) else ""
        named = f": {', '.join(affected.ids)}{more}" if affected.ids else ""
        return f"{affected.changed} of {affected.matched} items {did}{named}"

    did, counted = f"to {verb}", ""
    # Counted again after the answer: where others have written meanwhile, it is asked again.
    while (is_dry or not yes) and counted != describe(affected := run(dry_run=True)):
        print_one(affected, as_json, describe)
        if is_dry or not affected.changed:
            return
        counted = describe(affected)
        typer.confirm(f"{verb.capitalize()} them?", abort=True, err=True)
    did = f"{verb}d"
    print_one(run(dry_run=False), as_json, describe)


def _read_value(text: str) -> tuple[str, Any]:
    name, sign, value = text.partition("=")
    if not (name and sign):
        raise typer.BadParameter(f"expected KEY=VALUE, got {text!r}", param_hint="--set")
    try:
        read = json.loads(value)
        # NaN and 1e999 are texts: sent as null, they would remove the key.
        return name, read if is_storable(read) else value
    except (ValueError, RecursionError):
        return name, value


_OTHER_FORMS = re.compile(r"\.(t[bgx]z2?|[ct]sv|xls[mx]?|ods|parquet|[gx]z|bz2|zst|7z|zip)$", re.IGNORECASE)


def export(
    collection: str,
    file: Annotated[
        Path | None, typer.Argument(dir_okay=False, allow_dash=True, help="default, as is -: standard output")
    ] = None,
    label: LabelFilter = None,
    where: WhereFilter = None,
    form: Annotated[
        Literal["ndjson", "tar"] | None,
        typer.Option("--format", help="default: tar for a FILE of that ending, or else ndjson"),
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="a file that is there")] = False,
    url: UrlOption = None,
    key: KeyOption = None,
) -> None:
    """Write the items of a collection to a file that `lrbs ingest ndjson` or `tar` reads."""
    import msgspec

    from app.cli.sources.samples import check_forms, write_samples

    read_filter(label, where)
    file = None if file == Path("-") else file
    is_tar = form == "tar" if form or file is None else file.suffix.lower() == ".tar"
    if file is not None and not form and _OTHER_FORMS.search(file.name):
        message = (
            "is written as NDJSON, or as tar without compression: name it .ndjson or .tar, or give --format"
        )
        raise typer.BadParameter(message, param_hint="FILE")
    if file is not None and file.is_file() and not replace:
        raise typer.BadParameter(f"{file} exists: name a new one, or give --replace", param_hint="FILE")
    with open_backend(url, key) as backend:
        described, count = backend.get_collection(collection), 0
        counts = described.items or {}
        total = 0 if label or where else sum(counts.values())
        if is_tar:
            check_forms(collection, [described.modalities[name].content for name in counts if counts[name]])

        def items() -> Iterator[dict[str, Any]]:
            nonlocal count
            whole = backend.iter_export(collection, label=label or (), where=where or ())
            for count, item in enumerate(whole, 1):
                yield item
                show("writing", count, total, "")

        with progress(LOG, f"Exporting {collection!r}.") as show, whole_file(file) as stream:
            lines = (msgspec.json.encode(item) + b"\n" for item in items())
            stream.writelines(write_samples(items()) if is_tar else lines)
    LOG.print(f"{count} items exported", highlight=False)


def _item_line(shown: answers.Item) -> str:
    short = shorten(shown.text or str(shown.metadata.get("source") or shown.content_url or "vector"))
    rest = "" if shown.train else "  not learned from"
    return f"{shown.id}  {shown.modality}  {', '.join(shown.labels)}  {short}{rest}"


_REPEATED = "may be repeated, also beside the other kinds"
TextQueries = Annotated[
    list[str] | None,
    typer.Option(
        "--text",
        help=f"text to search with; {_REPEATED}. Of several parts each may end in a weight from -100 to 100: "
        "'red^2' counts twice, 'red^-1' or bag.jpg^-1 leads away from it",
    ),
]
PictureQueries = Annotated[
    list[Path] | None, typer.Option("--picture", help=f"picture to search with; {_REPEATED}")
]
SoundQueries = Annotated[
    list[Path] | None, typer.Option("--sound", help=f"sound to search with; {_REPEATED}")
]
ItemQueries = Annotated[
    list[str] | None, typer.Option("--item", help=f"stored item to search with; {_REPEATED}")
]
EmphasisWeights = Annotated[
    list[str] | None,
    typer.Option(help="weight of a part of the score, by its name in --explain: colour=2 (may be repeated)"),
]
_WEIGHTED = re.compile(r"(.+)\^(-?(?:\d+\.?|\d*\.\d+))", re.DOTALL)
_LARGEST_WEIGHT = 100.0
_ALL_FIELDS = ("labels", "metadata", "text", "content_url")
_PARTNERS_AT_ONCE = 100  # as many as one call may ask for


def read_query(
    backend: Backend,
    collection: answers.Collection,
    text: str | None = None,
    picture: Path | None = None,
    sound: Path | None = None,
    item: str | None = None,
) -> tuple[str, dict[str, Any]]:
    """Return the modality of a query, and the query in the words of the client."""
    # Raises BadParameter unless exactly one is given, and InvalidFieldError (names the option) if no modality
    # of the collection takes it.
    contents = {"text": text, "picture": picture, "sound": sound}
    if [*contents.values(), item].count(None) != 3:
        raise typer.BadParameter("give exactly one of --text, --picture, --sound, --item")
    if item is not None:
        return backend.get_item(collection.name, item).modality, {"item_id": item}
    (form,) = (name for name, content in contents.items() if content is not None)
    return _modality_for(collection, form), {form: contents[form]}


def _modality_for(collection: answers.Collection, form: str) -> str:
    for name, modality in collection.modalities.items():
        if modality.content == form:
            return name
    content = "text" if form == "text" else f"{form}s"
    raise InvalidFieldError(
        f"--{form}", f"collection {collection.name!r} has no modality for {content}; search with --item"
    )


def _read_parts(**contents: Sequence[str | Path] | None) -> list[tuple[dict[str, Any], float]]:
    """Return the contents of a query, each by its form and with its weight; one alone has none."""
    named = [(form, str(content)) for form, contents in contents.items() for content in contents or ()]
    if not 1 <= len(named) <= MAX_PARTS:
        raise typer.BadParameter(f"give 1 to {MAX_PARTS} of --text, --picture, --sound, --item")
    parts: list[tuple[dict[str, Any], float]] = []
    for form, content in named:
        match = _WEIGHTED.fullmatch(content) if len(named) > 1 else None
        name, weight = (content, 1.0) if match is None else (match[1], float(match[2]))
        if not 0.0 < abs(weight) <= _LARGEST_WEIGHT:
            fault = f"expected a weight from -100 to 100 that is not 0, got {weight:g}"
            raise typer.BadParameter(fault, param_hint=f"--{form}")
        is_file = form in ("picture", "sound")
        if is_file and not Path(name).is_file():
            raise typer.BadParameter(f"File {name!r} does not exist.", param_hint=f"--{form}")
        parts.append(({form: Path(name) if is_file else name}, weight))
    return parts


def _target_of(collection: answers.Collection, sources: set[str]) -> str:
    """Return the other modality than that of a query; of both the one that is not text."""
    names = [name for name in collection.modalities if name not in sources] or [
        name for name, modality in collection.modalities.items() if modality.content != "text"
    ]
    return next(iter(names or collection.modalities))


def search(
    collection: str,
    text: TextQueries = None,
    picture: PictureQueries = None,
    sound: SoundQueries = None,
    item: ItemQueries = None,
    to: Annotated[
        str | None,
        typer.Option(
            help="modality to search; default: the other one than the query's, of both the one without texts"
        ),
    ] = None,
    label: LabelFilter = None,
    where: WhereFilter = None,
    show: Annotated[
        str | None, typer.Option(help="metadata keys to show, comma-separated; those of --where are, too")
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, max=MAX_K, help="number of results")] = 10,
    include_given: Annotated[
        bool, typer.Option("--include-given", help="items of the query may be results, too")
    ] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="show what each part gave of a score, and values that agree")
    ] = False,
    min_probability: Annotated[
        float | None, typer.Option(min=0.0, max=1.0, help="leave out what matches less probably")
    ] = None,
    group_by: Annotated[
        str | None, typer.Option(help="label, pair_id or a metadata key: few results of each of its values")
    ] = None,
    group_size: Annotated[
        int | None, typer.Option(min=1, max=MAX_K, help="most results of one group, 1 by default")
    ] = None,
    diversity: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="by how much results are to differ from each other")
    ] = 0.0,
    emphasis: EmphasisWeights = None,
    as_json: JsonLinesFlag = False,
    url: UrlOption = None,
    key: KeyOption = None,
) -> None:
    """Search a collection from the command line.
    Several texts, pictures and items are one query: --picture bag.jpg --text blue is such a bag in blue."""
    parts = _read_parts(text=text, picture=picture, sound=sound, item=item)
    item_filter = read_filter(label, where)
    if group_size is not None and not group_by:
        raise typer.BadParameter("takes --group-by beside it", param_hint="--group-size")
    if include_given and len(parts) == 1:
        raise typer.BadParameter("is for a query of several parts", param_hint="--include-given")
    refinement: dict[str, Any] = {
        "min_probability": min_probability,
        "group_by": group_by,
        "group_size": group_size,
        "diversity": diversity or None,
        "emphasis": _read_weights(emphasis) if emphasis else None,
        "include": [*_ALL_FIELDS, "explanation"] if explain else None,
    }
    with open_backend(url, key) as backend:
        searched = backend.get_collection(collection)
        read = [read_query(backend, searched, **content) for content, _ in parts]
        target = to or _target_of(searched, {source for source, _ in read})
        options = {"k": k, "filter": item_filter, **refinement}
        if len(parts) == 1:
            ((source, query),) = read
            result = backend.search(collection, source, target, **query, **options)
        else:
            queries = [
                {**query, "modality": source, "weight": weight}
                for (source, query), (_, weight) in zip(read, parts, strict=True)
            ]
            result = backend.search_composed(
                collection, target, queries, include_given=include_given, **options
            )
        partners = {} if as_json else _read_partners(backend, collection, result.hits)
    _print_notices(result)
    conditions = [item_filter, *item_filter.get("all", ())]
    named = (key for condition in conditions for key in condition.get("metadata", ()))
    _print_hits(result, partners, list(dict.fromkeys([*named, *read_names(show or "")])), as_json)


def _print_hits(
    result: answers.SearchResult, partners: Mapping[str, answers.Item], keys: Sequence[str], as_json: bool
) -> None:
    """Print what was found, with the values of some keys and the texts of partners."""
    import msgspec

    for hit in result.hits:
        if as_json:
            typer.echo(json.dumps(msgspec.to_builtins(hit)))
            continue
        typer.echo(_hit_line(hit, partners.get(hit.id), keys))
        if hit.explanation is not None:
            typer.echo(f"     {_describe_score(hit.explanation)}")


def _print_notices(result: answers.SearchResult) -> None:
    """Say what a search has to say of itself."""
    for notice in result.notices:
        LOG.print(Text(notice.message))
        if notice.did_you_mean:
            LOG.print(Text(f"did you mean {' or '.join(map(repr, notice.did_you_mean))}?"))
    if result.known_words is not None:
        LOG.print(Text(f"the model knows {some_of(result.known_words) or 'no word of the query'}"))


def _read_weights(entries: Sequence[str]) -> dict[str, float]:
    """Return weights by name, from entries such as ``colour=2``; raises BadParameter."""
    weights = {}
    for entry in entries:
        name, _, number = entry.rpartition("=")
        try:
            weights[name] = float(number)
        except ValueError:
            weights[name] = -1.0
        if not name or not 0.0 <= weights[name] <= MAX_EMPHASIS:
            message = (
                f"expected a name and a weight from 0 to {MAX_EMPHASIS:g}, such as colour=2, got {entry!r}"
            )
            raise typer.BadParameter(message, param_hint="--emphasis")
    return weights


def _describe_score(reasons: Sequence[answers.Reason]) -> str:
    """Return the parts of a score that show in three digits, with the values that agree."""
    shown = [(reason, f"{reason.score:.3f}") for reason in reasons]
    return ", ".join(
        f"{reason.name} {score}" + (f" ({', '.join(reason.agrees)})" if reason.agrees else "")
        for reason, score in shown
        if float(score)
    )


def _read_partners(backend: Backend, collection: str, hits: Sequence[answers.Hit]) -> dict[str, answers.Item]:
    """Return the partners of hits that have no text of their own."""
    partners: dict[str, answers.Item] = {}
    ids = [hit.id for hit in hits if not hit.text]
    for start in range(0, len(ids), _PARTNERS_AT_ONCE):
        partners |= backend.list_partners(collection, ids[start : start + _PARTNERS_AT_ONCE]).partners
    return partners


def _hit_line(hit: answers.Hit, partner: answers.Item | None, keys: Iterable[str]) -> str:
    """Return what a person knows the item by, its labels, what was asked for, and its id."""
    from app.domain.searches import floor_percent

    probability = "" if hit.probability is None else f"  {floor_percent(hit.probability):>5}%"
    metadata = hit.metadata or {}
    source = str(metadata.get("source") or "")
    text = shorten(hit.text or (partner.text if partner is not None else None) or "")
    name = f"{text} ({source})" if text and source and not hit.text else text or source
    shown = {key: metadata[key] for key in keys if key in metadata}
    values = (
        f"{key}={shorten(value if isinstance(value, str) else json.dumps(value))}"
        for key, value in shown.items()
    )
    parts = [name, ", ".join(hit.labels or ()), ", ".join(values), hit.id]
    return "  ".join([f"{hit.rank:3d}  {hit.score:8.4f}{probability}", *filter(None, parts)])


feedback = typer.Typer(
    no_args_is_help=True,
    help="Which items are relevant to which queries; the next retrain may learn from it.",
)


@feedback.command("give")
def give_feedback(
    collection: str,
    item_id: Annotated[str, typer.Argument(help="item, such as one that a search returned")],
    relevant: Annotated[
        bool, typer.Option("--relevant/--not-relevant", help="whether the item answers the query")
    ],
    text: Annotated[str | None, typer.Option(help="text to search with")] = None,
    picture: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="picture to search with")
    ] = None,
    sound: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="sound to search with")
    ] = None,
    item: Annotated[str | None, typer.Option(help="stored item to search with")] = None,
    as_json: JsonFlag = False,
    url: UrlOption = None,
    key: KeyOption = None,
) -> None:
    """Store whether an item is relevant to a query: a text, a picture, a sound or a stored item."""
    with open_backend(url, key) as backend:
        source, query = read_query(backend, backend.get_collection(collection), text, picture, sound, item)
        judgement = {
            "query": query,
            "source": source,
            "target": backend.get_item(collection, item_id).modality,
            "item_id": item_id,
            "relevant": relevant,
        }
        stored = backend.create_feedback(collection, [judgement])
    print_one(stored, as_json, lambda answer: f"feedback {answer.ids[0]} stored")


@feedback.command("list")
def list_feedback(
    collection: str, as_json: JsonLinesFlag = False, url: UrlOption = None, key: KeyOption = None
) -> None:
    """List feedback in the order in which it was stored."""
    with open_backend(url, key) as backend:
        for entry in _all_feedback(backend, collection):
            print_one(entry, as_json, _feedback_line)


@feedback.command("delete")
def delete_feedback(
    collection: str,
    feedback_id: Annotated[int, typer.Argument(min=1, max=LARGEST_FEEDBACK_ID)],
    url: UrlOption = None,
    key: KeyOption = None,
) -> None:
    """Delete one feedback; the next retrain does not learn from it."""
    with open_backend(url, key) as backend:
        backend.delete_feedback(collection, feedback_id)


def _all_feedback(backend: Backend, collection: str) -> Iterator[answers.Feedback]:
    page = backend.list_feedback(collection, limit=_PAGE)
    yield from page.feedback
    while page.next_cursor is not None:
        page = backend.list_feedback(collection, cursor=page.next_cursor, limit=_PAGE)
        yield from page.feedback


def _feedback_line(entry: answers.Feedback) -> str:
    verdict = "relevant" if entry.relevant else "not relevant"
    query = f"{entry.source} {_query_words(entry.query)}"
    return f"{entry.id:6d}  {entry.created_at:%Y-%m-%d %H:%M}  {verdict:12s}  {entry.item_id}  to {query}"


def _query_words(query: answers.FeedbackQuery) -> str:
    match query.form:
        case "item_id":
            return f"item {query.item_id}"
        case "text":
            return repr(query.text)
        case "image_base64":
            return f"picture {query.picture_sha256}"
        case "sound_base64":
            return f"sound {query.picture_sha256}"
        case _:
            return "vector"


keys = typer.Typer(no_args_is_help=True, help="API keys.")


@keys.command("create")
def create_key(
    scope: Annotated[Scope, typer.Option(help="what the key permits")] = Scope.SEARCH,
    name: Annotated[str | None, typer.Option(help="name of the key")] = None,
    collection: Annotated[
        list[str] | None,
        typer.Option(
            help="limit the key to this collection (may be repeated); without effect where search is open"
        ),
    ] = None,
    expires: Annotated[
        str | None, typer.Option(help="when it expires: 30d, 12h, 15m, or a date such as 2030-01-31")
    ] = None,
    rate_limit: Annotated[
        int | None, typer.Option(min=1, max=100_000, help="requests a minute; default: LRBS_RATE_LIMIT")
    ] = None,
    as_json: JsonFlag = False,
    url: UrlOption = None,
    key: KeyOption = None,
) -> None:
    """Create a key and print its secret, which is shown only once; its id goes to standard error."""
    expires_at = parse_expiry(expires)
    with open_backend(url, key, may_create=True) as backend:
        created = backend.create_key(
            scope.value,
            name=name,
            collections=collection or None,
            expires_at=expires_at,
            requests_per_minute=rate_limit,
        )
    if as_json:
        print_json(created)
        return
    LOG.print(
        "The secret below is shown only this once: send it as 'Authorization: Bearer SECRET', or paste it "
        f"into the page. lrbs keys revoke {created.id} takes it back.",
        highlight=False,
    )
    typer.echo(created.secret)


@keys.command("list")
def list_keys(as_json: JsonLinesFlag = False, url: UrlOption = None, key: KeyOption = None) -> None:
    """List keys, without their secrets."""
    with open_backend(url, key) as backend:
        for stored in backend.list_keys().keys:
            print_one(stored, as_json, _key_line)


@keys.command("revoke")
def revoke_key(key_id: str, as_json: JsonFlag = False, url: UrlOption = None, key: KeyOption = None) -> None:
    """Revoke a key."""
    with open_backend(url, key) as backend:
        backend.revoke_key(key_id)
    if as_json:
        typer.echo(json.dumps({"id": key_id}))


def parse_expiry(text: str | None, now: datetime | None = None) -> datetime | None:
    """Parse the value of --expires: ``30d``, ``12h`` or ``15m`` from now, or a date, in UTC unless it has an
    offset."""
    if text is None:
        return None
    span = re.fullmatch(r"(\d{1,5})([dhm])", text)
    if span is not None:
        unit = {"d": timedelta(days=1), "h": timedelta(hours=1), "m": timedelta(minutes=1)}[span[2]]
        return (now or datetime.now(UTC)) + int(span[1]) * unit
    try:
        time = datetime.fromisoformat(text)
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        expected = "expected 30d, 12h, 15m or a date such as 2030-01-31"
        raise typer.BadParameter(f"{expected}, got {text!r}", param_hint="--expires") from error


def _key_line(key: answers.Key) -> str:
    details = ["never used" if key.last_used_at is None else f"used {key.last_used_at:%Y-%m-%d %H:%M}"]
    if key.collections is not None:
        details.append(f"only {', '.join(key.collections)}")
    if key.expires_at is not None:
        verb = "expired" if key.expires_at <= datetime.now(UTC) else "expires"
        details.append(f"{verb} {key.expires_at:%Y-%m-%d %H:%M}")
    if key.requests_per_minute is not None:
        details.append(f"{key.requests_per_minute} requests a minute")
    name = f"  {key.name}" if key.name else ""
    return f"{key.id}  {key.scope:7s}  {key.created_at:%Y-%m-%d %H:%M}  {'; '.join(details)}{name}"


Report = Mapping[str, Any]
"""A training report as the service answers it: the JSON of `TrainingReport`, with the names of its fields."""
DOUBTS_SHOWN = 3
FEW_RELEVANT = "(lower than 1 where a gallery has fewer than ten relevant items)"
"""What bounds a precision at ten on a small gallery."""


_QUERIES = {"placed": "items, their own partners left out", "placed_for_texts": "texts that name two values"}


def validation_lines(report: Report) -> list[str]:
    """Return lines for each direction with the quality on held-out training items."""
    lines = []
    for direction, quality in report["held_out"]["directions"].items():
        figures = [] if quality["map"] is None else [f"MAP {quality['map']:.4f}"]
        figures += graded_figures(report, quality)
        chance = "" if quality["chance"] is None else f" (chance {quality['chance']:.4f})"
        what = f"validation {', '.join(figures)}"
        among = f"; nDCG@10 and partners{_among(quality)}" if _among(quality) else ""
        lines.append(
            f"{direction}: {what} on {item_counts(report)} items held out of training{chance}{among}"
        )
        lines += [f"{direction}: {text}" for text in _details(report, quality)]
    return lines


def _among(quality: Mapping[str, Any]) -> str:
    return f" among {quality['served']['n_gallery']}" if quality.get("served") else ""


def graded_figures(report: Report, quality: Mapping[str, Any]) -> list[str]:
    """Return figures beyond MAP, where more than one label each could be learned from: among all items, but
    in earlier reports."""
    served = quality.get("served") or quality
    ndcg, recall = served["ndcg_at_10"], served["recall_at_10"]
    if ndcg is None or not _has_more_than_labels(report):
        return []
    return [f"nDCG@10 {ndcg:.4f}", *([] if recall is None else [f"partner in the first ten {recall:.4f}"])]


def _has_more_than_labels(report: Report) -> bool:
    return len(report["data"]["facets"]) > 1 or report["data"]["n_pairs"] > 0


def _details(report: Report, quality: Mapping[str, Any]) -> list[str]:
    if not _has_more_than_labels(report) or quality["n_queries"] is None:
        return []
    shares = ", ".join(f"{name} {value:.4f}" for name, value in quality["precision_at_10"].items())
    lines = [f"right in the first ten: {shares} {FEW_RELEVANT}"] if shares else []
    if quality["median_rank"] is not None:
        first = quality["recall_at_1"] or 0.0
        lines.append(f"partner comes first {first:.4f}, median rank {quality['median_rank']:g}")
    lines += [
        f"nDCG@10 of {queries}: {placed['content']:.4f} by content alone, "
        f"{placed['partners']:.4f} with partners, {placed['complete']:.4f} as people find items"
        + ("" if placed["untrained"] is None else f", {placed['untrained']:.4f} before any training")
        for key, queries in _QUERIES.items()
        if (placed := quality.get(key)) is not None
    ]
    return [*lines, f"{quality['distinct_lists']} different first pages for {quality['n_queries']} queries"]


def data_lines(report: Report) -> list[str]:
    """Return a line that says what was learned from beside one label each, and one for the terms' weights."""
    data, fit = report["data"], report["fit"]
    if not _has_more_than_labels(report) and not data["n_signs"]:
        return []
    has_part = {name: fit["weights"].get(f"facet:{name}", not fit["weights"]) for name in data["facets"]}
    facets = ", ".join(f"{name} ({count})" for name, count in data["facets"].items() if has_part[name])
    parts = [f"facets {facets}"] if facets else []
    parts += [f"{data['n_pairs']} pairs"] if data["n_pairs"] else []
    parts += [f"{data['n_signs']} judged pairs"] if data["n_signs"] else []
    weights = ", ".join(f"{name} {weight:.3g}" for name, weight in fit["weights"].items())
    dimensions = ", ".join(f"{name} {width}" for name, width in fit["dimensions"].items())
    return [
        "learned from " + "; ".join(parts),
        *([f"weights: {weights}"] if weights else []),
        *([f"dimensions: {dimensions}, together {fit['rank']}"] if dimensions else []),
    ]


def column_lines(report: Report, names: Mapping[str, str]) -> list[str]:
    """Return a line for each metadata column, and for the first labels that content contradicts, with what
    their items are called by id."""
    # Keys and values are quoted: whatever they hold, terminals show it and do not obey it.
    data = report["data"]
    lines = []
    for column in data["columns"]:
        use = "out" if column["weight"] is None else f"in with weight {column['weight']:.3g}"
        lines.append(f"column {column['name']!r}: {use}, {column['reason']}")
    if data["doubtful"]:
        lines.append(f"labels worth a look: {len(data['doubtful'])}, first")
    for doubt in data["doubtful"][:DOUBTS_SHOWN]:
        name = f" {shorten(names[doubt['id']])!r}" if names.get(doubt["id"]) else ""
        lines.append(
            f"  {doubt['id']}{name} has {doubt['carried']!r} as {doubt['facet']!r}, its content says "
            f"{doubt['likely']!r} ({doubt['probability']:.0%})"
        )
    return lines


def item_counts(report: Report) -> str:
    """Return the number of held-out items of each modality, in words."""
    return count_words(report["held_out"]["items"]) or "unknown"


def count_words(counts: Mapping[str, int]) -> str:
    """Return the number of items of each modality: ``12 image and 9 text``."""
    return " and ".join(f"{count} {name}" for name, count in counts.items())


def label_lines(report: Report) -> list[str]:
    """Return a warning for classes that only one modality has training items of."""
    return [
        f"no training item of the other modality is of these classes of {name!r}: {some_of(labels)}"
        for name, labels in report["data"]["unmatched_labels"].items()
        if labels
    ]


def index_lines(report: Report) -> list[str]:
    """Return lines that explain the choice of the index of each large gallery."""
    lines = []
    for name, choice in report["index"]["choices"].items():
        recall = report["index"]["recall_at_10"].get(name)
        if not choice["spec"]["lists"] or recall is None:  # an exact index has none
            lines.append(f"{name} is searched exactly: {choice['reason']}")
            lines += [
                f"{name} is not searched by {_describe_index(trial['spec'])}: {trial['rejected']}"
                for trial in choice["trials"]
                if trial.get("rejected") is not None
            ]
        else:
            what = f"{name} is searched by {_describe_index(choice['spec'])}"
            lines.append(f"{what}, recall@10 {recall:.4f}: {choice['reason']}")
    return lines


def _describe_index(spec: Mapping[str, Any]) -> str:
    return f"{spec['kind']} ({spec['lists']} lists, {spec['probes']} probes)"


def convergence_line(report: Report) -> str | None:
    """Return a warning if the fit did not converge."""
    end = report["fit"]["convergence"]
    if end is None or end["converged"]:
        return None
    tolerance = "" if end["tol"] is None else f", {end['tol']:.2%} was asked for"
    return (
        f"The fit did not converge: after {end['iteration']} iterations its objective may still fall "
        f"by up to {end['gap']:.2%}{tolerance}."
    )


def models(
    collection: str,
    activate: Annotated[
        int | None, typer.Option(min=1, max=LARGEST_VERSION, help="activate this version")
    ] = None,
    rollback: Annotated[
        bool, typer.Option("--rollback", help="activate the version that was active before")
    ] = False,
    expected: Annotated[
        int | None,
        typer.Option(min=0, max=LARGEST_VERSION, help="only if this version is active; 0 for none"),
    ] = None,
    reason: Annotated[str | None, typer.Option(help="reason, for the history")] = None,
    history: Annotated[
        bool, typer.Option("--history", help="list activations: when, by whom and why")
    ] = False,
    as_json: JsonLinesFlag = False,
    url: UrlOption = None,
    key: KeyOption = None,
) -> None:
    """List model versions; activate one, roll back, or show the history of activations."""
    if sum((activate is not None, rollback, history)) > 1:
        raise typer.BadParameter("give at most one of --activate, --rollback, --history")
    with open_backend(url, key) as backend:
        if activate is not None:
            backend.activate_model(collection, activate, expected_version=expected, reason=reason)
        if rollback:
            backend.roll_back(collection, expected_version=expected, reason=reason)
        if history:
            for entry in backend.list_activations(collection, limit=_PAGE).activations:
                print_one(entry, as_json, _activation_line)
        else:
            _show_versions(backend, collection, as_json)


def _show_versions(backend: Backend, collection: str, as_json: bool) -> None:
    versions = backend.list_models(collection).models
    if not versions:
        typer.echo(f"collection {collection!r} has no models yet: run lrbs train {collection}", err=True)
    for model in versions:
        if as_json:
            print_json(backend.get_model(collection, model.version))  # with its whole report
            continue
        typer.echo(_model_line(model))
        reason, progress = model.report["parameters"]["reason"], model.report["held_out"].get("progress")
        for line in [*filter(None, (reason,)), *index_lines(model.report), *filter(None, (progress,))]:
            typer.echo(f"       {line}")


def _model_line(model: answers.Model) -> str:
    report, directions = model.report, model.report["held_out"]["directions"]
    maps = ", ".join(
        f"{name} {quality['map']:.4f}" for name, quality in directions.items() if quality["map"] is not None
    )
    graded = [
        f"{name} {', '.join(figures)}{_among(quality)}"
        for name, quality in directions.items()
        if (figures := graded_figures(report, quality))
    ]
    scores = "; ".join([*([f"MAP {maps}"] if maps else []), *graded])
    validation = f"validation {scores} ({item_counts(report)} items)" if scores else ""
    open_gap = "" if convergence_line(report) is None else "  did not converge"
    refused = f"  not activated: {report['not_activated']}" if report["not_activated"] else ""
    mark = "*" if model.is_active else " "
    when = f"{model.created_at:%Y-%m-%d %H:%M}"
    return f"{mark} {model.version:3d}  {when}  {report['method']:8}  {validation}{open_gap}{refused}"


def _activation_line(entry: answers.Activation) -> str:
    before = "" if entry.previous is None else f" after {entry.previous}"
    why = f": {entry.reason}" if entry.reason else ""
    return f"{entry.at:%Y-%m-%d %H:%M:%S}  version {entry.version}{before}, by {entry.by}{why}"
