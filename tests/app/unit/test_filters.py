from typing import Any

import pytest

from app.domain.entities import ItemFilter


@pytest.mark.parametrize(
    ("value", "wanted", "passes"),
    [
        (1, (1,), True),
        (1, (2, 1.0), True),
        (True, (1,), False),
        (0, (False,), False),
        (True, ("x", True), True),
        ("1", (1,), False),
        (None, (0, "", False), False),
        ([1], (1,), False),
        ({"a": 1}, ("a",), False),
        (1, (), False),
    ],
)
def test_values_are_equal_when_json_says_so(value: Any, wanted: tuple[Any, ...], passes: bool) -> None:
    assert ItemFilter(metadata={"n": wanted}).accepts((), {"n": value}) is passes
    assert ItemFilter(metadata={"n": wanted}).accepts((), {"m": value}) is False


class Counted(int):
    """A number that counts how often it is compared."""

    comparisons = 0

    def __eq__(self, other: object) -> bool:
        Counted.comparisons += 1
        return int(self) == other

    def __hash__(self) -> int:
        return hash(int(self))


def test_a_row_is_not_compared_with_every_value() -> None:
    wanted = ItemFilter(metadata={"n": tuple(map(Counted, range(1000)))})
    assert wanted.accepts((), {"n": 7})  # what is done once for all rows
    Counted.comparisons = 0
    assert not any(wanted.accepts((), {"n": 1000 + number}) for number in range(100))
    assert Counted.comparisons <= 100


def test_what_is_remembered_of_a_filter_is_short_and_its_own() -> None:
    filters = [
        ItemFilter(),
        ItemFilter(("n",)),
        ItemFilter(metadata={"n": (1,)}),
        ItemFilter(metadata={"n": (True,)}),
        ItemFilter(metadata={"n": ("x" * 1_000_000,)}),
    ]
    found = [one.fingerprint for one in filters]
    assert len(set(found)) == len(filters)
    assert all(len(fingerprint) <= 64 for fingerprint in found)
    assert ItemFilter(("a", "b")).fingerprint == ItemFilter(("b", "a")).fingerprint
