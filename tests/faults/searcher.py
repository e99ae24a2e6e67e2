"""A client that searches whole galleries and holds every answer against one consistent state."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import sqlalchemy

from tests.faults.clients import Client, World
from tests.faults.expectation import Expectation, by_facet, carried_by
from tests.faults.material import PAIRS, X, Z, class_of, query_vectors, vector_of

QUERIES = query_vectors(8)
LARGEST_LAG = "largest lag of a search, milliseconds"
_EVERYTHING = 10_000
_LATE_SECONDS = 1.0
"""As promised. It is counted from the acknowledgement of a write to the sending of the search: a machine that
stands still makes an answer late, but not old, since the server reads the revision after that."""


class Searcher(Client):
    """Searches one server after the other, z to x, for everything; with `swaps` earlier versions come
    back."""

    def __init__(
        self, world: World, name: str, seed: int, expectation: Expectation, swaps: bool = False
    ) -> None:
        super().__init__(world, name, seed)
        self._swaps = swaps
        self._expectation = expectation
        self._seen: dict[tuple[int, int], tuple[int, int]] = {}
        """Version and revision last answered in each life of each server."""

    def act(self) -> None:
        """Search once."""
        number = self.chance.randrange(len(self.world.servers))
        life = number, self.world.servers[number].lives
        query = self.chance.randrange(len(QUERIES))
        body = {"vector": QUERIES[query].tolist(), "k": _EVERYTHING, "include": ["metadata"]}
        asked_at = time.monotonic()
        answer = self.send("POST", f"/v1/collections/{PAIRS}/search/{Z}-to-{X}", number, json=body)
        self.world.stopping.wait(self.chance.uniform(0.0, 0.2))
        if answer is None or answer.status_code in (429, 503) or answer.status_code >= 500:
            return
        if answer.status_code != 200:
            self.world.tally.violation(f"search: {answer.status_code} {answer.text[:300]}")
            return
        self.world.tally.count("searches")
        result = answer.json()
        if life == (number, self.world.servers[number].lives):
            self._check_order(life, result)
        self._check_lag(result["index_revision"], asked_at)
        self._check_state(result)
        self._check_scores(QUERIES[query], result)

    def _check_lag(self, revision: int, asked_at: float) -> None:
        lag = self.world.ledgers[PAIRS].lag(revision, asked_at)
        self.world.tally.most(LARGEST_LAG, round(1000.0 * lag))
        if lag > _LATE_SECONDS:
            self.world.tally.violation(
                f"a search at revision {revision} lacks what was acknowledged {lag:.1f} s before it was sent"
            )

    def _check_order(self, life: tuple[int, int], result: dict[str, Any]) -> None:
        found = 0 if self._swaps else result["model_version"], result["index_revision"]
        before = self._seen.get(life, (0, 0))
        if found[0] < before[0] or found[1] < before[1]:
            self.world.tally.violation(f"server {life} went back from {before} to {found}")
        self._seen[life] = found

    def _check_state(self, result: dict[str, Any]) -> None:
        """Everything must be as the writes up to the answer's revision left it."""
        ledger, hits = self.world.ledgers[PAIRS], result["hits"]
        found = {hit["id"]: hit["metadata"]["generation"] for hit in hits}
        if len(found) != len(hits):
            self.world.tally.violation("a search returned an item twice")
        if [hit["rank"] for hit in hits] != list(range(1, len(hits) + 1)):
            self.world.tally.violation("the ranks of an answer are not 1 to n")
        order = [(-hit["score"], hit["id"]) for hit in hits]
        if order != sorted(order):
            self.world.tally.violation("an answer is not in the order of its scores and ids")
        for wrong in ledger.wrong(found, result["index_revision"], ledger.known(f"{X}-")):
            self.world.tally.violation(f"search of version {result['model_version']}: {wrong}")

    def _check_scores(self, query: Any, result: dict[str, Any]) -> None:
        """Every score must be that of the answer's version, for the content the hit says it has."""
        hits = result["hits"]
        features = np.stack([vector_of(X, hit["id"], hit["metadata"]["generation"]) for hit in hits])
        carried = [carried_by([f"class {class_of(hit['id'])}"], hit["metadata"]) for hit in hits]
        try:
            version = result["model_version"]
            scores, allowed = self._expectation.scores(version, Z, query, features, by_facet(carried))
        except (sqlalchemy.exc.SQLAlchemyError, OSError):
            # The database is away, the version not yet read: the next answer of it will be judged.
            self.world.tally.count("searches whose scores could not be judged")
            return
        off = np.abs(scores - np.array([hit["score"] for hit in hits]))
        for row in np.flatnonzero(off > allowed)[:3].tolist():
            self.world.tally.violation(
                f"{hits[row]['id']} has score {hits[row]['score']}, version {result['model_version']} "
                f"gives {scores[row]} to generation {hits[row]['metadata']['generation']}"
            )
