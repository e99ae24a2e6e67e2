# %% [markdown]
# # Fill a collection, train it and search it, from Python
#
# A notebook as a script. It needs a service (`make demo`) and a key of scope `admin`:
# `LRBS_API_KEY=... python app/examples/search_a_shelf.py http://127.0.0.1:8000`.

# %%
import io
import os
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from lrbs import Client
from PIL import Image

client = Client(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000", os.environ["LRBS_API_KEY"])
name = "shelf"

# %% [markdown]
# A collection has two modalities of one's own names, each with an encoder.

# %%
client.create_collection(name, {"photo": {"type": "hog-color"}, "title": {"type": "tfidf"}})

# %% [markdown]
# Photographs in three colours, with titles: pictures of one's own would be paths of files. An import takes
# any iterable, sends it as a stream, and stores all of it or nothing.

# %%
COLOURS = {"red": (190, 40, 40), "green": (40, 160, 60), "blue": (40, 60, 190)}
THINGS = ("bag", "shoe", "scarf")
noise = np.random.default_rng(0)


def photograph(colour: str) -> bytes:
    """Return a noisy picture of a colour as a PNG file."""
    pixels = noise.normal(COLOURS[colour], 30.0, (48, 48, 3)).clip(0, 255).astype(np.uint8)
    stored = io.BytesIO()
    Image.fromarray(pixels).save(stored, "PNG")
    return stored.getvalue()


def items() -> Iterator[dict[str, Any]]:
    """Yield photographs and titles; those of one pair_id are partners."""
    for number in range(36):
        colour, thing = list(COLOURS)[number % 3], THINGS[number // 3 % 3]
        facts = {"labels": [colour], "metadata": {"thing": thing}, "pair_id": f"p{number}"}
        yield {"id": f"photo-{number}", "modality": "photo", "picture": photograph(colour), **facts}
        yield {"id": f"title-{number}", "modality": "title", "text": f"a {colour} {thing}", **facts}


imported = client.import_items(name, items())
print(f"{imported.created} items stored")

# %% [markdown]
# A training is a job. It goes on if this program ends.

# %%
job = client.retrain(name)
job = client.wait_for_job(job.id, timeout=300)
if job.error is not None:
    sys.exit(job.error)
quality = client.get_model(name, job.model_version or 1).report["held_out"]["directions"]
print({direction: round(figures["map"], 3) for direction, figures in quality.items()})

# %% [markdown]
# Titles find photographs, photographs find titles, and filters narrow both.

# %%
for hit in client.search(name, "title", "photo", text="a blue scarf", k=3).hits:
    print(hit.id, hit.labels, f"{hit.probability:.0%}")
for hit in client.search(
    name, "photo", "title", picture=photograph("red"), k=3, filter={"metadata": {"thing": "shoe"}}
).hits:
    print(hit.text)

# %%
client.delete_collection(name)
client.close()
