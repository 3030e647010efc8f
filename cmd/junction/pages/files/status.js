"use strict";
// merge makes old what now is. It leaves what is the same, so that the focus and a selection stay.
function merge(old, now) {
  if (old.isEqualNode(now)) {
    return;
  }
  const shallow = old.nodeType === Node.ELEMENT_NODE && old.cloneNode(false).isEqualNode(now.cloneNode(false));
  if (!shallow || old.childNodes.length !== now.childNodes.length) {
    old.replaceWith(now);
    return;
  }
  const next = [...now.childNodes];
  [...old.childNodes].forEach((child, i) => merge(child, next[i]));
}
const live = document.getElementById("live");
const said = document.getElementById("said");
const events = new EventSource("/events");
events.onopen = () => { said.textContent = ""; };
events.onerror = () => { said.textContent = "Junction does not answer. The page is not up to date."; };
events.onmessage = (event) => {
  const now = document.createElement("template");
  now.innerHTML = JSON.parse(event.data); // the server has escaped every value
  const next = [...now.content.children];
  const old = [...live.children];
  if (next.length === old.length) {
    old.forEach((child, i) => merge(child, next[i]));
  } else {
    live.replaceChildren(...next);
  }
};
