from pathlib import Path

from tests.faults.swap import campaign


def test_a_swap_under_load_fails_no_request_and_mixes_no_answer(tmp_path: Path) -> None:
    tally = campaign(seconds=6.0, clients=14, activations=20, folder=tmp_path)
    assert tally.violations == []
    assert tally["activations"] == 20
    assert min(tally["answers of version 1"], tally["answers of version 2"]) > 0
