// Emphasis: how much each part of a score counts, such as the label or the pairs. The names are those of the reasons.

import { byId, element } from "./elements.js";

const MOST = 4; // of a slider; 1 is as trained

/** Offer a slider for each part of the scores that is shown or emphasised; `run` takes the weights that are chosen. */
export function showEmphasis({ emphasis }, hits, run) {
  const explained = hits.flatMap((hit) => hit.explanation ?? []).map(({ name }) => name);
  const names = [...new Set([...Object.keys(emphasis), ...explained])].sort();
  const box = byId("emphasis");
  box.hidden = names.length < 2 && Object.keys(emphasis).length === 0;
  if (box.dataset.names !== JSON.stringify(names)) {
    box.dataset.names = JSON.stringify(names);
    box.replaceChildren(box.firstElementChild, ...names.map(sliderOf));
  }
  const sliders = [...box.querySelectorAll("input")];
  for (const slider of sliders) slider.value = emphasis[slider.name] ?? 1;
  box.onchange = () => run(Object.fromEntries(sliders.map(({ name, value }) => [name, Number(value)]).filter(([, weight]) => weight !== 1)));
}

function sliderOf(name) {
  const [line, slider] = [element("label", "", name), element("input")];
  Object.assign(slider, { type: "range", name, min: 0, max: MOST, step: 0.5 });
  line.append(slider);
  return line;
}
