// The page of a real daemon in a real Chromium, as a person uses it: from the one-time link to a saved file.
import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, writeFileSync } from "node:fs";
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
    for (const r of JSON.parse(run("ps", "--json")) as { id: string; agent: string }[]) if (r.agent === agent) run("kill", r.id);
    run("agent", "rm", agent);
  } catch {
    // a test that failed early has made none
  }
});

// What the page showed says why a step failed.
test.afterEach(async ({}, info) => {
  if (info.status !== info.expectedStatus) console.log("the page says:\n" + (await page.locator("body").innerText()));
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

const log = () => page.getByRole("region", { name: "Conversation" });
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
  await page.getByRole("radio", { name: /Show windows on my screen/ }).check();
  await expect(file).toContainText("display = true");
  await picture("agent");
  await axe();
  await page.getByRole("radio", { name: /No screen/ }).check();
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

// answerAll allows what the agent asks for, until its turn ends.
async function answerAll(turns: number): Promise<void> {
  const allow = log().locator("[data-card] [data-allow]:enabled").first();
  const ended = log().locator(".turn").filter({ hasText: /^done/ });
  await expect(async () => {
    if (await allow.isVisible()) await allow.click({ timeout: 1_000 }).catch(() => {});
    expect(await ended.count()).toBeGreaterThanOrEqual(turns);
  }).toPass({ timeout: 90_000, intervals: [200] });
}

test("a session answers, its tools run and their pictures are seen", async () => {
  await page.getByLabel("Agent", { exact: true }).selectOption(agent);
  await page.getByLabel("Folder", { exact: true }).fill(folder);
  await page.getByLabel(/First message/).fill("run python3 -m http.server 8123 >/dev/null 2>&1 &\nopen http://127.0.0.1:8123/\nscreenshot\nsay it is **done** <script>alert(1)</script> ![x](https://evil.example/leak)");
  await page.getByRole("button", { name: "Start" }).click();
  await expect(log().getByRole("article", { name: "You said" })).toContainText("http.server");
  await expect(page).toHaveTitle(/^\(1\)/); // it asks before it acts
  await axe();
  await answerAll(1);
  await expect(page).toHaveTitle(/^(?!\()/);
  await expect(log().locator(".shot img").first()).toBeVisible();
  const broken = await log().locator("img").evaluateAll((l) => (l as HTMLImageElement[]).filter((i) => !i.complete || i.naturalWidth === 0).length);
  expect(broken).toBe(0);
  await expect(log().locator("strong", { hasText: "done" })).toBeVisible();
  expect(await log().locator("script").count()).toBe(0);
  await picture("session");
});

test("a picture opens large, and the file can be had by range", async () => {
  await log().locator(".shot").first().click();
  await expect(page.getByRole("dialog").locator("img")).toBeVisible();
  await page.keyboard.press("Escape");
  await expect(page.getByRole("dialog")).toHaveCount(0);
  await page.getByRole("tab", { name: "Files" }).click();
  const row = page.getByRole("tabpanel").locator(".artifact-row").first();
  await expect(row).toBeVisible();
  const href = await row.getByRole("link", { name: /Download/ }).getAttribute("href");
  const part = await page.evaluate(async (url) => {
    const r = await fetch(url!, { headers: { Range: "bytes=0-7" } });
    return { status: r.status, range: r.headers.get("content-range"), bytes: [...new Uint8Array(await r.arrayBuffer())] };
  }, href);
  expect(part.status).toBe(206);
  expect(part.range).toMatch(/^bytes 0-7\/\d+$/);
  expect(part.bytes).toEqual([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);
  const [download] = await Promise.all([page.waitForEvent("download"), row.getByRole("link", { name: /Download/ }).click()]);
  expect(download.suggestedFilename()).toMatch(/\.png$/);
});

test("a host that no rule names is asked about, refused by the keyboard, and allowed once", async () => {
  const asked = page.locator(".log [data-card]").filter({ hasText: "Handler asks" });
  const own = log().locator("[data-card]").filter({ hasNotText: "Handler asks" }).locator("[data-allow]:enabled");
  await say("fetch http://unknown.example:8080/one");
  await expect(async () => {
    if (!(await asked.isVisible()) && (await own.first().isVisible())) await own.first().click({ timeout: 1_000 }).catch(() => {});
    await expect(asked).toBeVisible({ timeout: 500 });
  }).toPass({ timeout: 60_000 });
  await expect(page.locator(".pinned")).toContainText("unknown.example:8080");
  await expect(page).toHaveTitle(/^\(1\)/);
  await picture("approval");
  await page.locator("#main").focus();
  await page.keyboard.press("j");
  await expect(asked).toBeFocused();
  await page.waitForTimeout(500); // a card that has just come takes no answer
  await page.keyboard.press("r");
  await expect(asked).toHaveCount(0);
  await answerAll(2);
  await page.getByRole("tab", { name: "Network" }).click();
  const refused = page.getByRole("tabpanel").locator(".verdict.no").filter({ hasText: "unknown.example:8080" }).first();
  await refused.getByRole("button", { name: "Allow once" }).click();
  await expect(refused).toContainText("allowed once");
  await picture("network");
  await say("fetch http://unknown.example:8080/two");
  await answerAll(3); // nothing of Handler's waits for an answer this time
  await expect(page.getByRole("tabpanel").locator(".verdict").first()).toBeVisible();
  await axe();
});

test("what is typed is kept over a reload, and nothing comes twice", async () => {
  await composer().fill("a thought that is not sent yet");
  await page.reload();
  await expect(composer()).toHaveValue("a thought that is not sent yet");
  await composer().fill("");
  await expect(log().locator(".turn").filter({ hasText: /^done/ })).toHaveCount(3);
});

test("too much is refused with what to do, before it is read", async () => {
  await composer().focus();
  await page.evaluate(() => {
    const data = new DataTransfer();
    data.setData("text/plain", "x".repeat(50_000_000));
    document.activeElement!.dispatchEvent(new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true }));
  });
  await expect(page.locator(".problem[role=alert]")).toContainText("50 MB");
  await expect(composer()).toHaveValue("");
  await page.getByRole("button", { name: "Understood" }).click();
});

test("a turn is stopped", async () => {
  await say("wait 60 seconds");
  await page.getByRole("button", { name: "Stop", exact: true }).click();
  await expect(log().locator(".turn").filter({ hasText: /^stopped/ })).toBeVisible();
});

test("the palette goes anywhere, and J and K move", async () => {
  await page.keyboard.press("Control+k");
  await page.getByRole("combobox", { name: "Go to" }).fill("doc");
  await page.keyboard.press("Enter");
  await expect(page.getByRole("heading", { name: "Doctor" })).toBeVisible();
  await expect(page.locator(".findings li").first()).toBeVisible();
  await page.locator("main").focus();
  await page.keyboard.press("j");
  await expect(page.locator(".findings li").first()).toBeFocused();
  await picture("doctor");
  await axe();
  await page.keyboard.press("Escape");
});

test("the other views are whole", async () => {
  for (const [hash, name] of [["#/s", "Sessions"], ["#/agents", "Agents"], ["#/artifacts", "Artifacts"], ["#/network", "Network"], ["#/images", "Images"], ["#/approvals", "Needs you"]] as const) {
    await page.goto(origin + "/" + hash);
    await expect(page.getByRole("heading", { name, level: 1 })).toBeVisible();
    await expect(page.locator(".skeleton")).toHaveCount(0);
    await expect(page.locator(".failure")).toHaveCount(0);
    await axe();
  }
});

test("at 360 px and in the dark it is all there", async () => {
  await page.setViewportSize({ width: 360, height: 740 });
  await page.emulateMedia({ colorScheme: "dark" });
  await page.goto(origin + "/#/s");
  await page.locator(".session-row a").first().click();
  await expect(log().locator(".column").first()).toBeVisible();
  expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(360);
  await axe();
  await picture("narrow");
  await page.goto(origin + "/#/agents/of/" + agent);
  await expect(page.getByLabel("Harness")).toBeVisible();
  expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(360);
  await page.setViewportSize({ width: 1440, height: 900 });
  await page.goto(origin + "/#/s");
  await page.locator(".session-row a").first().click();
  await expect(log().locator(".column").first()).toBeVisible();
  await axe();
  await picture("dark");
  await page.emulateMedia({ colorScheme: "light" });
});

test("a session of a terminal is watched live", async () => {
  const child = spawn(handler, ["run", agent, "--yes", "say hello from a terminal then wait 3 seconds"], { cwd: folder, stdio: "ignore" });
  await page.goto(origin + "/#/s");
  await page.locator(".session-row a", { hasText: "hello from a terminal" }).first().click();
  await expect(log()).toContainText("hello from a terminal");
  await new Promise((done) => child.once("exit", done));
  await expect(page.getByRole("button", { name: "Continue" })).toBeVisible();
});

test("a session that has ended is continued, renamed and deleted", async () => {
  await page.getByRole("button", { name: "Continue" }).click();
  await expect(composer()).toBeVisible({ timeout: 60_000 });
  await say("say back again");
  await expect(log().getByRole("article", { name: new RegExp(`${agent} says`) }).last()).toContainText("back again");
  await page.getByLabel("More about this session").click();
  await page.getByRole("button", { name: "Rename" }).click();
  await page.getByLabel("Title").fill("Named by a person");
  await page.getByRole("dialog").getByRole("button", { name: "Rename" }).click();
  await expect(page.getByRole("heading", { name: "Named by a person" })).toBeVisible();
  await page.getByLabel("More about this session").click();
  await page.getByRole("button", { name: "Delete" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await expect(page.getByRole("heading", { name: "Sessions", level: 1 })).toBeVisible();
  await expect(page.getByText("Named by a person")).toHaveCount(0);
});

test("a daemon that is started anew is found again, and nothing is lost", async () => {
  await page.goto(origin + "/#/s");
  await page.locator(".session-row a").first().click();
  const first = log().locator(".column").first();
  await expect(first).toBeVisible();
  const turns = await log().locator(".turn").count();
  run("daemon", "stop");
  await expect(page.getByText("reconnecting…")).toBeVisible();
  run("web", "--list");
  await expect(page.getByText("reconnecting…")).toHaveCount(0);
  await expect(page.getByRole("button", { name: "Continue" })).toBeVisible();
  expect(await log().locator(".turn").count()).toBeLessThanOrEqual(turns + 1); // that its sandbox is gone
  await page.goto(origin + "/#/");
  await expect(page.getByRole("heading", { name: "Talk to" })).toBeVisible();
});

test("ten thousand events are there, and few of them are drawn", async () => {
  const count = 10_000;
  const now = new Date().toISOString();
  const session = { id: "big", agent, harness: "demo", acp: "x", cwd: folder, title: "Ten thousand", client: "page", lastRun: "r", turn: "idle", created: now, updated: now, events: count, continues: "", ours: false, questions: 0, images: true, embeds: true };
  const events: string[] = [];
  const tell = (kind: string, data: unknown, update?: string) => events.push(`id: ${events.length + 1}\ndata: ${JSON.stringify({ seq: events.length + 1, time: now, kind, update, data })}\n\n`);
  for (let i = 0; events.length < count; i++) {
    tell("prompt", { content: [{ type: "text", text: `question ${i}` }] });
    for (let j = 0; j < 6 && events.length < count; j++) tell("update", { content: { type: "text", text: `Part ${j} of an answer with **some** words. ` } }, "agent_message_chunk");
    for (let j = 0; j < 2 && events.length < count; j++) tell("update", { toolCallId: `${i}-${j}`, title: `read file${j}.ts`, status: "completed" }, "tool_call");
  }
  let asked = 0;
  await page.route(/\/api\/v1\/sessions\/big$/, (r) => r.fulfill({ json: session }));
  await page.route(/\/api\/v1\/sessions\/big\/events/, (r) => {
    asked++;
    const after = Number(new URL(r.request().url()).searchParams.get("after"));
    return r.fulfill({ contentType: "text/event-stream", body: ": here\n\n" + events.slice(after).join("") });
  });
  const load = () => page.evaluate(async () => {
    const began = performance.now();
    location.hash = "#/s/big";
    while (!document.querySelector(".log .column .tool, .log .column .msg")) await new Promise(requestAnimationFrame);
    return performance.now() - began;
  });
  const first = await load();
  await page.evaluate(() => { location.hash = "#/doctor"; });
  await expect(page.getByRole("heading", { name: "Doctor" })).toBeVisible();
  const took = Math.min(first, await load()); // what else the machine does is not the page's
  console.log(`10,000 events on the page in ${took.toFixed(0)} ms`);
  expect(await log().locator(".column").count()).toBeLessThan(120);
  const frames = await page.evaluate(async () => {
    const s = document.querySelector<HTMLElement>(".scroller")!;
    const times: number[] = [];
    let last = performance.now();
    for (let i = 0; i < 90; i++) {
      s.scrollTop -= 400;
      await new Promise(requestAnimationFrame);
      const t = performance.now();
      times.push(t - last);
      last = t;
    }
    return times.sort((a, b) => a - b);
  });
  console.log(`a frame while scrolling: median ${frames[45]!.toFixed(0)} ms, 95th percentile ${frames[85]!.toFixed(0)} ms`);
  await expect.poll(() => asked).toBeGreaterThan(1); // it came back behind the last number, and nothing came twice
  await page.getByRole("button", { name: "Latest" }).click();
  await expect(log().locator(".column").last()).toBeInViewport();
  await page.unroute(/big/);
});

test("nothing was asked of another host, and the browser complained of nothing", () => {
  expect(foreign).toEqual([]);
  expect(problems).toEqual([]);
});
