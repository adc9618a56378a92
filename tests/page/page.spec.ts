// The page of a real daemon in a real Chromium, as a person uses it: from the one-time link to a saved file.
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, writeFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import AxeBuilder from "@axe-core/playwright";
import { expect, test, type BrowserContext, type Page } from "@playwright/test";

const handler = process.env["HANDLER"] ?? "handler";
const pictures = process.env["HANDLER_PAGE_PICTURES"]; // where the manual's pictures go, if they are to be made

function run(...args: string[]): string {
  return execFileSync(handler, args, { encoding: "utf8", timeout: 60_000, stdio: ["ignore", "pipe", "ignore"] });
}

let context: BrowserContext;
let page: Page;
let origin = "";
let folder = "";
const foreign: string[] = []; // requests to any other host
const problems: string[] = []; // what the browser complained of
const agent = `page-${process.pid}`;

test.describe.configure({ mode: "serial" });

test.beforeAll(async ({ browser }) => {
  folder = mkdtempSync(join(process.env["HOME"] ?? tmpdir(), "page-test-"));
  writeFileSync(join(folder, "index.html"), "<!doctype html><title>Shop</title><h1>The cart</h1><button>Place order</button>");
  context = await browser.newContext({ permissions: ["clipboard-read", "clipboard-write"] });
  page = await context.newPage();
  page.on("request", (r) => {
    const u = new URL(r.url());
    if (u.protocol.startsWith("http") && !u.host.startsWith("handler.localhost:")) foreign.push(r.url());
  });
  page.on("pageerror", (e) => problems.push(e.stack ?? e.message));
  page.on("console", (m) => {
    if (m.type() === "error" && /Content Security Policy|Refused to/.test(m.text())) problems.push(m.text());
  });
});

test.afterAll(async () => {
  await context?.close();
  try {
    run("agent", "rm", agent, "--yes");
  } catch {
    // a test that failed early has made none
  }
});

async function picture(name: string): Promise<void> {
  if (!pictures) return;
  mkdirSync(pictures, { recursive: true });
  await page.screenshot({ path: join(pictures, name + ".png"), animations: "disabled" });
}

async function axe(): Promise<void> {
  const found = await new AxeBuilder({ page }).analyze();
  const serious = found.violations.filter((v) => v.impact === "serious" || v.impact === "critical");
  expect(serious.map((v) => `${v.id}: ${v.help}: ${v.nodes.map((n) => n.html.slice(0, 200)).join(" | ")}`)).toEqual([]);
}

const log = () => page.getByRole("feed", { name: "Conversation" });
const composer = () => page.getByRole("textbox", { name: /^Message to/ });

async function say(text: string): Promise<void> {
  await composer().fill(text);
  await composer().press("Enter");
}

test("the link logs in once, and the first paint is small", async () => {
  const link = JSON.parse(run("web", "--print", "--json")) as { url: string };
  origin = new URL(link.url).origin;
  const sizes: number[] = [];
  const reads: Promise<void>[] = [];
  const count = (r: import("@playwright/test").Response) => {
    if (!/\/(assets\/.*|index\.html)?$/.test(new URL(r.url()).pathname)) return;
    reads.push(r.body().then((b) => void sizes.push(gzipSync(b).length), () => {}));
  };
  page.on("response", count);
  await page.goto(link.url);
  await expect(page.getByRole("heading", { name: "Talk to" })).toBeVisible();
  await Promise.all(reads);
  page.off("response", count);
  const bytes = sizes.reduce((a, b) => a + b, 0);
  console.log(`first paint: ${(bytes / 1000).toFixed(0)} kB compressed`);
  expect(bytes).toBeGreaterThan(10_000);
  expect(bytes).toBeLessThan(250_000);
  const cookie = (await context.cookies()).find((c) => c.domain === "handler.localhost");
  expect(cookie).toMatchObject({ httpOnly: true, sameSite: "Strict" });
  await axe();
});

test("an agent is made, with its display and network, and the file is shown as it is typed", async () => {
  await page.getByRole("link", { name: "New agent" }).first().click();
  await page.getByLabel("Name", { exact: true }).fill(agent);
  await page.getByLabel("Harness").selectOption("demo");
  await page.getByLabel("Description").fill("made by the page");
  const file = page.getByLabel("TOML");
  await page.getByRole("switch", { name: /Show windows on my screen/ }).check();
  await expect(file).toContainText("display = true");
  await picture("agent");
  await axe();
  await page.getByRole("switch", { name: /Show windows on my screen/ }).uncheck();
  await expect(file).not.toContainText("display");
  await page.getByLabel("Allow", { exact: true }).fill("not a host!");
  await expect(page.locator(".preview .failure")).toBeVisible();
  await expect(page.getByRole("button", { name: "Save" })).toBeDisabled();
  await page.getByLabel("Allow", { exact: true }).fill("allowed.example:8080");
  await page.getByLabel("A host that no rule names").selectOption("ask");
  await expect(file).toContainText('allow = ["allowed.example:8080"]');
  await page.getByRole("button", { name: "Save" }).click();
  await expect(page.getByRole("heading", { name: "New session" })).toBeVisible();
  expect(run("agent", "show", agent)).toContain("allowed.example:8080");
});

test("a session answers, its tools run and their pictures are seen", async () => {
  await page.getByLabel("Agent", { exact: true }).selectOption(agent);
  await page.getByLabel("Folder", { exact: true }).fill(folder);
  await page.getByLabel(/First message/).fill("run python3 -m http.server 8123 >/dev/null 2>&1 &\nopen http://127.0.0.1:8123/\nscreenshot\nsay **done** <script>alert(1)</script>");
  await page.getByRole("button", { name: "Start" }).click();
  await answerAll();
  await expect(log().locator("img").first()).toBeVisible();
  const broken = await log().locator("img").evaluateAll((l) => (l as HTMLImageElement[]).filter((i) => !i.complete || i.naturalWidth === 0).length);
  expect(broken).toBe(0);
  await picture("session");
  await axe();
});

// answerAll allows what the demo agent asks for, until its turn ends.
async function answerAll(): Promise<void> {
  const allow = log().locator("[data-card] [data-allow]").first();
  const end = page.getByRole("status", { name: "" }).filter({ hasText: /turn ended/ });
  for (let i = 0; i < 20; i++) {
    await expect(allow.or(log().locator(".turn").filter({ hasText: /^done/ }).last())).toBeVisible({ timeout: 60_000 });
    if (!(await allow.isVisible())) return;
    await page.waitForTimeout(450); // a card that has just come takes no click
    await allow.click();
  }
  await end.isVisible();
}
