// The page as a tree, then the fields that hold something, so that secrets can be masked, and where the browser is then.
async (page) => {
  const arg = ARGUMENT;
  const where = WHERE;
  const whole = await page.ariaSnapshot({ mode: 'ai', timeout: 20000, ...(arg.depth ? { depth: arg.depth } : {}) });
  const snapshot = whole.slice(0, arg.most);
  const title = (await page.title()).slice(0, 1000);
  const collect = () => {
    const describe = DESCRIBE;
    const texts = 'input:not([type=hidden i], [type=button i], [type=submit i], [type=reset i], [type=image i], [type=checkbox i], [type=radio i], [type=file i], [type=color i], [type=range i]), textarea';
    const found = [];
    const visit = (root) => {
      const query = root instanceof Document ? Document.prototype.querySelectorAll : DocumentFragment.prototype.querySelectorAll;
      for (const x of query.call(root, '*')) {
        if (found.length < 1000 && Element.prototype.matches.call(x, texts) && x.value)
          found.push({ ...describe(x), targets: [], value: String(x.value).slice(0, 2000) });
        if (x.shadowRoot instanceof ShadowRoot)
          visit(x.shadowRoot);
      }
    };
    visit(document);
    return found;
  };
  const fields = [];
  for (const frame of page.frames().slice(0, 200)) {
    let timer;
    const late = new Promise((done) => { timer = setTimeout(() => done([]), 1000); });
    const read = frame.evaluate(collect, null, { world: 'utility' }).catch(() => []);
    fields.push(...await Promise.race([read, late]));
    clearTimeout(timer);
  }
  return { snapshot, more: whole.length - snapshot.length, title, fields, at: where(page, arg.frames) };
}
