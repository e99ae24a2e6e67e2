// Feedback on results: thumbs up and down, for a key that may store it.

import { call, readKey } from "./api.js";
import { encode } from "./base64.js";
import { byId } from "./elements.js";
import { announce, attempt } from "./messages.js";
import { collectionPath, state } from "./state.js";

const REFUSED = new Set([401, 403]);
const GONE = 404;
const judgements = new Map(); // what was stored since the page was loaded, by query and item
let permission = { of: null, answer: null };

/** Put thumbs below the cards of results, if the key may store feedback. */
export async function offerFeedback({ parts: [{ source, query }], target }, hits, cards) {
  const collection = state.collection;
  if (!(await mayGive()) || !cards[0]?.isConnected) return;
  const key = keyOf(collection, source, target, query);
  const about = { path: feedbackPath(collection), source, target, query, key };
  cards.forEach((card, number) => card.querySelector(".actions").append(thumbs(about, hits[number])));
}

const feedbackPath = (collection) => `${collectionPath(collection)}/feedback`;

/** Ask the service once for each key and collection: only a key that may write can list feedback. */
function mayGive() {
  if (readKey() === null) return false;
  const of = `${readKey()} ${state.collection.name}`;
  if (permission.of !== of) {
    const answer = call(`${feedbackPath(state.collection)}?limit=1`).then(() => true, (error) => {
      if (!REFUSED.has(error.status)) permission = { of: null, answer: null };
      return false;
    });
    permission = { of, answer };
  }
  return permission.answer;
}

function keyOf(collection, source, target, { text, itemId, picture }) {
  const file = picture && [picture.name, picture.size, picture.lastModified];
  return JSON.stringify([collection.name, source, target, text, itemId, file]);
}

function thumbs(about, hit) {
  const group = byId("thumbs").content.firstElementChild.cloneNode(true);
  const buttons = [...group.children];
  const place = `${about.key} ${hit.id}`;
  let isPending = false;
  group.setAttribute("aria-label", `Feedback on result ${hit.rank}`);
  const show = () => buttons.forEach((button, number) => {
    button.setAttribute("aria-pressed", String(judgements.get(place)?.relevant === (number === 0)));
  });
  buttons.forEach((button, number) => {
    const relevant = number === 0;
    button.title = relevant ? "Relevant" : "Not relevant";
    button.setAttribute("aria-label", `${button.title}: result ${hit.rank}`);
    // Not disabled meanwhile: a disabled button would lose the focus of the keyboard.
    button.addEventListener("click", () => attempt(async () => {
      if (isPending) return;
      isPending = true;
      try {
        await change(about, hit, place, relevant);
      } finally {
        isPending = false;
        show();
      }
    }, group));
  });
  show();
  return group;
}

/** Store a judgement in place of an earlier one; the same one again takes it back. */
async function change(about, hit, place, relevant) {
  const earlier = judgements.get(place);
  if (earlier) {
    await call(`${about.path}/${earlier.id}`, { method: "DELETE" }).catch((error) => {
      if (error.status !== GONE) throw error; // taken back elsewhere
    });
    judgements.delete(place);
  }
  if (earlier?.relevant === relevant) {
    announce(`Feedback on result ${hit.rank} was taken back`);
    return;
  }
  const { source, target } = about;
  const entry = { query: await contentOf(about.query), source, target, item_id: hit.id, relevant };
  const response = await call(about.path, { json: { feedback: [entry] } });
  judgements.set(place, { id: (await response.json()).ids[0], relevant });
  announce(`Stored: result ${hit.rank} is ${relevant ? "relevant" : "not relevant"}. The next training may learn from it.`);
}

/** Return a query as REST has it. */
export async function contentOf({ text, itemId, picture }) {
  if (picture) return { image_base64: await encode(picture) };
  return itemId === undefined ? { text } : { item_id: itemId };
}
