// An agent asks its person by a form and by an address (ACP's elicitation/create). The agent is the tests' own: it asks what a
// file says, and tells how it was answered.
import { expect, test, type Page } from "@playwright/test";
import { axe, begin, ended, log, login, picture, press, say } from "./lib.ts";

const folder = process.env["FOLDER"] ?? "";
let page: Page;

test.describe.configure({ mode: "serial", timeout: 120_000 });
test.beforeAll(async ({ browser }) => {
  page = await (await browser.newContext()).newPage();
  await login(page);
});
test.afterAll(async () => page?.context().close());

const card = () => log(page).locator("[data-card]").first();
const told = (text: string) => expect(log(page).getByRole("article", { name: "raw says" }).filter({ hasText: text }).last()).toBeVisible();

test("a form is filled in, and what does not fit is not sent", async () => {
  await begin(page, "raw", folder, "raw form.raw");
  await expect(card()).toContainText("Which shop? <b>bold</b>");
  await expect(card().locator("b")).toHaveCount(0);
  await expect(page).toHaveTitle(/^\(1\)/);
  await picture(page, "form");
  await axe(page);
  const answer = card().getByRole("button", { name: "Answer", exact: true });
  await card().getByLabel("Name", { exact: true }).fill("ab");
  await page.waitForTimeout(500); // a card that has just come takes no answer
  await answer.click();
  expect(await card().getByLabel("Name", { exact: true }).evaluate((i: HTMLInputElement) => i.checkValidity())).toBe(false);
  await card().getByLabel("Name", { exact: true }).fill("Ada & Co");
  await card().getByLabel("How many").fill("3");
  await card().getByLabel("Size").selectOption({ label: "Large" });
  await card().getByLabel("constructor").fill("odd");
  await card().getByLabel("As a gift").check();
  await expect(card()).not.toContainText("Nothing"); // of a type that nobody here can ask for
  const colours = card().getByRole("group", { name: /^Colours/ });
  await colours.getByLabel("Blue").check();
  await colours.getByLabel("Red").check();
  await expect(colours.getByLabel("Green")).toBeDisabled(); // two at most
  await expect(page.locator(".pinned").getByLabel("Name", { exact: true })).toHaveValue("Ada & Co"); // the same card beside it
  await press(answer);
  await told('"id":"f1","result":{"action":"accept","content":{"name":"Ada & Co","count":3,"size":"l","constructor":"odd","gift":true,"colours":["red","blue"]}');
});

test("another is declined, and one is left without an answer", async () => {
  await expect(card()).toContainText("Your mother's name?");
  await press(card().getByRole("button", { name: /^Decline/ }));
  await told('"id":"f2","result":{"action":"decline"}');
  await expect(card()).toContainText("And your father's?");
  await press(card().getByRole("button", { name: "No answer" }));
  await told('"id":"f3","result":{"action":"cancel"}');
});

test("an address is shown whole, and opened by the person alone", async () => {
  await expect(card().locator("pre.about")).toHaveText("https://login.example.org/device?code=ABCD");
  const link = card().getByRole("link", { name: /Open/ });
  await expect(link).toHaveAttribute("href", "https://login.example.org/device?code=ABCD");
  await expect(link).toHaveAttribute("rel", "noopener noreferrer");
  await press(card().getByRole("button", { name: "I have opened it" }));
  await told('"id":"f4","result":{"action":"accept"}');
});

test("what is no form that a person could answer is refused, and nobody is asked", async () => {
  await expect(ended(page)).toHaveCount(1, { timeout: 30_000 });
  for (const why of ["stands twice", "more than 20 fields", "at most 65536", "not https"]) await told(why);
  await expect(log(page).locator("[data-card]")).toHaveCount(0);
  expect((await log(page).locator(".past").allTextContents()).map((t) => t.trim())).toEqual([
    "Which shop? <b>bold</b>: answered", "Your mother's name?: declined", "And your father's?: no answer", "Log in, please: answered",
    "twice: no answer (Handler)", "many: no answer (Handler)", "long: no answer (Handler)",
  ]);
});

test("a permission shows all of what it is about", async () => {
  await say(page, "raw more.raw");
  await expect(card().locator("pre.about")).toHaveText("command:\nls\nrm -rf ~");
  await press(card().locator("[data-refuse]"));
  await told('"id":"p1","result":{"outcome":{"outcome":"selected","optionId":"no"}}');
});

test("a question is withdrawn when its turn is stopped", async () => {
  await expect(card()).toContainText("Still there?");
  await page.getByRole("button", { name: "Stop", exact: true }).click();
  await expect(log(page).locator("[data-card]")).toHaveCount(0);
  await told('"id":"m1","result":{"action":"cancel"}');
});
