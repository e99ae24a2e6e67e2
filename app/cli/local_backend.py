"""The services of this process in the words of REST: those methods of the client that commands call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from app import answers
from app.api import shown
from app.api.faults import parse_line
from app.api.schemas.filters import read_filter
from app.bootstrap import Services
from app.cli.encoders import ENCODER_OPTIONS, check_encoder
from app.domain.entities import KeyBounds, Modality
from app.domain.filters import filter_of
from app.domain.names import Scope

_BY = "command line"
_ROOT_PATH = ""  # no proxy stands between a command and the database here


@dataclass(frozen=True, slots=True)
class LocalBackend:
    """Does what commands ask for with the database here, whose schema is current, as the client would."""

    services: Services

    def list_collections(self) -> answers.Collections:
        stored = self.services.catalogue.collections()
        return answers.Collections([shown.show_collection(one) for one in stored])

    def get_collection(self, collection: str) -> answers.Collection:
        return shown.show_collection(*self.services.catalogue.collection(collection))

    def create_collection(self, name: str, modalities: Mapping[str, Mapping[str, Any]]) -> answers.Collection:
        """Errors name the options of the command."""
        for option, encoder in zip(ENCODER_OPTIONS, modalities.values(), strict=True):
            check_encoder(option, encoder)
        described = [Modality(side, dict(encoder)) for side, encoder in modalities.items()]
        return shown.show_collection(self.services.catalogue.create(name, described))

    def delete_collection(self, collection: str) -> None:
        self.services.catalogue.delete_collection(collection)

    def set_retraining(self, collection: str, **policy: Any) -> answers.Collection:
        from app.api.schemas.admin import RetrainingPolicyIn

        body = parse_line(RetrainingPolicyIn, msgspec.json.encode(policy))
        return shown.show_collection(self.services.training.set_policy(collection, body.to_policy()))

    def list_items(
        self,
        collection: str,
        *,
        limit: int,
        cursor: str | None = None,
        modality: str | None = None,
        pair_id: str | None = None,
        label: Sequence[str] = (),
        where: Sequence[str] = (),
    ) -> answers.ItemPage:
        item_filter = read_filter(filter_of(label, where), "where")
        page = self.services.catalogue.page(
            collection, modality, int(cursor or 0), limit, pair_id, item_filter
        )
        return shown.show_page(collection, page, _ROOT_PATH)

    def iter_export(
        self, collection: str, *, label: Sequence[str] = (), where: Sequence[str] = ()
    ) -> Iterator[dict[str, Any]]:
        item_filter = read_filter(filter_of(label, where), "where")
        for item, content in filter(None, self.services.catalogue.originals(collection, item_filter)):
            yield shown.show_original(item, content)

    def delete_items(self, collection: str, **which: Any) -> answers.Affected:
        from app.api.schemas.items import ItemsDeleteIn

        body = parse_line(ItemsDeleteIn, msgspec.json.encode(which))
        return self.services.catalogue.delete_passing(collection, body.to_filter(), body.dry_run)

    def update_items(self, collection: str, **which_and_how: Any) -> answers.Affected:
        from app.api.schemas.items import ItemsUpdateIn

        body = parse_line(ItemsUpdateIn, msgspec.json.encode(which_and_how))
        catalogue, change = self.services.catalogue, body.to_change()
        return catalogue.change_passing(collection, body.to_filter(), change, body.dry_run)

    def get_item(self, collection: str, item_id: str) -> answers.Item:
        return shown.show_item(collection, self.services.catalogue.item(collection, item_id), _ROOT_PATH)

    def list_partners(self, collection: str, item_ids: Sequence[str]) -> answers.Partners:
        return shown.show_partners(
            collection, self.services.catalogue.partners(collection, item_ids), _ROOT_PATH
        )

    def put_labels(self, collection: str, item_id: str, labels: Sequence[str]) -> answers.Written:
        written = self.services.catalogue.change_labels(collection, item_id, labels)
        return answers.Written(written.ids, written.revision)

    def delete_item(self, collection: str, item_id: str) -> answers.Written:
        written = self.services.catalogue.delete_item(collection, item_id)
        return answers.Written(written.ids, written.revision)

    def search(
        self,
        collection: str,
        source: str,
        target: str,
        *,
        text: str | None = None,
        picture: Path | None = None,
        sound: Path | None = None,
        item_id: str | None = None,
        **options: Any,
    ) -> answers.SearchResult:
        from app.cli import local_search

        query = local_search.query_of(text, picture, sound, item_id)
        return local_search.search(self.services, collection, (source, target), query, **options)

    def search_composed(
        self,
        collection: str,
        target: str,
        queries: Sequence[Mapping[str, Any]],
        *,
        include_given: bool = False,
        **options: Any,
    ) -> answers.SearchResult:
        from app.cli import local_search

        query = local_search.composed_of(queries, include_given)
        return local_search.search(self.services, collection, ("", target), query, **options)

    def create_feedback(self, collection: str, feedback: Iterable[Mapping[str, Any]]) -> answers.FeedbackIds:
        from app.cli.local_search import judgement_of

        judged = [judgement_of(**one) for one in feedback]
        return answers.FeedbackIds(list(self.services.feedback.add(collection, judged)))

    def list_feedback(
        self, collection: str, *, cursor: str | None = None, limit: int
    ) -> answers.FeedbackPage:
        return shown.show_feedback(*self.services.feedback.page(collection, int(cursor or 0), limit))

    def delete_feedback(self, collection: str, feedback_id: int) -> None:
        self.services.feedback.delete(collection, feedback_id)

    def list_models(self, collection: str) -> answers.Models:
        versions = self.services.versions.models(collection)
        return answers.Models([shown.show_model(version, is_whole=False) for version in versions])

    def get_model(self, collection: str, version: int) -> answers.Model:
        return shown.show_model(self.services.versions.model(collection, version))

    def activate_model(
        self, collection: str, version: int, *, expected_version: int | None = None, reason: str | None = None
    ) -> answers.Model:
        activated = self.services.versions.activate(collection, version, _BY, reason, expected_version)
        return shown.show_model(activated)

    def roll_back(
        self, collection: str, *, expected_version: int | None = None, reason: str | None = None
    ) -> answers.Model:
        activated = self.services.versions.roll_back(collection, _BY, reason, expected_version)
        return shown.show_model(activated)

    def list_activations(self, collection: str, *, limit: int) -> answers.Activations:
        return answers.Activations(list(self.services.versions.history(collection, limit)))

    def create_key(
        self,
        scope: str,
        *,
        name: str | None = None,
        collections: Sequence[str] | None = None,
        expires_at: datetime | None = None,
        requests_per_minute: int | None = None,
    ) -> answers.Key:
        bound_to = None if collections is None else tuple(collections)
        bounds = KeyBounds(bound_to, expires_at, requests_per_minute)
        key, secret = self.services.access.create(Scope(scope), name, bounds=bounds)
        return shown.show_key(key, secret)

    def list_keys(self) -> answers.Keys:
        return answers.Keys([shown.show_key(key) for key in self.services.access.list_keys()])

    def revoke_key(self, key_id: str) -> None:
        self.services.access.revoke(key_id)
