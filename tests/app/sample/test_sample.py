"""The sample set that the project draws itself."""

from __future__ import annotations

import pickle
import re
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from app.sample import KINDS, Sample, draw_sample
from app.sample.kind import PHRASES, fill, read_kind, slots_of, sources_of

PICTURES = 50
COLOURED = {"sail", "hull", "colour", "colours", "band", "furs"}


def draw_facets(kind: str, index: int, seed: int = 0) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return facets and sentences of one picture without drawing it, which takes most of the time."""
    drawn, (choosing, _, wording) = sources_of(kind, index, seed)
    facets = drawn.choose(choosing)
    return facets, drawn.describe(facets, wording)


@lru_cache(maxsize=32)
def sentences_of(kind: str) -> tuple[tuple[str, ...], ...]:
    """Return the sentences of the first pictures of a kind, without drawing the pictures."""
    return tuple(draw_facets(kind, index)[1] for index in range(PICTURES))


def names_of(kind: str) -> re.Pattern[str]:
    """Return a pattern that finds the kind's noun, singular or plural."""
    noun = kind.split()[-1]
    stem = noun if noun == "fish" else noun.removesuffix("s")
    return re.compile(rf"\b{stem}(s|es)?\b", re.IGNORECASE)


def test_there_are_at_least_ten_kinds_with_lowercase_labels() -> None:
    assert len(KINDS) >= 10
    assert len(set(KINDS)) == len(KINDS)
    assert all(kind == kind.lower() for kind in KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_picture_is_rgb_of_256_by_256_with_two_or_three_sentences(kind: str) -> None:
    sample = draw_sample(kind, 7)
    assert sample.image.mode == "RGB"
    assert sample.image.size == (256, 256)
    assert 2 <= len(sample.sentences) <= 3
    assert sample.id == f"{kind.replace(' ', '-')}-007"
    assert sample.kind == kind


@pytest.mark.parametrize("kind", KINDS)
def test_a_picture_uses_many_colours(kind: str) -> None:
    colours = draw_sample(kind, 1).image.getcolors(maxcolors=256 * 256)
    assert colours is not None
    assert len(colours) > 1000


def test_the_same_seed_gives_the_same_bytes_and_sentences() -> None:
    first, second = draw_sample("mountains", 3, seed=5), draw_sample("mountains", 3, seed=5)
    assert first.image.tobytes() == second.image.tobytes()
    assert first.sentences == second.sentences


def test_a_picture_does_not_depend_on_those_drawn_before_it() -> None:
    kinds = KINDS[:4]
    alone = {kind: draw_sample(kind, 3) for kind in kinds}
    for kind in reversed(kinds):
        draw_sample(kind, 2)
        again = draw_sample(kind, 3)
        assert again.image.tobytes() == alone[kind].image.tobytes()
        assert again.sentences == alone[kind].sentences


def test_another_seed_gives_another_picture() -> None:
    first, second = draw_sample("mountains", 3, seed=5), draw_sample("mountains", 3, seed=6)
    assert first.image.tobytes() != second.image.tobytes()


@pytest.mark.parametrize("kind", KINDS)
def test_sentences_alone_are_those_of_the_picture(kind: str) -> None:
    assert draw_facets(kind, 4, seed=1)[1] == draw_sample(kind, 4, seed=1).sentences


@pytest.mark.parametrize("kind", KINDS)
def test_facets_of_fifty_pictures_are_mostly_distinct(kind: str) -> None:
    facets = {tuple(draw_facets(kind, index)[0].items()) for index in range(PICTURES)}
    assert len(facets) >= 0.9 * PICTURES


def test_a_colour_that_a_picture_shows_is_named_in_its_words() -> None:
    rng = np.random.default_rng(4)
    checked = set()
    for kind in KINDS:
        described = read_kind(kind)
        for index in range(12):
            facets, _ = draw_facets(kind, index)
            slots = slots_of(described.words, facets)
            for name in COLOURED & facets.keys():
                shown = facets[name] if isinstance(facets[name], tuple) else (facets[name],)
                words = set(re.findall(r"[a-z-]+", fill(f"{{{name}}}", slots, False, rng).lower()))
                named = {
                    colour for colour, names in PHRASES["colours"].items() if words & set(names.split("|"))
                }
                assert named == set(shown) & PHRASES["colours"].keys(), (kind, index, name, words)
                checked.add(kind)
    assert len(checked) >= 6


@pytest.mark.parametrize("kind", KINDS)
def test_most_sentences_do_not_name_the_kind(kind: str) -> None:
    sentences = [sentence for texts in sentences_of(kind) for sentence in texts]
    naming = [sentence for sentence in sentences if names_of(kind).search(sentence)]
    assert len(naming) <= 0.4 * len(sentences)


@pytest.mark.parametrize("kind", KINDS)
def test_sentences_are_varied(kind: str) -> None:
    sentences = [sentence for texts in sentences_of(kind) for sentence in texts]
    assert len(set(sentences)) >= 0.8 * len(sentences)


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_has_at_least_six_distinct_sentence_templates(kind: str) -> None:
    assert len(set(read_kind(kind).subject)) >= 6


@pytest.mark.parametrize("kind", KINDS)
def test_sentences_are_clean_english(kind: str) -> None:
    for texts in sentences_of(kind):
        assert len(set(texts)) == len(texts)
        for sentence in texts:
            assert not re.search(r"[{}<>|\[\]/]", sentence), sentence
            assert "  " not in sentence, sentence
            assert not re.search(r"[a-z][A-Z]", sentence), sentence
            assert not re.search(r"\s[,.;:]|[,.;:]{2}", sentence), sentence
            assert re.fullmatch(r"[A-Z].*[^.]\.", sentence), sentence


@pytest.mark.parametrize("kind", KINDS)
def test_articles_suit_the_word_that_follows(kind: str) -> None:
    for texts in sentences_of(kind):
        for sentence in texts:
            assert not re.search(r"\b[Aa] (?!one|uni|use|eu)[aeiou]", sentence), sentence
            assert not re.search(r"\b[Aa]n (?!hour|honest)[^aeiou]", sentence), sentence
            assert not re.search(r"\b(a|an|the) (a|an|the)\b", sentence, re.IGNORECASE), sentence


@pytest.mark.parametrize("kind", KINDS)
def test_one_thing_has_a_singular_and_several_have_a_plural(kind: str) -> None:
    number = r"\b(two|three|four|five|six|seven|eight|nine) "
    several = re.compile(number + r"([a-z-]+ )*?([a-z-]+s|people|craft|passers-by)\b")
    for texts in sentences_of(kind):
        for sentence in texts:
            if re.search(number, sentence):
                assert several.search(sentence), sentence


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "count" in read_kind(kind).words])
def test_one_thing_is_called_by_its_singular(kind: str) -> None:
    count = str(read_kind(kind).words["count"]).replace("{number} ", "")
    slots, rng = {"count": count, "colour": "red"}, np.random.default_rng(3)
    one, many = ({fill("{count}", slots, plural, rng) for _ in range(100)} for plural in (False, True))
    plurals = "|".join(form.rstrip(".").lower() for form in many - one)
    for index in range(PICTURES):
        facets, sentences = draw_facets(kind, index)
        found = re.search(rf"\ba ({plurals})\b", " ".join(sentences), re.IGNORECASE)
        assert facets["number"] > 1 or found is None, found


@pytest.mark.parametrize("kind", KINDS)
def test_every_template_can_be_filled_for_every_picture(kind: str) -> None:
    rng = np.random.default_rng(3)
    described = read_kind(kind)
    for index in range(12):
        facets, _ = draw_facets(kind, index)
        slots, plural = slots_of(described.words, facets), facets.get("number", 1) > 1
        for template in described.subject + described.setting:
            assert fill(template, slots, plural, rng).endswith(".")


def test_templates_take_slots_alternatives_numbers_and_articles() -> None:
    rng = np.random.default_rng(0)
    assert fill("a {colour} boat[/s] sail[s/]", {"colour": "orange"}, False, rng) == "An orange boat sails."
    assert fill("two boat[/s] <sail[s/]>", {}, True, rng) == "Two boats sail."


def test_an_unknown_kind_is_refused_with_the_list_of_kinds() -> None:
    with pytest.raises(ValueError, match=r"unknown kind 'dragons'.*cats.*sailing boats"):
        draw_sample("dragons", 0)


def test_samples_and_the_drawing_function_can_be_sent_to_other_processes() -> None:
    draw = pickle.loads(pickle.dumps(draw_sample))
    sample = pickle.loads(pickle.dumps(draw("cats", 0)))
    assert isinstance(sample, Sample)
    assert sample.image.tobytes() == draw_sample("cats", 0).image.tobytes()
