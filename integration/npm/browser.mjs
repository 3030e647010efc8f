// Signs a person in with Chromium, as an app has a browser do it, and looks at every page on the way.
//
// Usage: node browser.mjs CHROMIUM NAME FOLDER
// Reads lines {"open": URL, "press": [TEXT, …]} on standard input. For each it opens the URL, presses the button that has one of the texts, or that leads on, fills in
// forms of the provider, or leaves them with "[ Cancel ]", and goes on until the browser would leave 127.0.0.1, or nothing is left to press. A line may also have
//   "keyboard": true   buttons are pressed by the keyboard alone
//   "double": true     buttons are pressed again when the server has answered, and the browser does not know yet
//   "once": true       only what is on the first page is pressed by its text
//   "reload": true     the first page is loaded again before anything is pressed
//   "blocked": true    all cookies are lost before anything is pressed
//   "then": [HOW, …]   "back", "reload" and "again", after all that; the last opens once more what has led to the app, as a restored window does
//   "frame": URL       nothing is pressed; what the page has in a frame with that URL is printed as {framed}
// It prints {returned, pages, went}: where the browser was sent, of each page {title, url, text, links, wide, pale, cut, unnamed}, and {returned, title} after each
// HOW. looks.mjs describes wide, pale and cut; unnamed is how many fields and buttons have no name. Screenshots are in FOLDER, where it is not "". After the last line it prints {console, origins}: what pages complained about, and whom they talked to.
import readline from "node:readline";
import { chromium } from "playwright-core";
import { judge } from "./looks.mjs";

const [executablePath, name, folder] = process.argv.slice(2);
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"] });
const context = await browser.newContext({ viewport: { width: 1280, height: 900 } });
const patience = 120000; // of a browser that has to share its processor
let page; // one for each visit: what an app does with the last one is its own affair
const console_ = [];
const origins = new Set();
context.on("page", (page) => {
  page.setDefaultTimeout(patience);
  page.on("console", (message) => page.url().includes("/interaction/") || console_.push(`${message.type()}: ${message.text()}`));
  page.on("framenavigated", (frame) => {
    if (frame === page.mainFrame()) {
      goesOn = comes;
      comes = false;
    }
  });
  page.on("pageerror", (error) => console_.push(`error: ${error.message}`));
});
let returned = null;
let last = null; // of our own addresses, the one that leads to the app
let goesOn = false; // the page says itself where the browser is to go next
let comes = false; // such a page is about to be shown
let shots = 0;
const judged = new Map(); // what look has found, by the page's title and text: a page that comes again looks the same
const external = (url) => !["127.0.0.1"].includes(url.hostname);
context.on("response", (response) => {
  if (response.request().isNavigationRequest() && Math.floor(response.status() / 100) !== 3) {
    comes = response.headers().refresh !== undefined;
  }
});
context.on("request", (request) => {
  const url = new URL(request.url());
  if (!request.isNavigationRequest() && page.url().includes("/interaction/")) {
    return; // the provider's pages are its own affair
  }
  if (external(url) && request.isNavigationRequest()) {
    last = request.redirectedFrom()?.url() ?? last;
    returned = request.url(); // also where a redirect leads, which no route sees
  }
  if (!external(url)) {
    origins.add(url.origin);
  } else if (url.hostname !== "localhost") {
    origins.add(url.protocol === "https:" ? url.origin : url.protocol);
  }
});
await context.route(
  (url) => external(url),
  async (route) => {
    if (!route.request().isNavigationRequest()) {
      await route.abort();
      return;
    }
    returned = route.request().url();
    await route.fulfill({ status: 200, contentType: "text/html", body: "<title>the app</title>" });
  },
);

// watch has a page tell where it goes by itself, also where that is no URL that a browser would ask for.
async function watch(page) {
  const session = await context.newCDPSession(page);
  await session.send("Page.enable");
  session.on("Page.frameRequestedNavigation", ({ url }) => {
    if (!/^https?:/.test(url)) {
      returned = url;
      origins.add(new URL(url).protocol);
    }
  });
}

async function look() {
  const ours = await page.evaluate(() => document.querySelector("main > p.server") !== null);
  const seen = { title: await page.title(), url: page.url(), text: await page.evaluate(() => document.body.innerText), links: await page.evaluate(() => [...document.links].map((a) => a.href)), wide: false, unnamed: 0 };
  if (!ours) {
    return seen;
  }
  const known = judged.get(`${seen.title}\n${seen.text}`);
  if (known) {
    return Object.assign(seen, known);
  }
  shots++;
  const found = await judge(page, folder, String(shots).padStart(2, "0"));
  found.unnamed = await page.evaluate(
    () => [...document.querySelectorAll("button, a, input:not([type=hidden])")].filter((e) => !(e.innerText || e.getAttribute("aria-label") || e.labels?.length)).length,
  );
  judged.set(`${seen.title}\n${seen.text}`, found);
  return Object.assign(seen, found);
}

// go does what leads to another page, and waits until it is there, or until the browser was sent to what is no page.
async function go(act) {
  let there = false;
  const arrived = page.waitForNavigation().catch(() => {}).then(() => (there = true)); // where it leads may not exist
  const left = async () => {
    while (!there && (returned === null || /^https?:/.test(returned))) {
      await new Promise((done) => setTimeout(done, 50));
    }
  };
  await Promise.all([Promise.race([arrived, left()]), act().catch(() => {})]);
}

async function press(texts, keyboard, double) {
  const cancel = page.getByRole("link", { name: "[ Cancel ]" });
  if (texts.includes("[ Cancel ]") && (await cancel.count()) > 0) {
    await go(() => cancel.click());
    return true;
  }
  if ((await page.locator("input[name=login]").count()) > 0) {
    await page.fill("input[name=login]", name);
    await page.fill("input[name=password]", "anything");
    await go(() => page.click("button[type=submit]"));
    return true;
  }
  const labels = await page.locator("button").allInnerTexts();
  const label = labels.find((text) => texts.some((wanted) => text.includes(wanted))) ?? (page.url().includes("/interaction/") ? labels[0] : undefined);
  if (label === undefined) {
    return false;
  }
  const button = page.locator("button", { hasText: label }).first();
  if (keyboard && !page.url().includes("/interaction/")) {
    await page.locator("body").press("Tab");
    const focused = () => button.evaluate((e) => e === document.activeElement);
    for (let i = 0; i < 20 && !(await focused()); i++) {
      await page.keyboard.press("Tab");
    }
    if (!(await focused())) {
      throw new Error(`the keyboard does not come to ${label}`); // Enter would press something else
    }
    await go(() => page.keyboard.press("Enter"));
    return true;
  }
  await go(() => (double ? twice(button) : button.click()));
  return true;
}

// twice presses a button again while the answer to the first time is on its way: two clicks at once would have the browser send one form. The first form is sent from
// here, so that the browser does not know the answer; while it waits for that nobody but the page itself can press.
async function twice(button) {
  let first = null;
  await page.route("**/oauth/consent", async (route) => {
    if (first !== null) {
      await first;
      return route.continue();
    }
    const request = route.request();
    first = (async () => {
      const cookie = (await context.cookies()).filter((c) => c.domain === "127.0.0.1").map((c) => `${c.name}=${c.value}`).join("; ");
      const response = await fetch(request.url(), { method: "POST", body: request.postData(), headers: { ...request.headers(), cookie, "sec-fetch-site": "same-origin" } });
      if (response.status !== 200) {
        console_.push(`the first of two clicks is answered ${response.status}`);
      }
    })().catch((error) => console_.push(`the first of two clicks: ${error.message}`));
  });
  await button.evaluate((e) => {
    e.click();
    setTimeout(() => e.click(), 200);
  });
}

// settle waits until the browser has stopped going on by itself.
async function settle() {
  const late = Date.now() + patience / 4;
  for (let still = 0, before = ""; still < 3 || (goesOn && returned === null && Date.now() < late); ) {
    await page.waitForLoadState("load").catch(() => {});
    await page.waitForTimeout(150);
    still = page.url() === before ? still + 1 : 0;
    before = page.url();
  }
}

for await (const line of readline.createInterface({ input: process.stdin })) {
  const { open, press: texts, keyboard, double, once, reload, blocked, then, frame } = JSON.parse(line);
  const pages = [];
  const went = [];
  try {
    await page?.close();
    returned = null; // where that one was still going is its own affair
    goesOn = comes = false;
    page = await context.newPage();
    if (frame !== undefined) {
      await page.goto(open);
      await page.evaluate((url) => new Promise((done) => {
        const f = document.createElement("iframe");
        f.onload = done;
        f.src = url;
        document.body.append(f);
      }), frame);
      const framed = await page.frames()[1].evaluate(() => document.URL + " " + document.body.innerText).catch((error) => error.message);
      process.stdout.write(`${JSON.stringify({ framed })}\n`);
      continue;
    }
    await watch(page);
    await page.goto(open);
    if (reload) {
      await page.reload();
    }
    if (blocked) {
      await context.clearCookies();
    }
    for (let i = 0; i < 12; i++) {
      await settle();
      if (returned !== null) {
        if (!/^https?:/.test(returned)) {
          pages.push(await look()); // which stays
        }
        break;
      }
      pages.push(await look());
      if (!(await press(once && i > 0 ? [] : (texts ?? []), keyboard, double))) {
        break;
      }
    }
    const first = returned;
    for (const how of then ?? []) {
      returned = null;
      await (how === "back" ? page.goBack() : how === "again" ? page.goto(last) : page.reload()).catch(() => {}); // what a browser does not send again has no page
      await settle();
      went.push({ returned, title: await page.title() });
    }
    process.stdout.write(`${JSON.stringify({ returned: first, pages, went })}\n`);
  } catch (error) {
    process.stdout.write(`${JSON.stringify({ returned, pages, error: error.message })}\n`);
  }
}
process.stdout.write(`${JSON.stringify({ console: console_, origins: [...origins].sort() })}\n`);
await browser.close();
