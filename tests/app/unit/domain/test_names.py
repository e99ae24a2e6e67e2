import pytest

from app.domain.errors import InvalidFieldError
from app.domain.names import check_identifier, check_labels, check_modality_name, is_storable, some_of


@pytest.mark.parametrize("name", ["to-y", "x-to", "x-to-y", "to-", "-to", "", "a b", "a" * 65, "../x"])
def test_a_modality_name_that_routes_cannot_tell_apart_is_refused(name: str) -> None:
    with pytest.raises(InvalidFieldError):
        check_modality_name("modalities", name)


@pytest.mark.parametrize("name", ["to", "tomato", "photo", "into-x", "x-tom", "a" * 64])
def test_other_modality_names_are_fine(name: str) -> None:
    check_modality_name("modalities", name)


@pytest.mark.parametrize("value", ["", ".", "..", "a/b", "a b", "a\x00b", "a\n", "é", "a" * 129, "a?b"])
def test_an_id_that_cannot_stand_in_a_path_is_refused(value: str) -> None:
    with pytest.raises(InvalidFieldError) as refused:
        check_identifier("items.0.id", value)
    assert refused.value.field == "items.0.id"
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("value", ["a", "...", ".a", "A-1_2.3:4@5+6", "a" * 128])
def test_other_ids_are_fine(value: str) -> None:
    check_identifier("id", value)


@pytest.mark.parametrize("labels", [["a", ""], ["a", "b\x00"], ["a", "x" * 201], ["a", "\ud800"]])
def test_a_bad_label_is_named(labels: list[str]) -> None:
    with pytest.raises(InvalidFieldError) as refused:
        check_labels("labels", labels)
    assert refused.value.field == "labels.1"


def test_too_many_labels_are_refused() -> None:
    check_labels("labels", ["a"] * 100)
    with pytest.raises(InvalidFieldError):
        check_labels("labels", ["a"] * 101)


def test_what_no_database_holds_is_found_at_any_depth() -> None:
    assert is_storable({"a": [1, "é", None, {"b": 1.5}]})
    for bad in ("\x00", float("nan"), float("inf"), "\udfff"):
        assert not is_storable({"a": [1, {"b": bad}]})
    assert not is_storable({"\x00": 1})


def test_of_many_labels_a_few_are_told_and_the_number_of_the_others() -> None:
    assert some_of(["a"]) == "'a'"
    assert some_of(["a", "b", "c", "d", "e"]) == "'a', 'b', 'c', 'd' and 'e'"
    assert some_of([str(n) for n in range(8)]) == "'0', '1', '2', '3', '4' and 3 more"
