// Makes the configuration file and the environment of @playwright/mcp from what Handler gives. Pure, but for the
// paths it is handed: playwright-mcp.mjs does the rest.

import { isAbsolute, join } from 'node:path';
import { playwrightBypass } from './bypass.mjs';

/** The toolbox's Chromium by its real path: /usr/bin/chromium is a script that adds switches of its own. */
export const CHROMIUM = '/usr/lib/chromium/chromium';

// Nothing of these is a boundary (the sandbox has no network but the proxy); they keep noise and doomed packets away.
const QUIET = [
  '--force-webrtc-ip-handling-policy=disable_non_proxied_udp',
  '--webrtc-ip-handling-policy=disable_non_proxied_udp',
  '--disable-quic',
  '--dns-prefetch-disable',
  '--no-pings',
  '--disable-domain-reliability',
  '--gaia-url=http://127.0.0.1:9',
  '--component-updater=url-source=http://127.0.0.1:9',
  '--autofill-server-url=http://127.0.0.1:9/',
];

/** A Refusal is an error of the set-up, in words for a person. */
export class Refusal extends Error {}

/**
 * settings reads the variables of contract G.1 (HANDLER_SETTING_*, HANDLER_SECRET_*) and of the sandbox.
 * It throws a Refusal for a value it does not know.
 */
export function settings(env) {
  const headless = choice(env, 'HANDLER_SETTING_HEADLESS', ['0', '1'], '0');
  const size = env.HANDLER_SETTING_VIEWPORT || '1280x720';
  const match = size.match(/^(\d{2,4})x(\d{2,4})$/);
  if (!match) throw new Refusal(`setting viewport is ${JSON.stringify(size)}; write WIDTHxHEIGHT, such as 1280x720`);
  const files = env.HANDLER_BROWSER_FILES || '';
  const chromiumSandbox = choice(env, 'HANDLER_CHROMIUM_SANDBOX', ['on', 'off'], 'on') === 'on';
  if (files !== '' && !isAbsolute(files)) throw new Refusal('HANDLER_BROWSER_FILES is not an absolute path');
  if (files !== '' && !chromiumSandbox) throw new Refusal('the guarded browser never runs without the browser\'s own sandbox');
  return {
    files,
    display: headless === '1' ? '' : display(env),
    viewport: { width: Number(match[1]), height: Number(match[2]) },
    snapshot: choice(env, 'HANDLER_SETTING_SNAPSHOT', ['full', 'none'], 'full'),
    chromiumSandbox,
    storageState: env.HANDLER_SECRET_STORAGE_STATE || '',
    proxy: env.HTTPS_PROXY || env.https_proxy || env.HTTP_PROXY || env.http_proxy || '',
    noProxy: env.NO_PROXY ?? env.no_proxy ?? '',
  };
}

function choice(env, name, values, otherwise) {
  const value = env[name] || otherwise;
  if (values.includes(value)) return value;
  throw new Refusal(`${name} is ${JSON.stringify(value)}; it may be ${values.join(' or ')}`);
}

// Chromium finds a relative WAYLAND_DISPLAY only below XDG_RUNTIME_DIR, which it does not get.
function display(env) {
  const socket = env.WAYLAND_DISPLAY;
  if (!socket) return '';
  if (isAbsolute(socket)) return socket;
  if (env.XDG_RUNTIME_DIR) return join(env.XDG_RUNTIME_DIR, socket);
  throw new Refusal('WAYLAND_DISPLAY is relative and XDG_RUNTIME_DIR is not set; give the absolute path of the socket');
}

/**
 * config gives the object for --config. dirs.output is where @playwright/mcp writes, storageState the path of the
 * private copy or "". Keys it does not know are ignored without a word by @playwright/mcp, so the check and the
 * tests hold these against what it does.
 */
export function config(set, dirs, storageState) {
  const headed = set.display !== '';
  const launchOptions = {
    executablePath: CHROMIUM,
    headless: !headed,
    // Always said: the default differs with how the browser is named.
    chromiumSandbox: set.chromiumSandbox,
    args: headed ? [...QUIET, '--ozone-platform=wayland', '--start-maximized'] : QUIET,
  };
  if (set.proxy !== '') {
    launchOptions.proxy = { server: set.proxy, bypass: playwrightBypass(set.noProxy) };
  }
  const contextOptions = { viewport: headed ? null : set.viewport };
  if (storageState !== '') contextOptions.storageState = storageState;
  // A guarded browser (handlerd/browser): its files lie where handlerd takes them, each download once while it is on
  // its way and once when it is whole; and how long it lives is handlerd's to say. handlerd waits by itself until a page
  // has settled, and would pay for the server's own half second at each of the programs by which it looks at pages.
  const guarded = set.files === '' ? {} : { capabilities: ['pdf'], timeouts: { idle: 0, settle: 10 } };
  if (set.files !== '') launchOptions.downloadsPath = dirs.downloads;
  return {
    ...guarded,
    browser: { browserName: 'chromium', isolated: true, launchOptions, contextOptions },
    outputDir: dirs.output,
    outputMaxSize: set.files === '' ? 200_000_000 : 100_000_000,
    filePaths: 'absolute',
    codegen: 'none',
    webmcp: false,
    imageResponses: 'allow',
    snapshot: { mode: set.snapshot },
  };
}

// What the server and its browser may know of the agent's environment.
const PASSED = ['PATH', 'LANG', 'LC_ALL', 'LC_CTYPE', 'TZ'];

/** environment gives the server's whole environment: PLAYWRIGHT_MCP_* of the agent's would override the file. */
export function environment(env, set, dirs) {
  const out = { HOME: dirs.home, TMPDIR: dirs.tmp, XDG_CACHE_HOME: join(dirs.home, '.cache') };
  for (const name of PASSED) {
    if (env[name]) out[name] = env[name];
  }
  out.PATH ??= '/usr/bin:/bin';
  out.LANG ??= 'C.UTF-8';
  if (set.display !== '') out.WAYLAND_DISPLAY = set.display;
  return out;
}
