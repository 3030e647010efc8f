"use strict";
// The page goes on by itself when the terminal has an answer.
const next = document.querySelector("[data-next]");
async function look() {
  const answer = await fetch(`${next.pathname}stage`).catch(() => null);
  if (answer?.ok && (await answer.text()) === "open") {
    location.replace(next.pathname);
  } else if (answer?.status === 404 || answer?.status === 403) {
    document.getElementById("said").textContent = "The terminal has refused this browser, or the time is over. Run junction console again.";
    document.querySelector(".code")?.remove();
    next.remove();
  } else {
    setTimeout(look, 1000);
  }
}
if (next) {
  setTimeout(look, 1000);
}
