// What is true right now of the elements that references name. The page is read again: an element whose role or name has
// changed since has another reference by that, and the old one is not in the tree any more.
async (page) => {
  const arg = ARGUMENT;
  const describe = DESCRIBE;
  const tree = (await page.ariaSnapshot({ mode: 'ai', timeout: 10000 })).split('\n');
  const out = { tab: page.handlerTab, url: page.url(), title: '', elements: [], picture: '' };
  if (arg.picture)
    out.title = String(await page.title().catch(() => '')).slice(0, 500);
  for (const ref of arg.refs) {
    const lines = tree.filter((line) => line.includes('[ref=' + ref + ']')).slice(0, 20).map((line) => line.slice(0, 4000));
    const locator = page.locator('aria-ref=' + ref);
    const handle = lines.length ? await locator.elementHandle({ timeout: 2000 }).catch(() => null) : null;
    if (!handle) {
      out.elements.push({ ref, lines: [] });
      continue;
    }
    const frame = await handle.ownerFrame();
    out.elements.push({
      ref,
      lines,
      frame: frame && frame !== page.mainFrame() ? frame.url() : '',
      element: await locator.evaluate(describe, null, { world: 'utility', timeout: 2000 }),
    });
    if (arg.picture && !out.picture) {
      const box = await handle.boundingBox();
      if (box && box.width * box.height <= 1000000)
        out.picture = (await handle.screenshot({ timeout: 2000 }).catch(() => Buffer.alloc(0))).toString('base64');
    }
    if (arg.inside) {
      // What is dropped or pasted on an element lands in what lies in it.
      out.elements.at(-1).inside = await locator.evaluate((e) => {
        const describe = DESCRIBE;
        const found = [];
        const visit = (root) => {
          const query = root instanceof DocumentFragment ? DocumentFragment.prototype.querySelectorAll : Element.prototype.querySelectorAll;
          for (const x of query.call(root, '*')) {
            if (Element.prototype.matches.call(x, 'input, textarea'))
              found.push({ ...describe(x), targets: [] });
            if (x.shadowRoot instanceof ShadowRoot)
              visit(x.shadowRoot);
          }
        };
        visit(e);
        return found.slice(0, 1000);
      }, null, { world: 'utility', timeout: 2000 });
    }
    await handle.dispose();
  }
  return out;
}
