import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CHROMIUM, config, environment, Refusal, settings } from '../lib/config.mjs';

const dirs = { root: '/t', home: '/t/home', tmp: '/t/tmp', output: '/t/output' };

test('with nothing given: headless, sandboxed, isolated, no proxy', () => {
  const made = config(settings({}), dirs, '');
  assert.equal(made.browser.browserName, 'chromium');
  assert.equal(made.browser.isolated, true);
  assert.equal(made.browser.launchOptions.executablePath, CHROMIUM);
  assert.equal(made.browser.launchOptions.headless, true);
  assert.equal(made.browser.launchOptions.chromiumSandbox, true);
  assert.equal(made.browser.launchOptions.proxy, undefined);
  assert.deepEqual(made.browser.contextOptions, { viewport: { width: 1280, height: 720 } });
  assert.equal(made.webmcp, false);
  assert.equal(made.codegen, 'none');
});

test('no switch list of ours overrides the one Playwright makes', () => {
  for (const arg of config(settings({}), dirs, '').browser.launchOptions.args) {
    assert.ok(!arg.startsWith('--disable-features'), arg);
  }
});

test('a display makes a window, unless the binding says headless', () => {
  const env = { WAYLAND_DISPLAY: '/run/handler-display/wayland-0' };
  const headed = config(settings(env), dirs, '').browser;
  assert.equal(headed.launchOptions.headless, false);
  assert.ok(headed.launchOptions.args.includes('--ozone-platform=wayland'));
  assert.equal(headed.contextOptions.viewport, null);
  const kept = settings({ ...env, HANDLER_SETTING_HEADLESS: '1' });
  assert.equal(config(kept, dirs, '').browser.launchOptions.headless, true);
  assert.equal(environment(env, kept, dirs).WAYLAND_DISPLAY, undefined);
});

test('a relative display is looked for in the runtime folder, or refused', () => {
  assert.equal(settings({ WAYLAND_DISPLAY: 'wayland-1', XDG_RUNTIME_DIR: '/run/u' }).display, '/run/u/wayland-1');
  assert.throws(() => settings({ WAYLAND_DISPLAY: 'wayland-1' }), Refusal);
});

test('the proxy comes from the environment, with its bypass in Playwright\'s syntax', () => {
  const set = settings({ HTTPS_PROXY: 'http://127.0.0.1:3128', NO_PROXY: 'localhost' });
  assert.deepEqual(config(set, dirs, '').browser.launchOptions.proxy,
    { server: 'http://127.0.0.1:3128', bypass: '<-loopback>,localhost,.localhost' });
});

test('a storage state is given to the context', () => {
  assert.equal(config(settings({}), dirs, '/t/s.json').browser.contextOptions.storageState, '/t/s.json');
});

test('the environment is a list of what is let through', () => {
  const env = {
    PATH: '/bin', LANG: 'C.UTF-8', TZ: 'UTC', HOME: '/home/agent', ANTHROPIC_API_KEY: 'k', NODE_OPTIONS: '--inspect',
    PLAYWRIGHT_MCP_SANDBOX: 'false', HTTPS_PROXY: 'http://127.0.0.1:3128', LD_PRELOAD: '/x', GOOGLE_API_KEY: 'g',
  };
  assert.deepEqual(environment(env, settings(env), dirs), {
    PATH: '/bin', LANG: 'C.UTF-8', TZ: 'UTC', HOME: '/t/home', TMPDIR: '/t/tmp', XDG_CACHE_HOME: '/t/home/.cache',
  });
});

test('values that are not known are refused', () => {
  for (const env of [
    { HANDLER_SETTING_HEADLESS: 'yes' }, { HANDLER_SETTING_VIEWPORT: '1280' }, { HANDLER_SETTING_SNAPSHOT: 'some' },
    { HANDLER_CHROMIUM_SANDBOX: 'maybe' },
  ]) assert.throws(() => settings(env), Refusal, JSON.stringify(env));
  assert.equal(settings({ HANDLER_CHROMIUM_SANDBOX: 'off' }).chromiumSandbox, false);
});

test('a guarded browser keeps its files where handlerd takes them, makes PDFs and is never without its sandbox', () => {
  const env = { HANDLER_BROWSER_FILES: '/run/files', HTTPS_PROXY: 'http://127.0.0.1:3128', NO_PROXY: '' };
  const made = config(settings(env), { ...dirs, output: '/run/files/out', downloads: '/run/files/downloads' }, '');
  assert.deepEqual(made.capabilities, ['pdf']);
  assert.deepEqual(made.timeouts, { idle: 0, settle: 10 });
  assert.equal(made.outputDir, '/run/files/out');
  assert.equal(made.browser.launchOptions.downloadsPath, '/run/files/downloads');
  assert.equal(made.browser.launchOptions.chromiumSandbox, true);
  // Loopback goes to the proxy too.
  assert.equal(made.browser.launchOptions.proxy.bypass, '<-loopback>');
  assert.throws(() => settings({ ...env, HANDLER_CHROMIUM_SANDBOX: 'off' }), Refusal);
  assert.throws(() => settings({ HANDLER_BROWSER_FILES: 'files' }), Refusal);
  assert.equal(config(settings({}), dirs, '').capabilities, undefined);
});
