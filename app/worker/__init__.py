"""The worker: claims retrain jobs one by one and has a child process train each of them.

`loop` claims and closes jobs, `lease` keeps a claimed one alive, `child` runs the trainer and follows it,
`trainer` is what runs in the child, and `outcome` is what a training ends with.

An attempt that was cut off is begun anew: until a version is published in one transaction, which checks that
the job is still this worker's, nothing exists but files that no row speaks of, and those are swept. A trainer
that was killed and a database that was away cost an attempt and are tried again after a pause; what would
fail again, such as items without labels, fails at once; a worker that is asked to stop gives its job back.
"""

from app.worker.loop import run_forever, run_once

__all__ = ["run_forever", "run_once"]
