"use strict";
// merge makes old what now is. It leaves what is the same, so that the focus, a selection, and what a person has opened stay.
function merge(old, now) {
  if (old.tagName === "DETAILS" && now.tagName === "DETAILS" && old.dataset.state === now.dataset.state) {
    now.open = old.open;
  }
  if (old.isEqualNode(now)) {
    return;
  }
  const shallow = old.nodeType === Node.ELEMENT_NODE && old.cloneNode(false).isEqualNode(now.cloneNode(false));
  if (!shallow || old.childNodes.length !== now.childNodes.length) {
    const open = new Map([...(old.querySelectorAll?.("li[id]") ?? [])].map((row) => [row.id, row.firstElementChild]));
    for (const row of now.querySelectorAll?.("li[id]") ?? []) {
      const was = open.get(row.id);
      if (was?.dataset.state === row.firstElementChild.dataset.state) {
        row.firstElementChild.open = was.open;
      }
    }
    old.replaceWith(now);
    return;
  }
  const next = [...now.childNodes];
  [...old.childNodes].forEach((child, i) => merge(child, next[i]));
}
// localize writes times in the zone of the browser. The server has written them in its own.
const day = { year: "numeric", month: "2-digit", day: "2-digit" };
const clock = { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" };
function localize(root) {
  const today = new Date().toLocaleDateString("sv", day);
  for (const time of root.querySelectorAll("time")) {
    const at = new Date(time.dateTime);
    const date = at.toLocaleDateString("sv", day);
    const short = at.toLocaleTimeString("sv", clock);
    time.textContent = date === today ? short : `${date} ${short}`;
    time.title = `${date} ${short}`;
  }
  const zone = Intl.DateTimeFormat("en", { timeZoneName: "short" }).formatToParts(new Date()).find((part) => part.type === "timeZoneName");
  for (const name of root.querySelectorAll(".zone")) {
    name.textContent = zone.value;
  }
}
const live = document.getElementById("live");
const said = document.getElementById("said");
localize(live);
const events = new EventSource("events");
events.onopen = () => { said.textContent = ""; };
events.onerror = () => { said.textContent = "Junction does not answer. The page is not up to date."; };
events.onmessage = (event) => {
  const now = document.createElement("template");
  now.innerHTML = JSON.parse(event.data); // the server has escaped every value
  localize(now.content);
  const next = [...now.content.children];
  [...live.children].forEach((part, i) => merge(part, next[i])); // the parts are always the same
};
