// What the training report of a version says, in words and figures.

import { plural } from "./state.js";

export const WHEN = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "short" });

const METHODS = {
  lrbs: "compares features",
  semantic: "compares class posteriors",
  squared: "compares features, learned with the squared loss",
  composite: "compares what labels, facets and pairs have taught",
};
const MEASURES = { map: "MAP", ndcg: "nDCG@10", recall: "recall@10" };

const share = (value) => Number(value).toFixed(3);
const count = (value) => String(value);

const FIGURES = [
  ["map", "MAP", "mean average precision by label", share],
  ["chance", "MAP of chance", "of a random ranking", share],
  ["ndcg_at_10", "nDCG@10", "graded by the values that query and item share", share],
  ["recall_at_1", "Recall@1", "how often the partner comes first", share],
  ["recall_at_10", "Recall@10", "how often the partner is among the first ten", share],
  ["median_rank", "Median rank", "of the partner, from 1", count],
];
const PLACES = [
  ["content", "by content", "of the items' own content alone"],
  ["partners", "with partners", "of their content and that of their partners"],
  ["complete", "as found", "of content, partners, labels and values: what people search"],
  ["untrained", "before any training", "of the same by words and likeness alone"],
];
const ASKED = [
  ["placed", "nDCG@10 of items", "held-out items as queries, their own partners left out; vectors"],
  ["placed_for_texts", "nDCG@10 of short texts", "such as “red handbag”; vectors"],
];
const COUNTS = [
  ["distinct_lists", "First pages", "number of different first pages of ten", count],
  ["n_queries", "Queries", "held-out items that were searched with; the gallery of all figures but nDCG@10 and Recall@10", count],
  ["n_gallery", "Gallery", "of nDCG@10 and Recall@10: as many items as are searched, those learned from, too", count],
];

/** Return the directions that were measured, and a row {name, meaning, values} for each figure that any of them has. */
export function qualityOf({ held_out: heldOut }) {
  const directions = Object.values(heldOut.directions);
  const facets = [...new Set(directions.flatMap((quality) => Object.keys(quality.precision_at_10)))];
  const precision = (facet) => ({
    name: `P@10 ${facet}`,
    meaning: "share of the first ten with the query's value; below 1 where fewer than ten items have it",
    values: directions.map((quality) => show(quality.precision_at_10[facet], share)),
  });
  const rowOf = ([key, name, meaning, format]) =>
    ({ name, meaning, values: directions.map((quality) => show(quality.served?.[key] ?? quality[key], format)) });
  const placed = ASKED.flatMap(([key, name, asked]) => PLACES.map(([place, how, made]) =>
    ({ name: `${name} ${how}`, meaning: `${asked} ${made}`, values: directions.map((quality) => show(quality[key]?.[place], share)) })));
  const rows = [...FIGURES.map(rowOf), ...placed, ...facets.map(precision), ...COUNTS.map(rowOf)];
  return {
    directions: Object.keys(heldOut.directions).map((name) => name.replaceAll("-to-", " to ")),
    rows: rows.filter(({ values }) => values.some(Boolean)),
  };
}

const show = (value, format) => (value === null || value === undefined ? "" : format(value));

/** Say how a version was trained. */
export function describeTraining({ method, data, parameters }) {
  const items = Object.entries(data.items).map(([name, number]) => `${number} ${plural(name, number)}`).join(", ");
  return [method, METHODS[method] ?? "", items && `learned from ${items}`, parameters.reason].filter(Boolean).join(" · ");
}

/** Say what else is to be known of a version. */
export function remarksOn(report) {
  const { progress, caution } = report.held_out;
  const said = [caution, progress].filter(Boolean).map((sentence) => `${sentence}.`);
  return [...said, ...gateOf(report.gate), ...convergenceOf(report.fit), ...indexesOf(report.index)];
}

function gateOf({ compared_with: other, skipped, items, objective, new_value: own, active_value: theirs, interval }) {
  if (other === null) return [];
  if (skipped !== null) return [`Not compared with version ${other}: ${skipped}.`];
  const numbers = Object.entries(items).map(([name, number]) => `${number} ${plural(name, number)}`).join(" and ");
  const sure = interval ? `: different by ${signed(interval[0])} to ${signed(interval[1])} with 95 % confidence` : "";
  return [`${nameOf(objective)} ${share(own)} against ${share(theirs)} of version ${other}, on ${numbers} new to both${sure}.`];
}

function nameOf(objective) {
  if (typeof objective === "string") return MEASURES[objective] ?? objective;
  const weights = Object.entries(objective).filter(([, weight]) => weight > 0); // without floors
  return `Mean of ${weights.map(([name, weight]) => `${weight} × ${MEASURES[name] ?? name}`).join(" and ")}:`;
}

const signed = (difference) => `${difference < 0 ? "−" : "+"}${Math.abs(difference).toFixed(3)}`;

const convergenceOf = ({ convergence }) =>
  (convergence !== null && !convergence.converged ? ["The fit ended before it met its tolerance."] : []);

/** Say how large galleries are searched; others are searched exactly. */
const indexesOf = ({ recall_at_10: recalls, choices }) =>
  Object.entries(choices).map(([modality, { spec, reason }]) => (spec.kind === "exact"
    ? `${modality} is searched exactly: ${reason}.`
    : `${modality} is searched by inverted lists, which found ${tenths(recalls[modality])} of the best ten.`));

const tenths = (found) => (typeof found === "number" ? `${(100 * found).toFixed(1)} %` : "most");
