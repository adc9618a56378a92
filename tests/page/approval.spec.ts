// The guarded browser asks on the page before it acts: what stands on the card, a yes that is done, and a no that the agent is told.
import { expect, test, type Page } from "@playwright/test";
import { axe, begin, ended, log, login, picture, press, say } from "./lib.ts";

const site = process.env["SHOP"] ?? "";
const folder = process.env["FOLDER"] ?? "";
let page: Page;

test.describe.configure({ mode: "serial", timeout: 120_000 });
test.beforeAll(async ({ browser }) => {
  page = await (await browser.newContext()).newPage();
  await login(page);
});
test.afterAll(async () => page?.context().close());

const asked = () => log(page).locator("[data-card]").filter({ hasText: "Handler asks" });

// handlersTurn answers the agent's own questions until Handler asks.
async function handlersTurn(): Promise<void> {
  const own = log(page).locator("[data-card]").filter({ hasNotText: "Handler asks" }).locator("[data-allow]:enabled").first();
  await expect(async () => {
    if (!(await asked().isVisible()) && (await own.isVisible())) await own.click({ timeout: 1_000 }).catch(() => {});
    await expect(asked()).toBeVisible({ timeout: 500 });
  }).toPass({ timeout: 60_000 });
}

test("a site that no rule names is asked about by name", async () => {
  await begin(page, "shopper", folder, `open ${site}/\nclick Buy\nread`);
  await handlersTurn();
  await expect(asked()).toContainText("Open a site");
  await expect(asked().locator(".site")).toHaveText(site);
  await press(asked().locator("[data-allow]"));
});

test("a click is shown with its page, its element and a picture, and done when it is allowed", async () => {
  await handlersTurn();
  await expect(asked().locator("h3")).toContainText("click");
  await expect(asked().locator("h3 .theirs")).toHaveText("Buy");
  await expect(asked().locator("h3")).toContainText("button");
  await expect(asked().locator(".site").first()).toHaveText(site);
  await expect(asked()).toContainText(/expires in \d/);
  await expect(asked().getByRole("button", { name: /this run|Always/ })).toHaveCount(0); // one answer, one use
  const shot = asked().locator("img");
  await expect.poll(() => shot.evaluate((i) => (i as HTMLImageElement).naturalWidth)).toBeGreaterThan(20);
  await expect(page.locator(".pinned")).toContainText("Buy");
  await expect(page).toHaveTitle(/^\(1\)/);
  await picture(page, "page-approval", asked());
  await axe(page);
  await press(asked().locator("[data-allow]"));
  await expect(ended(page)).toHaveCount(1, { timeout: 60_000 });
  await expect(log(page)).toContainText("ordered");
  await expect(log(page).locator(".past b", { hasText: "allowed" }).last()).toBeVisible();
});

test("a no is told to the agent, and nothing is done", async () => {
  await say(page, "click Buy");
  await handlersTurn();
  await press(asked().locator("[data-refuse]"));
  await expect(ended(page)).toHaveCount(2, { timeout: 60_000 });
  await expect(log(page).locator(".past b", { hasText: "refused" }).last()).toBeVisible();
  await log(page).locator(".tool").last().locator(".line").click();
  await expect(log(page).locator(".tool").last()).toContainText("your person said no");
});
