"""Kill everything, again and again, under load: ``python -m tests.faults.run --kills 100 --seed 1``."""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import secrets
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from tests.faults import checks
from tests.faults.campaign import conduct
from tests.faults.clients import SWAPS, Client, Retrainer, Swapper, World, Writer
from tests.faults.cluster import PostgresCluster
from tests.faults.expectation import Expectation
from tests.faults.hosts import Host, hosts
from tests.faults.ledger import Ledger, Outcome
from tests.faults.material import MODALITIES, PAIRS, base_items, client_of, train
from tests.faults.observer import Observer, observing_engine
from tests.faults.processes import (
    Managed,
    command_line,
    descendants_of,
    environment_of,
    free_port,
    marked,
    prepare,
    run_lrbs,
    wait_until_ready,
)
from tests.faults.searcher import Searcher
from tests.faults.stores import FolderStore, S3Store, Store, s3_store
from tests.faults.tally import Tally
from tests.faults.victims import Victims

_LEASE_SECONDS = 2.0
_SETTINGS = {
    "LRBS_LEASE_SECONDS": str(_LEASE_SECONDS),
    "LRBS_JOB_ATTEMPTS": "5",
    "LRBS_JOB_RETRY_SECONDS": "0.2",
    "LRBS_KEEP_VERSIONS": str(checks.KEPT_VERSIONS),
    "LRBS_SWEEP_GRACE_SECONDS": "30",
    "LRBS_TRASH_SECONDS": "0",
    "LRBS_SAVE_AFTER_ITEMS": "20",
}
_TRAIN_SECONDS = 180.0
_SWAP_SECONDS = 120.0
"""After the last kill."""


class System:
    """The processes of one service: on one host a server with a worker beside it, on the other one of each.
    Without a cluster on SQLite, without a store in the data folder."""

    def __init__(
        self, folder: Path, cluster: PostgresCluster | None, store: S3Store | None, first: Host, second: Host
    ) -> None:
        self.mark = secrets.token_hex(8)
        self.data_dir = first.data_dir
        self.store: Store = FolderStore(self.data_dir) if store is None else store
        file = f"sqlite:///{self.data_dir / 'lrbs.sqlite3'}"
        self.database_url = file if cluster is None else cluster.url
        one, other = (
            environment_of(
                host.data_dir,
                file if cluster is None else cluster.url_from(host.gateway),
                self.mark,
                **_SETTINGS,
                **self.store.settings(host.gateway),
            )
            for host in (first, second)
        )
        self.local = {**one, "LRBS_DATABASE_URL": self.database_url, **self.store.settings("127.0.0.1")}
        self.key = prepare(self.local)
        self.servers = [
            Managed("api-0", ("serve",), one, folder / "api-0.log", free_port(), first),
            Managed("api-1", ("serve", "--no-worker"), other, folder / "api-1.log", free_port(), second),
        ]
        self.worker = Managed("worker", ("worker",), other, folder / "worker.log", host=second)

    @property
    def processes(self) -> list[Managed]:
        """All that the harness itself started."""
        return [*self.servers, self.worker]

    def strays(self) -> set[int]:
        """Return processes of this run below none that is alive and ours."""
        return marked(self.mark) - descendants_of(os.getpid())

    def start(self) -> None:
        """Start all and wait until the servers are ready."""
        for process in self.processes:
            process.start()
        self.wait()

    def wait(self) -> None:
        """Wait until every server is ready."""
        wait_until_ready([server.url for server in self.servers])

    def stop(self, tally: Tally) -> None:
        """Stop all; whatever is left after that is an orphan."""
        for process in self.processes:
            process.stop()
            for line in process.unasked:
                tally.violation(line)
            tally.count("starts refused, the database being away", process.refused_starts)
        deadline = time.monotonic() + 30.0
        while marked(self.mark) and time.monotonic() < deadline:
            time.sleep(0.1)
        for process_id in marked(self.mark):
            tally.violation(f"an orphan is left: {command_line(process_id)}")
            with contextlib.suppress(ProcessLookupError):
                os.kill(process_id, signal.SIGKILL)


def fill(world: World, versions: int) -> None:
    """Make both collections, store the base items and train the first versions."""
    with client_of(world.servers[0].url, world.key) as client:
        for name, modalities in MODALITIES.items():
            body = {"name": name, "modalities": modalities}
            client.post("/v1/collections", json=body).raise_for_status()
        for items in base_items().values():
            write = world.ledgers[PAIRS].begin({item["id"]: 0 for item in items})
            answer = client.post(f"/v1/collections/{PAIRS}/items", json={"items": items}).raise_for_status()
            world.ledgers[PAIRS].close(write, Outcome.ACKNOWLEDGED, answer.json()["revision"])
        for seed in range(versions):
            train(client, PAIRS, _TRAIN_SECONDS, seed=seed, alpha=10.0 ** (seed - 4), scaling="standard")


def campaign(
    kills: int,
    database: str,
    seed: int,
    folder: Path,
    swaps: int = 0,
    are_isolated: bool = False,
    storage: str = "folder",
) -> Tally:
    """Run clients and kill processes; return what happened.
    The seed is of all choices, not of when they fall."""
    # At least `swaps` times another version is activated meanwhile; with 0 only new ones become active. The
    # hosts share their data folder, or an object store, where each has a data folder of its own.
    tally = Tally()
    with contextlib.ExitStack() as stack:
        cluster = None
        if database == "postgres":
            cluster = stack.enter_context(contextlib.closing(PostgresCluster(are_isolated)))
        store = stack.enter_context(s3_store(are_isolated)) if storage == "s3" else None
        places = stack.enter_context(hosts(folder, are_isolated, store is None))
        system = System(folder, cluster, store, *places)
        with _stopped_at_the_end(system, tally):
            system.start()
            ledgers = {name: Ledger() for name in MODALITIES}
            world = World(system.servers, system.key, ledgers, tally, threading.Event(), [])
            engine = observing_engine(system.database_url)
            expectation = Expectation(engine, system.store.bundle, PAIRS)
            fill(world, 2 if swaps else 1)
            before = checks.recall(world, expectation)
            observer = Observer(engine, tally, system.strays, swaps > 0)
            clients: list[Client] = [
                *(Writer(world, f"w{number}", seed) for number in range(2)),
                *(Searcher(world, f"s{number}", seed, expectation, swaps > 0) for number in range(2)),
                Retrainer(world, "retrainer", seed),
                *([Swapper(world, "swapper", seed)] if swaps else []),
            ]
            try:
                observer.start()
                for client in clients:
                    client.start()
                _kill(
                    kills,
                    Victims(system.processes, cluster, tally, system.data_dir / "galleries"),
                    system,
                    random.Random(seed),
                )
                _wait_for_swaps(tally, swaps)
            finally:
                world.stopping.set()
                for client in clients:
                    client.join()
            system.wait()
            checks.wait_for_jobs(world)
            observer.stop()
            checks.check_items(world)
            checks.check_versions(world)
            after = checks.recall(world, expectation)
            if not sum(before) / len(before) == sum(after) / len(after) == 1.0:
                tally.violation(
                    f"recall@10 before {sum(before) / len(before)}, after {sum(after) / len(after)}"
                )
            tally.most("recall@10 after, percent", round(100 * sum(after) / len(after)))
        _sweep(system)
        checks.check_publications(world, engine)
        checks.check_files(world, engine, system.data_dir, system.store)
        tally.most("starts", sum(process.lives for process in system.processes))
    return tally


@contextlib.contextmanager
def _stopped_at_the_end(system: System, tally: Tally) -> Iterator[None]:
    try:
        yield
    finally:
        system.stop(tally)


def _kill(kills: int, victims: Victims, system: System, chance: random.Random) -> None:
    for _ in range(kills):
        # Mostly all is well again before the next one; sometimes it strikes during the recovery.
        if chance.random() < 0.8:
            system.wait()
        time.sleep(chance.uniform(0.0, 3.0))
        if chance.random() < 0.15:
            victims.pause_one(chance, _LEASE_SECONDS * chance.uniform(1.1, 2.0))
        victims.kill_one(chance)


def _wait_for_swaps(tally: Tally, swaps: int) -> None:
    deadline = time.monotonic() + _SWAP_SECONDS
    while tally[SWAPS] < swaps:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{tally[SWAPS]} swaps of {swaps}")
        time.sleep(0.1)


def _sweep(system: System) -> None:
    time.sleep(0.1)
    run_lrbs({**system.local, "LRBS_SWEEP_GRACE_SECONDS": "0", "LRBS_TRASH_SECONDS": "0"}, "db", "sweep")


def main() -> None:
    """Run one from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--swaps", type=int, default=0, help="least number of other versions activated")
    parser.add_argument("--storage", choices=("folder", "s3"), default="folder")
    parser.add_argument("--isolated", action="store_true", help="hosts with networks of their own (as root)")
    conduct(
        parser,
        lambda asked, folder: campaign(
            asked.kills, asked.database, asked.seed, folder, asked.swaps, asked.isolated, asked.storage
        ),
    )


if __name__ == "__main__":
    main()
