import json

import pytest
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, field_validator

from app.api.entries import parse_entries
from app.api.json_limits import limit_keys
from app.domain.errors import ContentTooLargeError


def keys(count: int, between: str = "") -> bytes:
    return ("{" + ",".join(f'"k{n}"{between}:1' for n in range(count)) + "}").encode()


@pytest.mark.parametrize("between", ["", " ", "\n\t "])
def test_keys_are_counted_up_to_the_limit(between: str) -> None:
    assert limit_keys(keys(100, between), 100)
    with pytest.raises(ContentTooLargeError, match="more than 100 keys"):
        limit_keys(keys(101, between), 100)


def test_keys_of_a_long_body_are_all_counted() -> None:
    long = b'{"text":"' + b"x" * 3_000_000 + b'",' + keys(200)[1:]
    assert limit_keys(long, 201)
    with pytest.raises(ContentTooLargeError):
        limit_keys(long, 199)


def test_what_stands_in_texts_is_no_key() -> None:
    text = json.dumps({"texts": ['{"a": 1, "b": 2}: "x":'] * 1000, "vector": [1.5] * 10_000}).encode()
    assert limit_keys(text, 1000) == text


@pytest.mark.parametrize("backslashes", [2, 4])
def test_keys_that_end_in_backslashes_are_counted(backslashes: int) -> None:
    end = "\\" * backslashes
    body = ("{" + ",".join(f'"{n}{end}":1' for n in range(101)) + "}").encode()
    json.loads(body)
    with pytest.raises(ContentTooLargeError, match="more than 100 keys"):
        limit_keys(body, 100)


def test_lists_and_objects_are_counted() -> None:
    assert limit_keys(b"[" + b"[]," * 100 + b"[]]", 100)
    for nested in (b"[]", b"{}"):
        with pytest.raises(ContentTooLargeError, match="more than 1600 JSON lists and objects"):
            limit_keys(b"[" + (nested + b",") * 2000 + nested + b"]", 100)


_seen: list[int] = []


class _Entry(BaseModel):
    n: int

    @field_validator("n")
    @classmethod
    def note(cls, n: int) -> int:
        _seen.append(n)
        return n


class _Body(BaseModel):
    entries: list[_Entry]
    k: int = 0


def test_each_entry_is_parsed_once_and_when_it_is_asked_for() -> None:
    _seen.clear()
    body = b'{"entries": [{"n": 0}, {"n": 1}, {"n": 2}, {"n": "two"}], "k": 5}'
    whole, entries = parse_entries(_Body, _Entry, "entries", body, 10)
    assert whole.k == 5
    assert _seen == [0]
    assert [next(entries).n for _ in range(3)] == [0, 1, 2]
    assert _seen == [0, 1, 2]
    with pytest.raises(RequestValidationError) as raised:
        next(entries)
    assert raised.value.errors()[0]["loc"] == ("entries", 3, "n")
