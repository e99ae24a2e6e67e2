"""From raw items to features."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from app.domain.entities import Content, Features, WordReport


class Encoder(Protocol):
    """Turns a raw item into features.

    A fitted encoder learns from the training items and travels with the model; the others are
    known when the collection is made, and their features are stored with the item.
    """

    @property
    def content_form(self) -> str:
        """What it takes: ``"picture"``, ``"sound"``, ``"text"``, or ``"vector"``, stored as features."""
        ...

    @property
    def is_fitted_with_model(self) -> bool:
        """Whether features depend on what a retrain learned."""
        ...

    def check(self, field: str, raw: Content) -> None:
        """Refuse content this encoder cannot take, naming the field."""
        ...

    def encode(self, raw: Sequence[Content]) -> Features:
        """Return the (n, dim) float32 features; raises EncoderUnavailableError without the file it needs."""
        ...

    @property
    def learns_from_stored(self) -> bool:
        """Whether `fit_to_stored` learns anything."""
        ...

    def encode_to_store(self, raw: Sequence[Content]) -> Features:
        """Return what is stored with items; raises EncoderUnavailableError without the file it needs."""
        ...

    def from_stored(self, features: Features) -> Features:
        """Return the features of items from what is stored with them."""
        ...

    def fit_to_stored(self, features: Features) -> Any:
        """Learn from what is stored with training items."""
        ...

    def look_up_words(self, raw: Content) -> WordReport | None:
        """Return which words of a text it knows; None where it knows no words, as of pictures."""
        ...

    def state(self) -> dict[str, Any]:
        """Return what `EncoderSource.restore` needs: what was learned, or the hash of the file it uses."""
        ...

    def fault(self) -> str | None:
        """Return what was last found wrong with the file it uses; None when nothing was, or it uses none.

        Returns at once: files are looked at in the background.
        """
        ...


class StatefulEncoder(Encoder, Protocol):
    """An encoder that is fitted with the model."""

    def fit(self, texts: list[str]) -> Any:
        """Learn from the training texts."""
        ...

    def restore(self, state: Mapping[str, Any]) -> Any:
        """Become the encoder of that state."""
        ...


EncodeBatches = Callable[[Mapping[str, Any], Iterable[Sequence[Content]]], Iterator[Features]]
"""Yields what the encoder of some options stores of each batch, in their order."""


class EncoderSource(Protocol):
    """Makes encoders and determines the media type of files."""

    def make(self, options: Mapping[str, Any]) -> Any:
        """Return an Encoder; a StatefulEncoder where it `is_fitted_with_model`."""
        ...

    def settle(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return a new collection's options with the hash of the file they name; raises InvalidFieldError."""
        ...

    def with_first_item(self, options: Mapping[str, Any], first: Content) -> dict[str, Any]:
        """Return the options as they are once a collection has its first item, which may decide some."""
        ...

    def pending_options(self, options: Mapping[str, Any], used: Mapping[str, Any]) -> dict[str, Any]:
        """Return which of the options that items were encoded with are still to be stored.

        Raises
        ------
        InvalidFieldError
            If another value has been stored meanwhile; names the field of an item.
        """
        ...

    def restore(self, options: Mapping[str, Any], state: Mapping[str, Any]) -> Any:
        """Return the Encoder of a published model version."""
        ...

    def media_type(self, content: Content) -> str | None:
        """Return the media type of a picture or sound that an encoder accepted; None of other content."""
        ...
