"""Text encoder `word-frequency`: how often each of the most frequent words occurs, as tags are counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Self

import numpy as np
import scipy.sparse
from pydantic import Field
from typing_extensions import override

from app.domain.entities import Content, Features
from app.encoders.entry import EncoderType
from app.encoders.options import options_of
from app.encoders.texts import WordCountEncoder

_DEFAULT_WORDS = 2000
_MAX_WORDS = 200_000  # as many as terms of `tfidf`


_OPTIONS = options_of(
    "word-frequency",
    "texts: frequencies of words; learned at each retrain",
    max_words=Annotated[
        int, Field(ge=1, le=_MAX_WORDS, description="words kept at most, the most frequent ones")
    ],
)


class WordFrequencyEncoder(WordCountEncoder):
    """Divides the counts of the learned words of a text by their sum, as the tags of VOC2007 and NUS-WIDE."""

    is_quick = True

    @override
    def learn_names(self, names: Sequence[str], texts: Sequence[str]) -> Self:
        self._names = names
        return self

    @override
    def encode(self, raw: Sequence[Content]) -> Features:
        """Return the (n, n_words) features as a sparse array; a row is zero where no word is known."""
        counts = self._count([content.text or "" for content in raw])
        sums = np.asarray(counts.sum(axis=1)).ravel()
        shares = (counts.data / np.repeat(sums, np.diff(counts.indptr))).astype(np.float32)
        return scipy.sparse.csr_array((shares, counts.indices, counts.indptr), shape=counts.shape)


ENCODER = EncoderType(
    _OPTIONS,
    lambda options, resources: WordFrequencyEncoder(
        options.get("max_words", _DEFAULT_WORDS), resources.max_text_chars
    ),
    "text",
)
