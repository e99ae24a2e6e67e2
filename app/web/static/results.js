// The card of one result, which can be the next query in either direction, or a part of it.

import { call } from "./api.js";
import { byId, element } from "./elements.js";
import { showFile } from "./pictures.js";
import { collectionPath, contentUrlOf, namesFile, pictureUrlOf, plural, queryOf, state } from "./state.js";

const FACTS_SHOWN = 4;
const LONGEST_FACT = 40;
const REASONS_SHOWN = 3;
const paired = new WeakMap(); // whether items of a collection have partners, once that is clear

/** Build one result; `run` takes a search that is clicked. */
export function resultCard(hit, { target, parts, emphasis, groupBy }, run) {
  const item = element("li");
  const other = Object.keys(state.collection.modalities).find((name) => name !== target);
  const pictureUrl = pictureUrlOf(hit, target);
  const part = { source: target, query: queryOf(hit, target), weight: 1 };
  const card = element("button", "hit");
  card.dataset.id = hit.id;
  card.title = `Find ${plural(other)} that match this one`;
  if (groupBy) card.append(element("span", "group", groupOf(hit, groupBy)));
  if (pictureUrl) card.append(pictureOf(hit));
  if (hit.text || !pictureUrl) card.append(element("span", "hit-text", hit.text || hit.id));
  if (paired.get(state.collection) !== false) card.append(element("span", "room"));
  card.append(detailsOf(hit, parts.length > 1 || Object.keys(emphasis).length > 0));
  card.addEventListener("click", () => run({ target: other, parts: [part] }));

  const action = (text, name, partsOf) => {
    const button = element("button", "similar", text);
    button.title = name;
    button.setAttribute("aria-label", `${name}: result ${hit.rank}`);
    button.addEventListener("click", () => run({ target, parts: partsOf() }));
    return button;
  };
  const actions = element("div", "actions");
  actions.append(
    action("Similar", `Similar ${plural(target)}`, () => [part]),
    action("+", "More like this", () => [...byId("bar").read(), part]),
    action("−", "Less like this", () => [...byId("bar").read(), { ...part, weight: -1 }]),
  );
  item.append(card, ...playersOf(hit, target), actions);
  return item;
}

/** Return the values that a result stands for, of what the results are grouped by; nothing of pairs, before partners are there. */
function groupOf({ labels, metadata }, name) {
  if (name === "pair_id") return "";
  const value = name === "label" ? labels : Object.hasOwn(metadata, name) ? metadata[name] : [];
  return [value].flat().join(", ") || `no ${name}`;
}

/** Show on cards of results what these are paired with, where they have room for it; no room where nothing has a partner. */
export async function showPartners(hits, cards) {
  if (hits.length === 0) return;
  const query = new URLSearchParams(hits.map(({ id }) => ["item_id", id]));
  const { collection } = state;
  const { partners } = await (await call(`${collectionPath()}/partners?${query}`)).json();
  if (!cards[0].isConnected) return;
  paired.set(collection, paired.get(collection) || Object.keys(partners).length > 0);
  hits.forEach(({ id }, number) => {
    const partner = partners[id] && partnerOf(partners[id]);
    for (const pair of cards[number].querySelectorAll(".group:empty")) pair.textContent = partners[id]?.pair_id ?? "no partner";
    if (partner) cards[number].querySelector(".hit-body").before(partner);
    if (partner || !paired.get(collection)) cards[number].querySelector(".room")?.remove();
  });
}

function partnerOf(item) {
  const partner = element("span", "partner");
  partner.append(element("span", "visually-hidden", "Partner: "));
  if (pictureUrlOf(item, item.modality)) partner.append(pictureOf(item));
  else partner.append(element("span", "partner-text", item.text || item.id));
  return partner;
}

/** Return the picture of a result or an item. */
export function pictureOf(hit) {
  const frame = element("span", "hit-picture");
  const image = element("img");
  image.alt = hit.labels?.length ? `Picture: ${hit.labels.join(", ")}` : `Picture ${hit.id}`;
  image.decoding = "async";
  showFile(image, contentUrlOf(hit), state.pictures);
  frame.append(image);
  return frame;
}

/** Return what plays a result or an item; nothing where it is no sound. */
export function playersOf(hit, modality) {
  if (!hit.content_url || pictureUrlOf(hit, modality)) return [];
  const player = element("audio", "player");
  player.controls = true;
  player.preload = "none";
  player.setAttribute("aria-label", `Sound ${hit.id}`);
  showFile(player, contentUrlOf(hit), state.pictures);
  return [player];
}

function detailsOf(hit, isMadeOfParts) {
  const isCosine = hit.probability === null; // within a modality, and before a training
  const body = element("span", "hit-body");
  const line = element("span", "hit-line");
  const score = element("span", "hit-score", Number(hit.score).toFixed(3));
  line.append(element("span", "hit-rank", `#${hit.rank}`), score);
  if (isCosine) {
    score.title = isMadeOfParts ? "Score" : "Likeness";
  } else {
    const probability = element("span", "hit-probability", `${(Math.floor(1000 * hit.probability) / 10).toFixed(1)} %`);
    probability.title = "Estimated probability of a match";
    line.append(probability);
  }
  body.append(line);
  if (!isMadeOfParts) {
    const bar = element("progress");
    bar.max = 1;
    bar.value = isCosine ? Math.min(Math.max(hit.score, 0), 1) : hit.probability;
    bar.setAttribute("aria-hidden", "true");
    body.append(bar);
  }
  if (hit.explanation) body.append(reasonsOf(hit.explanation));
  const labels = element("span", "labels");
  labels.append(...(hit.labels ?? []).map((label) => element("span", "", label)), ...factsOf(hit.metadata ?? {}));
  if (labels.childElementCount > 0) body.append(labels);
  body.append(element("span", "hit-id", hit.id));
  return body;
}

/** Return bars of what made most of a score, with the values that agree, such as "colour Red: 62 %", "label Bags: 30 %". */
function reasonsOf(parts) {
  const total = parts.reduce((sum, { score }) => sum + Math.abs(score), 0) || 1;
  const shares = parts.map(({ name, score, agrees }) => ({ said: [name, agrees.join(", ")].filter(Boolean).join(" "), share: Math.round((100 * score) / total) }))
    .filter(({ share }) => share !== 0)
    .toSorted((left, right) => Math.abs(right.share) - Math.abs(left.share))
    .slice(0, REASONS_SHOWN);
  const reasons = element("span", "reasons");
  reasons.append(...shares.map(({ said, share }) => {
    const bar = element("span", share < 0 ? "is-less" : "", `${said}: ${share} %`);
    bar.style.setProperty("--share", `${Math.abs(share)}%`);
    return bar;
  }));
  return reasons;
}

/** Return the first short values of an item's metadata. */
export function factsOf(metadata) {
  return Object.entries(metadata)
    .filter(([key, value]) => !namesFile(key, value))
    .filter(([, value]) => ["string", "number", "boolean"].includes(typeof value))
    .map(([key, value]) => `${key}: ${value}`)
    .filter((text) => text.length <= LONGEST_FACT)
    .slice(0, FACTS_SHOWN)
    .map((text) => element("span", "fact", text));
}
