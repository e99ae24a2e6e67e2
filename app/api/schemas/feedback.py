"""Wire models of feedback."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

from app.api.schemas.base import EXAMPLE_TIME, Identifier, Strict
from app.api.schemas.searches import QueryIn
from app.domain.entities import Feedback
from app.domain.names import join_path
from app.services.catalogue.feedback import NewFeedback


class FeedbackIn(Strict):
    """One item's relevance to one query."""

    query: QueryIn
    source: str = Field(description="modality of the query")
    target: str = Field(description="modality of the item")
    item_id: Identifier = Field(description="the item, such as one that a search returned")
    relevant: bool = Field(description="whether the item answers the query")

    def to_feedback(self, place: str) -> NewFeedback:
        """Return the service's form; raises InvalidFieldError unless the query has exactly one form."""
        query = self.query.to_query(join_path(place, "query"))
        return NewFeedback(
            self.source, self.target, self.item_id, self.relevant, query.content, query.item_id, place
        )


class FeedbackListIn(Strict):
    """Feedback to store, all or none."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "feedback": [
                        {
                            "query": {"text": "a shoe to run in"},
                            "source": "text",
                            "target": "image",
                            "item_id": "i1",
                            "relevant": True,
                        },
                        {
                            "query": {"item_id": "t2"},
                            "source": "text",
                            "target": "image",
                            "item_id": "i1",
                            "relevant": False,
                        },
                    ]
                }
            ]
        },
    )

    feedback: list[FeedbackIn] = Field(min_length=1, fail_fast=True)


class FeedbackIdsOut(BaseModel):
    """Ids of stored feedback, in the order of the request."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"ids": [17, 18]}]})

    ids: list[int]


class FeedbackQueryOut(BaseModel):
    """The query of feedback."""

    form: Literal["item_id", "text", "vector", "image_base64", "sound_base64"] = Field(
        description="how the query was sent"
    )
    item_id: str | None
    text: str | None
    picture_sha256: str | None = Field(description="SHA-256 of the picture or sound file")

    @classmethod
    def of(cls, feedback: Feedback) -> FeedbackQueryOut:
        """Return the wire form; vectors and pictures themselves are left out."""
        query = feedback.query
        if query is None:
            return cls(form="item_id", item_id=feedback.query_item_id, text=None, picture_sha256=None)
        if query.content_hash is not None:
            is_sound = (query.content_type or "").startswith("audio/")
            return cls(
                form="sound_base64" if is_sound else "image_base64",
                item_id=None,
                text=None,
                picture_sha256=query.content_hash,
            )
        form: Literal["text", "vector"] = "vector" if query.text is None else "text"
        return cls(form=form, item_id=None, text=query.text, picture_sha256=None)


class FeedbackOut(BaseModel):
    """Stored feedback."""

    id: int
    query: FeedbackQueryOut
    source: str
    target: str
    item_id: str
    relevant: bool
    created_at: datetime

    @classmethod
    def of(cls, feedback: Feedback) -> FeedbackOut:
        """Return the wire form."""
        return cls(
            id=feedback.id,
            query=FeedbackQueryOut.of(feedback),
            source=feedback.source,
            target=feedback.target,
            item_id=feedback.item_id,
            relevant=feedback.is_relevant,
            created_at=feedback.created_at,
        )


_FEEDBACK: JsonDict = {
    "id": 17,
    "query": {"form": "text", "item_id": None, "text": "a shoe to run in", "picture_sha256": None},
    "source": "text",
    "target": "image",
    "item_id": "i1",
    "relevant": True,
    "created_at": EXAMPLE_TIME,
}


class FeedbackPageOut(BaseModel):
    """One page of feedback; `next_cursor` is null on the last."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"feedback": [_FEEDBACK], "next_cursor": "17"}]}
    )

    feedback: list[FeedbackOut]
    next_cursor: str | None
