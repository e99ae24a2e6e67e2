"""Filters as conditions in SQL; what a database does not decide exactly is let through, negated or not."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.domain.filters import RANGES, Condition, keyed_word

_SIGNS = dict(zip(RANGES, ("<", "<=", ">", ">="), strict=True))
_LARGEST = 2**63  # from which on SQLite takes integers for floating-point numbers
_NUMBERS, _TEXT, _TRUTHS = "IN ('integer', 'real')", "= 'text'", "('true', 'false')"


@dataclass(frozen=True, slots=True)
class FilterSql:
    """Reads conditions for `ItemFilter.fold`. Of PostgreSQL: its metadata, the comparison of its labels, and
    the column of the words of texts, each with its key before it, if there is one."""

    is_sqlite: bool = False
    metadata: str = "CAST(metadata AS jsonb)"
    labels: str = "CAST(labels AS jsonb) ?|"
    words: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)

    def read(self, condition: Condition, negated: bool) -> str:
        """Return a condition, or its complement; values go into the parameters."""
        column = {"id": "item_id"}.get(condition.subject, condition.subject)
        if self.is_sqlite:
            written = self._in_sqlite(condition, column)
        else:
            written = self._in_postgresql(condition, column)
        return "TRUE" if written is None else f"({written}) IS NOT TRUE" if negated else f"({written})"

    @staticmethod
    def join(is_all: bool, conditions: Iterable[str]) -> str:
        """Return conditions of which all hold, or any."""
        joined = (" AND " if is_all else " OR ").join(conditions)
        return f"({joined})" if joined else "TRUE" if is_all else "FALSE"

    def _put(self, value: Any) -> str:
        name = f"filter_{len(self.parameters)}"
        self.parameters[name] = value
        return f":{name}"

    def _in_sqlite(self, condition: Condition, column: str) -> str | None:
        if condition.subject == "labels":
            return (
                f"EXISTS (SELECT 1 FROM json_each(labels) AS v WHERE v.atom IN {self._any(condition.equal)})"
            )
        if condition.subject != "metadata":
            return f"{column} IN {self._any(condition.values)}"
        sizes = (value for value in condition.equal if isinstance(value, int | float))
        if condition.operator == "text" or any(abs(size) >= _LARGEST for size in sizes):
            return None
        has = f"EXISTS (SELECT 1 FROM json_each(metadata) AS v WHERE v.key = {self._put(condition.key)} AND"
        match condition.operator:
            case "exists":
                return f"{has} v.type <> 'null')"
            case "in":
                absent = f" OR NOT {has} v.type <> 'null')" if None in condition.values else ""
                return f"{has} {self._same('v', condition)}){absent}"
            case "contains":
                elements = f"(SELECT 1 FROM json_each(v.value) AS e WHERE {self._same('e', condition)})"
                return f"{has} v.type = 'array' AND EXISTS {elements})"
        kind = _TEXT if isinstance(condition.values[0], str) else _NUMBERS
        return f"{has} v.type {kind} AND v.atom {_SIGNS[condition.operator]} {self._any(condition.values)})"

    def _any(self, values: Sequence[Any]) -> str:
        """Return the values, read by the database as it reads its items: the same digits are the same."""
        return f"(SELECT value FROM json_each({self._put(json.dumps(list(values)))}))"

    def _same(self, name: str, condition: Condition) -> str:
        """Return whether a value or element of JSON is one of a condition's."""
        same = f"one.atom = {name}.atom AND (one.type IN {_TRUTHS}) = ({name}.type IN {_TRUTHS})"
        values = json.dumps(list(condition.equal))
        return f"EXISTS (SELECT 1 FROM json_each({self._put(values)}) AS one WHERE {same})"

    def _in_postgresql(self, condition: Condition, column: str) -> str | None:
        if condition.subject != "metadata":
            compare = self.labels if condition.subject == "labels" else f"{column} = ANY"
            texts = condition.equal if condition.subject == "labels" else condition.values
            return f"{compare} (CAST({self._put(list(texts))} AS text[]))"
        if condition.operator == "text":
            words = [keyed_word(condition.key, word) for word in condition.words]
            return f"{self.words} @> CAST({self._put(words)} AS text[])" if self.words else None
        key = self._put(condition.key)
        value = f"({self.metadata} -> {key})"
        values = [json.dumps(one) for one in condition.equal]
        match condition.operator:
            case "exists":
                return f"COALESCE({value}, 'null'::jsonb) <> 'null'::jsonb"
            case "in":
                same = f"COALESCE({value}, 'null'::jsonb) = ANY (CAST({self._put(values)} AS jsonb[]))"
                if not self.words or not values or None in condition.values:
                    return same
                # Said once more, as the index understands it.
                objects = [self._put(json.dumps({condition.key: one})) for one in condition.equal]
                indexed = [f"{self.metadata} @> CAST({one} AS jsonb)" for one in objects]
                return f"{same} AND {self.join(False, indexed)}"
            case "contains":
                elements = f"ANY (CAST({self._put(values)} AS jsonb[]))"
                return f"jsonb_typeof({value}) = 'array' AND {value} @> {elements}"
        sign, bound = _SIGNS[condition.operator], condition.values[0]
        if isinstance(bound, str):
            text = f'({self.metadata} ->> {key}) COLLATE "C"'
            return f"jsonb_typeof({value}) = 'string' AND {text} {sign} {self._put(bound)}"
        return f"jsonb_typeof({value}) = 'number' AND {value} {sign} CAST({self._put(values[0])} AS jsonb)"
