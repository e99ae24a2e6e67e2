"""Galleries in Milvus."""
# Each gallery is a collection of its own, named by an entry of a list, so that one can take the place of
# another in one step. Rows are found by a graph (HNSW; Malkov and Yashunin, 2018) over vectors that were
# centred and balanced (`Balance`), which changes no ranking, and are ranked again by their own
# inner products; exact searches compare all rows.
#
# Milvus has no transactions: rows carry the revisions from which to which they are true, are written under
# keys that a repetition finds again, and what a revision holds is complete before its number is written. A
# read that is to see all writes before it (consistency level "Strong") waits for the server's next tick of
# 200 ms. The entry of a gallery therefore holds the server's time of its last write; who has read the entry
# once sees the rows of its revision by that time, and does not wait.

from app.engines.milvus.engine import MilvusEngine

__all__ = ["MilvusEngine"]
