"""Wire models of feedback."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from app.api.schemas.base import Identifier, Strict
from app.api.schemas.searches import QueryIn
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
