"""The worker: claims retrain jobs one by one and has a child process train each of them.

`loop` claims and closes jobs, `lease` keeps a claimed one alive, `child` runs the trainer and follows it,
`trainer` is what runs in the child, and `outcome` is what a training ends with.
"""

from app.worker.loop import run_forever, run_once

__all__ = ["run_forever", "run_once"]
