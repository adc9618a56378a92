// A web server in the sandbox is looked at from the page: in a frame, at a random name of its own, and by nobody else.
import { expect, test, type Page } from "@playwright/test";
import { axe, begin, ended, log, login, picture, run } from "./lib.ts";

const folder = process.env["FOLDER"] ?? "";
let page: Page;

test.describe.configure({ mode: "serial", timeout: 120_000 });
test.beforeAll(async ({ browser }) => {
  page = await (await browser.newContext()).newPage();
  await login(page);
});
test.afterAll(async () => page?.context().close());

const panel = () => page.getByRole("tabpanel");
const frame = () => page.frameLocator("iframe");
let url = "";

test("a server that the agent started is seen, and can be used", async () => {
  await begin(page, "bare", folder, "run (python3 server.py >/dev/null 2>&1 &) && until curl -fsS --noproxy '*' -o /dev/null http://127.0.0.1:8123/; do sleep 0.1; done");
  await log(page).locator("[data-card] [data-allow]:enabled").first().click({ delay: 500 });
  await expect(ended(page)).toHaveCount(1, { timeout: 60_000 });
  await page.getByRole("tab", { name: "Preview" }).click();
  await panel().getByLabel("port in the sandbox").fill("8123");
  await panel().getByRole("button", { name: "Show" }).click();
  await expect(frame().getByRole("heading", { name: "Inside the sandbox" })).toBeVisible();
  await frame().getByRole("button", { name: "Count" }).click();
  await expect(frame().locator("#count")).toHaveText("1");
  url = (await page.locator("iframe").getAttribute("src"))!;
  expect((JSON.parse(run("web", "--list", "--json")) as { forwards: { port: number; url: string }[] }).forwards).toEqual([expect.objectContaining({ port: 8123, url })]);
  expect(new URL(url).hostname).toMatch(/^[a-z0-9]{16,}\.localhost$/);
  await picture(page, "page-preview");
  await axe(page);
});

test("it learns nothing of the page that shows it", async () => {
  await expect(frame().locator("#got")).not.toContainText(/cookie|referer/i);
  await expect(frame().locator("#got")).toContainText(`Host: ${new URL(url).host}`);
  await expect(frame().locator("#saw")).toHaveText("parent: held, cookies: none, api: held");
});

test("no other name is answered", async () => {
  const other = await page.context().newPage();
  expect((await other.goto(url))!.status()).toBe(200); // in a tab of its own as well
  const port = new URL(url).port;
  for (const host of ["127.0.0.1", "localhost", "x.localhost"]) {
    expect((await other.goto(`http://${host}:${port}/`))!.status(), host).toBe(421);
  }
  await other.close();
});

test("a port that nothing listens on says so, and closing ends it", async () => {
  await panel().getByLabel("port in the sandbox").fill("8124");
  await panel().getByRole("button", { name: "Show" }).click();
  await expect(frame().locator("body")).toContainText("nothing listens on 127.0.0.1:8124 in the sandbox");
  await panel().getByRole("button", { name: "Close port 8124" }).click();
  await expect(panel().getByRole("button", { name: "Close port 8124" })).toHaveCount(0);
  await panel().getByRole("button", { name: "Close port 8123" }).click();
  await expect(page.locator("iframe")).toHaveCount(0);
  const other = await page.context().newPage();
  expect((await other.goto(url))!.status()).toBe(421);
  await other.close();
});
