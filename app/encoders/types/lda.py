"""Text encoder `lda`: shares of topics by latent Dirichlet allocation, as of the Wikipedia set."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field
from scipy.special import psi
from typing_extensions import override

from app.domain.entities import Content, Matrix
from app.encoders.base import pack_array, unpack_array
from app.encoders.entry import EncoderType
from app.encoders.options import options_of
from app.encoders.texts import WordCountEncoder

_DEFAULTS = {"topics": 20, "max_words": 5000}
_MAX_TOPICS = 500
_MAX_WORDS = 20_000  # with the most topics, a model holds 40 MB of them
_MOST_TEXTS = 20_000
"""Texts that are learned from, evenly spread: more take minutes, and hardly change the topics."""
_PASSES = 20


_OPTIONS = options_of(
    "lda",
    "texts: shares of topics; learned at each retrain",
    topics=Annotated[int, Field(ge=2, le=_MAX_TOPICS, description="number of topics")],
    max_words=Annotated[
        int, Field(ge=1, le=_MAX_WORDS, description="words kept at most, the most frequent ones")
    ],
)


class LdaEncoder(WordCountEncoder):
    """Infers ``topics`` (20) of at most ``max_words`` (5000) of a text (Blei et al., JMLR 2003; variational
    Bayes by scikit-learn)."""

    def __init__(self, options: Mapping[str, Any], max_chars: int) -> None:
        merged = {**_DEFAULTS, **options}
        super().__init__(merged["max_words"], max_chars)
        self._n_topics: int = merged["topics"]
        self._topics: npt.NDArray[np.float32] = np.zeros((self._n_topics, 0), np.float32)

    @override
    def fit(self, texts: Sequence[str]) -> Self:
        """Learn words and topics; raises ConflictError when the texts hold no word."""
        super().fit(texts)
        step = -(-len(texts) // _MOST_TEXTS)
        model = self._new_model().fit(self._count(texts[::step]))
        self._use(model.components_.astype(np.float32))
        return self

    @override
    def encode(self, raw: Sequence[Content]) -> Matrix:
        """Return the (n, n_topics) shares, which sum to one; equal ones where no word is known."""
        counts = self._count([content.text or "" for content in raw])
        shares: Matrix = self._model.transform(counts).astype(np.float32)
        return shares

    @override
    def state(self) -> dict[str, Any]:
        return {**super().state(), "topics": pack_array(self._topics)}

    @override
    def restore(self, state: Mapping[str, Any]) -> Self:
        super().restore(state)
        self._use(unpack_array(state["topics"]))
        return self

    def _new_model(self) -> Any:
        lda = importlib.import_module("sklearn.decomposition").LatentDirichletAllocation
        return lda(self._n_topics, max_iter=_PASSES, learning_method="batch", random_state=0)

    def _use(self, topics: npt.NDArray[np.float32]) -> None:
        """Infer with these pseudo-counts of words by topic, as a fitted model of scikit-learn does."""
        self._topics = topics
        model = self._new_model()
        model.n_features_in_ = topics.shape[1]
        model.doc_topic_prior_ = 1.0 / self._n_topics
        model.components_ = topics.astype(np.float64)
        sums = model.components_.sum(axis=1, keepdims=True)
        model.exp_dirichlet_component_ = np.exp(psi(model.components_) - psi(sums))
        self._model = model


ENCODER = EncoderType(
    _OPTIONS, lambda options, resources: LdaEncoder(options, resources.max_text_chars), "text"
)
