// Pictures from the service, which may need a key.

import { call, readKey } from "./api.js";

/** Show a picture from the service; with a key it is fetched, since an <img> cannot send a header. */
export async function showPicture(image, url, urls) {
  image.dataset.url = url;
  if (!readKey()) {
    image.src = url;
    return;
  }
  try {
    const blob = await (await call(url)).blob();
    if (image.dataset.url !== url) return;
    image.src = URL.createObjectURL(blob);
    urls.push(image.src);
  } catch {
    image.alt = "This picture could not be loaded";
  }
}

export function release(urls) {
  urls.splice(0).forEach((url) => URL.revokeObjectURL(url));
}
