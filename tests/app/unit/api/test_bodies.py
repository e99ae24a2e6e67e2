import json

import pytest
from fastapi.exceptions import RequestValidationError

from app.api.bodies import limit_keys, parse_json, parse_line
from app.api.problems import field_path
from app.api.schemas.searches import SearchIn
from app.domain.errors import ContentTooLargeError, InvalidFieldError


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


@pytest.mark.parametrize(
    ("body", "field", "message"),
    [
        ('{"txt": "red"}', "txt", ": do you mean text?"),
        ('{"text": "red", "K": 3}', "K", ": do you mean k?"),
        ('{"text": "red", "filter": {"label": []}}', "filter.label", ": do you mean labels?"),
        ('{"text": "red", "filter": {"x": []}}', "filter.x", ", which has labels, metadata"),
    ],
)
def test_of_an_unknown_field_the_nearest_or_all_are_named(body: str, field: str, message: str) -> None:
    message = f"is no field of this object{message}"
    with pytest.raises(RequestValidationError) as refused:
        parse_json(SearchIn, body)
    assert [(field_path(fault["loc"]), fault["msg"]) for fault in refused.value.errors()] == [
        (field, message)
    ]
    with pytest.raises(InvalidFieldError) as of_line:
        parse_line(SearchIn, body.encode())
    assert (of_line.value.field, str(of_line.value)) == (field, f"{field}: {message}")


def test_of_thousands_of_unknown_fields_the_first_are_described() -> None:
    with pytest.raises(RequestValidationError) as refused:
        parse_json(SearchIn, "{" + ",".join(f'"text{n}": 1' for n in range(3000)) + "}")
    told = [fault["msg"] for fault in refused.value.errors()]
    assert len(told) == 3000
    assert sum("do you mean text?" in message for message in told) == 20
