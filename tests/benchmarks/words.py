"""`words`: how well words of items that name no value, such as brands, are found."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from typing import Annotated

import numpy as np
import typer
from rich.table import Table

from app.cli.backend import ready_services
from app.cli.console import OUT
from app.domain.entities import Content
from app.domain.words import is_telling, split_words
from app.services.serving.search import Query, Search, results_of
from solver.benchmark import machine
from solver.evaluation.metrics import FIRST_PAGE

_BANDS = ((1, 2), (3, 8), (9, 32), (33, 200))  # training texts that have a word
_COLUMNS = ("typed", "queries", "share")


def words_command(
    collection: Annotated[str, typer.Argument(help="with an active version")],
    kind: Annotated[str, typer.Option("--kind", help="column whose value is typed, too")],
    most: Annotated[int, typer.Option("--most", help="words of each frequency")] = 60,
    seed: Annotated[int, typer.Option("--seed", help="of which words")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Type words of training texts that name no value, alone and with a value of an item that has them: the
    share of the first ten that have what was typed, of those that can."""
    services = ready_services(False)
    target, source = services.catalogue.collection(collection)[0].modality_names
    items = [pair[0] for pair in services.catalogue.originals(collection) if pair is not None]
    texts = {item.pair_id: item for item in items if item.modality == source and item.text}
    shown = [
        (item, texts[item.pair_id]) for item in items if item.modality == target and item.pair_id in texts
    ]
    values = [str(item.metadata.get(kind)) for item, _ in shown]
    own = [set(split_words(text.text or "")) for _, text in shown]
    counts = Counter(
        word for words, (item, _) in zip(own, shown, strict=True) if item.train for word in words
    )
    facts = (fact for item, _ in shown for fact in (*item.labels, *map(str, item.metadata.values())))
    of_values = {
        form for fact in facts for word in split_words(fact) for form in (word, f"{word}s", word[:-1])
    }
    rng = np.random.default_rng(seed)
    shares: dict[str, list[float]] = defaultdict(list)
    for least, largest in _BANDS:
        band = [
            word
            for word, count in sorted(counts.items())
            if least <= count <= largest and word not in of_values and is_telling(word) and word.isalpha()
        ]
        for word in rng.permutation(band)[:most].tolist():
            carriers = [row for row, words in enumerate(own) if word in words]
            value = values[int(rng.choice(carriers))]
            both = [row for row in carriers if values[row] == value]
            for text, fitting, form in (
                (word, carriers, "word"),
                (f"{word} {value.lower()}", both, "word and value"),
            ):
                ids = {shown[row][0].id for row in fitting}
                search = Search([Query(Content(text=text))], FIRST_PAGE)
                (outcome,) = services.search.search(collection, source, target, [search])
                (result,) = results_of(outcome)
                n_right = sum(hit.id in ids for hit in result.hits)
                shares[f"{form}, in {least} to {largest} texts"].append(n_right / min(len(ids), FIRST_PAGE))
    rows = [(name, len(of_name), round(float(np.mean(of_name)), 3)) for name, of_name in shares.items()]
    sizes = machine() | {"items": len(shown), "seed": seed}
    if as_json:
        results = [dict(zip(_COLUMNS, row, strict=True)) for row in rows]
        typer.echo(json.dumps({**sizes, "results": results}, indent=1))
        return
    table = Table(*_COLUMNS)
    for row in rows:
        table.add_row(*map(str, row))
    OUT.print(table)
    typer.echo(", ".join(f"{name} {size}" for name, size in sizes.items()))
