// The guarded browser, taken over on the page of a real daemon in a real Chromium.
import { expect, test, type BrowserContext, type Page } from "@playwright/test";
import * as lib from "./lib.ts";

const site = process.env["SITE"]!;

let context: BrowserContext;
let page: Page;
let origin = "";
let session = "";
const problems: string[] = [];

test.describe.configure({ mode: "serial" });

test.beforeAll(async ({ browser }) => {
  context = await browser.newContext();
  page = await context.newPage();
  page.on("pageerror", (e) => problems.push(e.stack ?? e.message));
  page.on("console", (m) => {
    if (m.type() === "error" && /Content Security Policy|Refused to/.test(m.text())) problems.push(m.text());
  });
});

test.afterAll(async () => {
  await context?.close();
  try {
    for (const r of JSON.parse(lib.run("ps", "--json")) as { id: string }[]) lib.run("kill", r.id);
  } catch {
    // a test that failed early has made none
  }
});

// What the page showed says why a step failed.
test.afterEach(async ({}, info) => {
  if (info.status !== info.expectedStatus) console.log("the page says:\n" + (await page.locator("body").innerText()));
});

const watched = () => page.locator(".watch");
const state = () => watched().locator(".watch-state");
const canvas = () => watched().locator("canvas");
const button = (name: string) => page.getByRole("button", { name, exact: true });

// colour gives the pixel near the bottom left corner of the picture, where the page in the browser is plain.
const colour = () => canvas().evaluate((c) => {
  const canvas = c as HTMLCanvasElement;
  return [...canvas.getContext("2d")!.getImageData(20, canvas.height - 20, 1, 1).data].slice(0, 3).join(",");
});
const shows = (c: string) => expect.poll(colour, { intervals: [50], timeout: 30_000 }).toBe(c);

// at is a place in the picture, in parts of its size.
async function at(x: number, y: number): Promise<[number, number]> {
  const box = (await canvas().boundingBox())!;
  return [box.x + box.width * x, box.y + box.height * y];
}

async function takeOver(): Promise<void> {
  await button("Take over").click();
  await page.getByRole("dialog").getByRole("button", { name: "Take over" }).click();
  await expect(state()).toContainText("yours");
}

// turn sends a message, and waits until the agent's turn has ended.
async function turn(text: string): Promise<void> {
  const before = await lib.ended(page).count();
  await lib.say(page, text);
  await expect(lib.ended(page)).toHaveCount(before + 1, { timeout: 60_000 });
}

test("it is watched from its first page on, and what a person does over it reaches nothing", async () => {
  origin = await lib.login(page);
  await page.goto(`${origin}/#/new?agent=hands`);
  await page.getByLabel("Folder", { exact: true }).fill(site);
  await page.getByLabel(/First message/).fill("open http://files.workspace.invalid/index.html");
  await page.getByRole("button", { name: "Start" }).click();
  await expect(lib.composer(page)).toBeVisible({ timeout: 120_000 });
  session = /#\/s\/(\w+)/.exec(page.url())![1]!;
  await expect(lib.ended(page)).toHaveCount(1, { timeout: 90_000 });
  await page.getByRole("tab", { name: "Browser" }).click();
  await expect(state()).toContainText("live", { timeout: 30_000 });
  await shows("194,24,91");
  await page.mouse.click(...(await at(0.5, 0.8)));
  await page.keyboard.type("jk");
  await page.waitForTimeout(500);
  await shows("194,24,91");
});

test("it is taken over: mouse and keyboard are the person's, and the agent is refused", async () => {
  await button("Take over").click();
  await expect(page.getByRole("dialog")).toContainText("each of its browser tools is refused");
  await lib.axe(page);
  await page.getByRole("dialog").getByRole("button", { name: "Take over" }).click();
  await expect(state()).toContainText("mouse and keyboard are yours alone");
  await shows("194,24,91");
  await page.mouse.click(...(await at(0.5, 0.8)));
  await shows("15,107,92");
  await page.keyboard.type("tiger lily");
  await shows("48,80,160");
  await lib.picture(page, "page-takeover");
  await lib.axe(page);
  await page.keyboard.press("Shift+Escape");
  await expect(button("Give back")).toBeFocused();
  await turn("read");
  await expect(lib.log(page)).toContainText("your person took this browser over");
});

test("from a click to its picture", async () => {
  const [x, y] = await at(0.5, 0.9);
  const times: number[] = [];
  for (let i = 0; i < 21; i++) {
    await page.mouse.move(x + (i % 2), y);
    await page.waitForTimeout(150);
    const done = canvas().evaluate((c) => new Promise<number>((tell) => {
      const canvas = c as HTMLCanvasElement;
      const look = () => [...canvas.getContext("2d")!.getImageData(20, canvas.height - 20, 1, 1).data].join();
      const was = look();
      canvas.addEventListener("mousedown", (e) => {
        const began = e.timeStamp;
        const again = () => (look() === was ? requestAnimationFrame(again) : tell(performance.now() - began));
        again();
      }, { once: true, capture: true });
      canvas.dataset["armed"] = "yes";
    }));
    await expect(canvas()).toHaveAttribute("data-armed", "yes");
    await page.mouse.click(x + (i % 2), y);
    times.push(await done);
    await canvas().evaluate((c) => delete (c as HTMLElement).dataset["armed"]);
  }
  times.sort((a, b) => a - b);
  console.log(`click to picture: median ${times[10]!.toFixed(0)} ms, slowest ${times[20]!.toFixed(0)} ms`);
});

test("a second page cannot take it over too", async () => {
  const other = await context.newPage();
  await other.goto(`${origin}/#/s/${session}`);
  await other.getByRole("tab", { name: "Browser" }).click();
  await other.getByRole("button", { name: "Take over", exact: true }).click();
  await other.getByRole("dialog").getByRole("button", { name: "Take over" }).click();
  await expect(other.getByRole("dialog").getByRole("alert")).toContainText("was not given back");
  await expect(other.getByRole("dialog").getByRole("alert")).toContainText("give it back on the page that took it over");
  await other.close();
  await expect(state()).toContainText("yours");
});

test("given back, it is the agent's again, and the password is not", async () => {
  await button("Give back").click();
  await expect(state()).toContainText("live");
  await expect(watched()).toContainText("hands has its browser again");
  await turn("read");
  await expect(lib.log(page)).toContainText("has given it back");
  await expect(lib.log(page)).toContainText("typed 10");
  expect(lib.run("sessions", "show", session)).not.toContain("tiger lily");
  const was = await colour();
  await page.mouse.click(...(await at(0.5, 0.9)));
  await page.waitForTimeout(500);
  expect(await colour()).toBe(was);
});

test("leaving the view gives it back as well", async () => {
  const told = () => lib.run("sessions", "show", session).split("has given it back").length;
  const before = told();
  await takeOver();
  await page.getByRole("tab", { name: "Files" }).click();
  await expect(lib.log(page)).toContainText("the page that had it was closed", { timeout: 30_000 });
  await lib.say(page, "read");
  await expect.poll(told, { timeout: 30_000 }).toBeGreaterThan(before);
});

test("the browser complained of nothing", () => {
  expect(problems).toEqual([]);
});
