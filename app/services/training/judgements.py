"""Feedback as a training takes it: judged pairs of items, and queries that are no items."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from app.domain.entities import Collection, Feedback, Item

Judgements = Mapping[tuple[str, str], int]
"""+1 or -1 for an item of the first and one of the second modality, by their ids."""


def judgements_of(
    collection: Collection, feedback: Iterable[Feedback]
) -> tuple[dict[tuple[str, str], int], list[Item]]:
    """Return what was judged, later feedback on a pair in place of earlier (in the order given), and queries
    as items. A query with content of its own becomes an item with an id that no item has."""
    # That within one modality is left out.
    judgements: dict[tuple[str, str], int] = {}
    queries: list[Item] = []
    for entry in feedback:
        query_id = entry.query_item_id
        if entry.source == entry.target:
            continue
        if entry.query is not None and query_id is None:
            query_id = f"query {entry.id}"
            queries.append(replace(entry.query, id=query_id, train=True))
        if query_id is not None:
            is_from_x = entry.source == collection.modality_names[0]
            pair = (query_id, entry.item_id) if is_from_x else (entry.item_id, query_id)
            judgements[pair] = 1 if entry.is_relevant else -1
    return judgements, queries


def suffices(judgements: Judgements) -> bool:
    """Return whether something was judged relevant, and something not relevant."""
    return {1, -1} <= set(judgements.values())
