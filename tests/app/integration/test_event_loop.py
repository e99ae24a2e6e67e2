"""What keeps the loop of a server from waiting."""

import gc
import sys

from app.cli.server import keep_event_loop_responsive


def test_a_server_collects_no_module_and_gives_its_loop_a_turn_soon() -> None:
    before, frozen = sys.getswitchinterval(), gc.get_freeze_count()
    try:
        keep_event_loop_responsive()
        assert gc.get_freeze_count() > frozen
        assert sys.getswitchinterval() < before
    finally:
        gc.unfreeze()
        sys.setswitchinterval(before)
