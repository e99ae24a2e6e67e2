import numpy as np
import pytest

from solver.comparison.cells import BoundedCache


def _cache(max_bytes: int) -> BoundedCache[str, np.ndarray]:
    return BoundedCache(max_bytes, lambda array: array.nbytes)


def _never() -> np.ndarray:
    raise AssertionError("computed again")


def test_a_value_is_computed_once() -> None:
    cache = _cache(100)
    first = cache.get("a", lambda: np.zeros(5))
    assert cache.get("a", _never) is first


def test_the_least_recently_used_goes_first() -> None:
    cache = _cache(80)
    for key in "ab":
        cache.get(key, lambda: np.zeros(5))
    cache.get("a", _never)
    cache.get("c", lambda: np.zeros(5))
    cache.get("a", _never)
    with pytest.raises(AssertionError, match="computed again"):
        cache.get("b", _never)


def test_only_the_last_stays_of_values_beyond_the_bound() -> None:
    cache = _cache(10)
    for key in "ab":
        cache.get(key, lambda: np.zeros(5))
    cache.get("b", _never)
    with pytest.raises(AssertionError, match="computed again"):
        cache.get("a", _never)
