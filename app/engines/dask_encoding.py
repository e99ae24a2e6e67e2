"""Originals encoded by the workers of a Dask cluster (extra `dask`)."""
# Contents travel to the workers, which need neither the database nor the store. They need the packages of the
# encoders, and their model files under the same paths.

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from app.domain.entities import Content, Features
from app.domain.errors import EncoderUnavailableError, ServiceError
from app.encoders.registry import ContentLimits, EncoderRegistry

if TYPE_CHECKING:
    from solver import DaskEngine


_registry = lru_cache(1)(EncoderRegistry)


def encode_on_workers(
    open_engine: Callable[[], DaskEngine],
    limits: ContentLimits,
    options: Mapping[str, Any],
    batches: Iterable[Sequence[Content]],
) -> Iterator[Features]:
    """Yield what the encoder of some options stores of each batch, in their order; several are encoded at a
    time. Raises EncoderUnavailableError if a worker lacks it or its file, EngineError without workers."""
    # The engine that knows the workers is opened for each use, and closed after it.
    engine = open_engine()
    try:
        yield from engine.map(encode_batch, ((dict(options), limits, list(batch)) for batch in batches))
    finally:
        engine.close()


def encode_batch(options: Mapping[str, Any], limits: ContentLimits, contents: Sequence[Content]) -> Features:
    """Return what an encoder stores of some contents: what a worker does. Raises EncoderUnavailableError if
    it cannot have the encoder; other errors of the service do not survive the way back."""
    try:
        return _registry(limits).make(options).encode_to_store(contents)
    except ServiceError as error:
        raise EncoderUnavailableError(f"a Dask worker cannot encode: {error}") from error
