from tests.fuzz.run import fuzz


def test_nothing_but_refusals_comes_of_mutated_requests() -> None:
    """What breaks here is sent again alone by ``python -m tests.fuzz.run --seed 7 --only <number>``."""
    tally = fuzz(range(400), seed=7, every=200)
    assert tally.breaches == []
    assert sum(tally.statuses.values()) == 400
    refused = sum(count for status, count in tally.statuses.items() if status.startswith("4"))
    assert refused > 200
    assert len({kind.split(":")[0] for kind in tally.kinds}) >= 30
