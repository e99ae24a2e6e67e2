"""Trainings that begin by themselves, as the policy of a collection says."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text

from app.answers import RetrainingPolicy
from app.bootstrap import Services
from app.domain.entities import JobState
from app.domain.errors import CollectionNotFoundError, ConflictError, InvalidFieldError
from app.domain.filters import NO_FILTER
from app.domain.reports import Supervision
from app.services.catalogue.service import ItemChange, NewFeedback
from app.services.storage.pacing import Round
from app.services.training.automatic import AutomaticRetraining
from app.worker.attempts import Lease, Outcome
from tests.app.integration.conftest import Pairs
from tests.app.integration.in_process import run_here, run_with, train_here
from tests.app.integration.searching import PARAMETERS

NAME = "a"


@dataclass
class Clock:
    """A shop that is looked at as time passes."""

    pairs: Pairs
    retraining: AutomaticRetraining
    now: datetime
    n_written: int = 0

    def look(self, minutes: float = 1.0) -> str | None:
        """Look once more after some minutes; return the reason of a training that was requested, and run."""
        self.now += timedelta(minutes=minutes)
        assert self.retraining.go_on(Round())
        job = self.pairs.services.training.jobs(NAME, 1)[0]
        if not job.state.is_open:
            return None
        run_here(self.pairs.services)
        reason: str | None = job.parameters["reason"]
        return reason

    def write(self, n_items: int) -> None:
        for _ in range(n_items):
            self.n_written += 1
            row = self.pairs.data.X[self.n_written % 20]
            item = self.pairs.item("x", f"new{self.n_written}", row, "class 0")
            self.pairs.services.catalogue.add_items(NAME, [item])


@pytest.fixture
def shop(trained_either: Pairs) -> Clock:
    services = trained_either.services
    retraining = AutomaticRetraining(services.database, services.training, lambda _: clock.now)
    clock = Clock(trained_either, retraining, datetime.now(UTC))
    return clock


def allow(shop: Clock, **limits: object) -> None:
    policy = replace(RetrainingPolicy(), **limits)
    assert shop.pairs.services.training.set_policy(NAME, policy).retraining == policy


def test_enough_changed_items_are_learned_from_once_nothing_more_is_written(shop: Clock) -> None:
    assert shop.look() is None
    allow(shop, changed_items=3)
    shop.write(2)
    assert shop.look() is shop.look() is None
    shop.write(1)
    assert shop.look() is None
    shop.write(1)
    assert shop.look() is None
    shop.pairs.services.catalogue.delete_item(NAME, "new1")
    assert shop.look() is None
    assert shop.look() == "changed items since version 1: 3 or more"
    new, old = (version.report.parameters for version in shop.pairs.services.versions.models(NAME))
    assert new == replace(old, reason="changed items since version 1: 3 or more")
    assert shop.look() is shop.look() is None
    shop.write(3)
    writes_go_on = [shop.look(30.0)]
    for _ in range(2):
        shop.write(1)
        writes_go_on.append(shop.look(30.0))
    assert writes_go_on == [None, None, "changed items since version 2: 3 or more"]
    allow(shop)
    shop.write(9)
    assert shop.look() is shop.look() is None


def test_judgements_and_hours_count_from_the_newest_version(shop: Clock) -> None:
    allow(shop, judgements=2, hours=24.0)
    judged = [NewFeedback("z", "x", "x00", True, query_item_id=f"z0{number}") for number in range(2)]
    shop.pairs.services.feedback.add(NAME, judged[:1])
    assert shop.look() is shop.look() is None
    shop.pairs.services.feedback.add(NAME, judged[1:])
    assert shop.look() is None
    assert shop.look() == "judgements since version 1: 2"
    assert shop.look(60 * 25) is shop.look() is None  # nothing has changed
    shop.write(1)
    assert shop.look() is None
    assert shop.look() == "hours since version 2: 24, with changes"


def test_what_was_judged_during_a_training_counts_after_it(pairs: Pairs) -> None:
    pairs.fill(NAME)
    services = pairs.services
    services.training.set_policy(NAME, RetrainingPolicy(judgements=1))
    services.training.request(NAME, PARAMETERS)

    def train_and_judge(services: Services, lease: Lease) -> Outcome:
        outcome = train_here(services, lease)
        services.feedback.add(NAME, [NewFeedback("z", "x", "x00", True, query_item_id="z00")])
        return outcome

    assert run_with(services, train_and_judge)
    retraining = AutomaticRetraining(services.database, services.training)
    assert retraining.go_on(Round())
    assert retraining.go_on(Round())
    reason = services.training.jobs(NAME, 1)[0].parameters["reason"]
    assert reason == "judgements since version 1: 1"


def test_parameters_that_no_longer_suit_the_items_are_tried_each_hour_and_said_once(
    pairs: Pairs, caplog: pytest.LogCaptureFixture
) -> None:
    pairs.make(NAME)
    services, data = pairs.services, pairs.data
    for side, rows, labels in (("x", data.X, data.x_labels), ("z", data.Z, data.z_labels)):
        items = [
            pairs.item(side, f"{side}{number}", row, f"class {label}", metadata={"colour": f"{number % 3}"})
            for number, (row, label) in enumerate(zip(rows, labels, strict=True))
        ]
        services.catalogue.add_items(NAME, items)
    pairs.train(NAME, replace(PARAMETERS, supervision=Supervision(facets=("colour",))))
    services.catalogue.change_passing(NAME, NO_FILTER, ItemChange((), metadata={"colour": None}))
    clock = Clock(
        pairs,
        AutomaticRetraining(services.database, services.training, lambda _: clock.now),
        datetime.now(UTC),
    )
    for n_said in (1, 2):  # again, once none was due in between
        allow(clock, changed_items=1)
        for minutes in [1.0] * 30 + [61.0] * 4:
            assert clock.look(minutes) is None
        assert sum("no training item of modality" in record.message for record in caplog.records) == n_said
        allow(clock, changed_items=10**6)
        assert clock.look(61.0) is None


def test_trainings_begin_in_quiet_hours_alone(shop: Clock) -> None:
    shop.now = shop.now.replace(hour=21, minute=50)
    allow(shop, changed_items=1, quiet_hours=(22, 6))
    shop.write(1)
    assert shop.look() is shop.look() is None
    assert shop.look(10) == "changed items since version 1: 1 or more"
    shop.write(1)
    assert shop.look(60 * 8) is shop.look() is None
    shop.now = shop.now.replace(hour=5)
    assert shop.look() == "changed items since version 2: 1 or more"


def test_after_a_training_that_failed_six_hours_pass(shop: Clock) -> None:
    allow(shop, changed_items=1)
    services = shop.pairs.services
    shop.write(1)
    services.training.request(NAME, PARAMETERS)
    cancelled = services.training.cancel(services.training.jobs(NAME, 1)[0].id)
    assert cancelled.state is JobState.CANCELLED
    assert shop.look() is shop.look(60 * 5) is None
    assert shop.look(60) is None
    assert shop.look() == "changed items since version 1: 1 or more"


def test_a_collection_that_goes_is_passed_over_and_one_of_nothing_is_not_trained(either: Pairs) -> None:
    either.make(NAME)
    services = either.services
    services.training.set_policy(NAME, RetrainingPolicy(changed_items=1))
    services.catalogue.add_items(NAME, [either.item("x", "x0", either.data.X[0])])
    retraining = AutomaticRetraining(services.database, services.training)
    assert retraining.go_on(Round())
    assert retraining.go_on(Round())
    assert services.training.jobs(NAME, 1) == []
    services.catalogue.delete_collection(NAME)
    assert retraining.go_on(Round())
    with pytest.raises(CollectionNotFoundError):
        services.training.set_policy(NAME, RetrainingPolicy(changed_items=1))


def test_who_wants_a_training_that_is_under_way_for_another_reason_joins_it(pairs: Pairs) -> None:
    pairs.fill(NAME)
    training = pairs.services.training
    job = training.request(NAME, replace(PARAMETERS, reason="changed items: 3 or more"))
    assert training.request_or_join(NAME, PARAMETERS).id == job.id
    with pytest.raises(ConflictError, match="already queued"):
        training.request_or_join(NAME, replace(PARAMETERS, seed=5))


def test_a_reason_that_cannot_be_stored_is_refused(pairs: Pairs) -> None:
    pairs.fill(NAME)
    with pytest.raises(InvalidFieldError, match="reason"):
        pairs.services.training.request(NAME, replace(PARAMETERS, reason="\0"))


def test_workers_of_the_release_before_take_a_job_with_a_reason(pairs: Pairs) -> None:
    # They run beside these for a while, and refuse parameters that they do not know.
    pairs.fill(NAME)
    job = pairs.services.training.request(NAME, replace(PARAMETERS, reason="new pictures"))
    assert job.parameters["reason"] == "new pictures"
    with pairs.services.database.read() as work:
        row = work.session.execute(text("SELECT reason, parameters FROM jobs")).one()
    assert row.reason == "new pictures"
    assert json.loads(row.parameters).keys() == job.parameters.keys() - {"reason"}
