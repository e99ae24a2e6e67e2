import logging
import random
import subprocess
import sys
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

from app.domain.entities import Content
from app.encoders.texts import (
    FIRST_RULE,
    TermCounts,
    WeightedTerms,
    most_frequent_terms,
    number_terms,
    parts_between,
    runs_by,
    term_features,
    words_as_written,
    words_by,
)
from app.encoders.types.tfidf import TfidfEncoder
from tests.conftest import ROOT

MIB = 1 << 20
MANY_TERMS = """
import random, re
from functools import partial
from app.domain.entities import Content
from app.encoders.types import tfidf

# For an eighth of the bound, fewer texts are enough.
tfidf.most_frequent_terms = partial(tfidf.most_frequent_terms, max_bytes=32 << 20)
chance = random.Random(1)
words = [f"{number:x>399}" for number in range(700)]
texts = [" ".join(chance.choices(words, k=50)) for _ in range(600)]
encoder = tfidf.TfidfEncoder({"ngrams": 5, "characters": 6}, 20_000).fit(texts)
encoder.encode([Content(text=text) for text in texts[:100]])
assert len(encoder.state()["terms"]) == 2000
# ru_maxrss would be that of the process that started this one, where that is larger.
print(int(re.search(r"VmHWM:\\s+([0-9]+)", open("/proc/self/status").read())[1]) // 1024)
"""


def spoken(number: int, seed: int) -> list[str]:
    """Texts whose words are as unequally frequent as those of a language."""
    chance = random.Random(seed)
    words = [f"{'été' if rank % 7 == 0 else 'Word'}{rank}" for rank in range(1, 400)]
    return [
        " ".join(chance.choices(words, [1 / rank for rank in range(1, 400)], k=chance.randrange(40)))
        for _ in range(number)
    ]


@pytest.mark.parametrize("ngrams", [1, 2, 5])
def test_vocabulary_weights_and_features_are_those_of_counting_all_terms_at_once(ngrams: int) -> None:
    texts = spoken(600, ngrams)
    list_terms = CountVectorizer(ngram_range=(1, ngrams), strip_accents="unicode").build_analyzer()
    terms_of = {text: list_terms(text) for text in texts}
    joined = {text: [term.replace(" ", "") for term in terms] for text, terms in terms_of.items()}
    counts = Counter(term for text in texts for term in terms_of[text])
    every = sorted((" " in term, -count, term.replace(" ", "")) for term, count in counts.items())
    for size in (30, 398, 399, 405, 2000, 10**6):
        terms = sorted(term for _, _, term in every[:size])
        reference = TfidfVectorizer(
            analyzer=joined.__getitem__,
            sublinear_tf=True,
            vocabulary={term: place for place, term in enumerate(terms)},
        ).fit(texts)

        encoder = TfidfEncoder({"ngrams": ngrams, "max_features": size}, 1000).fit(texts)
        state = encoder.state()
        assert state["terms"] == terms
        assert state["idf"] == reference.idf_.tolist()
        encoded = encoder.encode_learned([Content(text=text) for text in texts])
        expected = reference.transform(texts).astype(np.float32)
        assert encoded.shape == expected.shape
        assert (encoded != expected).nnz == 0


@pytest.mark.parametrize("size", [40, 10**6])
def test_parts_of_words_are_those_of_counting_all_at_once_and_weigh_as_much_as_the_words(size: int) -> None:
    texts = spoken(200, 7)
    words = [" ".join(CountVectorizer(strip_accents="unicode").build_analyzer()(text)) for text in texts]
    counter = CountVectorizer(analyzer="char_wb", ngram_range=(3, 4))
    counts = np.asarray(counter.fit_transform(words).sum(axis=0)).ravel().tolist()
    ranked = sorted(
        zip(counts, counter.get_feature_names_out().tolist(), strict=True), key=lambda e: (-e[0], e[1])
    )
    grams = sorted(gram for _, gram in ranked[:size])
    reference = TfidfVectorizer(
        analyzer="char_wb", ngram_range=(3, 4), sublinear_tf=True, vocabulary=grams
    ).fit(words)

    encoder = TfidfEncoder({"characters": 4, "max_features": size}, 1000).fit(texts)
    assert encoder.state()["parts"] == grams
    contents = [Content(text=text) for text in texts]
    alone = TfidfEncoder({"max_features": size}, 1000).fit(texts).encode_learned(contents)
    parts = [alone, reference.transform(words)]
    np.testing.assert_allclose(
        encoder.encode_learned(contents).toarray(),
        scipy.sparse.hstack(parts).toarray() / np.sqrt(2.0),
        atol=1e-7,
    )


def test_frequent_terms_are_found_though_most_of_the_others_are_let_go() -> None:
    frequent = [f"frequent{number}" for number in range(20)]
    texts = [[f"once{number} {place}" for place in range(60)] + frequent for number in range(400)]
    counts = TermCounts(MIB // 4)
    for text in texts:
        counts.add(text)
        held = sum(sys.getsizeof(term) for term in counts._counts)
        assert held < MIB // 4
    assert counts.dropped > 10_000
    assert counts.most_frequent(20) == sorted(frequent)
    assert counts._counts[frequent[0]] == 400


def test_counts_are_never_too_high_and_the_same_each_time() -> None:
    chance = random.Random(3)
    texts = [
        chance.choices(range(20_000), [1 / rank for rank in range(1, 20_001)], k=200) for _ in range(300)
    ]
    exact = Counter(str(term) for text in texts for term in text)
    several = [TermCounts(MIB // 4) for _ in range(2)]
    for counts in several:
        for text in texts:
            counts.add(map(str, text))
    assert several[0].dropped > 0
    assert several[0]._counts == several[1]._counts
    assert all(count <= exact[term] for term, count in several[0]._counts.items())
    assert set(several[0].most_frequent(50)) == {term for term, _ in exact.most_common(50)}


def test_long_terms_take_their_part_of_the_bound_and_the_rest_is_kept() -> None:
    counts = TermCounts(MIB)
    for number in range(40):
        counts.add([f"{number}" * 40_000, "short"])
    assert counts.dropped > 0
    assert 0 < sum(map(len, counts._counts)) < MIB
    assert counts.most_frequent(1) == ["short"]


def test_the_log_tells_when_not_all_terms_could_be_counted(caplog: pytest.LogCaptureFixture) -> None:
    texts = [[f"word{number}{place}" for place in range(100)] for number in range(100)]
    runs = [[" ".join(pair) for pair in (*pairwise(text), *pairwise(text[::-1]))] for text in texts]
    with caplog.at_level(logging.WARNING):
        assert len(most_frequent_terms(iter(texts), iter(runs), 2000, 64 * MIB)) == 2000
        assert not caplog.records
        assert len(most_frequent_terms(iter(texts), iter(runs), 10_100, 2 * MIB)) == 10_100
    assert ["the runs of words of the texts" in record.getMessage() for record in caplog.records] == [True]


def test_learning_from_long_texts_takes_bounded_memory() -> None:
    command = [sys.executable, "-c", MANY_TERMS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 250, "MB: 205 were measured, and all terms take ninety more"


@settings(max_examples=200, deadline=None)
@given(
    st.text(st.one_of(st.characters(), st.sampled_from(" \t\n-_'aAbİßé9")), max_size=60),
    st.sampled_from([(1, 1), (1, 3), (2, 2), (2, 5), (3, 5)]),
)
def test_texts_are_taken_apart_by_the_first_rule_as_by_scikit_learn(
    text: str, lengths: tuple[int, int]
) -> None:
    terms = CountVectorizer(ngram_range=lengths).build_analyzer()(text)
    assert runs_by(FIRST_RULE, *lengths)(words_by(FIRST_RULE)(text)) == terms
    parts = CountVectorizer(ngram_range=lengths, analyzer="char_wb").build_analyzer()
    assert parts_between(*lengths)(text) == parts(text)
    assert words_as_written(text) == CountVectorizer(lowercase=False).build_analyzer()(text)


def test_a_text_has_the_same_features_alone_and_among_others() -> None:
    rng = np.random.default_rng(0)
    sizes, lengths = (50, 70), ((3, 0), (0, 0), (40, 90), (1, 1))
    kinds = [WeightedTerms(number_terms([str(n) for n in range(size)]), rng.random(size)) for size in sizes]
    texts = [
        [
            rng.integers(size, size=length).astype(np.int32)
            for size, length in zip(sizes, of_text, strict=True)
        ]
        for of_text in lengths
    ]
    together = term_features(kinds, texts)
    assert together.has_canonical_format
    for number, text in enumerate(texts):
        parts = []
        for kind, positions in zip(kinds, text, strict=True):
            counts = np.bincount(positions, minlength=len(kind.idf))
            values = np.where(counts > 0, (np.log(np.maximum(counts, 1)) + 1.0) * kind.idf, 0.0)
            norm = np.sqrt(len(kinds)) * np.linalg.norm(values)
            parts.append(values / (norm or 1.0))
        np.testing.assert_allclose(together[[number]].toarray()[0], np.concatenate(parts), rtol=1e-6)
        alone = term_features(kinds, [text])
        np.testing.assert_array_equal(alone.toarray(), together[[number]].toarray())
