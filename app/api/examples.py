"""Examples of answers in the OpenAPI document; a test compares each with its schema and a real answer."""

from __future__ import annotations

from typing import Any

_WHEN = "2026-01-31T12:00:00Z"
_COLLECTION = {
    "name": "products",
    "modalities": {
        "image": {"encoder": {"type": "hog-color"}, "content": "picture"},
        "text": {"encoder": {"type": "tfidf"}, "content": "text"},
    },
    "revision": 12,
    "active_version": 1,
    "created_at": _WHEN,
}
_ITEM = {
    "id": "i1",
    "modality": "image",
    "text": None,
    "content_url": "/v1/collections/products/items/i1/content",
    "labels": ["shoes"],
    "pair_id": "t1",
    "metadata": {"price": 59.9},
    "train": True,
    "revision": 12,
}
_RESULT = {
    "model_version": 1,
    "index_revision": 12,
    "exact": True,
    "took_ms": 0.82,
    "notices": [],
    "hits": [
        {
            "id": "i1",
            "rank": 1,
            "score": 2.31,
            "probability": 0.91,
            "labels": ["shoes"],
            "metadata": {"price": 59.9},
            "text": None,
            "content_url": "/v1/collections/products/items/i1/content",
        }
    ],
}
_FEEDBACK = {
    "id": 17,
    "query": {"form": "text", "item_id": None, "text": "a shoe to run in", "picture_sha256": None},
    "source": "text",
    "target": "image",
    "item_id": "i1",
    "relevant": True,
    "created_at": _WHEN,
}
_NOTHING_KNOWN = {
    "code": "unknown-words",
    "message": "the model knows no word of the query, so nothing is ranked: 'xyzzy'",
    "words": ["xyzzy"],
}
_JOB = {
    "id": "0123456789abcdef",
    "collection": "products",
    "state": "running",
    "parameters": {"method": "lrbs", "alpha": 0.001, "scaling": "l2", "objective": "ndcg"},
    "progress": {
        "phase": "fitting",
        "iteration": 12,
        "objective": 0.83,
        "gap": 0.004,
        "rank": 9,
        "percent": 76.5,
        "seconds_left": 11,
    },
    "error": None,
    "model_version": None,
    "attempts": 1,
    "created_at": _WHEN,
    "started_at": _WHEN,
    "finished_at": None,
}
_INDEX_CHOICE = {
    "spec": {"kind": "ivf-sq8", "lists": 4096, "probes": 42},
    "reason": "the fastest with a recall@10 of 0.99: 85.0 times the exact search",
    "exact_milliseconds": 22.1,
    "trials": [
        {
            "spec": {"kind": "ivf-flat", "lists": 4096, "probes": 28},
            "recall_at_10": 0.987,
            "milliseconds": 17.5,
            "build_seconds": 11.1,
            "bytes_per_item": 264.0,
            "rejected": (
                "recall@10 is 0.9870 at 1.3 times the speed of the exact search; 0.99 on both halves of the "
                "queries, at 1.5 times, is needed"
            ),
        },
        {
            "spec": {"kind": "ivf-sq8", "lists": 4096, "probes": 42},
            "recall_at_10": 0.994,
            "milliseconds": 0.26,
            "build_seconds": 5.2,
            "bytes_per_item": 168.0,
            "rejected": None,
        },
    ],
}
_MODEL = {
    "version": 1,
    "is_active": True,
    "created_at": _WHEN,
    "index_revision": 12,
    "manifest_hash": "0" * 64,
    "report": {
        "method": "lrbs",
        "parameters": {
            "method": "auto",
            "alpha": None,
            "scaling": None,
            "tol": 0.001,
            "max_iter": 200,
            "seed": 0,
            "supervision": {"labels": True, "facets": "auto", "pairs": True, "feedback": True},
            "objective": None,
        },
        "code_version": "0.1.0",
        "data": {
            "items": {"image": 400, "text": 500},
            "classes": ["bag", "shoe"],
            "unmatched_labels": {"image": [], "text": ["hat"]},
            "sha256": "0" * 64,
            "not_learned_from": {},
            "not_ranked": {},
            "facets": {"label": 3},
            "n_pairs": 0,
            "n_signs": 0,
        },
        "selection": {
            "held_out_map": {"lrbs": 0.9, "semantic": 0.88},
            "objective": "map",
            "values": {"lrbs": 0.9, "semantic": 0.88},
            "refused": {},
            "candidates": [
                {"scaling": "l2", "alpha_fraction": 0.01, "map_x_to_z": 0.91, "map_z_to_x": 0.89, "rank": 9}
            ],
        },
        "fit": {
            "alpha": 0.001,
            "scaling": "l2",
            "rank": 1,
            "singular_values": [2.5],
            "convergence": {
                "iteration": 1,
                "objective": 0.83,
                "gap": 0.0007,
                "rank": 1,
                "seconds": 0.2,
                "converged": True,
                "tol": 0.001,
            },
            "history": [{"iteration": 1, "objective": 0.83, "gap": 0.0007, "rank": 1, "seconds": 0.2}],
            "posteriors": [],
            "weights": {},
        },
        "held_out": {
            "items": {"image": 80, "text": 100},
            "directions": {
                "image-to-text": {
                    "map": 0.91,
                    "chance": 0.5,
                    "curve": {"recall": [0.0, 1.0], "precision": [0.95, 0.8]},
                    "ndcg_at_10": 0.93,
                    "recall_at_1": None,
                    "recall_at_10": None,
                    "median_rank": None,
                    "precision_at_10": {"label": 0.93},
                    "distinct_lists": 78,
                    "n_queries": 80,
                },
                "text-to-image": {
                    "map": 0.89,
                    "chance": 0.5,
                    "curve": {"recall": [0.0, 1.0], "precision": [0.94, 0.77]},
                    "ndcg_at_10": 0.91,
                    "recall_at_1": None,
                    "recall_at_10": None,
                    "median_rank": None,
                    "precision_at_10": {"label": 0.91},
                    "distinct_lists": 97,
                    "n_queries": 100,
                },
            },
        },
        "gate": {
            "compared_with": None,
            "skipped": "no version is active",
            "items": {},
            "new_map": None,
            "active_map": None,
            "tolerance": 0.0,
            "objective": "map",
            "new_value": None,
            "active_value": None,
        },
        "index": {
            "recall_at_10": {"image": 0.994},
            "needed": 0.99,
            "is_exact": False,
            "choices": {"image": _INDEX_CHOICE},
        },
        "not_activated": None,
    },
}
_ACTIVATION = {"version": 2, "previous": 1, "at": _WHEN, "by": "key 0123456789abcdef", "reason": None}
_KEY = {
    "id": "0123456789abcdef",
    "name": "shop window",
    "scope": "search",
    "collections": ["products"],
    "requests_per_minute": 600,
    "created_at": _WHEN,
    "expires_at": None,
    "last_used_at": _WHEN,
}

ANSWERS: dict[str, dict[str, Any]] = {
    "CollectionOut": {**_COLLECTION, "items": {"image": 5, "text": 7}},
    "CollectionList": {"collections": [_COLLECTION]},
    "EncoderList": {
        "encoders": [
            {
                "type": "word-frequency",
                "content": "text",
                "description": "texts: frequencies of words; learned at each retrain",
                "options": {
                    "max_words": {
                        "type": "integer",
                        "minimum": 1,
                        "maximum": 200_000,
                        "description": "words kept at most, the most frequent ones",
                    }
                },
                "required": [],
            }
        ]
    },
    "WrittenOut": {"ids": ["t1", "t2"], "revision": 13},
    "ImportedOut": {"revision": 14, "created": 1, "updated": 1, "unchanged": 0, "ids": ["t1", "t2"]},
    "ItemOut": _ITEM,
    "ItemPage": {"items": [_ITEM], "next_cursor": "42"},
    "SearchOut": _RESULT,
    "ValuesOut": {
        "items": 5,
        "labels": [{"value": "shoes", "count": 3}, {"value": "wallets", "count": 2}],
        "metadata": {"colour": [{"value": "red", "count": 4}, {"value": "blue", "count": 1}]},
    },
    "FeedbackIdsOut": {"ids": [17, 18]},
    "FeedbackPageOut": {"feedback": [_FEEDBACK], "next_cursor": "17"},
    "BatchSearchOut": {"results": [_RESULT, {**_RESULT, "notices": [_NOTHING_KNOWN], "hits": []}]},
    "JobOut": _JOB,
    "JobList": {"jobs": [_JOB]},
    "ModelOut": _MODEL,
    "ActivationList": {"activations": [_ACTIVATION]},
    "ModelList": {"models": [_MODEL]},
    "KeyOut": {**_KEY, "secret": "lrbs_" + "0" * 43},
    "KeyList": {"keys": [_KEY]},
    "Status": {"status": "ready"},
    "Problem": {
        "type": "/problems/invalid-request",
        "title": "Invalid request",
        "status": 422,
        "detail": "items.3.vector.1: Input should be a finite number",
        "instance": "/v1/collections/products/items",
        "field": "items.3.vector.1",
        "errors": [{"field": "items.3.vector.1", "message": "Input should be a finite number"}],
    },
}
"""By the name of the schema."""
