from app.api.own_writes import OwnWrites


def test_the_latest_revision_is_known_whichever_write_tells_first() -> None:
    own = OwnWrites()
    for revision in (6, 5):
        own.note("key 1", "a", revision)
    assert own.revision("key 1", "a") == 6
    assert own.revision("key 2", "a") == own.revision("key 1", "b") == 0


def test_the_oldest_are_forgotten() -> None:
    own = OwnWrites()
    for number in range(10_002):
        own.note(f"key {number}", "a", 1)
    assert [own.revision(f"key {number}", "a") for number in (0, 1, 2, 10_001)] == [0, 0, 1, 1]
