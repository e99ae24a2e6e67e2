import pytest
import typer

from app.cli.training_options import read_objective


def test_an_objective_is_a_name_or_weights() -> None:
    assert read_objective("recall") == "recall"
    assert read_objective("ndcg=2, recall=0.5") == {"ndcg": 2.0, "recall": 0.5}


@pytest.mark.parametrize(
    "text", ["", "precision", "ndcg=", "ndcg=-1", "ndcg=inf", "ndcg=nan", "ndcg,recall", "ndcg=1,ndcg=2"]
)
def test_what_is_no_objective_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="ndcg, map or recall, or weights such as ndcg=2,recall=1"):
        read_objective(text)
