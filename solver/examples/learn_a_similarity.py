# %% [markdown]
# # Learn a similarity between two kinds of data
#
# A notebook as a script: open it in an editor that knows cells (`# %%`), or run it as it is,
# `python solver/examples/learn_a_similarity.py`. It needs `pip install 'lrbs[plots]'`.

# %%
import sys
from pathlib import Path

import numpy as np
from lrbs import CCA, Labels, LowRankBilinear, PairedEstimator, PairedRows, PairedSamples, make_low_rank_pairs
from sklearn.model_selection import GridSearchCV

from solver.plots import plot_convergence, plot_singular_values

# %% [markdown]
# Two kinds of samples, drawn from five classes. Row i of one is the partner of row i of the other: the rows
# are put into the order of their classes. A quarter of the pairs is only for the figures at the end.

# %%
data = make_low_rank_pairs(240, 240, noise=1.0, random_state=0)
x_order, z_order = data.x_labels.argsort(kind="stable"), data.z_labels.argsort(kind="stable")
X, Z, classes = data.X[x_order], data.Z[z_order], data.x_labels[x_order]
held_out = np.random.default_rng(0).permutation(len(X)) < 60
fitting = ~held_out

# %% [markdown]
# The weight of the nuclear norm decides the rank of M. A grid search splits pairs together.

# %%
search = GridSearchCV(
    PairedEstimator(LowRankBilinear()), {"estimator__alpha_fraction": [0.5, 0.2, 0.05, 0.02]}, cv=3
)
search.fit(PairedSamples(X[fitting], Z[fitting]), classes[fitting])
for fraction, score in zip(
    search.cv_results_["param_estimator__alpha_fraction"], search.cv_results_["mean_test_score"], strict=True
):
    print(f"alpha_fraction {fraction:.2f}: MAP {score:.3f}")

# %% [markdown]
# The fitted model is certified: the duality gap bounds how far its objective is from the optimum.

# %%
model = search.best_estimator_.estimator_
print(f"rank {model.rank_} of {min(X.shape[1], Z.shape[1])}, relative gap {model.duality_gap_:.1e}")

# %% [markdown]
# On the pairs that were held out, beside canonical correlations of the same training pairs.

# %%
supervision = Labels(classes[held_out])
correlated = CCA(n_components=4).fit(X[fitting], Z[fitting], PairedRows(int(fitting.sum())))
for name, estimator in (("LowRankBilinear", model), ("CCA", correlated)):
    print(f"{name}: MAP {estimator.score(X[held_out], Z[held_out], supervision):.3f}")

# %% [markdown]
# Any sample finds those of the other kind by the inner product of their projections.

# %%
query = model.project_x(X[held_out][:1])
scores = query @ model.project_z(Z[held_out]).T
best = np.argsort(-scores[0])[:5]
print("classes of the first five:", classes[held_out][best].tolist(), "of the query:", classes[held_out][0])

# %%
folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path()
for name, plot in (
    ("singular-values", plot_singular_values(model.singular_values_)),
    ("convergence", plot_convergence(model.history_)),
):
    (folder / f"{name}.svg").write_text(plot.svg())
