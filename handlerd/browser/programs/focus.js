// What has the focus, in every frame: where a key goes.
async (page) => {
  const out = { tab: page.handlerTab, url: page.url(), elements: [] };
  for (const frame of page.frames().slice(0, 200)) {
    const found = await frame.locator('*:focus').evaluateAll((list) => {
      const describe = DESCRIBE;
      return list.slice(0, 20).map((e) => describe(e));
    }, null, { world: 'utility' });
    // A closed shadow root is not looked into: its host has the focus then, or is told to have it, and takes none itself.
    const closed = await frame.evaluate(() => {
      const takes = 'a, area, button, input, select, textarea, iframe, frame, object, embed, audio, video, summary, dialog, body, html, frameset, :root, [tabindex], [contenteditable]';
      const e = document.activeElement;
      if (!(e instanceof Element) || e.shadowRoot instanceof ShadowRoot)
        return false;
      const style = getComputedStyle(e); // what scrolls takes the focus too
      const scrolls = /auto|scroll/.test(style.overflowX + style.overflowY) && (e.scrollHeight > e.clientHeight || e.scrollWidth > e.clientWidth);
      return !scrolls && !Element.prototype.matches.call(e, takes) || !Element.prototype.matches.call(e, ':focus, body, html, frameset, :root, iframe, frame, object, embed');
    }, null, { world: 'utility' });
    if (closed)
      found.push({ tag: 'x', closed });
    for (const element of found)
      out.elements.push({ frame: frame === page.mainFrame() ? '' : frame.url(), element });
  }
  return out;
}
