"""What keeps the loop of a server from waiting."""

import gc
import sys

from threadpoolctl import threadpool_info, threadpool_limits

from app.cli.serve import keep_event_loop_responsive


def _blas_threads() -> set[int]:
    # Not of the one that faiss brings, which counts for each thread apart: no search uses it.
    return {
        library["num_threads"]
        for library in threadpool_info()
        if library["user_api"] == "blas" and "faiss" not in library["filepath"]
    }


def test_a_server_collects_no_module_gives_its_loop_a_turn_soon_and_multiplies_in_one_thread() -> None:
    before, frozen = sys.getswitchinterval(), gc.get_freeze_count()
    try:
        with threadpool_limits(2, user_api="blas"):
            usual = _blas_threads()
            with keep_event_loop_responsive():
                assert gc.get_freeze_count() > frozen
                assert sys.getswitchinterval() < before
                assert _blas_threads() == {1}
            assert _blas_threads() == usual == {2}
    finally:
        gc.unfreeze()
        sys.setswitchinterval(before)
