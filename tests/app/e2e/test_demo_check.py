"""`lrbs demo --check` as a newcomer runs it: it passes, and it does not pass whatever the answers are."""

import json
import shutil
from pathlib import Path

from app.db.session import make_engine
from tests.app.e2e.conftest import check_demo


def test_the_check_passes_and_fails_when_the_answers_are_wrong(tmp_path: Path, drawn_demo: Path) -> None:
    status, summary = json.loads(drawn_demo.with_suffix(".json").read_text())
    assert (status, summary.get("passed")) == (0, True), summary
    assert summary["ready"]
    assert summary["admin_without_key"] == 401
    for figures in summary["test"].values():
        assert figures["queries"] >= 16
        assert min(figures["map"], figures["first_right"]) >= 0.5 > 2 * figures["chance"]
    assert len(summary["questions"]) == 4

    # Every held-out picture now stands under one name; the model is as good as before, its answers are not.
    shutil.copytree(drawn_demo, tmp_path, dirs_exist_ok=True)
    engine = make_engine(f"sqlite:///{tmp_path / 'lrbs.sqlite3'}")
    with engine.begin() as connection:
        changed = connection.exec_driver_sql(
            "UPDATE items SET labels = '[\"cats\"]' WHERE modality = 'image' AND NOT train"
        ).rowcount
    engine.dispose()
    assert changed == 20
    status, summary = check_demo(tmp_path)
    assert (status, summary.get("passed")) == (1, False), summary
    assert summary["ready"]
