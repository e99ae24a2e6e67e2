// Making a collection: its name, and for each of its two modalities a name and an encoder.

import { call } from "./api.js";
import { byId, element } from "./elements.js";
import { encoderOf, explain, loadEncoders } from "./encoders.js";
import { announce, attempt } from "./messages.js";

const SIDES = [
  { title: "First kind", name: "image", encoder: "hog-color" },
  { title: "Second kind", name: "text", encoder: "tfidf" },
];
const CONTENTS = new Map([
  ["picture", "Pictures"], ["sound", "Sounds"], ["text", "Texts"], ["vector", "Features of your own"],
  [null, "Several encoders together"],
]);

let encoders = null;

/** Let a collection be made; `onCreated` takes it. */
export function offerCreation(onCreated) {
  byId("creating").addEventListener("toggle", () => {
    if (byId("creating").open && encoders === null) attempt(showEncoders);
  });
  byId("create-form").addEventListener("submit", (event) => {
    event.preventDefault();
    attempt(async () => {
      const collection = await create();
      byId("new-name").value = "";
      announce(`The collection ${collection.name} was made`);
      attempt(() => onCreated(collection)); // what fails now is not the making, which is not to be repeated
    }, byId("create-form"));
  });
}

async function create() {
  const modalities = Object.fromEntries([...byId("new-modalities").children].map((side) => [
    side.querySelector("input").value.trim(),
    { encoder: encoderOf(side) },
  ]));
  const response = await call("v1/collections", { json: { name: byId("new-name").value.trim(), modalities } });
  return response.json();
}

async function showEncoders() {
  encoders = await loadEncoders();
  byId("new-modalities").replaceChildren(...SIDES.map(sideOf));
  byId("create").hidden = false;
}

function sideOf({ title, name, encoder }, number) {
  const side = byId("new-modality").content.firstElementChild.cloneNode(true);
  const [nameBox, choice] = [side.querySelector("input"), side.querySelector("select")];
  const [nameLabel, choiceLabel] = side.querySelectorAll("label");
  side.querySelector("legend").textContent = title;
  for (const [label, control, id] of [[nameLabel, nameBox, "name"], [choiceLabel, choice, "encoder"]]) {
    control.id = `new-${id}-${number}`;
    label.htmlFor = control.id;
  }
  nameBox.value = name;
  choice.append(...[...CONTENTS].map(([content, heading]) => {
    const group = element("optgroup");
    group.label = heading;
    group.append(...encoders.filter((each) => each.content === content).map(({ type }) => new Option(type, type)));
    return group;
  }));
  choice.value = encoder;
  choice.addEventListener("change", () => explain(side, encoders, number));
  explain(side, encoders, number);
  return side;
}
