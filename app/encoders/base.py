"""What every encoder has, with the answers of one that learns nothing; libraries that an extra installs."""

from __future__ import annotations

import base64
import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self, TypeVar

import numpy as np
import numpy.typing as npt

from app.domain.entities import Content, Features
from app.domain.errors import EncoderUnavailableError
from app.domain.hosts import usable_cores
from app.domain.searches import WordReport

_DTYPE = np.dtype("<f4")


def pack_array(values: npt.NDArray[Any]) -> dict[str, Any]:
    """Return an array as JSON values, in single precision."""
    content = np.ascontiguousarray(values, _DTYPE).tobytes()
    return {"shape": list(values.shape), "float32": base64.b64encode(content).decode()}


def unpack_array(packed: Mapping[str, Any]) -> npt.NDArray[np.float32]:
    """Return the array that `pack_array` packed."""
    content = base64.b64decode(packed["float32"], validate=True)
    return np.frombuffer(content, _DTYPE).astype(np.float32).reshape(packed["shape"])


def import_extra(module: str, extra: str) -> Any:
    """Return a module, imported when it is first needed; raises EncoderUnavailableError if it is absent."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise EncoderUnavailableError(
            f"this encoder needs the extra {extra!r}: pip install 'lrbs[{extra}]'"
        ) from error


T = TypeVar("T")
R = TypeVar("R")


def map_in_threads(function: Callable[[T], R], values: Sequence[T]) -> list[R]:
    """Return what a function returns for each value; as many run beside each other as may use cores."""
    if len(values) == 1:
        return [function(values[0])]
    with ThreadPoolExecutor(usable_cores()) as pool:
        return list(pool.map(function, values))


class BaseEncoder(ABC):
    """An encoder; a subclass overrides what is different about it."""

    # One that is fitted with the model sets `is_fitted_with_model` and overrides `fit`, `state`, `restore`:
    # it learns from the training items and travels with the model. The others are known when the collection
    # is made, and their features are stored with the item.

    content_form: str
    """What it takes: ``"picture"``, ``"sound"``, ``"text"`` or ``"vector"``, stored as features."""
    is_fitted_with_model = False
    """Whether features depend on what a retrain learned."""
    is_quick = False
    """Whether a short text or a vector is encoded in a moment, without a file or a network."""
    learns_from_stored = False
    """Whether `fit_to_stored` learns anything."""
    has_learning_steps = False
    """Whether steps after it learn."""
    n_further = 0
    """How many of its last features are of what it has not learned, such as words of later items."""

    @property
    def learns_quickly(self) -> bool:
        """Whether it learns from some hundred items, and encodes their names, in a moment."""
        return (self.is_quick or self.content_form != "text") and not self.has_learning_steps

    @abstractmethod
    def check(self, field: str, raw: Content) -> None:
        """Refuse content that this encoder cannot take, naming the field."""

    @abstractmethod
    def encode(self, raw: Sequence[Content]) -> Features:
        """Return the (n, dim) float32 features; raises EncoderUnavailableError without the file it needs."""

    def encode_learned(self, raw: Sequence[Content]) -> Features:
        """Return the features of what it has learned alone."""
        return self.without_further(self.encode(raw))

    def without_further(self, features: Features) -> Features:
        """Return its features but for the further ones."""
        return features[:, : features.shape[1] - self.n_further] if self.n_further else features

    def encode_to_store(self, raw: Sequence[Content]) -> Features:
        """Return what is stored with items: features that depend on nothing learned."""
        return self.encode(raw)

    def from_stored(self, features: Features) -> Features:
        """Return the features of items from what is stored with them."""
        return features

    def fit_to_stored(self, features: Features) -> Self:
        """Learn from what is stored with training items; only what comes after an encoder does."""
        return self

    def look_up_words(self, raw: Content) -> WordReport | None:
        """Return which words of a text it knows; None where it knows no words, as of pictures."""
        return None

    def nearest_words(self, word: str) -> tuple[str, ...]:
        """Return words that it knows and that are spelled much like one that it does not know, as written."""
        return ()

    def settled_options(self) -> dict[str, Any]:
        """Return the options that a new collection stores beside those given, such as the hash of a file."""
        # Raises InvalidFieldError, which names the option, if it may not have this encoder, or a file does
        # not work.
        return {}

    def options_from(self, first: Content) -> dict[str, Any]:
        """Return the options that the first item of a collection decides."""
        return {}

    def pending_options(self, used: Mapping[str, Any]) -> dict[str, Any]:
        """Return which of the options that items were encoded with are still open here.
        Raises InvalidFieldError, which names the field of an item, if one has another value here."""
        return {}

    def learn_names(self, names: Sequence[str], texts: Sequence[str]) -> Self:
        """Learn names of labels and values: their words, which `fit` takes for those of texts, or how they
        and the texts are spelled."""
        return self

    def fit(self, texts: Sequence[str]) -> Self:
        """Learn from the training texts; only an encoder that is fitted with the model has to."""
        return self

    def state(self) -> dict[str, Any]:
        """Return what `restore` needs, as JSON values: what was learned, or what identifies a file."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> Self:
        """Become the encoder whose `state` this is; early releases stored an empty one for most encoders."""
        return self

    def fault(self) -> str | None:
        """Return what was last found wrong with a file it uses, without waiting for it; None if nothing."""
        return None
