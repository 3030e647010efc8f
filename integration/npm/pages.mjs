// Opens pages in Chromium and looks at them.
//
// Usage: node pages.mjs CHROMIUM FOLDER
// Reads lines of JSON on standard input, each with some of these keys, and does them in this order:
//   "open": URL        opens the URL in a new window
//   "plain": true      that window runs no scripts
//   "wait": TEXT       waits until the page shows the text
//   "click": NAME      presses the button or link with that accessible name, or the summary that shows the text; a navigation has ended when the answer is printed
//   "keyboard": true   by the keyboard alone
//   "then": TEXT       waits until the page shows the text
//   "shot": NAME       leaves screenshots in FOLDER, where it is not "": in light and dark, 1280 and 390 pixels wide
// It prints for each {title, url, text, links, focus, clipboard, wide, pale, cut, unnamed, errors}: links are [name, URL], focus is the accessible name or id of what has
// the focus, looks.mjs describes wide, pale and cut, unnamed is how many controls have no name, errors what the page complained about.
import readline from "node:readline";
import { chromium } from "playwright-core";
import { judge } from "./looks.mjs";

const [executablePath, folder] = process.argv.slice(2);
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"] });
const patience = 100000;
let context;
let page;
let errors = [];

async function open(url, plain) {
  await context?.close();
  context = await browser.newContext({ viewport: { width: 1280, height: 900 }, javaScriptEnabled: !plain, permissions: ["clipboard-read", "clipboard-write"] });
  page = await context.newPage();
  page.setDefaultTimeout(patience);
  page.on("console", (message) => errors.push(`${message.type()}: ${message.text()}`));
  page.on("pageerror", (error) => errors.push(`error: ${error.message}`));
  await page.goto(url);
}

async function press(name, keyboard) {
  const target = page.getByRole("button", { name, exact: true }).or(page.getByRole("link", { name, exact: true })).or(page.locator("summary").filter({ has: page.getByText(name, { exact: true }) })).first();
  if (!keyboard) {
    return target.click();
  }
  await target.waitFor();
  for (let i = 0; i < 100; i++) {
    if (await target.evaluate((e) => e === document.activeElement)) {
      return page.keyboard.press("Enter");
    }
    await page.keyboard.press("Tab");
  }
  throw new Error(`the keyboard does not come to ${name}`);
}

async function look(shot) {
  const seen = { title: await page.title(), url: page.url(), text: await page.locator("body").innerText() };
  seen.links = await page.evaluate(() => [...document.links].map((a) => [a.innerText, a.href]));
  seen.focus = await page.evaluate(() => document.activeElement?.getAttribute("aria-label") ?? document.activeElement?.id ?? "");
  seen.unnamed = await page.evaluate(() => [...document.querySelectorAll("button, a, summary, input:not([type=hidden])")].filter((e) => !(e.textContent.trim() || e.getAttribute("aria-label"))).length);
  seen.clipboard = await page.evaluate(() => navigator.clipboard.readText()).catch(() => "");
  return Object.assign(seen, await judge(page, folder, shot));
}

for await (const line of readline.createInterface({ input: process.stdin })) {
  const order = JSON.parse(line);
  errors = [];
  try {
    if (order.open) {
      await open(order.open, order.plain);
    }
    if (order.wait) {
      await page.getByText(order.wait).first().waitFor();
    }
    if (order.click) {
      await press(order.click, order.keyboard);
      await page.waitForLoadState("load");
    }
    if (order.then) {
      await page.getByText(order.then).first().waitFor();
    }
    process.stdout.write(`${JSON.stringify({ ...(await look(order.shot)), errors })}\n`);
  } catch (error) {
    process.stdout.write(`${JSON.stringify({ errors: [...errors, error.message] })}\n`);
  }
}
await browser.close();
