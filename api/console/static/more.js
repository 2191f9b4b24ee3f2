// The button below a listing that was cut: it adds the next part.

import { h, say } from "./dom.js";
import { plain } from "./visible.js";

// moreButton calls add, which returns what a screen reader says then, and may hide the button. When
// add fails the button says why, and can be used again.
export function moreButton(text, add) {
  let adding = false;
  const button = h("button", { type: "button", class: "more", hidden: true, click: press }, text);
  async function press() {
    if (adding) return;
    adding = true;
    try {
      say(await add());
      if (button.hidden) button.previousElementSibling?.focus({ preventScroll: true }); // the focus goes on
    } catch (error) {
      button.textContent = `${text}: ${plain(error.message)}`;
      say(button.textContent);
    }
    adding = false;
  }
  return button;
}
