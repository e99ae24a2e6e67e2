// A form that a button opens, to confirm what the button is for.

import { attempt } from "./messages.js";

/**
 * Let a button show a form in its own place; `submit` gets the form's values and does what is confirmed.
 *
 * Cancel and Escape close the form and give the focus back to the button.
 */
export function confirmBy(button, form, submit) {
  const show = (isOpen) => {
    form.hidden = !isOpen;
    button.hidden = isOpen;
  };
  const close = () => {
    show(false);
    button.focus();
  };
  button.addEventListener("click", () => {
    form.reset();
    show(true);
    form.querySelector(".cancel").focus();
  });
  form.querySelector(".cancel").addEventListener("click", close);
  form.addEventListener("keydown", (event) => {
    if (event.key === "Escape") close();
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    attempt(() => submit(new FormData(form)), form);
  });
}
