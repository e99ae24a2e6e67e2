"""What an answer says beside its hits."""

import pytest

from app.domain.entities import Item
from app.domain.searches import Hit
from app.services.serving.notices import weak_match_notices


def hits(probability: float, first_rank: int = 1) -> list[Hit]:
    return [
        Hit("a", first_rank, 0.1, probability, Item("a", "image")),
        Hit("b", 2, 0.0, 0.0, Item("b", "image")),
    ]


def test_a_text_that_even_the_first_hit_hardly_matches_is_named() -> None:
    (notice,) = weak_match_notices(hits(0.00199), 0.005, "red bags")
    assert (notice.code, notice.words) == ("weak-match", ())
    assert notice.message == (
        "no result stands out: the best is a match with a probability of 0.1 %; other or more words may help"
    )


@pytest.mark.parametrize(
    "shown",
    [
        hits(0.005),
        hits(0.9),
        [],
        hits(0.001, first_rank=11),
        [*hits(0.001), Hit("c", 3, 0.0, 0.4, Item("c", "image"))],  # words counted more than what was learned
    ],
)
def test_nothing_is_said_of_good_results_of_none_and_of_further_pages(shown: list[Hit]) -> None:
    assert weak_match_notices(shown, 0.005, "red bags") == ()


@pytest.mark.parametrize(
    "item",
    [Item("a", "image", labels=("Head wear",)), Item("a", "image", metadata={"kind": ["Bags", "HEAD WEAR"]})],
)
def test_nothing_is_said_where_the_first_hit_carries_what_was_typed(item: Item) -> None:
    shown = [Hit("a", 1, 0.1, 0.001, item)]
    assert weak_match_notices(shown, 0.005, "head wear") == ()
    assert weak_match_notices(shown, 0.005, "head wears") != ()
