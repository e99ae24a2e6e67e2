"""The rows of hits that a snapshot keeps: searches of one revision read them once, those of the next anew."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import sqlalchemy

from app.domain.entities import Content, Modality
from app.services.catalogue.service import NewItem
from tests.app.integration.conftest import FINE, Pairs

PATH = "/v1/collections/a/search/x-to-text"


@contextmanager
def rows_read(engine: sqlalchemy.Engine) -> Iterator[list[str]]:
    statements: list[str] = []

    def note(_: object, __: object, statement: str, *___: object) -> None:
        if "FROM items" in statement:
            statements.append(statement)

    sqlalchemy.event.listen(engine, "before_cursor_execute", note)
    try:
        yield statements
    finally:
        sqlalchemy.event.remove(engine, "before_cursor_execute", note)


def test_the_rows_of_hits_are_read_once_for_a_revision_and_show_what_was_written_since(pairs: Pairs) -> None:
    catalogue, rng = pairs.services.catalogue, np.random.default_rng(0)
    catalogue.create("a", [Modality("x", {"type": "vector"}), Modality("text", {"type": "tfidf"})])
    rows = rng.normal(size=(30, 4)) + 3.0 * np.eye(4)[np.arange(30) % 3]
    vectors = [pairs.item("x", f"x{n}", row, str(n % 3)) for n, row in enumerate(rows)]
    texts = [
        NewItem("text", Content(text=f"kind{n % 3} word{n}"), f"t{n}", (str(n % 3),), metadata={"n": n})
        for n in range(30)
    ]
    catalogue.add_items("a", [*vectors, *texts])
    pairs.train("a", FINE)
    with pairs.client(raise_errors=True) as client:

        def ask(**options: object) -> list[dict[str, object]]:
            body = {"vector": rows[0].tolist(), "k": 30, **options}
            hits: list[dict[str, object]] = client.post(PATH, json=body).raise_for_status().json()["hits"]
            return hits

        first = ask()
        with rows_read(pairs.services.database.engine) as statements:
            assert ask() == first
            assert ask(k=5) == first[:5]
        assert statements == []
        assert {hit["id"]: hit["text"] for hit in first} == {
            f"t{n}": f"kind{n % 3} word{n}" for n in range(30)
        }
        bare = ask(include=["metadata"])
        assert [hit["metadata"] for hit in bare] == [hit["metadata"] for hit in first]
        assert {hit["text"] for hit in bare} == {None}
        changed = NewItem("text", Content(text="kind0 changed"), "t0", ("0",), metadata={"n": -1})
        catalogue.add_items("a", [changed], replace=True)
        catalogue.delete_item("a", "t1")
        now = {hit["id"]: hit for hit in ask()}
        assert (now["t0"]["text"], now["t0"]["metadata"]) == ("kind0 changed", {"n": -1})
        assert "t1" not in now
