// Pictures and sounds from the service, which may need a key.

import { call, readKey } from "./api.js";

/** Show a file in an <img> or <audio>; with a key it is fetched, since these cannot send a header. */
export async function showFile(place, url, urls) {
  place.dataset.url = url;
  if (!readKey()) {
    place.src = url;
    return;
  }
  try {
    const blob = await (await call(url)).blob();
    if (place.dataset.url !== url) return;
    place.src = URL.createObjectURL(blob);
    urls.push(place.src);
  } catch {
    const told = place.tagName === "IMG" ? "alt" : "title";
    place[told] = "This file could not be loaded";
  }
}

export function release(urls) {
  urls.splice(0).forEach((url) => URL.revokeObjectURL(url));
}
