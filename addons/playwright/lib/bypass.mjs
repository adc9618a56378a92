// Turns NO_PROXY, as curl, Go and most agents read it, into Playwright's list of hosts that skip the proxy.

const NAME = /^[A-Za-z0-9_*-]+(\.[A-Za-z0-9_*-]+)*$/;
const IPV4 = /^\d{1,3}(\.\d{1,3}){3}$/;
const IPV6 = /^[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*$/;

/**
 * playwrightBypass gives the value of launchOptions.proxy.bypass for a NO_PROXY value.
 *
 * Three traps are in the way. A list that names localhost or 127.0.0.1 makes Playwright drop its own "<-loopback>",
 * and with that Chromium's implicit rules come back, link-local addresses (169.254.0.0/16: cloud metadata) among
 * them; so "<-loopback>" is always there, and first, since later rules win. "*" would bypass everything, so it is
 * dropped. And a bare name means its subdomains too in NO_PROXY but not in Chromium, so each gets a second entry.
 *
 * What is no host, address or prefix is dropped: a rule that is lost sends a request to the proxy, which checks it.
 */
export function playwrightBypass(noProxy) {
  const rules = ['<-loopback>'];
  for (const entry of (noProxy ?? '').split(/[\s,;]+/)) {
    for (const rule of convert(entry)) {
      if (!rules.includes(rule)) rules.push(rule);
    }
  }
  return rules.join(',');
}

function convert(entry) {
  if (entry === '' || /^[*.]+$/.test(entry)) return [];
  // Prefixes match addresses only, in Chromium as elsewhere, and are written without brackets.
  const prefix = entry.match(/^(.+)\/(\d{1,3})$/);
  if (prefix) {
    const bits = Number(prefix[2]);
    if (IPV4.test(prefix[1])) return bits <= 32 ? [entry] : [];
    return IPV6.test(prefix[1]) && bits <= 128 ? [entry] : [];
  }
  if (IPV6.test(entry)) return [`[${entry}]`];
  const bracketed = entry.match(/^\[([^\]]+)\](:\d{1,5})?$/);
  if (bracketed) return IPV6.test(bracketed[1]) ? [entry] : [];

  const [, host, port] = entry.match(/^([^:]+)(:\d{1,5})?$/) ?? [];
  if (host === undefined) return [];
  if (IPV4.test(host)) return [entry];
  const name = host.replace(/^\./, '').replace(/\.$/, '');
  if (!NAME.test(name)) return [];
  const rest = port ?? '';
  if (host.startsWith('.')) return [`.${name}${rest}`];
  if (name.includes('*')) return [`${name}${rest}`];
  return [`${name}${rest}`, `.${name}${rest}`];
}
