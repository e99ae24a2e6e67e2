// Emphasis: how much each part of a score counts, such as the label or the pairs, and how far to go to the weights that are best
// by a measure. The names are those of the reasons and of the API.

import { byId, element } from "./elements.js";

const MOST = 4; // of a part; 1 is as trained
const MEASURES = { ndcg: "best order", map: "same kind", recall: "partner" };

/** Offer a slider for each part and measure that is shown or emphasised; `run` takes the weights that are chosen. */
export function showEmphasis({ emphasis }, { hits, measures = [] }, run) {
  const explained = hits.flatMap((hit) => hit.explanation ?? []).map(({ name }) => name);
  const names = [...new Set([...Object.keys(emphasis), ...explained, ...measures])].sort((left, right) => isMeasure(left) - isMeasure(right) || (left < right ? -1 : 1));
  const box = byId("emphasis");
  byId("emphasising").hidden = names.length < 2 && Object.keys(emphasis).length === 0;
  if (box.dataset.names !== JSON.stringify(names)) {
    box.dataset.names = JSON.stringify(names);
    box.replaceChildren(...names.map(sliderOf));
  }
  const sliders = [...box.querySelectorAll("input")];
  for (const slider of sliders) {
    slider.value = emphasis[slider.name] ?? usualOf(slider.name);
    showValue(slider);
  }
  const nChanged = Object.keys(emphasis).length;
  byId("emphasis-title").textContent = nChanged > 0 ? `Emphasis: ${nChanged} changed` : "Emphasis";
  box.onchange = () => run(Object.fromEntries(
    sliders.map(({ name, value }) => [name, Number(value)]).filter(([name, weight]) => weight !== usualOf(name)),
  ));
}

const isMeasure = (name) => Object.hasOwn(MEASURES, name);

const usualOf = (name) => (isMeasure(name) ? 0 : 1);

function sliderOf(name) {
  const [line, slider] = [element("label", "", isMeasure(name) ? `${MEASURES[name]} (${name})` : name), element("input")];
  Object.assign(slider, { type: "range", name, min: 0, max: isMeasure(name) ? 1 : MOST, step: isMeasure(name) ? 0.25 : 0.5 });
  const output = Object.assign(element("output"), { ariaHidden: "true" }); // the slider itself says it
  slider.addEventListener("input", () => showValue(slider));
  line.append(slider, output);
  return line;
}

/** Show the number of a slider, and whether it is that of the training. */
function showValue(slider) {
  const text = Number(slider.value) === usualOf(slider.name) ? `${slider.value}, as trained` : slider.value;
  slider.ariaValueText = slider.nextElementSibling.value = text;
}
