"""What is stored, as the service answers it."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from app import answers
from app.api.schemas.base import content_url
from app.domain.entities import ApiKey, Collection, Content, Feedback, Item, Job, ModelVersion, value_of
from app.domain.reports import ENCODERS
from app.encoders.options import without_paths

if TYPE_CHECKING:
    from app.services.catalogue.service import Page

encode = msgspec.json.Encoder().encode
"""Returns the JSON of an answer."""


def show_collection(collection: Collection, counts: Mapping[str, int] | None = None) -> answers.Collection:
    """Return a collection, with the numbers of its items where these were counted."""
    from app.encoders.registry import content_form  # with the modules of all encoders, as below

    return value_of(
        answers.Collection,
        collection,
        modalities={
            side.name: answers.Modality(without_paths(side.encoder), content_form(side.encoder))
            for side in collection.modalities
        },
        items=None if counts is None else {name: counts.get(name, 0) for name in collection.modality_names},
    )


def show_encoders() -> answers.Encoders:
    """Return the types of encoders that there are."""
    from app.encoders.registry import OPTIONS, TYPES

    return answers.Encoders(
        [
            answers.Encoder(
                type=kind,
                content=TYPES[kind].content,
                description=schema.get("description", ""),
                options={name: option for name, option in schema["properties"].items() if name != "type"},
                required=[name for name in schema["required"] if name != "type"],
            )
            for kind, schema in OPTIONS.schemas().items()
        ]
    )


def show_item(collection: str, item: Item, root_path: str) -> answers.Item:
    """Return an item of a service under a path."""
    url, labels = content_url(collection, item, root_path), list(item.labels)
    return value_of(answers.Item, item, content_url=url, labels=labels, metadata=dict(item.metadata))


def show_original(item: Item, content: Content | None) -> dict[str, Any]:
    """Return an item as an import takes it; without content, where that is lost, it is none that is new."""
    line: dict[str, Any] = {"id": item.id, "modality": item.modality}
    facts = {"labels": list(item.labels), "metadata": dict(item.metadata)}
    if content is None:
        return line | facts
    if content.file is not None:
        form = "sound_base64" if content.picture is None else "image_base64"
        line[form] = base64.b64encode(content.file).decode()
    else:
        line |= {"text": content.text} if content.vector is None else {"vector": content.vector}
    return line | facts | {"pair_id": item.pair_id, "train": item.train}


def show_page(collection: str, page: Page, root_path: str) -> answers.ItemPage:
    """Return a page of items."""
    return answers.ItemPage(
        [show_item(collection, item, root_path) for _, item in page.rows],
        None if page.end is None else str(page.end),
        list(page.notices),
    )


def show_partners(collection: str, partners: Mapping[str, Item], root_path: str) -> answers.Partners:
    """Return partners by the ids of the items that have one."""
    return answers.Partners({own: show_item(collection, item, root_path) for own, item in partners.items()})


def show_job(job: Job) -> answers.Job:
    """Return a job, without the paths of files on the server."""
    encoders = {name: without_paths(options) for name, options in job.parameters.get(ENCODERS, {}).items()}
    parameters = {**job.parameters, **({ENCODERS: encoders} if encoders else {})}
    return value_of(
        answers.Job, job, state=job.state.value, parameters=parameters, progress=dict(job.progress)
    )


def show_key(key: ApiKey, secret: str | None = None) -> answers.Key:
    """Return a key; its secret only when it is made."""
    bound_to = key.bounds.collections
    return value_of(
        answers.Key,
        key,
        scope=key.scope.value,
        collections=None if bound_to is None else list(bound_to),
        requests_per_minute=key.bounds.requests_per_minute,
        expires_at=key.bounds.expires_at,
        secret=secret,
    )


def show_model(model: ModelVersion, is_whole: bool = True) -> answers.Model:
    """Return a model version, with or without the long lists of its report."""
    return value_of(answers.Model, model, report=model.report.to_answer(is_whole))


def show_feedback(entries: Sequence[Feedback], is_last: bool) -> answers.FeedbackPage:
    """Return a page of feedback."""
    shown = [
        value_of(answers.Feedback, entry, query=_show_query(entry), relevant=entry.is_relevant)
        for entry in entries
    ]
    return answers.FeedbackPage(shown, None if is_last else str(entries[-1].id))


def _show_query(entry: Feedback) -> answers.FeedbackQuery:
    query = entry.query
    if query is None:
        return answers.FeedbackQuery("item_id", entry.query_item_id, None, None)
    if query.content_hash is not None:
        form = "sound_base64" if (query.content_type or "").startswith("audio/") else "image_base64"
        return answers.FeedbackQuery(form, None, None, query.content_hash)
    return answers.FeedbackQuery("vector" if query.text is None else "text", None, query.text, None)
