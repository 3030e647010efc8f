// Looks at a page in both colour schemes and at three widths, as browser.mjs and pages.mjs do with every page.

// judge returns {wide, pale, cut} of a Playwright page, and leaves pictures NAME-SCHEME-WIDTH.png in a folder, where it is not "". wide is whether the page scrolls
// sideways at any width; pale the texts whose contrast is below 4.5 (3 for large text; WCAG 2.2, 1.4.3), each with its scheme and its contrast; cut the texts that
// their boxes hide, except those that end in an ellipsis.
export async function judge(page, folder, name) {
  const found = { wide: false, pale: [], cut: [] };
  for (const colorScheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme });
    for (const width of [1280, 390, 320]) {
      await page.setViewportSize({ width, height: 900 });
      found.wide ||= await page.evaluate(() => document.documentElement.scrollWidth > window.innerWidth);
      const { pale, cut } = await page.evaluate(texts);
      found.pale.push(...pale.map((p) => `${colorScheme}: ${p}`));
      found.cut.push(...cut.map((c) => `${width}: ${c}`));
      if (folder && name && width !== 320) {
        await page.screenshot({ path: `${folder}/${name}-${colorScheme}-${width}.png`, fullPage: true });
      }
    }
  }
  found.pale = [...new Set(found.pale)].slice(0, 10);
  found.cut = [...new Set(found.cut)].slice(0, 10);
  await page.emulateMedia({ colorScheme: "light" });
  await page.setViewportSize({ width: 1280, height: 900 });
  return found;
}

// texts runs in the page.
function texts() {
  const parts = (colour) => (colour.match(/[\d.]+/g) ?? []).map(Number);
  const light = ([r, g, b]) => {
    const linear = (c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
    return 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  };
  const ground = (e) => {
    for (; e !== null; e = e.parentElement) {
      const [r, g, b, a = 1] = parts(getComputedStyle(e).backgroundColor);
      if (a > 0) {
        return [r, g, b];
      }
    }
    return [255, 255, 255];
  };
  const pale = [];
  const cut = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node !== null; node = walker.nextNode()) {
    const e = node.parentElement;
    const text = node.data.trim().slice(0, 60);
    const box = e.getBoundingClientRect();
    if (text === "" || box.width <= 1 || box.height <= 1 || !e.checkVisibility()) {
      continue;
    }
    const style = getComputedStyle(e);
    const [a, b] = [light(parts(style.color)), light(ground(e))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const size = parseFloat(style.fontSize);
    if (contrast < (size >= 24 || (size >= 18.66 && style.fontWeight >= 700) ? 3 : 4.5)) {
      pale.push(`${contrast.toFixed(1)} ${text}`);
    }
    if (style.overflowX === "hidden" && style.textOverflow !== "ellipsis" && e.scrollWidth > e.clientWidth + 1) {
      cut.push(text);
    }
  }
  return { pale, cut };
}
