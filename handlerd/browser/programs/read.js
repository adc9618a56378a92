// The page as a tree, then the fields that hold something, so that secrets can be masked, and where the browser is then.
async (page) => {
  const arg = ARGUMENT;
  const where = WHERE;
  const collect = COLLECT;
  const whole = await page.ariaSnapshot({ mode: 'ai', timeout: 20000, ...(arg.depth ? { depth: arg.depth } : {}) });
  const snapshot = whole.slice(0, arg.most);
  const title = (await page.title()).slice(0, 1000);
  const fields = await collect(page.frames());
  return { snapshot, more: whole.length - snapshot.length, title, fields, at: where(page, arg.frames) };
}
