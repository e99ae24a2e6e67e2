"""A similarity of several terms, learned from all that samples carry."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Self

import numpy.typing as npt
from typing_extensions import override

from solver.base import CrossModalEstimator
from solver.composite.learning import Choice, LearningOptions, learn
from solver.linalg import FloatArray, check_samples
from solver.progress import OnProgress, WorkPlan, number_steps
from solver.supervision.annotations import Annotations, AnyLabels, Queries, annotations_of, check_sizes
from solver.validation import InvalidInputError, SupervisionError


class CompositeBilinear(LearningOptions, CrossModalEstimator):
    """Weighted sum of similarities, one for each kind of thing that samples carry.

    * For each facet, the inner product of class posteriors, ``sum_c p(c|x) p(c|z)``: the probability that
      both have the same value. Posteriors are calibrated ridge regressions on a kernel feature map, so that
      one decomposition serves all facets and all penalties.
    * For pairs, the cosine of both samples along regularised canonical directions [1]_, which
      distinguishes single items.
    * With it, the product of both samples' distinctness, one minus the hubness [2]_: a sample that is near to
      all others of the other modality is ranked lower.
    * For judged pairs, such as clicks, a low-rank bilinear similarity in the coordinates of these directions,
      with the logistic loss and the nuclear norm (`LowRankBilinear`). Its weight is chosen by other judged
      pairs, after all others (`solver.composite.weights.WeightSearch`).
    * Where both modalities have the same number of features, the cosine of the features themselves: of
      vectors from one pretrained space this is the similarity before any training.

    Each term is an inner product, and so is their sum. Weights are chosen by the rankings of samples that the
    terms have not learned from; a term that does not help gets the weight 0.

    Parameters
    ----------
    scalings : tuple of str
        Kinds of `FeatureScaler` to try.
    kernels : tuple of {"linear", "rbf", "laplacian"}
    n_landmarks : int, >= 1
        Landmarks of the kernel maps.
    n_components : int, >= 1
        Most principal axes of each modality; more samples than this are described by axes of a part of them.
    n_folds : int, >= 2
        Parts of the samples; each is ranked by terms that were fitted without it.
    max_samples : int, >= 10
        Samples of each modality that maps and weights are chosen on.
    random_state : int, >= 0
        Seed of folds, landmarks and parts.
    objective : {"ndcg", "map", "recall"} or mapping, optional
        What the weights are chosen by, as of `objective_value`; MAP is by label here, and by all facets where
        none is called "label". By default that of `default_objective`. ``{"map": 1, "at_least":
        {"recall_1": 0.97}}`` adds floors: held-out samples keep these shares of what the weights that serve
        have, or else the cosine alone, or, without one, the weights by `USUAL_OBJECTIVE`.

    Attributes
    ----------
    weights_ : dict of str to float
        Weight of each term: "facet:" and a name, "pairs", "distinctness", "signs", "cosine", and
        "content:x" or "content:z". The largest of those that are learned is 1.
    dimensions_ : dict of str to int
        What each term adds to the rank. Of the directions of pairs as few are kept as rank held-out partners
        about as well as all of them.
    quality_ : float
        The objective of held-out samples, see `solver.composite.weights.WeightSearch`.
    choice_ : Choice
        Feature maps, ridge and weights, as chosen.
    contradictions_ : tuple of Contradiction
        Values that samples carry against what their content says, the surest first.
    projector_ : CompositeProjector
        What projects new samples.

    References
    ----------
    .. [1] D. R. Hardoon et al., "Canonical Correlation Analysis", Neural Computation 16, 2004.
    .. [2] S. Smith et al., "Offline Bilingual Word Vectors ... and the Inverted Softmax", ICLR 2017.

    Examples
    --------
    >>> from solver import CompositeBilinear, Labels, make_low_rank_pairs
    >>> data = make_low_rank_pairs(n_samples_x=60, n_samples_z=50, random_state=0)
    >>> supervision = Labels(data.x_labels, data.z_labels)
    >>> model = CompositeBilinear(kernels=("linear",)).fit(data.X, data.Z, supervision)
    >>> model.similarity(data.X, data.Z).shape
    (60, 50)
    """

    _fitted_attribute = "projector_"

    @override
    def fit(
        self,
        X: npt.ArrayLike,
        Z: npt.ArrayLike,
        supervision: AnyLabels = None,
        *,
        callback: OnProgress | None = None,
        reuse: CompositeBilinear | None = None,
        queries: Callable[[Annotations], tuple[Queries | None, Queries | None]] | None = None,
        with_content: tuple[bool, bool] = (False, False),
        keep: Collection[str] = (),
        served: Mapping[str, float] = MappingProxyType({}),
        n_further: tuple[int, int] = (0, 0),
        with_likeness: tuple[bool, bool] = (False, False),
    ) -> Self:
        """Learn the terms, then their weights.

        Parameters
        ----------
        X, Z : array-like or sparse array of shape (n_samples, n_features)
            Both modalities.
        supervision : Annotations, Labels, MultiLabels, PairedRows, array-like, tuple or None
            What is known of the samples, plain labels as in `LowRankBilinear.fit`; labels are one facet.
        callback : callable, optional
            Called with a `StepProgress` at each step, with the share of the work that is done; an exception
            it raises ends the fit.
        reuse : CompositeBilinear or None
            Fitted on similar samples: its feature maps, ridge and weights are taken over.
        queries : callable or None
            Returns short queries of X and of Z (or None) that name values of facets, from the annotations
            that have a term. Weights are chosen to suit them, too, as far as neither the objective of
            held-out samples nor its nDCG or MAP is lowered by more than half a percent.
        with_content : tuple of bool
            Of which modality, such as texts, the cosine of the features themselves counts, too, between its
            queries and the partners of a gallery's samples. Its weight is as large as held-out samples allow.
        keep : collection of str
            Facets that have a term even if another one explains them, such as a category that follows from
            the labels. What content says nothing of has none.
        served : mapping of str to float
            `weights_` of the model that serves, of which the objective's floors are shares.
        n_further : tuple of int
            How many of the last features of X and of Z no term learns from, such as words that few samples
            have, or none yet: they count in the content alone.
        with_likeness : tuple of bool
            Of which modality, such as few pictures, the cosine counts likewise, with as much weight as so few
            samples need. It has no part in queries that several make together.

        Raises
        ------
        InvalidParameterError, InvalidInputError
            If parameters or arrays are invalid, or no feature map suits the samples.
        SupervisionError
            If the supervision is of other samples, nothing can be learned from it, or a floor of the
            objective is of what it cannot measure.
        """
        x_samples, z_samples, checked = self._check_inputs(X, Z, supervision)
        annotations = annotations_of(checked)
        check_sizes(x_samples, z_samples, annotations)
        widths = x_samples.shape[1], z_samples.shape[1]
        for name, width, n_others in zip("XZ", widths, n_further, strict=True):
            if not 0 <= n_others < width:
                raise InvalidInputError(f"n_further of {name} must be less than its {width} features")

        def make_queries(used: Annotations) -> tuple[Queries | None, Queries | None]:
            made = (None, None) if queries is None else queries(used)
            for name, width, side in zip("XZ", widths, made, strict=True):
                if side is not None:
                    _check_queries(f"queries of {name}", side, width, used)
            return made

        if reuse is not None:
            reuse._check_fitted()
        choice, self.quality_, self.projector_, self.contradictions_ = learn(
            (x_samples, z_samples),
            annotations,
            self,
            WorkPlan(number_steps(callback)),
            None if reuse is None else reuse.choice_,
            make_queries,
            with_content,
            keep,
            served,
            n_further,
            with_likeness,
        )
        self.choice_: Choice = choice
        self.weights_ = dict(choice.weights)
        side = self.projector_.x
        self.dimensions_ = {head.term: width for head, width in zip(side.heads, side.widths, strict=True)}
        return self

    @property
    @override
    def n_features_in_(self) -> int:
        self._check_fitted()
        return self.projector_.x.n_features

    @override
    def _project(self, samples: npt.ArrayLike, side: str) -> FloatArray:
        own = self.projector_.x if side == "x" else self.projector_.z
        return own.project(check_samples(samples, side.upper(), n_features=own.n_features))


def _check_queries(name: str, queries: Queries, n_features: int, annotations: Annotations) -> None:
    check_samples(queries.samples, name, n_features=n_features)
    for facet, indicators in queries.indicators.items():
        if facet not in annotations.facets:
            raise SupervisionError(f"{name}: there is no facet {facet!r}")
        n_values = len(annotations.facets[facet].values)
        if indicators.shape[1] != n_values:
            raise SupervisionError(
                f"{name}: facet {facet!r} has {n_values} values, the queries have {indicators.shape[1]}"
            )
