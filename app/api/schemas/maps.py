"""Wire models of maps."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict, Field

from app.services.serving.maps import GalleryMap


class PointOut(BaseModel):
    """An item of a map."""

    id: str
    x: float
    y: float
    labels: list[str]


class MapOut(BaseModel):
    """Items of both galleries in two dimensions of the common space."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "model_version": 1,
                    "index_revision": 12,
                    "shares": [0.61, 0.2],
                    "points": {
                        "image": [{"id": "i1", "x": 0.8, "y": -0.1, "labels": ["shoes"]}],
                        "text": [{"id": "t1", "x": 0.9, "y": 0.2, "labels": ["shoes"]}],
                    },
                }
            ]
        }
    )

    model_version: int
    index_revision: int
    shares: list[float] = Field(description="share of the variance along x and along y")
    points: dict[str, list[PointOut]] = Field(description="by modality")

    @classmethod
    def of(cls, drawn: GalleryMap) -> Self:
        """Return the wire form."""
        return cls(
            model_version=drawn.model_version,
            index_revision=drawn.index_revision,
            shares=list(drawn.shares),
            points={
                name: [
                    PointOut(id=point.item.id, x=point.x, y=point.y, labels=list(point.item.labels))
                    for point in points
                ]
                for name, points in drawn.points.items()
            },
        )
