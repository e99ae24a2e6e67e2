"""`composed`: how well "this picture, but blue" is found, however a person says it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Annotated

import numpy as np
import typer
from rich.table import Table

from app.cli.backend import ready_services
from app.cli.console import OUT
from app.domain.entities import Content, Item
from app.services.serving.search import Query, QueryPart, Search, results_of
from solver.benchmark import machine
from solver.evaluation.metrics import FIRST_PAGE

_FEWEST = 5  # items of a kind with the value that is asked for
_PHRASES = (
    "{new}",
    "in {new}",
    "the same but {new}",
    "{new} instead",
    "a {new} one",
    "not {old}, {new}",
)
_WAYS = ("content", "item_id", "item_id, less {old}")


def composed_command(
    collection: Annotated[str, typer.Argument(help="with an active version")],
    kind: Annotated[str, typer.Option("--kind", help="column whose value stays")],
    value: Annotated[str, typer.Option("--value", help="column of which another value is asked for")],
    most: Annotated[int, typer.Option("--most", help="of the items that are not for training")] = 139,
    seed: Annotated[int, typer.Option("--seed", help="of which items, and of the values asked for")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Ask for items that are not for training with another value, which `_FEWEST` of their kind have: the
    share of the first ten that have it, and are of the kind."""
    services = ready_services(False)
    target = services.catalogue.collection(collection)[0].modality_names[0]
    stored = [pair for pair in services.catalogue.originals(collection) if pair is not None]
    facts = {item.id: _facts(item, kind, value) for item, _ in stored if item.modality == target}
    counts = Counter(facts.values())
    rng = np.random.default_rng(seed)
    asked = []
    for item, content in stored:
        if item.train or item.modality != target or content is None:
            continue
        of_kind, old = facts[item.id]
        others = [
            one for (other, one), n in counts.items() if other == of_kind and n >= _FEWEST and one != old
        ]
        if others:
            asked.append((item.id, content, old, str(rng.choice(sorted(others)))))
    asked = [asked[row] for row in np.sort(rng.permutation(len(asked))[:most])]
    if not asked:
        raise typer.BadParameter(f"no kind has another value {_FEWEST} times", param_hint="COLLECTION")
    goals = [(facts[item_id][0], new) for item_id, _, _, new in asked]
    rows = []
    for phrase in _PHRASES:
        row: dict[str, float | str] = {"phrase": phrase}
        for way in _WAYS:
            shares = []
            for (item_id, content, old, new), goal in zip(asked, goals, strict=True):
                query = _query(way, item_id, content, phrase.format(old=old.lower(), new=new.lower()), old)
                (outcome,) = services.search.search(collection, "", target, [Search([query], FIRST_PAGE)])
                (result,) = results_of(outcome)
                shares.append(np.mean([facts[hit.id] == goal for hit in result.hits]))
            row[way] = round(float(np.mean(shares)), 3)
        rows.append(row)
    attainable = float(np.mean([min(counts[goal], FIRST_PAGE) / FIRST_PAGE for goal in goals]))
    _print(rows, {"items": len(asked), "attainable": round(attainable, 3), "seed": seed}, as_json)


def _facts(item: Item, kind: str, value: str) -> tuple[str, str]:
    return str(item.metadata.get(kind)), str(item.metadata.get(value))


def _query(way: str, item_id: str, content: Content, text: str, old: str) -> Query:
    like = Query(content) if way == "content" else Query(item_id=item_id)
    parts = [QueryPart(like), QueryPart(Query(Content(text=text)))]
    if way == _WAYS[2]:
        parts.append(QueryPart(Query(Content(text=old.lower())), -1.0))
    return Query(parts=parts, left_out=frozenset({item_id}))


def _print(rows: Sequence[dict[str, float | str]], sizes: dict[str, object], as_json: bool) -> None:
    sizes = machine() | sizes
    if as_json:
        typer.echo(json.dumps({**sizes, "results": rows}, indent=1))
        return
    table = Table("phrase", *_WAYS)
    for row in rows:
        table.add_row(str(row["phrase"]), *(f"{row[way]:.3f}" for way in _WAYS))
    OUT.print(table)
    typer.echo(", ".join(f"{name} {size}" for name, size in sizes.items()))
