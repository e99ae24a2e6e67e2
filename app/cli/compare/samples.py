"""Retrieved samples: some queries of the test split with what a method ranks first."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass

import numpy as np

from app.cli.compare.sets import ComparedSet
from app.encoders.content import PixelBudget, opened_picture
from app.settings import Settings
from solver import rank_gallery
from solver.comparison import Comparison

_N_QUERIES, _N_HITS = 4, 6
"""A screen of examples for each direction."""
_SIDE = 112  # pixels of a thumbnail's longer side


@dataclass(frozen=True, slots=True)
class SampleView:
    """One query or hit, with a text or a picture."""

    label: str
    is_relevant: bool  # it shares the query's class; True for the query itself
    text: str = ""
    picture: str = ""  # as a data URI


@dataclass(frozen=True, slots=True)
class RetrievalExample:
    """A query with its first hits."""

    query: SampleView
    hits: list[SampleView]


def retrieval_examples(
    compared: ComparedSet, comparison: Comparison, number: int, seed: int
) -> list[list[RetrievalExample]]:
    """Return queries drawn at random with their first hits by outcome `number`: picture queries, then text
    queries. Without the set's original pictures and texts there are none."""
    if not compared.rows:
        return []
    rows = [row for row, is_train in zip(compared.rows, compared.data.is_train, strict=True) if not is_train]
    labels = comparison.test_labels.tolist()
    outcome = comparison.outcomes[number]
    drawn = np.random.default_rng(seed).permutation(len(rows))[:_N_QUERIES].tolist()

    def view(row: int, as_picture: bool, query: int) -> SampleView:
        is_relevant = labels[row] == labels[query]
        if as_picture:
            return SampleView(labels[row], is_relevant, picture=_thumbnail(rows[row].picture.read_bytes()))
        return SampleView(labels[row], is_relevant, text=rows[row].text)

    directions = []
    for with_picture, source, target in (
        (True, outcome.x_test, outcome.z_test),
        (False, outcome.z_test, outcome.x_test),
    ):
        order = rank_gallery(source[drawn] @ target.T)[:, :_N_HITS].tolist()
        directions.append(
            [
                RetrievalExample(
                    view(query, with_picture, query), [view(hit, not with_picture, query) for hit in hits]
                )
                for query, hits in zip(drawn, order, strict=True)
            ]
        )
    return directions


def _thumbnail(content: bytes) -> str:
    limit = Settings().max_picture_pixels
    stream = io.BytesIO()
    with opened_picture("picture", content, limit, PixelBudget(limit)) as picture:
        picture.thumbnail((_SIDE, _SIDE))
        picture.save(stream, "JPEG", quality=80)
    return f"data:image/jpeg;base64,{base64.b64encode(stream.getvalue()).decode()}"
