// A real agent on the page: Claude Code behind ACP in its sandbox, its model a scripted endpoint outside.
import { execFileSync } from "node:child_process";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import AxeBuilder from "@axe-core/playwright";
import { expect, test, type Page } from "@playwright/test";

const handler = process.env["HANDLER"] ?? "handler";
const pictures = process.env["HANDLER_PAGE_PICTURES"];
const site = process.env["SITE"] ?? "";

async function picture(page: Page, name: string): Promise<void> {
  if (!pictures) return;
  mkdirSync(pictures, { recursive: true });
  await page.mouse.move(0, 0);
  await page.screenshot({ path: join(pictures, name + ".png"), animations: "disabled" });
}

test("a permission is answered, a screenshot seen, and the session continued", async ({ page }) => {
  test.setTimeout(240_000);
  const link = JSON.parse(execFileSync(handler, ["web", "--print", "--json"], { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] })) as { url: string };
  await page.goto(link.url);
  await page.getByRole("link", { name: "New session" }).click();
  await page.getByLabel("Agent", { exact: true }).selectOption("shop");
  await page.getByLabel("Folder", { exact: true }).fill(site);
  await page.getByLabel(/First message/).fill("Look at the shop, please.");
  await page.getByRole("button", { name: "Start" }).click();

  const log = page.getByRole("region", { name: "Conversation" });
  const allow = log.locator("[data-card] [data-allow]:enabled").first();
  await expect(allow).toBeVisible({ timeout: 120_000 });
  await expect(page).toHaveTitle(/^\(1\)/);
  await picture(page, "permission");
  await expect(async () => {
    if (await allow.isVisible()) await allow.click({ timeout: 1_000 }).catch(() => {});
    expect(await log.locator(".turn").filter({ hasText: /^done/ }).count()).toBeGreaterThan(0);
  }).toPass({ timeout: 120_000, intervals: [200] });
  await expect(log.locator(".shot img").first()).toBeVisible();
  await expect.poll(() => log.locator(".shot img").first().evaluate((i) => (i as HTMLImageElement).naturalWidth)).toBeGreaterThan(100);
  await expect(log).toContainText("The shop is open");
  await page.getByRole("tab", { name: "Browser" }).click();
  await expect(page.getByRole("tabpanel").locator("img")).toBeVisible();
  await picture(page, "conversation");
  await page.emulateMedia({ colorScheme: "dark" });
  await picture(page, "conversation-dark");
  await page.emulateMedia({ colorScheme: "light" });
  const found = await new AxeBuilder({ page }).analyze();
  expect(found.violations.filter((v) => v.impact === "serious" || v.impact === "critical").map((v) => v.id)).toEqual([]);

  // Its modes and options are the agent's own.
  await expect(page.locator(".under select").first()).toBeVisible();

  await page.getByLabel("More about this session").click();
  await page.getByRole("button", { name: /End the run/ }).click();
  await page.getByRole("button", { name: "Continue" }).click();
  const composer = page.getByRole("textbox", { name: /^Message to/ });
  await expect(composer).toBeVisible({ timeout: 120_000 });
  await composer.fill("Nothing, please.");
  await composer.press("Enter");
  await expect(log).toContainText("Nothing to do.", { timeout: 60_000 });
  await page.setViewportSize({ width: 360, height: 740 });
  await expect(log).toContainText("Nothing to do.");
  await picture(page, "narrow");
  await page.setViewportSize({ width: 1440, height: 900 });
  await page.goto(new URL(link.url).origin + "/#/agents/of/shop");
  await expect(page.getByLabel("TOML")).toContainText("claude-code");
  await picture(page, "agent");
});
