"""Runs and relevance judgements in TREC format, so that other programs can score the rankings made here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy.typing as npt

from solver.evaluation.metrics import rank_gallery, score_blocks, shared_classes
from solver.validation import InvalidInputError


def write_run(
    file: str | Path,
    query_projections: npt.ArrayLike,
    gallery_projections: npt.ArrayLike,
    *,
    query_labels: npt.ArrayLike,
    gallery_labels: npt.ArrayLike,
    query_ids: Sequence[str],
    gallery_ids: Sequence[str],
    tag: str,
) -> None:
    """Write the full ranking of every query, ``query Q0 item rank score tag`` a line.

    Parameters
    ----------
    file : path
        Overwritten if it exists.
    query_projections, gallery_projections, query_labels, gallery_labels : array-like
        As `mean_average_precision` takes them.
    query_ids, gallery_ids : sequence of str
        Names without white space.
    tag : str
        Name of the method.

    Notes
    -----
    The score is the gallery's size less the rank: programs that order equal scores by name then read
    exactly the ranking that was scored here, in which ties stand in the order of the gallery.
    """
    _check_names((*query_ids, *gallery_ids, tag))
    n_gallery, start = len(gallery_ids), 0
    with Path(file).open("w", encoding="utf-8") as stream:
        for _, scores in score_blocks(query_projections, gallery_projections, query_labels, gallery_labels):
            for order in rank_gallery(scores):
                query = query_ids[start]
                stream.writelines(
                    f"{query} Q0 {gallery_ids[item]} {rank} {n_gallery - rank} {tag}\n"
                    for rank, item in enumerate(order.tolist())
                )
                start += 1


def write_qrels(
    file: str | Path,
    query_labels: npt.ArrayLike,
    gallery_labels: npt.ArrayLike,
    query_ids: Sequence[str],
    gallery_ids: Sequence[str],
) -> None:
    """Write which items are relevant to which query, ``query 0 item 1`` a line; others are not listed.

    Parameters
    ----------
    file : path
        Overwritten if it exists.
    query_labels, gallery_labels : array-like
        As `mean_average_precision` takes them.
    query_ids, gallery_ids : sequence of str
        Names without white space.
    """
    _check_names((*query_ids, *gallery_ids))
    relevance, n_queries, n_gallery = shared_classes(query_labels, gallery_labels)
    if (n_queries, n_gallery) != (len(query_ids), len(gallery_ids)):
        raise InvalidInputError(
            f"{len(query_ids)} query_ids and {len(gallery_ids)} gallery_ids for {n_queries} queries "
            f"and a gallery of {n_gallery}"
        )
    with Path(file).open("w", encoding="utf-8") as stream:
        for number, query in enumerate(query_ids):
            relevant = relevance(slice(number, number + 1))[0].nonzero()[0].tolist()
            stream.writelines(f"{query} 0 {gallery_ids[item]} 1\n" for item in relevant)


def _check_names(names: Sequence[str]) -> None:
    for name in names:
        if not name or name.split() != [name]:
            raise InvalidInputError(f"{name!r} cannot stand in a TREC file: it is empty or holds white space")
