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
// The stream names the parts that have changed. Those that this page has are fetched, together and once.
const site = document.getElementById("site");
const said = document.getElementById("said");
const base = site.dataset.base;
let seq = Number(site.dataset.seq);
const wanted = new Set();
let fetching = false;
function lost(text) {
  said.textContent = text;
}
async function update() {
  const here = new Set([...site.querySelectorAll("[data-part]")].map((part) => part.dataset.part));
  const names = [...wanted].filter((name) => here.has(name)).slice(0, 50);
  names.length ? names.forEach((name) => wanted.delete(name)) : wanted.clear();
  if (fetching || names.length === 0) {
    names.forEach((name) => wanted.add(name));
    return;
  }
  fetching = true;
  const answer = await fetch(location.href.split("#")[0], { headers: { "Junction-Parts": names.join(","), "Junction-Quiet": "1" } }).catch(() => null);
  fetching = false;
  if (answer?.ok) {
    const now = document.createElement("template");
    now.innerHTML = await answer.text(); // the server has escaped every value
    localize(now.content);
    for (const part of now.content.querySelectorAll("[data-part]")) {
      const old = site.querySelector(`[data-part="${CSS.escape(part.dataset.part)}"]`);
      if (old && part.parentNode === now.content) {
        merge(old, part);
      }
    }
  } else if (answer) {
    lost(answer.status === 404 ? "This server is not there any more." : "The session has ended. Run junction console again.");
    return;
  }
  if (wanted.size > 0) {
    setTimeout(update, 1000);
  }
}
function changed(list) {
  lost("");
  seq = list.seq;
  list.parts.forEach((name) => wanted.add(name));
  update();
}
let stream = null;
let timer = 0;
function rest() {
  stream?.close();
  stream = null;
  clearTimeout(timer);
}
async function ask() { // without a stream, because other pages have those that there are
  const answer = await fetch(`${base}changes?since=${seq}`, { headers: { "Junction-Quiet": "1" } }).catch(() => null);
  if (answer?.ok) {
    changed(await answer.json());
  } else {
    lost(answer ? "The session has ended. Run junction console again." : "Junction does not answer. The page is not up to date.");
  }
  if (!document.hidden && !stream && (!answer || answer.ok)) {
    timer = setTimeout(ask, 5000);
  }
}
function watch() {
  rest();
  if (document.hidden) { // a browser has six connections to a host
    return;
  }
  stream = new EventSource(`${base}events?since=${seq}`);
  stream.onopen = () => lost("");
  stream.onmessage = (event) => changed(JSON.parse(event.data));
  stream.onerror = () => {
    if (stream.readyState === EventSource.CLOSED) {
      stream = null;
      timer = setTimeout(ask, 1000);
    } else {
      lost("Junction does not answer. The page is not up to date.");
    }
  };
}
localize(site);
document.addEventListener("visibilitychange", watch);
watch();
