// A display of the sandbox's own, watched on the page of a real daemon in a real Chromium.
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test, type BrowserContext, type Page } from "@playwright/test";
import * as lib from "./lib.ts";

// The page in the sandbox: a shop whose colour changes twice a second, until somebody does something to it.
const shop = `<!doctype html><title>Shop</title>
<style>body { margin: 0; font: 40px sans-serif; color: #fff; display: grid; place-content: center; height: 100vh }</style>
<body><h1>The cart</h1><p>3 things, 42.00</p>
<script>
  let n = 0;
  const paint = () => { document.body.style.background = n++ % 2 ? "#0f6b5c" : "#c2185b"; };
  paint();
  const t = setInterval(paint, 500);
  const touched = () => { clearInterval(t); document.body.style.background = "#0000ff"; };
  for (const k of ["click", "mousemove", "keydown", "wheel"]) addEventListener(k, touched);
</script>`;
// Starts a server of it, and waits until it answers.
const serve = `python3 -m http.server --bind 127.0.0.1 8000 >/dev/null 2>&1 &
for i in $(seq 100); do curl -fs --noproxy '*' -o /dev/null http://127.0.0.1:8000/ && break; sleep 0.1; done`;
const colours = ["15,107,92", "194,24,91"];

let context: BrowserContext;
let page: Page;
let origin = "";
let folder = "";
const loaded: string[] = []; // scripts of the page
const foreign: string[] = [];
const problems: string[] = [];

test.describe.configure({ mode: "serial" });

test.beforeAll(async ({ browser }) => {
  folder = mkdtempSync(join(process.env["HOME"] ?? tmpdir(), "view-test-"));
  writeFileSync(join(folder, "index.html"), shop);
  writeFileSync(join(folder, "serve"), serve);
  context = await browser.newContext();
  page = await context.newPage();
  page.on("request", (r) => {
    const u = new URL(r.url());
    if (u.protocol.startsWith("http") && !u.host.startsWith("handler.localhost:")) foreign.push(r.url());
    if (u.pathname.endsWith(".js")) loaded.push(u.pathname);
  });
  page.on("pageerror", (e) => problems.push(e.stack ?? e.message));
  page.on("console", (m) => {
    if (m.type() === "error" && /Content Security Policy|Refused to/.test(m.text())) problems.push(m.text());
  });
});

test.afterAll(async () => {
  await context?.close();
  try {
    for (const r of JSON.parse(run("ps", "--json")) as { id: string }[]) run("kill", r.id);
  } catch {
    // a test that failed early has made none
  }
});

const picture = (name: string) => lib.picture(page, name);
const axe = () => lib.axe(page);
const run = lib.run;
const log = () => lib.log(page);
const watched = () => page.locator(".watch");
const state = () => watched().locator(".watch-state");
const canvas = () => page.getByRole("img", { name: /live picture of the screen of the sandbox of demo, view only/ });

// colour gives the pixel near the bottom left corner of the picture, where the sandbox's page is plain.
const colour = () => canvas().evaluate((c) => {
  const canvas = c as HTMLCanvasElement;
  return [...canvas.getContext("2d")!.getImageData(20, canvas.height - 20, 1, 1).data].slice(0, 3).join(",");
});

// changes waits until both of the shop's colours were seen.
async function changes(): Promise<void> {
  for (const c of [...colours, colours[0]!]) await expect.poll(colour, { intervals: [50], timeout: 60_000 }).toBe(c);
}

// allowing answers what the agent asks for, until done passes.
async function allowing(done: () => Promise<void>): Promise<void> {
  const allow = log().locator("[data-card] [data-allow]:enabled").first();
  await expect(async () => {
    if (await allow.isVisible()) await allow.click({ timeout: 1_000 }).catch(() => {});
    await done();
  }).toPass({ timeout: 90_000, intervals: [200] });
}

const open = "run sh serve\nopen http://127.0.0.1:8000/\nsay it is open";
const says = (text: string) => async () => await expect(log().getByRole("article", { name: /demo says/ }).last()).toContainText(text, { timeout: 100 });

test("where there is no screen, the sandbox gets one of its own", async () => {
  origin = await lib.login(page);
  // Whoever runs this may sit at a Wayland session.
  await page.route(/\/api\/v1\/display$/, async (r) => r.fulfill({ json: { sockets: [], problem: { message: "no Wayland socket answers" } } }));
  await page.goto(origin + "/#/new?agent=demo");
  await page.getByRole("radio", { name: /Show windows on my screen/ }).check();
  await expect(page.getByText(/Your screen cannot be had/)).toBeVisible();
  await axe();
  await page.getByRole("button", { name: "Use a screen of the sandbox’s own" }).click();
  await expect(page.getByRole("radio", { name: /A screen of the sandbox’s own/ })).toBeChecked();
  await expect(page.getByText(/Your screen cannot be had/)).toHaveCount(0);
  await page.getByLabel("Folder", { exact: true }).fill(folder);
  await page.getByLabel(/First message/).fill(open + "\nwait 300 s");
  expect(loaded.filter((p) => /screen/.test(p))).toEqual([]); // noVNC comes where somebody watches
  await page.getByRole("button", { name: "Start" }).click();
  await allowing(says("it is open"));
  expect(loaded.filter((p) => /screen/.test(p))).toHaveLength(1);
});

test("its picture is live, as wide as its place, and changes", async () => {
  await expect(state()).toContainText("live");
  await expect(state()).toContainText("view only");
  await expect(watched()).toContainText("The agent shares this display; you watch only.");
  await changes();
  const [wide, place] = await Promise.all([canvas().boundingBox(), watched().boundingBox()]);
  expect(Math.abs(wide!.width - place!.width)).toBeLessThan(2);
  expect(wide!.width / wide!.height).toBeCloseTo(1280 / 800, 1);
  await picture("page-live");
  await axe();
});

test("what a person does over it reaches nothing", async () => {
  const at = (await canvas().boundingBox())!;
  await page.mouse.move(at.x + at.width / 2, at.y + at.height / 2);
  await page.mouse.click(at.x + at.width / 2, at.y + at.height / 2);
  await page.mouse.wheel(0, 100);
  await page.keyboard.type("jk");
  await changes(); // a page that was touched stays blue
});

test("a still is kept as an artifact", async () => {
  await watched().getByRole("button", { name: "Keep still" }).click();
  const kept = watched().getByRole("link", { name: /display-.*\.png/ });
  await expect(kept).toBeVisible();
  const size = await kept.evaluate(async (a) => {
    const image = await createImageBitmap(await (await fetch((a as HTMLAnchorElement).href)).blob());
    return [image.width, image.height];
  });
  expect(size).toEqual([1280, 800]);
  expect(run("artifacts", "list")).toContain((await kept.textContent())!.match(/display-\S+?\.png/)![0]);
});

test("at 360 px it is all there", async () => {
  await page.setViewportSize({ width: 360, height: 740 });
  await expect(state()).toContainText("live");
  await expect.poll(async () => (await canvas().boundingBox())!.width).toBeLessThanOrEqual(360);
  expect((await canvas().boundingBox())!.width).toBeGreaterThan(300);
  expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(360);
  await changes();
  await axe();
  await page.setViewportSize({ width: 1440, height: 900 });
});

test("a ticket that is not good is asked for anew, once", async () => {
  let bad = 1;
  let asked = 0;
  await page.route(/\/runs\/[^/]+\/view$/, async (r) => {
    asked++;
    if (bad-- <= 0) return r.continue();
    await r.fulfill({ json: { ticket: "AAAAAAAAAAAAAAAAAAAAAAAAAA", path: "/v1/view", expires: new Date().toISOString(), viewOnly: true, says: "" } });
  });
  const again = async () => {
    await page.getByRole("tab", { name: "Files" }).click();
    await expect(watched()).toHaveCount(0);
    await page.getByRole("tab", { name: "Browser" }).click();
  };
  await again();
  await expect(state()).toContainText("live");
  expect(asked).toBe(2);
  bad = 2;
  asked = 0;
  await again();
  await expect(state()).toContainText("refused");
  await expect(watched().getByRole("alert")).toContainText("the ticket for this view was not taken");
  expect(asked).toBe(2);
  await axe();
  await watched().getByRole("button", { name: "Try again" }).click();
  await expect(state()).toContainText("live");
  await page.unroute(/\/runs\/[^/]+\/view$/);
});

test("it ends with its run, and is there again when the session goes on", async () => {
  await page.getByLabel("More about this session").click();
  await page.getByRole("button", { name: "End the run, keep the session" }).click();
  await expect(watched()).toHaveCount(0);
  await expect(page.getByRole("tabpanel").getByRole("status")).toContainText("the run is gone, and the screen of the sandbox with it");
  const menu = page.getByRole("combobox", { name: "Screen", exact: true });
  await menu.selectOption({ label: "a screen of the sandbox’s own" });
  await axe();
  await page.getByRole("button", { name: "Continue" }).click();
  await expect(state()).toContainText("live", { timeout: 60_000 });
  await lib.say(page, open + " again");
  await allowing(says("it is open again"));
  await changes();
});

test("a run without one says how it gets one", async () => {
  await page.goto(origin + "/#/new?agent=demo");
  await page.getByLabel("Folder", { exact: true }).fill(folder);
  await page.getByRole("button", { name: "Start" }).click();
  await expect(page.getByRole("tabpanel")).toContainText("No live picture");
  await expect(page.getByRole("tabpanel").getByRole("link", { name: "start a session" })).toBeVisible();
});

test("nothing was asked of another host, and the browser complained of nothing", () => {
  expect(foreign).toEqual([]);
  expect(problems).toEqual([]);
});
