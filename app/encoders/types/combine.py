"""Encoder `combine`: the features of several encoders of one kind of content, one beside the other."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Self

import numpy as np
import scipy.sparse
from pydantic import Field, WithJsonSchema
from typing_extensions import override

from app.domain.entities import Content, Features
from app.domain.errors import InvalidFieldError
from app.domain.searches import WordReport
from app.encoders.base import BaseEncoder
from app.encoders.entry import EncoderType
from app.encoders.options import expect, options_of
from app.encoders.steps import SteppedEncoder, with_unit_rows

_MAX_PARTS = 8
"""Most parts: an item's features are stored, and those of eight encoders take some tens of kilobytes."""


_OPTIONS = options_of(
    "combine",
    "features of several encoders: of pictures, of texts, or of sounds",
    required=("parts",),
    parts=Annotated[
        list[dict[str, Any]],
        Field(min_length=2, max_length=_MAX_PARTS),
        WithJsonSchema(
            {
                "type": "array",
                "minItems": 2,
                "maxItems": _MAX_PARTS,
                "items": {"type": "object", "required": ["type"]},
                "description": "encoders with their options, which take the same kind of content",
                "examples": [[{"type": "tfidf"}, {"type": "word-frequency"}]],
            }
        ),
        expect(f"a list of 2 to {_MAX_PARTS} encoders with their options"),
    ],
)


class CombinedEncoder(BaseEncoder):
    """Concatenates the features of its ``parts``, those of each part scaled to unit length (or zero) for
    every item."""

    # Raises InvalidFieldError without a part, for a combination among them, or parts that take different
    # content. The lengths of features differ between encoders by orders of magnitude, and the longest would
    # decide every inner product alone; with unit length each part has the same say.

    def __init__(
        self, options: Mapping[str, Any], make_part: Callable[[Mapping[str, Any]], BaseEncoder]
    ) -> None:
        self._options: list[dict[str, Any]] = list(options.get("parts", ()))
        if not self._options:
            raise InvalidFieldError(
                "encoder.parts", f"expected a list of 2 to {_MAX_PARTS} encoders with their options"
            )
        self._parts: list[BaseEncoder] = []
        for number, part_options in enumerate(self._options):
            with _name_part(number):
                if part_options.get("type") == "combine":
                    raise InvalidFieldError("encoder.type", "a combination cannot be part of another")
                part = make_part(part_options)
                self._check_part(part)
            self._parts.append(part)
        self.content_form = self._parts[0].content_form
        self.is_fitted_with_model = any(part.is_fitted_with_model for part in self._parts)
        self.is_quick = all(part.is_quick for part in self._parts)

    @override
    def check(self, field: str, raw: Content) -> None:
        # All parts take the same content within the same limits.
        self._parts[0].check(field, raw)

    @override
    def encode(self, raw: Sequence[Content]) -> Features:
        """Return the (n, dim) features, rows of length sqrt(number of parts that are not zero)."""
        blocks = [with_unit_rows(part.encode_learned(raw)) for part in self._parts]
        if any(scipy.sparse.issparse(block) for block in blocks):
            return scipy.sparse.csr_array(scipy.sparse.hstack(blocks))
        return np.concatenate(blocks, axis=1)

    @override
    def look_up_words(self, raw: Content) -> WordReport | None:
        reports = [part.look_up_words(raw) for part in self._parts]
        complete = [report for report in reports if report is not None]
        if len(complete) < len(reports):
            return None
        first = complete[0]
        unknown = tuple(word for word in first.unknown if all(word in report.unknown for report in complete))
        doubtful = [{*report.unknown, *report.guessed, *report.misspelt} for report in complete]
        of_none = functools.reduce(operator.and_, doubtful).difference(unknown)
        guessed, misspelt = (
            tuple(dict.fromkeys(word for word in itertools.chain(*parts) if word in of_none))
            for parts in ((one.guessed for one in complete), (one.misspelt for one in complete))
        )
        n_known = first.n_known + len(first.unknown) - len(unknown)
        is_unseen = all(report.unseen or not report.n_known for report in complete)
        unseen = next((one.unseen for one in complete if one.unseen), ()) if is_unseen else ()
        return WordReport(n_known, unknown, guessed, misspelt, unseen)

    @override
    def nearest_words(self, word: str) -> tuple[str, ...]:
        near = [spelling for part in self._parts for spelling in part.nearest_words(word)]
        return tuple(dict.fromkeys(near))

    @override
    def learn_names(self, names: Sequence[str], texts: Sequence[str]) -> Self:
        for part in self._parts:
            part.learn_names(names, texts)
        return self

    @override
    def settled_options(self) -> dict[str, Any]:
        settled = []
        for number, (part, options) in enumerate(zip(self._parts, self._options, strict=True)):
            with _name_part(number):
                settled.append({**options, **part.settled_options()})
        return {"parts": settled}

    @override
    def fit(self, texts: Sequence[str]) -> Self:
        for part in self._parts:
            part.fit(texts)
        return self

    @override
    def state(self) -> dict[str, Any]:
        return {"parts": [part.state() for part in self._parts]}

    @override
    def restore(self, state: Mapping[str, Any]) -> Self:
        for part, part_state in zip(self._parts, state["parts"], strict=True):
            part.restore(part_state)
        return self

    @override
    def fault(self) -> str | None:
        return "; ".join(filter(None, (part.fault() for part in self._parts))) or None

    def _check_part(self, part: BaseEncoder) -> None:
        if isinstance(part, SteppedEncoder) and part.has_learning_steps:
            raise InvalidFieldError("encoder.steps", "what learns belongs behind the combination, not a part")
        if part.content_form == "vector":
            raise InvalidFieldError("encoder.type", "own features cannot be combined here: send one vector")
        if self._parts and part.content_form != self._parts[0].content_form:
            expected = self._parts[0].content_form
            raise InvalidFieldError("encoder.type", f"takes a {part.content_form}, the first a {expected}")


@contextmanager
def _name_part(number: int) -> Iterator[None]:
    """Name the part in the path of an error."""
    try:
        yield
    except InvalidFieldError as error:
        place = f"encoder.parts.{number}{error.field.removeprefix('encoder')}"
        raise InvalidFieldError(place, error.message) from error


ENCODER = EncoderType(_OPTIONS, lambda options, resources: CombinedEncoder(options, resources.make), None)
