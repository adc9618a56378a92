import { defineConfig } from "@playwright/test";

// One daemon serves all tests, and they build on one another: they run in order, in the distribution's Chromium.
export default defineConfig({
  testDir: ".",
  workers: 1,
  fullyParallel: false,
  timeout: 120_000,
  expect: { timeout: 30_000 },
  reporter: [["list"]],
  outputDir: process.env["HANDLER_PAGE_OUT"] ?? "test-results",
  use: {
    viewport: { width: 1440, height: 900 },
    launchOptions: { executablePath: process.env["HANDLER_CHROMIUM"] ?? "/usr/bin/chromium", args: ["--disable-gpu"] },
    trace: "off",
  },
});
