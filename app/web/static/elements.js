// Create and find elements.

export const byId = (id) => document.getElementById(id);

/** Create an element; a button sends no form unless its type is changed. */
export function element(name, className, text) {
  const node = document.createElement(name);
  if (name === "button") node.type = "button";
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

/** Create one of several choices. */
export function radioOf(name, value, text, checked) {
  const label = element("label");
  label.append(Object.assign(element("input"), { type: "radio", name, value, checked }), element("span", "", text));
  return label;
}

export function shorten(text, length) {
  const flat = text.replace(/\s+/g, " ").trim();
  if (flat.length <= length) return flat;
  const cut = flat.slice(0, length);
  return `${cut.slice(0, Math.max(cut.lastIndexOf(" "), length / 2))}…`;
}

export function spreadOut(values, count) {
  if (values.length <= count) return values;
  return Array.from({ length: count }, (_, i) => values[Math.floor(((i + 0.5) * values.length) / count)]);
}
