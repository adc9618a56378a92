// A real agent on the page: Claude Code behind ACP in its sandbox, its model a scripted endpoint outside.
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test, type Page } from "@playwright/test";
import { axe, begin, composer, ended, log, login, picture, press, run, say } from "./lib.ts";

const site = process.env["SITE"] ?? "";
let page: Page;
let origin = "";

test.describe.configure({ mode: "serial", timeout: 180_000 });
test.beforeAll(async ({ browser }) => {
  page = await (await browser.newContext()).newPage();
  origin = await login(page);
});
test.afterAll(async () => page?.context().close());

const card = () => log(page).locator("[data-card]");
const allow = () => card().locator("[data-allow]:enabled").first();
const mode = () => page.locator(".under select").filter({ has: page.locator("option", { hasText: /plan/i }) }).first();

// answerAll allows what is asked, until so many turns are done.
async function answerAll(turns: number): Promise<void> {
  await expect(async () => {
    if (await allow().isVisible()) await allow().click({ timeout: 1_000 }).catch(() => {});
    expect(await ended(page).count()).toBeGreaterThanOrEqual(turns);
  }).toPass({ timeout: 120_000, intervals: [200] });
}

test("its permission question is answered, and its screenshot seen", async () => {
  await begin(page, "shop", site, "Look at the shop, please.");
  await expect(allow()).toBeVisible({ timeout: 60_000 });
  await expect(card().first()).toContainText("sh serve.sh");
  await expect(page).toHaveTitle(/^\(1\)/);
  await picture(page, "permission");
  await answerAll(1);
  await expect(page).toHaveTitle(/^(?!\()/);
  const shot = log(page).locator(".shot img").first();
  await expect.poll(() => shot.evaluate((i) => (i as HTMLImageElement).naturalWidth)).toBeGreaterThan(100);
  await expect(log(page).locator("strong", { hasText: "two books" })).toBeVisible();
  await page.getByRole("tab", { name: "Browser" }).click();
  await expect(page.getByRole("tabpanel").locator("img")).toBeVisible();
  await picture(page, "page-conversation");
  await page.emulateMedia({ colorScheme: "dark" });
  await picture(page, "page-conversation-dark");
  await page.emulateMedia({ colorScheme: "light" });
  await axe(page);
});

test("what it takes of its context is shown", async () => {
  await expect(page.locator(".usage")).toContainText(/\d.* tokens/);
});

test("a tool call is seen while it runs", async () => {
  await say(page, "Wait for the signal."); // a command that only looks: it does not ask
  const tool = log(page).locator(".tool").filter({ hasText: "until [ -e signal ]" });
  await expect(tool.locator(".mark")).toHaveAttribute("title", /^(running|under way)$/);
  writeFileSync(join(site, "signal"), "");
  await expect(tool.locator(".mark")).toHaveAttribute("title", "done");
  await answerAll(2);
});

test("a change is shown as a diff before it is allowed, and a refused one is not made", async () => {
  await say(page, "Rename the shop.");
  const diff = card().locator(".diff").first();
  await expect(diff).toBeVisible({ timeout: 60_000 });
  await expect(diff.locator("tr.del")).toContainText("Your cart");
  await expect(diff.locator("tr.add")).toContainText("Your basket");
  await picture(page, "page-diff", card().first());
  await axe(page);
  await press(card().locator("[data-refuse]:enabled").first());
  await expect(log(page).locator(".turn")).toHaveCount(3, { timeout: 60_000 });
  expect(readFileSync(join(site, "index.html"), "utf8")).toContain("Your cart");
});

test("its mode is set, and holds", async () => {
  await mode().selectOption({ label: (await mode().locator("option", { hasText: /accept/i }).textContent())! });
  await expect(mode().locator("option:checked")).toHaveText(/accept/i);
  await say(page, "Rename the shop again.");
  await expect(log(page).locator(".tool .counts ins", { hasText: "+1" }).last()).toBeVisible({ timeout: 60_000 });
  await expect(log(page).locator(".turn")).toHaveCount(4, { timeout: 60_000 });
  expect(readFileSync(join(site, "index.html"), "utf8")).toContain("Your basket");
  await log(page).locator(".tool").filter({ has: page.locator(".counts ins", { hasText: "+1" }) }).last().locator(".line").click();
  await expect(log(page).locator(".tool .diff tr.add").last()).toContainText("Your basket");
});

test("what it asks in a form is answered", async () => {
  await say(page, "Ask me, please.");
  const form = card().filter({ hasText: "Please answer" }).first();
  await expect(form).toBeVisible({ timeout: 60_000 });
  await form.getByLabel(/^Colour/).selectOption("Blue");
  await form.getByRole("group", { name: /^Sizes/ }).getByLabel("Large").check();
  await picture(page, "page-form", form);
  await press(form.getByRole("button", { name: "Answer", exact: true }));
  await expect(log(page)).toContainText("Thank you.", { timeout: 60_000 });
});

test("it is stopped in the middle of a call", async () => {
  await say(page, "Wait for what never comes.");
  const tool = log(page).locator(".tool").filter({ hasText: "until [ -e never ]" });
  await expect(tool.locator(".mark")).toHaveAttribute("title", /^(running|under way)$/);
  await page.getByRole("button", { name: "Stop", exact: true }).click();
  await expect(log(page).locator(".turn").filter({ hasText: /^stopped/ })).toBeVisible({ timeout: 60_000 });
});

test("its run is ended, and the session goes on in a fresh one", async () => {
  await page.getByLabel("More about this session").click();
  await page.getByRole("button", { name: /End the run/ }).click();
  await page.getByRole("button", { name: "Continue" }).click();
  await expect(composer(page)).toBeVisible({ timeout: 120_000 });
  await say(page, "Nothing, please.");
  await expect(log(page)).toContainText("Nothing to do.", { timeout: 60_000 });
  await page.setViewportSize({ width: 360, height: 740 });
  await expect(log(page)).toContainText("Nothing to do.");
  expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(360);
  await picture(page, "page-narrow");
  await page.setViewportSize({ width: 1440, height: 900 });
  await page.goto(origin + "/#/agents/of/shop");
  await expect(page.getByLabel("TOML")).toContainText("claude-code");
  await picture(page, "page-agent");
  expect(run("ps")).toContain("shop");
});
