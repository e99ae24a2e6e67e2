// Pictures and sounds from the service, which may need a key.

import { call, readKey, urlOf } from "./api.js";

// A browser's own <img> names types like these, and gets a JPEG of a picture that browsers do not show.
const ACCEPTED = { IMG: "image/webp,image/png,image/*" };

/** Show a file in an <img> or <audio>; it is fetched, with the key if there is one, unless a sound can come bit by bit. */
export async function showFile(place, url, urls) {
  place.dataset.url = url;
  if (!readKey() && place.tagName !== "IMG") {
    place.src = urlOf(url);
    return;
  }
  try {
    const blob = await (await call(url, { headers: { Accept: ACCEPTED[place.tagName] ?? "*/*" } })).blob();
    if (place.dataset.url !== url) return;
    place.src = URL.createObjectURL(blob);
    urls.push(place.src);
  } catch {
    const told = place.tagName === "IMG" ? "alt" : "title";
    delete place.dataset.url;
    place[told] = "This file could not be loaded";
  }
}

export function release(urls) {
  urls.splice(0).forEach((url) => URL.revokeObjectURL(url));
}
