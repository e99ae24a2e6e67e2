"""Weights of the terms, chosen by held-out rankings and by the agreement with judged pairs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from solver.evaluation import metrics
from solver.evaluation.quality import USUAL_OBJECTIVE, Objective, check_objective, floors_of
from solver.linalg import FloatArray, Sides
from solver.progress import Heartbeat
from solver.supervision.annotations import LABEL, Annotations, BoolArray, Queries
from solver.supervision.kinds import Indices
from solver.validation import SupervisionError

COSINE, SIGNS = "cosine", "signs"  # names of terms: of the samples themselves, and of judged pairs
Query = tuple[int, int]  # modality, 0 or 1, and row of the sample that results were judged for


@dataclass(frozen=True, slots=True, eq=False)
class JudgedScores:
    """Scores (n_judged,) of judged pairs by terms that learned from neither of both samples' judgements."""

    terms: Mapping[str, FloatArray]
    rows: Indices
    columns: Indices
    is_relevant: BoolArray

    def total(self, weights: Mapping[str, float]) -> FloatArray:
        total = np.zeros(len(self.rows))
        for name, weight in weights.items():
            total += weight * self.terms[name]
        return total


@dataclass(frozen=True, slots=True, eq=False)
class _JudgedList:
    """What was judged for one query, of one part: places of what is relevant, and of what is not."""

    query: Query
    relevant: Indices
    others: Indices

    @property
    def weight(self) -> float:
        """Number of judgements that its share of well ordered pairs is as sure as, but for a factor."""
        return len(self.relevant) * len(self.others) / (len(self.relevant) + len(self.others))

    def value(self, scores: FloatArray) -> float:
        """Return the share of pairs in which the relevant one scores higher; ties count half."""
        differences = scores[self.relevant][:, None] - scores[self.others]
        return float(np.mean((differences > 0.0) + 0.5 * (differences == 0.0)))


class Agreement:
    """How often a relevant pair scores higher than another one that was judged for the same query.
    Scores of different parts are not compared: each is scored by terms of its own."""

    # Every sample of which some judged partners are relevant and some are not is a query: which of both
    # samples people asked with is not known. Where there is none, as where each query got one click, a
    # relevant pair is compared with all others of its part.

    def __init__(self, parts: Sequence[JudgedScores]) -> None:
        self._parts = parts
        self._lists = [_lists(part) for part in parts]
        if not any(self._lists):
            self._lists = [_lists_of_one(part) for part in parts]
        queries = sorted({entry.query for lists in self._lists for entry in lists})
        self._place = {query: number for number, query in enumerate(queries)}
        self._weights = np.zeros(len(queries))
        for lists in self._lists:
            for entry in lists:
                self._weights[self._place[entry.query]] += entry.weight

    def of_queries(self, weights: Mapping[str, float]) -> FloatArray:
        """Return the share of well ordered pairs of each query, averaged over the parts that it is in."""
        sums = np.zeros(len(self._weights))
        for part, lists in zip(self._parts, self._lists, strict=True):
            scores = part.total(weights)
            for entry in lists:
                sums[self._place[entry.query]] += entry.weight * entry.value(scores)
        return sums / self._weights

    def mean_and_error(self, values: FloatArray) -> tuple[float, float]:
        """Return the weighted mean of a value for each query, and its standard error; 0 without queries."""
        if not len(values):
            return 0.0, 0.0
        shares = self._weights / self._weights.sum()
        mean = float(shares @ values)
        return mean, float(np.linalg.norm(shares * (values - mean)))


def _lists(part: JudgedScores) -> list[_JudgedList]:
    lists = []
    for modality, samples in enumerate((part.rows, part.columns)):
        for sample in np.unique(samples).tolist():
            judged = np.flatnonzero(samples == sample)
            is_relevant = part.is_relevant[judged]
            if is_relevant.any() and not is_relevant.all():
                lists.append(_JudgedList((modality, sample), judged[is_relevant], judged[~is_relevant]))
    return lists


def _lists_of_one(part: JudgedScores) -> list[_JudgedList]:
    others = np.flatnonzero(~part.is_relevant)
    if not len(others):
        return []
    return [
        _JudgedList((0, int(part.rows[place])), np.array([place]), others)
        for place in np.flatnonzero(part.is_relevant).tolist()
    ]


_FACTORS = (0.0, 0.5, 0.7, 1.4, 2.0, 4.0)  # by which a weight is multiplied in a step of the search
_COARSE_FACTORS = (0.0, 0.5, 2.0)  # likewise, where the way to the best weights is longer
_RETURN = 0.5  # what a weight of 0 is tried with again
_MOST_ROUNDS = 4  # passes over all terms: a further one hardly changes a weight
_MIN_GAIN = 1e-4  # steps that gain less are noise
_FEW_SAMPLES, _FEW_SHARE = 30, 0.25
"""Of fewer samples, a step has to gain this share of one sample's ranking: a swap of two hits is chance, and
decided by rounding."""
_FINE_FACTORS = (0.5, 0.7, 0.85, 1.2, 1.4, 2.0)
"""As `_FACTORS`, of the search for short queries, which starts from weights that are good already."""
_TOLERATED_LOSS = 0.005
"""Of a measure of the samples, relative, for the sake of short queries: less than it varies between folds."""
_JUDGED_SHARES = (0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
"""Weights of the term of judged pairs to try, as shares of what makes it as large as all others together."""
_JUDGED_LOSS = 0.0025
"""Of a measure of the samples, relative, for the sake of judged pairs: with half a percent, clicks on one
property of products cost more by the others than they won."""
_COSINE_SHARES = (16.0, 8.0, 4.0, 2.0, 1.0, 0.5, 0.25, 0.125)
"""Weights of the cosine to try, as shares of the largest other one, where no pairs say what it is worth."""
_COSINE_LOSS, _COSINE_LOSS_BY_SAMPLE = 0.02, 2e-4
"""Of the objective, relative, for the sake of that, at most and by sample. Pictures and the same with noise
found each other first in .03 by labels alone, in .72 with half a percent, .86 with this, .93 by it."""
_COSINE_KNOWS = 0.25
"""Share of what can be learned over chance that the cosine knows where both modalities share a space."""
_N_GROUPS = 64  # of columns, when the first page is looked for
_MOST_QUERIES = 200
"""Queries of a part whose whole ranking is scored, an evenly spaced sample: sorting costs most."""


@dataclass(frozen=True, slots=True, eq=False)
class QueryScores:
    """Scores of the samples of a part by queries that are no samples."""

    terms: Mapping[str, FloatArray]  # (n_queries, n_gallery), by term
    grades: npt.NDArray[np.int8]  # of the same shape, as of `Queries.grades`


@dataclass(frozen=True, slots=True, eq=False)
class HeldOutScores:
    """Scores of one part of the samples that no term has learned from, each of shape (n_x, n_z)."""

    terms: Mapping[str, FloatArray]
    grades: npt.NDArray[np.int8]  # relevance, as of `Annotations.grades`
    shared: Mapping[str, BoolArray]  # by facet, which samples share a value
    queries: tuple[QueryScores, ...] = ()
    partners: BoolArray | None = None  # which samples belong together; None without pairs

    @classmethod
    def of(
        cls,
        terms: Mapping[str, Sides],
        annotations: Annotations,
        queries: tuple[Queries | None, Queries | None] = (None, None),
    ) -> HeldOutScores:
        """Return the scores of projections by term; those of the queries follow those of the samples."""
        n_x, n_z = annotations.shape
        rows = np.arange(n_x), np.arange(n_z)
        scores = {name: _inner(x[:n_x], z[:n_z]) for name, (x, z) in terms.items()}
        shared = {name: facet.is_shared(*rows) for name, facet in annotations.facets.items()}
        query_scores: list[QueryScores] = []
        turned = annotations, annotations.transpose()
        for side, (of_side, of_both) in enumerate(zip(queries, turned, strict=True)):
            if of_side is None:
                continue
            n_own, n_gallery = of_both.shape
            scored = {
                name: _inner(both[side][n_own:][of_side.decides], both[1 - side][:n_gallery])
                for name, both in terms.items()
            }
            gallery = {name: facet.z_indicators for name, facet in of_both.facets.items()}
            query_scores.append(QueryScores(scored, of_side.grades(gallery)[of_side.decides]))
        partners = annotations.is_paired(*rows) if len(annotations.pairs) else None
        return cls(scores, annotations.grades(*rows), shared, tuple(query_scores), partners)

    def total(self, weights: Mapping[str, float]) -> FloatArray:
        return _weighted_sum(self.terms, weights, self.grades.shape)


class _Direction:
    """What the rankings of one part's samples of one modality are measured by."""

    def __init__(
        self, grades: npt.NDArray[np.int8], shared: Mapping[str, BoolArray], partners: BoolArray | None
    ) -> None:
        self._gain = GradedGain(np.ascontiguousarray(grades))
        self.shared = shared
        self._decisive = {LABEL: shared[LABEL]} if LABEL in shared else shared
        self._rows = np.flatnonzero(partners.any(axis=1)) if partners is not None else np.empty(0, np.intp)
        self._partners = partners[self._rows] if partners is not None else np.empty((0, 0), np.bool_)

    def measure(self, scores: FloatArray, *, of_page: bool) -> dict[str, float]:
        """Return nDCG, R@1 and R@10 of the first page, or else MAP by label, by all facets without one."""
        if not of_page:
            precisions = _facet_precisions(scores, self._decisive)
            return {"map": float(np.mean(list(precisions.values())))} if precisions else {}
        page = self._gain.first_page(scores)
        measures = {"ndcg": self._gain.mean_of(page)}
        if len(self._rows):
            hits = np.take_along_axis(self._partners, page[self._rows], axis=1)
            measures["recall_1"] = float(hits[:, 0].mean())
            measures["recall_10"] = float(hits.any(axis=1).mean())
        return measures


_MEASURE_OF = {"ndcg": "ndcg", "map": "map", "recall": "recall_10"}
_Measures = Mapping[str, float]
_Weights = tuple[tuple[str, float], ...]


class WeightSearch:
    """Coordinate ascent on an objective's measures of rankings, averaged over parts and both directions.
    `bases` names for a term the one that it cannot be without, floors are of what `served` weights have."""

    # The measures are those of `solver.evaluation.quality`; those that nothing can be measured by are left
    # out of the weighted mean. Samples say more than people type: from the best weights for them, a second
    # ascent goes on to better ones for short queries, if there are any, by their graded nDCG. It takes no
    # step after which the objective, its nDCG or its average precision is half a percent below that of the
    # first weights, so that queries that mean nothing do no harm. (With R@10 held to half a percent, too,
    # short queries of products lost another .4 points.) Without pairs nothing measures how well single
    # samples are distinguished, which the cosine of a pretrained space can do: it gets the largest weight
    # with which the objective loses two percent at most, and the short queries' gain half a percent. What
    # judged pairs teach is often nothing that the facets know, so they cannot choose it. Their term is
    # weighted last, with the other weights as they are, by the agreement with judged pairs that it has not
    # learned from (`Agreement`). A few hundred clicks distinguish weights only roughly: the smallest weight
    # is taken that is within a standard error of the best one, among those with which these measures, the
    # average precision of all facets and the short queries' gain lose a quarter of a percent at most. Floors
    # always hold.

    def __init__(
        self,
        parts: Sequence[HeldOutScores],
        bases: Mapping[str, str] = MappingProxyType({}),
        judged: Sequence[JudgedScores] = (),
        objective: Objective = USUAL_OBJECTIVE,
        served: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        self._parts = parts
        self._judged = judged
        self._bases = {term: base for term, base in bases.items() if term in parts[0].terms}
        self._directions = [
            (
                _Direction(part.grades, part.shared, part.partners),
                _Direction(
                    part.grades.T,
                    {name: facet.T for name, facet in part.shared.items()},
                    None if part.partners is None else part.partners.T,
                ),
            )
            for part in parts
        ]
        self._queries = [(GradedGain(scores.grades), scores) for part in parts for scores in part.queries]
        n_samples = sum(min(part.grades.shape) for part in parts)
        self._min_gain = _FEW_SHARE / n_samples if n_samples < _FEW_SAMPLES else _MIN_GAIN
        self._objective = {_MEASURE_OF[name]: weight for name, weight in check_objective(objective).items()}
        self._shares = floors_of(objective)
        self._served = served
        self._floors: _Measures = {}
        self._tried: dict[tuple[_Weights, bool], _Measures] = {}  # by weights, and whether of first pages

    @property
    def most_steps(self) -> int:
        """Steps that `run` and `emphases` take at most."""
        n_factors = len(_FACTORS) + (len(_FINE_FACTORS) if self._queries else 0)
        n_trials = n_factors * (3 if self._shares else 1) + len(_MEASURE_OF) * len(_COARSE_FACTORS)
        return _MOST_ROUNDS * len(self._parts[0].terms) * n_trials

    def quality(self, weights: Mapping[str, float]) -> float:
        """Return the weighted mean of the objective's measures, 0 if there is nothing to measure."""
        measures = self._measure(weights, self._objective)
        shares = {name: weight for name, weight in self._objective.items() if name in measures}
        total = sum(shares.values())
        return sum(weight / total * measures[name] for name, weight in shares.items()) if total else 0.0

    def _measure(self, weights: Mapping[str, float], names: Iterable[str]) -> _Measures:
        """Return measures with these weights, those of the names among them as far as they can be taken."""
        key = tuple(sorted(weights.items()))
        groups = {(key, name != "map") for name in names}
        if missing := groups.difference(self._tried):
            values: dict[tuple[_Weights, bool], dict[str, list[float]]] = {
                one: defaultdict(list) for one in missing
            }
            for part, directions in zip(self._parts, self._directions, strict=True):
                total = part.total(weights)
                for direction, scores in zip(directions, (total, np.ascontiguousarray(total.T)), strict=True):
                    for one in missing:
                        for name, value in direction.measure(scores, of_page=one[1]).items():
                            values[one][name].append(value)
            for one, lists in values.items():
                self._tried[one] = {name: float(np.mean(parts)) for name, parts in lists.items()}
        return {name: value for one in groups for name, value in self._tried[one].items()}

    def _facet_precision(self, weights: Mapping[str, float]) -> float:
        """Return the mean average precision, averaged over all facets; 0 where there is none."""
        precisions: list[float] = []
        for part, (x_to_z, z_to_x) in zip(self._parts, self._directions, strict=True):
            total = part.total(weights)
            precisions += _facet_precisions(total, x_to_z.shared).values()
            precisions += _facet_precisions(total.T, z_to_x.shared).values()
        return float(np.mean(precisions)) if precisions else 0.0

    def _query_gain(self, weights: Mapping[str, float]) -> float:
        """Return the graded nDCG of short queries, averaged over parts and modalities; 0 without any."""
        gains = [
            gain.mean(_weighted_sum(scores.terms, weights, scores.grades.shape))
            for gain, scores in self._queries
        ]
        return float(np.mean(gains)) if gains else 0.0

    def run(self, heartbeat: Heartbeat) -> tuple[dict[str, float], float]:
        """Return the weights and their quality; the largest weight is 1."""
        others = [name for name in self._parts[0].terms if name != SIGNS]
        weights = dict.fromkeys(others or [SIGNS], 1.0)
        if others:
            weights = self._start(weights, heartbeat)
            factors = (*_FACTORS, *_FINE_FACTORS) if self._shares else _FACTORS
            weights = self._ascend(weights, self.quality, factors, self._keeps_floors, heartbeat)
            best = self.quality(weights)
            weights = self._with_cosine(self._suit_queries(weights, heartbeat), best)
            weights = self._with_judged(weights)
        return _with_largest_one(weights), self.quality(weights)

    def emphases(self, weights: Mapping[str, float], beat: Heartbeat) -> dict[str, dict[str, float]]:
        """Return, for each measure of `OBJECTIVES`, the weights that do best by it, of the terms that have a
        weight among these; floors hold for them, too."""
        none = {name for name in self._parts[0].terms if not weights.get(name)}
        best = {}
        for measure, name in _MEASURE_OF.items():
            self._measure(weights, [name])
            tried = {
                key: measures[name]
                for (key, _), measures in list(self._tried.items())
                if name in measures
                and any(weight for _, weight in key)
                and not any(weight > 0.0 and term in none for term, weight in key)
                and self._keeps_floors(dict(key))
            }
            if tried:
                first = dict(max(tried.items(), key=lambda entry: entry[1])[0])
                own = {term: weight for term, weight in first.items() if term not in none}

                def value(trial: Mapping[str, float], name: str = name) -> float:
                    return self._measure(trial, [name])[name]

                best[measure] = self._ascend(own, value, _COARSE_FACTORS, self._keeps_floors, beat)
        signs = {SIGNS: weights[SIGNS]} if SIGNS in weights else {}
        return {measure: {**_with_largest_one(trial), **signs} for measure, trial in best.items()}

    def _start(self, weights: dict[str, float], heartbeat: Heartbeat) -> dict[str, float]:
        """Return weights with which the floors hold: equal ones, where these do."""
        if not self._shares:
            return weights
        reference = {name: self._served.get(name, 0.0) for name in weights}
        if not any(reference.values()):
            reference = {name: float(name == COSINE) for name in weights}
        if not any(reference.values()):
            default = WeightSearch(self._parts, self._bases).run(heartbeat)[0]
            reference = {name: default[name] for name in weights}
        measures = self._measure(reference, self._shares)
        if lacking := [name for name in self._shares if name not in measures]:
            needed = "pairs" if lacking[0].startswith("recall") else "pairs or facets"
            raise SupervisionError(f"objective: {lacking[0]!r} of 'at_least' needs {needed}")
        self._floors = {name: share * measures[name] for name, share in self._shares.items()}
        trials = [{**weights, COSINE: share} for share in (1.0, 4.0, 16.0, 64.0) if COSINE in weights]
        return next((trial for trial in trials if self._keeps_floors(trial)), reference)

    def _keeps_floors(self, weights: Mapping[str, float]) -> bool:
        measures = self._measure(weights, self._floors)
        return all(measures[name] >= least for name, least in self._floors.items())

    def _is_within(self, loss: float, weights: Mapping[str, float]) -> Callable[[Mapping[str, float]], bool]:
        """Return whether weights lose at most this share of the objective, and of its nDCG and its MAP."""
        least, names = 1.0 - loss, [name for name in ("ndcg", "map") if self._objective.get(name)]
        measures = self._measure(weights, names)

        def is_allowed(trial: Mapping[str, float]) -> bool:
            after = self._measure(trial, names)
            return (
                self._keeps_floors(trial)
                and self.quality(trial) >= least * self.quality(weights)
                and all(after[name] >= least * measures[name] for name in names if name in measures)
            )

        return is_allowed

    def _suit_queries(self, weights: dict[str, float], heartbeat: Heartbeat) -> dict[str, float]:
        if not self._queries:
            return weights
        is_allowed = self._is_within(_TOLERATED_LOSS, weights)
        return self._ascend(weights, self._query_gain, _FINE_FACTORS, is_allowed, heartbeat)

    def _with_cosine(self, weights: dict[str, float], best: float) -> dict[str, float]:
        """Return weights with as much of the cosine as costs little, where no pairs say what it is worth and
        both modalities share a space."""
        if COSINE not in weights or self._parts[0].partners is not None:
            return weights
        chance = self.quality({COSINE: 0.0})  # in the order of the samples
        if self.quality({COSINE: 1.0}) - chance < _COSINE_KNOWS * (best - chance):
            return weights
        largest = max((weight for name, weight in weights.items() if name != COSINE), default=0.0)
        n_samples = sum(min(part.grades.shape) for part in self._parts)
        least = (1.0 - min(_COSINE_LOSS, n_samples * _COSINE_LOSS_BY_SAMPLE)) * best
        gain = (1.0 - _TOLERATED_LOSS) * self._query_gain(weights)
        for share in _COSINE_SHARES:
            trial = {**weights, COSINE: share * largest}
            if trial[COSINE] <= weights[COSINE]:
                break
            if self.quality(trial) >= least and self._query_gain(trial) >= gain and self._keeps_floors(trial):
                return trial
        return weights

    def _with_judged(self, weights: dict[str, float]) -> dict[str, float]:
        if SIGNS not in self._parts[0].terms:
            return weights
        agreement = Agreement(self._judged)
        unit = float(np.mean([np.std(part.total(weights), dtype=np.float64) for part in self._parts]))
        before, is_allowed = agreement.of_queries({**weights, SIGNS: 0.0}), self._hardly_loses(weights)
        trials = [({**weights, SIGNS: 0.0}, 0.0, 0.0)]
        for share in _JUDGED_SHARES:
            trial = {**weights, SIGNS: share * unit}
            if not is_allowed(trial):
                break
            trials.append((trial, *agreement.mean_and_error(agreement.of_queries(trial) - before)))
        _, best, error = max(trials, key=lambda trial: trial[1])
        return next(trial for trial, gain, _ in trials if gain >= best - error)

    def _hardly_loses(self, weights: dict[str, float]) -> Callable[[Mapping[str, float]], bool]:
        """Return whether weights are hardly worse than these for samples and for short queries."""
        least, is_within = 1.0 - _JUDGED_LOSS, self._is_within(_JUDGED_LOSS, weights)
        precision, query_gain = self._facet_precision(weights), self._query_gain(weights)

        def is_allowed(trial: Mapping[str, float]) -> bool:
            return (
                is_within(trial)
                and self._facet_precision(trial) >= least * precision
                and self._query_gain(trial) >= least * query_gain
            )

        return is_allowed

    def _ascend(
        self,
        weights: Mapping[str, float],
        value: Callable[[Mapping[str, float]], float],
        factors: Sequence[float],
        is_allowed: Callable[[Mapping[str, float]], bool],
        heartbeat: Heartbeat,
    ) -> dict[str, float]:
        """Return weights of a higher value: one at a time is changed as long as that is allowed and gains."""
        reached, best = dict(weights), value(weights)
        for _ in range(_MOST_ROUNDS):
            before = best
            for name in list(reached):
                for factor in factors:
                    heartbeat()
                    trial = self._with_bases({**reached, name: factor * (reached[name] or _RETURN)})
                    if not any(trial.values()):
                        continue
                    reward = value(trial)
                    if reward > best + self._min_gain and is_allowed(trial):
                        reached, best = trial, reward
            if best <= before:
                break
        return reached

    def _with_bases(self, weights: Mapping[str, float]) -> dict[str, float]:
        lost = {term for term, base in self._bases.items() if not weights.get(base)}
        return {name: 0.0 if name in lost else weight for name, weight in weights.items()}


class GradedGain:
    """Normalised discounted cumulative gain of the first ten results, as of `solver.evaluation.metrics`.
    Queries without a relevant sample are left out."""

    def __init__(self, grades: npt.NDArray[np.int8]) -> None:
        self._grades = grades
        self._depth = min(metrics.FIRST_PAGE, grades.shape[1])
        ideal = metrics.ideal_gains(grades, self._depth, int(grades.max(initial=0)))
        self._is_query = ideal > 0.0
        self._ideal = ideal[self._is_query]

    def mean(self, scores: FloatArray) -> float:
        """Return the mean over the queries of (n_queries, n_gallery) scores, 0 if there are no queries."""
        return self.mean_of(self.first_page(scores)) if len(self._ideal) else 0.0

    def of_each(self, scores: FloatArray) -> FloatArray:
        """Return the gain of each query that has a relevant sample."""
        return self._of_pages(self.first_page(scores))

    def first_page(self, scores: FloatArray) -> Indices:
        """Return the columns of the ten highest scores of each query, the highest first."""
        n_queries, n_gallery = scores.shape
        if n_gallery < 2 * _N_GROUPS:
            return metrics.rank_gallery(scores)[:, : self._depth]
        # Of groups of columns, the ten largest maxima are scores: no other one below them is among the ten
        # highest. That leaves few to sort, and takes a third of the time of partitioning all.
        grouped = scores[:, : n_gallery - n_gallery % _N_GROUPS].reshape(n_queries, -1, _N_GROUPS)
        least = np.partition(grouped.max(axis=1), -self._depth, axis=1)[:, [-self._depth]]
        rows, columns = np.divmod(np.flatnonzero(scores >= least), n_gallery)
        order = np.lexsort((-scores[rows, columns], rows))
        starts = np.searchsorted(rows, np.arange(n_queries))
        return columns[order[starts[:, None] + np.arange(self._depth)]]

    def mean_of(self, page: Indices) -> float:
        """Return the mean over the queries of what the first page shows, 0 if there are no queries."""
        return float(np.mean(self._of_pages(page))) if len(self._ideal) else 0.0

    def _of_pages(self, page: Indices) -> FloatArray:
        grades = np.take_along_axis(self._grades, page, axis=1)
        return metrics.discounted_gains(grades)[self._is_query] / self._ideal


def _with_largest_one(weights: Mapping[str, float]) -> dict[str, float]:
    largest = max(weights.values())
    return {name: weight / largest for name, weight in weights.items()}


def _inner(first: FloatArray, second: FloatArray) -> FloatArray:
    return (first @ second.T).astype(np.float32)


def _weighted_sum(
    terms: Mapping[str, FloatArray], weights: Mapping[str, float], shape: tuple[int, ...]
) -> FloatArray:
    total: FloatArray = np.zeros(shape, np.float32)
    for name, weight in weights.items():
        if weight > 0.0:
            total += np.float32(weight) * terms[name]
    return total


def _facet_precisions(scores: FloatArray, shared: Mapping[str, BoolArray]) -> dict[str, float]:
    """Return the mean average precision of each facet that any query shares with a sample."""
    if not shared:
        return {}
    queries = np.unique(np.linspace(0, len(scores) - 1, min(len(scores), _MOST_QUERIES)).astype(np.intp))
    order = metrics.rank_gallery(scores[queries])
    precisions = {
        name: metrics.average_precisions_of_hits(np.take_along_axis(is_shared[queries], order, axis=1))
        for name, is_shared in shared.items()
    }
    # A query that shares the facet with no sample has none.
    return {
        name: float(np.nanmean(values)) for name, values in precisions.items() if not np.isnan(values).all()
    }
