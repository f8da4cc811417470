// Judges the built documentation in Chromium: node check.mjs SITE REPORT [--pages NAME,…]
// [--pictures FOLDER]
//
// - Links: each leads to a file of the site, and to a name in it where it says one.
// - Accessibility: axe finds nothing (WCAG 2.2 A and AA, and best practices), light and dark.
// - Phone: no page is wider than 390 points, and what is wider inside scrolls.
// - Offline: no page asks any other host for anything, and the search finds what a page is about.
//
// The report is JSON; the status is 1 where there is anything in it. No time is measured.

import { createRequire } from "node:module";
import { createServer } from "node:http";
import { existsSync, mkdirSync, readFileSync, readdirSync, statSync, writeFileSync } from "node:fs";
import { extname, join, relative, resolve } from "node:path";
import { chromium } from "playwright-core";

const [site, report, ...more] = process.argv.slice(2);
const given = (name) => (more.includes(name) ? more[more.indexOf(name) + 1] : "");
const root = resolve(site);
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const TYPES = {
  ".html": "text/html; charset=utf-8", ".css": "text/css", ".js": "text/javascript",
  ".svg": "image/svg+xml", ".png": "image/png", ".json": "application/json",
};
const DESKTOP = { width: 1280, height: 900 };
const PHONE = { width: 390, height: 844 };
const RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];

function files(folder) {
  return readdirSync(folder, { withFileTypes: true }).flatMap((one) => {
    const path = join(folder, one.name);
    return one.isDirectory() ? files(path) : [path];
  });
}

const pages = files(root)
  .filter((path) => path.endsWith(".html") && !path.includes("/_static/"))
  .map((path) => relative(root, path))
  .sort();
const chosen = given("--pages") ? given("--pages").split(",").map((name) => `${name}.html`) : pages;
const findings = [];
const found = (page, kind, what) => findings.push({ page, kind, what });

const server = createServer((request, response) => {
  const path = join(root, decodeURIComponent(new URL(request.url, "http://site").pathname));
  if (!path.startsWith(root) || !existsSync(path) || statSync(path).isDirectory()) {
    response.writeHead(404).end();
    return;
  }
  response.writeHead(200, { "Content-Type": TYPES[extname(path)] ?? "application/octet-stream" });
  response.end(readFileSync(path));
});
await new Promise((done) => server.listen(0, "127.0.0.1", done));
const base = `http://127.0.0.1:${server.address().port}/`;

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox"],
});

// A context lays pages out as wide, and as light or dark, as it is told.
async function opened(viewport, colorScheme) {
  const context = await browser.newContext({ viewport, colorScheme, isMobile: viewport === PHONE });
  const tab = await context.newPage();
  tab.setDefaultTimeout(300_000);
  await context.route("**", (route) => {
    const url = route.request().url();
    if (url.startsWith(base) || url.startsWith("data:")) return route.continue();
    found(tab.url().replace(base, ""), "foreign request", url);
    return route.abort();
  });
  return tab;
}

async function judged(tab, page, scheme) {
  await tab.evaluate(axe);
  const told = await tab.evaluate(
    (values) => window.axe.run(document, { runOnly: { type: "tag", values }, resultTypes: ["violations"] }),
    RULES,
  );
  for (const rule of told.violations) {
    for (const node of rule.nodes.slice(0, 5)) {
      found(page, `axe ${scheme}: ${rule.id}`, `${node.target.join(" ")}: ${node.html.slice(0, 160)}`);
    }
  }
}

// What is cut: wider than the page, and nothing around it scrolls.
const cut = () => {
  const wide = document.documentElement.clientWidth;
  const scrolls = (one) => {
    for (let at = one; at && at !== document.body; at = at.parentElement) {
      if (/auto|scroll/.test(getComputedStyle(at).overflowX)) return true;
    }
    return false;
  };
  const out = [];
  if (document.scrollingElement.scrollWidth > wide + 1) out.push(`the page is ${document.scrollingElement.scrollWidth} wide`);
  for (const one of document.querySelectorAll("article table, article pre, article img, article code, article p")) {
    const { right, width } = one.getBoundingClientRect();
    if (width && right > wide + 1 && !scrolls(one)) out.push(`${one.tagName} ${one.textContent.slice(0, 60)}`);
  }
  return out.slice(0, 3);
};

const desktop = await opened(DESKTOP, "light");
const dark = await opened(DESKTOP, "dark");
const phone = await opened(PHONE, "light");
const names = new Map();
const links = [];
for (const page of chosen) {
  await desktop.goto(base + page);
  await judged(desktop, page, "light");
  const read = await desktop.evaluate(() => ({
    names: [...document.querySelectorAll("[id]")].map((one) => one.id),
    links: [...document.querySelectorAll("a[href]")].map((one) => one.href),
    images: [...document.images].filter((one) => !one.complete || !one.naturalWidth).map((one) => one.src),
  }));
  names.set(page, new Set(read.names));
  for (const src of read.images) found(page, "no such picture", src);
  for (const href of new Set(read.links)) links.push([page, href]);
  await dark.goto(base + page);
  await judged(dark, page, "dark");
  await phone.goto(base + page);
  for (const what of await phone.evaluate(cut)) found(page, "cut on a phone", what);
}

for (const [page, href] of links) {
  if (!href.startsWith(base)) continue; // another site, or an address of mail
  const [path, name] = href.slice(base.length).split("#");
  const target = decodeURIComponent(path.split("?")[0]) || page;
  if (!existsSync(join(root, target))) {
    found(page, "link leads nowhere", href.slice(base.length));
  } else if (name && target.endsWith(".html") && !target.startsWith("_modules")) {
    if (!names.has(target)) {
      const text = readFileSync(join(root, target), "utf8");
      names.set(target, new Set([...text.matchAll(/\sid="([^"]+)"/g)].map((one) => one[1])));
    }
    if (!names.get(target).has(decodeURIComponent(name))) found(page, "no such name", href.slice(base.length));
  }
}

await desktop.goto(`${base}search.html?q=outbox`);
await desktop.waitForSelector("#search-results li a", { timeout: 60_000 }).catch(() => found("search.html", "search", "finds nothing about an outbox"));

writeFileSync(report, `${JSON.stringify({ pages: chosen.length, links: links.length, findings }, null, 1)}\n`);
console.log(`${chosen.length} pages, ${links.length} links, ${findings.length} findings; ${report}`);
for (const one of findings.slice(0, 40)) console.log(`${one.page}: ${one.kind}: ${one.what}`);
process.exitCode = findings.length ? 1 : 0;

if (given("--pictures")) {
  mkdirSync(given("--pictures"), { recursive: true });
  for (const [size, viewport] of [["desktop", DESKTOP], ["phone", PHONE]]) {
    for (const scheme of ["light", "dark"]) {
      const tab = await opened(viewport, scheme);
      for (const page of chosen) {
        await tab.goto(base + page);
        const name = `${page.replace(/\.html$/, "").replaceAll("/", "-")}-${size}-${scheme}.png`;
        await tab.screenshot({ path: join(given("--pictures"), name) });
      }
      await tab.context().close();
    }
  }
}

await browser.close();
server.close();
