"""Background work in small steps."""

from types import SimpleNamespace

import pytest

from app.services.serving import pacing
from app.services.serving.pacing import Pacer, in_batches


def test_a_batch_ends_with_the_entry_that_makes_it_heavy() -> None:
    texts = ["a", "bb", "cccc", "d", "e", "ffffffff", "g"]
    assert list(in_batches(texts, 3, len, 5)) == [["a", "bb", "cccc"], ["d", "e", "ffffffff"], ["g"]]
    assert list(in_batches(texts, 2)) == [["a", "bb"], ["cccc", "d"], ["e", "ffffffff"], ["g"]]


@pytest.mark.parametrize("worked", [0.0001, 0.01, 7.0])
def test_work_that_is_not_urgent_sleeps_longer(monkeypatch: pytest.MonkeyPatch, worked: float) -> None:
    pauses: list[float] = []
    clock = iter(worked * n for n in range(10))
    monkeypatch.setattr(pacing, "time", SimpleNamespace(thread_time=lambda: next(clock), sleep=pauses.append))
    urgency = [True, False]
    pace = Pacer(lambda: urgency.pop())
    pace()
    pace()
    assert pauses[0] == pytest.approx(pacing._BACKGROUND_SLEEP_FACTOR * pauses[1])
    assert 0.0 < pauses[1] <= pacing._MAX_SLEEP_SECONDS
