import assert from 'node:assert/strict';
import { test } from 'node:test';
import { playwrightBypass } from '../lib/bypass.mjs';

const cases = [
  // Without any rule loopback still goes to the proxy, link-local addresses too.
  [undefined, '<-loopback>'],
  ['', '<-loopback>'],
  // The value every sandbox has.
  ['localhost,127.0.0.1,::1', '<-loopback>,localhost,.localhost,127.0.0.1,[::1]'],
  // "*" would switch the proxy off.
  ['*', '<-loopback>'],
  ['*.*, *, .', '<-loopback>'],
  // A bare name means its subdomains too.
  ['corp.test', '<-loopback>,corp.test,.corp.test'],
  ['.corp.test', '<-loopback>,.corp.test'],
  ['*.corp.test', '<-loopback>,*.corp.test'],
  ['corp.test:8080', '<-loopback>,corp.test:8080,.corp.test:8080'],
  ['corp.test.', '<-loopback>,corp.test,.corp.test'],
  // Addresses and prefixes.
  ['10.0.0.0/8 192.0.2.1:80', '<-loopback>,10.0.0.0/8,192.0.2.1:80'],
  ['2001:db8::/32,2001:db8::1,[2001:db8::2]:443', '<-loopback>,2001:db8::/32,[2001:db8::1],[2001:db8::2]:443'],
  ['10.0.0.0/33', '<-loopback>'],
  // Chromium's own words cannot be smuggled in: they would bring its implicit rules back.
  ['<loopback>,<local>,<-loopback>', '<-loopback>'],
  // What is no host is dropped, the rest stays, once.
  ['http://a.test, b.test/path, ok.test, ok.test, "q".test', '<-loopback>,ok.test,.ok.test'],
  [' a , , b ', '<-loopback>,a,.a,b,.b'],
];

for (const [noProxy, want] of cases) {
  test(`NO_PROXY ${JSON.stringify(noProxy)}`, () => assert.equal(playwrightBypass(noProxy), want));
}
