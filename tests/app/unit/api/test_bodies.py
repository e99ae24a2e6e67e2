import json
from typing import Any

import pytest
from fastapi.exceptions import RequestValidationError

from app.api.bodies import parse_json
from app.api.faults import field_path, limit_keys, parse_line
from app.api.schemas.filters import read_filter
from app.api.schemas.searches import SearchIn
from app.domain.errors import ContentTooLargeError, InvalidFieldError
from app.domain.names import plain_message


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


ANY_VALUE = "expected a text, a number, true, false or null"
NO_WORD = {"metadata": {"n": {"text": "!"}}}


@pytest.mark.parametrize(
    ("filter_", "field", "message"),
    [
        ({"labels": "shoes"}, "labels", "expected a list of labels, or an object of any, all and none"),
        ({"metadata": {"price": {"lt": True}}}, "metadata.price.lt", "expected a number or a text"),
        ({"metadata": {"price": {"lt": None}}}, "metadata.price.lt", "expected a number or a text"),
        (
            {"metadata": {"n": {"gte": "a" * 101}}},
            "metadata.n.gte",
            "expected at most 100 characters, got 101",
        ),
        ({"metadata": {"day": {"gte": "1.6.2024"}}}, "metadata.day.gte", "expected 2024-06-01 for a date"),
        ({"not": {"metadata": {"n": {"lt": "20,00"}}}}, "not.metadata.n.lt", "expected 20.00 for a number"),
        ({"metadata": {"n": [1, [2]]}}, "metadata.n.1", ANY_VALUE),
        (
            {"metadata": {"n": {"in": [{}]}}},
            "metadata.n.in.0",
            "expected a text, a number, true, false or null",
        ),
        (
            {"any": [{"not": {"metadata": {"n": {"text": "!"}}}}]},
            "any.0.not.metadata.n.text",
            "expected a word at least",
        ),
        ({"labels": {"none": ["a", 3]}}, "labels.none.1", "Input should be a valid string"),
        (
            {"metadata": {"n": {"text": "a " * 101}}},
            "metadata.n.text",
            "expected at most 200 characters, got 202",
        ),
    ],
)
def test_a_wrong_filter_gets_one_sentence(filter_: Any, field: str, message: str) -> None:
    with pytest.raises(RequestValidationError) as refused:
        parse_json(SearchIn, json.dumps({"text": "red", "filter": filter_}).encode())
    (fault,) = refused.value.errors()
    assert (field_path(fault["loc"]), plain_message(fault["msg"])) == (f"filter.{field}", message)


@pytest.mark.parametrize("body", ['{"metadata": {"n": NaN}}', '{"metadata": {"n": {"lt": Infinity}}}'])
def test_a_filter_has_no_number_that_is_not_finite(body: str) -> None:
    with pytest.raises(InvalidFieldError, match=r"metadata\.n.*a lone surrogate, NaN or infinity"):
        read_filter(json.loads(body), "filter")


def test_conditions_and_values_are_bounded_together() -> None:
    many = [{"metadata": {f"key {n}": None}} for n in range(100)]
    assert len(read_filter({"all": many, "labels": {"all": ["a"] * 28}}, "filter").conditions) == 128
    with pytest.raises(InvalidFieldError, match="filter: 129 conditions, at most 128 allowed together"):
        read_filter({"all": many, "labels": {"all": ["a"] * 29}}, "filter")
    with pytest.raises(InvalidFieldError, match="1100 labels and values, at most 1000"):
        read_filter({"all": many * 11}, "filter")


@pytest.mark.parametrize(("depth", "is_taken"), [(20, True), (21, False)])
def test_filters_in_each_other_are_bounded(depth: int, is_taken: bool) -> None:
    nested: dict[str, Any] = {}
    for _ in range(depth):
        nested = {"not": nested}
    if is_taken:
        assert read_filter(nested, "filter").conditions == ()
        return
    with pytest.raises(InvalidFieldError, match="more than 20 objects and lists in each other"):
        read_filter(nested, "filter")


@pytest.mark.parametrize(
    ("body", "field", "message"),
    [
        ('{"txt": "red"}', "txt", ": do you mean text?"),
        ('{"text": "red", "K": 3}', "K", ": do you mean k?"),
        ('{"text": "red", "filter": {"label": []}}', "filter.label", ": do you mean labels?"),
        (
            '{"text": "red", "filter": {"x": []}}',
            "filter.x",
            ", which has labels, metadata, ids, modality, pair_id, all, any, not",
        ),
        (
            '{"text": "red", "filter": {"metadata": {"x": {"ltt": 3}}}}',
            "filter.metadata.x.ltt",
            ": do you mean lt?",
        ),
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
