"""The worker: claims retrain jobs one by one and trains each of them in a child process."""
# `worker` claims and closes jobs, `attempts` keeps a claimed one alive, runs the trainer and has what it
# does, `trainer` is what the child is started as. This package imports none of them: a trainer starts
# faster by it.
#
# An attempt that was interrupted starts from the beginning: until a version is published in one transaction,
# which checks that the job still belongs to this worker, it leaves nothing but unreferenced files, which the
# garbage collector removes. A trainer that was killed and a database that was unavailable cost an attempt and
# are retried after a pause; what would fail again, such as items without labels, fails immediately; a worker
# that is asked to stop gives its job back.
