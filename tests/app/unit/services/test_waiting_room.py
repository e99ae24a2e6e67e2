"""Which requests may wait, and how many."""

import contextlib

from app.services.serving.reloads import WaitingRoom


def test_a_request_that_waits_is_known_until_it_leaves() -> None:
    room = WaitingRoom()
    with contextlib.ExitStack() as until_left:
        assert room.is_empty
        assert room.try_enter(1, until_left)
        assert not room.is_empty
    assert room.is_empty


def test_the_room_is_bounded_for_each_collection_and_in_all() -> None:
    room = WaitingRoom(capacity=3, capacity_per_collection=2)
    with contextlib.ExitStack() as until_left:
        assert [room.try_enter(1, until_left) for _ in range(3)] == [True, True, False]
        assert [room.try_enter(2, until_left) for _ in range(2)] == [True, False]
        assert not room.try_enter(3, until_left)
    with contextlib.ExitStack() as until_left:
        assert room.try_enter(3, until_left), "all have left"
