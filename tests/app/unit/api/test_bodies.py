import json

import pytest

from app.api.bodies import limit_keys
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
