"""Serving searches from memory, while items and models change."""
# A `Gallery` holds the projected items of one modality in immutable segments, each with its index. A write
# adds a segment and clears bits in the alive bitsets of others; merges keep the segments few. A `Snapshot`,
# which Lucene calls a searcher, is a model with the galleries of one revision. `Snapshots` opens the newest
# snapshot for each search and brings it up to date: a search replays a few writes itself, more are replayed
# in the background, where the `ReloadScheduler` decides which collection is next. The `SnapshotCache` holds
# snapshots within a byte budget, and the `SnapshotLoader` makes them from bundles and saved galleries, of
# another version while that of the active one cannot be loaded. `SavedGalleries` saves galleries so that a
# start has less to read.
