"""Sends mutated requests to a real server and notes what must never be."""

import re
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import sqlalchemy

from app.bootstrap import Services
from app.domain.names import Scope
from tests.app.contract.gallery import Gallery
from tests.fuzz.byte_mutations import FORMS, OCTETS
from tests.fuzz.images import IMAGES, has_picture
from tests.fuzz.json_mutations import TREES
from tests.fuzz.valid_requests import RETRAIN, goods
from tests.fuzz.wire import CLOSED, Answer, Connection, Good, Wire, rendered

_State = tuple[tuple[int, ...], set[str]]
"""Rows of each table with the sum of all revisions, and names of the files of pictures."""


@dataclass
class Tally:
    """What was answered, and every breach: the number of the input and what was wrong."""

    statuses: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    breaches: list[str] = field(default_factory=list)
    good_requests: int = 0
    left_files: int = 0
    """Pictures that refused imports had put aside already: unused, and gone with the next sweep."""
    start_megabytes: float = 0.0
    peak_megabytes: float = 0.0
    end_megabytes: float = 0.0
    slowest_seconds: float = 0.0
    slowest: str = ""


def megabytes(pid: int, field_name: str) -> float:
    """Return the resident memory of a process (`VmRSS`) or its peak (`VmHWM`)."""
    found = re.search(rf"{field_name}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    if found is None:
        raise ValueError(f"/proc/{pid}/status tells no {field_name}")
    return int(found[1]) / 1024


class Stored:
    """Counts what the database and the folder of pictures hold."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._engine = services.database.engine
        self._pictures = services.settings.data_dir / "pictures"
        tables = sorted(sqlalchemy.inspect(self._engine).get_table_names())
        counts = [f'(SELECT count(*) FROM "{name}")' for name in tables if name != "alembic_version"]
        self._query = f"SELECT (SELECT coalesce(sum(revision), 0) FROM collections), {', '.join(counts)}"

    def state(self) -> tuple[int, ...]:
        with self._engine.connect() as connection:
            return tuple(int(count) for count in connection.exec_driver_sql(self._query).one())

    def pictures(self) -> set[str]:
        return {path.name for path in self._pictures.glob("[!.]*/*") if path.is_file()}

    def unaccounted(self) -> set[str]:
        """Return pictures that are unused although swept, and those in use that are not there."""
        self._services.garbage_collector.sweep()
        with self._engine.connect() as connection:
            rows = connection.exec_driver_sql(
                "SELECT content_hash FROM items UNION SELECT content_hash FROM feedback"
            )
            return self.pictures() ^ ({row[0] for row in rows} - {None})


class Campaign:
    """A seeded series of mutated requests.
    Input `n` depends on seed and `n` alone, so that one can be sent again by itself."""

    def __init__(self, gallery: Gallery, stored: Stored, seed: int, with_import: bool) -> None:
        self._gallery = gallery
        self._stored = stored
        self._seed = seed
        self._with_import = with_import
        self.tally = Tally(start_megabytes=megabytes(gallery.server.process.pid, "VmRSS"))

    def run(self, numbers: range, every: int, told: Callable[[str], None]) -> None:
        """Send inputs; good requests before, after every so many, and in the end."""
        connection = Connection(self._gallery.url, self._gallery.keys[Scope.ADMIN])
        pid = self._gallery.server.process.pid
        try:
            self._check_good(connection, -1)
            state = self._stored.state(), self._stored.pictures()
            for number in numbers:
                state = self._one(connection, number, state)
                if self._gallery.server.process.poll() is not None:
                    self.tally.breaches.append(
                        f"{number}: the server ended:\n{self._gallery.server.said()[-2000:]}"
                    )
                    return
                if (number + 1) % every == 0:
                    self._check_good(connection, number)
                    state = self._stored.state(), self._stored.pictures()
                    memory = megabytes(pid, "VmRSS")
                    told(f"{number + 1} inputs, {len(self.tally.breaches)} breaches, {memory:.0f} MB")
            self._check_good(connection, numbers.stop)
            if unaccounted := self._stored.unaccounted():
                self.tally.breaches.append(f"pictures unused or missing in the end: {unaccounted}")
        finally:
            connection.close()
            if self._gallery.server.process.poll() is None:
                self.tally.peak_megabytes = megabytes(pid, "VmHWM")
                self.tally.end_megabytes = megabytes(pid, "VmRSS")

    def mutated(self, number: int) -> tuple[str, Good, Wire]:
        """Return input `number`: its kind, what it was, what it became."""
        random = Random(f"{self._seed}:{number}")
        good = random.choice([*goods(random, self._with_import), RETRAIN])
        group = random.choice(_groups(good))
        kind = random.choice(list(group))
        return kind, good, group[kind](random, good)

    def _one(self, connection: Connection, number: int, before: _State) -> _State:
        kind, good, wire = self.mutated(number)
        began = time.perf_counter()
        answer = connection.send(wire)
        seconds = time.perf_counter() - began
        if seconds > self.tally.slowest_seconds:
            self.tally.slowest_seconds, self.tally.slowest = seconds, f"{number}: {kind} of {good.name}"
        if answer.status == CLOSED:
            # Where nothing was answered, the server may still be at work on what it took for whole.
            connection.close()
            self._wait_until_idle()
        label = "closed" if answer.status == CLOSED else str(answer.status)
        self.tally.statuses[label] += 1
        self.tally.kinds[f"{kind}: {label}"] += 1
        after = self._stored.state(), self._stored.pictures()
        has_changed = after[0] != before[0]
        if answer.status >= 400 and good.kind == "ndjson":
            self.tally.left_files += len(after[1] - before[1])
        else:
            has_changed = has_changed or after[1] != before[1]
        for wrong in _breaches(answer, has_changed):
            said = answer.body[:300].decode("utf-8", "replace")
            self.tally.breaches.append(f"{number}: {kind} of {good.name}: {wrong}: {said}")
        return after

    def _wait_until_idle(self) -> None:
        health = Connection(self._gallery.url, "")
        health.send(Wire("GET", "/healthz", (), b""))
        health.close()

    def _check_good(self, connection: Connection, number: int) -> None:
        """Every good request is answered as it should, whatever came before."""
        for good in goods(Random(f"{self._seed}:good:{number}"), self._with_import):
            answer = connection.send(rendered(good))
            self.tally.good_requests += 1
            if answer.status != good.status:
                said = answer.body[:300].decode("utf-8", "replace")
                self.tally.breaches.append(f"after {number}: good {good.name} got {answer.status}: {said}")


def _groups(good: Good) -> list[Mapping[str, Callable[[Random, Good], Wire]]]:
    found: list[Mapping[str, Callable[[Random, Good], Wire]]] = [TREES, TREES, OCTETS]
    if good.kind == "form":
        found += [FORMS, FORMS]
    if has_picture(good):
        found += [IMAGES, IMAGES]
    return found


def _breaches(answer: Answer, has_changed: bool) -> list[str]:
    found = []
    if answer.status >= 500:
        found.append(f"status {answer.status}")
    is_success = 200 <= answer.status < 300
    if answer.status != CLOSED and not is_success and not 400 <= answer.status < 500:
        found.append(f"neither accepted nor refused: {answer.status}")
    if has_changed and not is_success:
        found.append(f"stored something although it was refused with {answer.status}")
    # What is no HTTP at all is refused by the server before the application sees it, in plain text.
    is_problem = answer.media_type.startswith("application/problem+json")
    if 400 <= answer.status < 500 and not is_problem and answer.body != b"Invalid HTTP request received.":
        found.append(f"a refusal that is no problem: {answer.media_type}")
    return found
