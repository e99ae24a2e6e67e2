"""Background work in small steps."""

from types import SimpleNamespace

import pytest

from app.services.storage import pacing
from app.services.storage.pacing import Pacer, in_batches


def test_a_batch_ends_with_the_entry_that_makes_it_heavy() -> None:
    texts = ["a", "bb", "cccc", "d", "e", "ffffffff", "g"]
    assert list(in_batches(texts, 3, len, 5)) == [["a", "bb", "cccc"], ["d", "e", "ffffffff"], ["g"]]
    assert list(in_batches(texts, 2)) == [["a", "bb"], ["cccc", "d"], ["e", "ffffffff"], ["g"]]


@pytest.mark.parametrize(("worked", "slept"), [(0.0001, 0.0005), (0.01, 0.01), (7.0, 0.05)])
def test_urgent_work_sleeps_as_long_as_it_computed_within_bounds_and_other_work_three_times_as_long(
    monkeypatch: pytest.MonkeyPatch, worked: float, slept: float
) -> None:
    pauses: list[float] = []
    clock = iter(worked * n for n in range(10))
    monkeypatch.setattr(pacing, "time", SimpleNamespace(thread_time=lambda: next(clock), sleep=pauses.append))
    urgency = [True, False]
    pace = Pacer(lambda: urgency.pop())
    pace()
    pace()
    assert pauses == pytest.approx([3.0 * slept, slept])
