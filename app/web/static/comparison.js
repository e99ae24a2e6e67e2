// Two versions on the same queries, side by side.

import { call } from "./api.js";
import { byId, element, shorten } from "./elements.js";
import { announce, attempt } from "./messages.js";
import { release, showFile } from "./pictures.js";
import { playersOf } from "./results.js";
import { adminPath, kindOf, listItems, pictureUrlOf, plural, state } from "./state.js";

const DEPTH = 10; // a first page of results
const VERSIONS = ["first-version", "second-version"];
const SAMPLE = 5; // queries that are drawn from the collection at a time
const MOST_SHOWN = 20; // queries whose results stay on the page

let directions = [];
const pictures = []; // addresses of the results' pictures, until they go

/** Offer the versions for comparison: the one that is live and the newest other one, unless others were chosen. */
export function showComparison(models) {
  const numbers = models.map(({ version }) => version);
  const offered = [...byId(VERSIONS[0]).options].map(({ value }) => Number(value));
  if (String(offered) !== String(numbers)) {
    const active = models.find((model) => model.is_active)?.version ?? numbers[0];
    const preset = [active, numbers.find((number) => number !== active)];
    VERSIONS.forEach((id, place) => {
      byId(id).replaceChildren(...numbers.map((number) => new Option(number, number)));
      byId(id).value = preset[place];
    });
  }
  byId("comparison").hidden = models.length < 2;
}

/** Prepare the queries of another collection, and forget those of the one before. */
export function resetComparison() {
  for (const id of [...VERSIONS, "compared"]) byId(id).replaceChildren();
  release(pictures);
  const [x, z] = Object.keys(state.collection.modalities);
  directions = [{ source: z, target: x }, { source: x, target: z }];
  byId("direction").replaceChildren(...directions.map(({ source, target }, number) =>
    new Option(`${plural(target)} for ${plural(source)}`, number)));
  showQueryFields();
}

byId("direction").addEventListener("change", showQueryFields);

const direction = () => directions[Number(byId("direction").value)];

function showQueryFields() {
  const { source } = direction();
  const kind = kindOf(state.collection.modalities[source]);
  for (const name of ["text", "picture"]) byId(`${name}-query`).hidden = kind !== name;
  byId("sample-query").textContent = `Take ${SAMPLE} ${plural(source)} of the collection`;
}

byId("comparison-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = byId("query-text").value.trim();
  if (text) attempt(() => compare([{ text }]), compare);
});
byId("query-picture").addEventListener("change", () => {
  const [picture] = byId("query-picture").files;
  byId("query-picture").value = "";
  if (picture) attempt(() => compare([{ picture }]), compare);
});
byId("sample-query").addEventListener("click", () => attempt(async () => {
  const items = await listItems(direction().source);
  const drawn = items.map((item) => ({ item, order: Math.random() })).sort((left, right) => left.order - right.order);
  await compare(drawn.slice(0, SAMPLE).map(({ item }) => ({ item })));
}));

/** Compare by each of some queries {text} | {picture: File} | {item}, the last one on top. */
async function compare(queries) {
  const collection = state.collection;
  const versions = VERSIONS.map((id) => Number(byId(id).value));
  const asked = direction();
  byId("comparison").setAttribute("aria-busy", "true");
  announce("Searching");
  try {
    for (const query of queries) {
      const answers = await Promise.all(versions.map((version) => search(version, asked, query)));
      if (state.collection !== collection) return;
      byId("compared").prepend(blockOf(query, asked, answers));
      while (byId("compared").childElementCount > MOST_SHOWN) byId("compared").lastElementChild.remove();
    }
    announce(`Compared by ${queries.length === 1 ? "one query" : `${queries.length} queries`}`);
  } finally {
    byId("comparison").removeAttribute("aria-busy");
  }
}

async function search(version, { source, target }, query) {
  const path = `${adminPath()}/models/${version}/search/${encodeURIComponent(source)}-to-${encodeURIComponent(target)}`;
  return (await call(path, { method: "POST", ...bodyOf(query) })).json();
}

function bodyOf({ text, picture, item }) {
  if (picture) {
    const body = new FormData();
    body.append("picture", picture, picture.name || "picture");
    body.append("k", String(DEPTH));
    return { body };
  }
  const query = item ? { item_id: item.id } : { text };
  return { json: { ...query, k: DEPTH } };
}

function blockOf(query, { source, target }, answers) {
  const block = element("li", "compared panel");
  const head = element("header");
  const title = element("h3", "", `${capitalise(plural(target))} for `);
  const url = query.item && pictureUrlOf(query.item, source);
  if (query.picture || url) head.append(pictureOf(query.picture, url));
  title.append(nameOf(query, source));
  const shared = sharedBy(answers);
  const facts = element("p", "facts", `${shared} of the first ${DEPTH} are the same`);
  const texts = element("div");
  texts.append(title, facts);
  head.append(texts);
  const sides = element("div", "sides");
  sides.append(...answers.map((answer, number) => sideOf(answer, answers[1 - number], target)));
  block.append(head, sides);
  return block;
}

const capitalise = (text) => text.charAt(0).toUpperCase() + text.slice(1);

function nameOf({ text, picture, item }, source) {
  if (picture) return shorten(picture.name || "a picture", 60);
  if (text !== undefined) return `“${shorten(text, 140)}”`;
  return item.text ? `“${shorten(item.text, 140)}”` : `${source} ${item.id}`;
}

function sharedBy([first, second]) {
  const ids = new Set(first.hits.map(({ id }) => id));
  return second.hits.filter(({ id }) => ids.has(id)).length;
}

function sideOf(answer, other, target) {
  const side = element("div", "side");
  side.setAttribute("role", "group");
  side.setAttribute("aria-label", `Version ${answer.model_version}`);
  const title = element("h4", "", `Version ${answer.model_version}`);
  const list = element("ol");
  const ranks = new Map(other.hits.map(({ id, rank }) => [id, rank]));
  list.append(...answer.hits.map((hit) => hitOf(hit, target, ranks.get(hit.id), other.model_version)));
  side.append(title, ...answer.notices.map(({ message }) => element("p", "facts", message)));
  side.append(answer.hits.length > 0 ? list : element("p", "facts", "Nothing was found."));
  return side;
}

function hitOf(hit, target, otherRank, otherVersion) {
  const entry = element("li");
  entry.classList.toggle("is-alone", otherRank === undefined);
  const url = pictureUrlOf(hit, target);
  if (url) entry.append(pictureOf(null, url, hit));
  const body = element("div");
  const text = shorten(hit.text || (url ? (hit.labels ?? []).join(", ") : "") || hit.id, 90);
  const rank = otherRank === undefined ? `not in version ${otherVersion}` : `#${otherRank} in version ${otherVersion}`;
  const where = hit.rank === otherRank ? "" : ` · ${rank}`;
  body.append(element("span", "", text), element("span", "facts", `#${hit.rank} · ${Number(hit.score).toFixed(3)}${where}`));
  entry.append(body, ...playersOf(hit, target));
  return entry;
}

function pictureOf(file, url, hit) {
  const image = element("img");
  image.alt = hit?.labels?.length ? `Picture: ${hit.labels.join(", ")}` : "Picture";
  if (file) {
    image.src = URL.createObjectURL(file);
    pictures.push(image.src);
  } else {
    showFile(image, url, pictures);
  }
  return image;
}
