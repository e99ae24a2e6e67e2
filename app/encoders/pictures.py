"""What all picture encoders do: open pictures within limits, several at a time."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image
from typing_extensions import override

from app.domain.entities import Content, Matrix, Vector
from app.domain.errors import ContentTooLargeError, wrong_content
from app.encoders.base import BaseEncoder, map_in_threads
from app.encoders.content import PixelBudget, opened_picture


@dataclass(frozen=True, slots=True)
class PictureLimits:
    """Largest pictures that encoders accept."""

    max_bytes: int  # of a file
    max_pixels: int  # of what is decoded
    budget: PixelBudget  # of all pictures that are decoded at once in this process


class PictureEncoder(BaseEncoder):
    """Encodes pictures, several at a time where there are several; a subclass describes each."""

    content_form = "picture"

    def __init__(self, limits: PictureLimits) -> None:
        self._limits = limits

    @abstractmethod
    def describe(self, picture: Image.Image) -> Vector:
        """Return the features of an RGB picture, float32."""

    @override
    def check(self, field: str, raw: Content) -> None:
        if raw.picture is None:
            raise wrong_content(field, "picture")
        size, largest = len(raw.picture), self._limits.max_bytes
        if size > largest:
            raise ContentTooLargeError(field, f"{size} bytes, at most {largest} allowed")
        with opened_picture(field, raw.picture, self._limits.max_pixels, self._limits.budget):
            pass

    @override
    def encode(self, raw: Sequence[Content]) -> Matrix:
        return np.stack(map_in_threads(self._encode_one, raw))

    def _encode_one(self, content: Content) -> Vector:
        limits = self._limits
        with opened_picture("picture", content.picture or b"", limits.max_pixels, limits.budget) as picture:
            return self.describe(picture)
