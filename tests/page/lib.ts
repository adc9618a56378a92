// What the files of tests here share.
import { execFileSync } from "node:child_process";
import { mkdirSync } from "node:fs";
import { createServer, type AddressInfo } from "node:net";
import { join } from "node:path";
import AxeBuilder from "@axe-core/playwright";
import { expect, type Locator, type Page } from "@playwright/test";

const handler = process.env["HANDLER"] ?? "handler";
const pictures = process.env["HANDLER_PAGE_PICTURES"]; // where the manual's pictures go, if they are to be made

// run runs the command line and gives its standard output.
export function run(...args: string[]): string {
  return execFileSync(handler, args, { encoding: "utf8", timeout: 60_000, stdio: ["ignore", "pipe", "inherit"] });
}

// freePort gives a port that nobody has.
async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  const port = (server.address() as AddressInfo).port;
  await new Promise((done) => server.close(done));
  return port;
}

// login opens the page by a one-time link, and gives its origin. The usual port may be taken by another user's daemon.
export async function login(page: Page): Promise<string> {
  let said: string;
  try {
    said = run("web", "--print", "--json");
  } catch {
    said = run("web", "--print", "--json", "--port", String(await freePort()));
  }
  const link = JSON.parse(said) as { url: string };
  await page.goto(link.url);
  await expect(page.getByRole("heading", { name: "Talk to" })).toBeVisible();
  return new URL(link.url).origin;
}

// begin starts a session of agent in folder with a first message, and gives its id.
export async function begin(page: Page, agent: string, folder: string, message: string): Promise<string> {
  await page.getByRole("link", { name: "New session" }).click();
  await page.getByLabel("Agent", { exact: true }).selectOption(agent);
  await page.getByLabel("Folder", { exact: true }).fill(folder);
  await page.getByLabel(/First message/).fill(message);
  await page.getByRole("button", { name: "Start" }).click();
  await expect(composer(page)).toBeVisible({ timeout: 120_000 });
  return /#\/s\/(\w+)/.exec(page.url())![1]!;
}

export const log = (page: Page): Locator => page.getByRole("region", { name: "Conversation" });
export const composer = (page: Page): Locator => page.getByRole("textbox", { name: /^Message to/ });
export const ended = (page: Page): Locator => log(page).locator(".turn").filter({ hasText: /^done/ });

// say sends a message.
export async function say(page: Page, text: string): Promise<void> {
  await composer(page).fill(text);
  await composer(page).press("Enter");
}

// press answers a card by one of its buttons, once: it goes, and one that has just come takes no answer for a moment.
export async function press(button: Locator): Promise<void> {
  await expect(button).toBeEnabled();
  const one = (await button.elementHandle())!;
  await expect(async () => {
    if (await one.evaluate((e) => e.isConnected)) await one.click({ timeout: 1_000 });
    await one.waitForElementState("hidden", { timeout: 1_000 });
  }).toPass({ timeout: 30_000, intervals: [200] });
}

// picture keeps what is seen for the manual, or a part of it.
export async function picture(page: Page, name: string, part?: Locator): Promise<void> {
  if (!pictures) return;
  mkdirSync(pictures, { recursive: true });
  await page.mouse.move(0, 0);
  await (part ?? page).screenshot({ path: join(pictures, name + ".png"), animations: "disabled" });
}

// axe looks for what shuts people out.
export async function axe(page: Page): Promise<void> {
  const found = await new AxeBuilder({ page }).analyze();
  const serious = found.violations.filter((v) => v.impact === "serious" || v.impact === "critical");
  expect(serious.map((v) => `${v.id}: ${v.help}: ${v.nodes.map((n) => n.html.slice(0, 200)).join(" | ")}`)).toEqual([]);
}
