// Where the browser is: the URLs of all tabs, frames and workers, once they stand still. It also sees to the bounds on
// tabs, downloads and dialogs, once a browser.
async (page) => {
  const arg = ARGUMENT;
  const where = WHERE;
  const context = page.context();
  if (!context.handlerGuard) {
    context.handlerGuard = { closed: 0, dismissed: 0 };
    let tabs = 0;
    const bound = (p) => {
      p.handlerTab = ++tabs;
      p.on('download', (d) => setTimeout(() => d.cancel().catch(() => {}), arg.downloadTime));
      // Tabs that opened each other share a process: the dialog of one would keep playwright-mcp waiting for all others.
      p.on('dialog', async (d) => {
        const pages = context.pages();
        if (pages.length > 1 && (await Promise.all(pages.map((q) => q.opener()))).some(Boolean)) {
          context.handlerGuard.dismissed++;
          await d.dismiss().catch(() => {});
        }
      });
    };
    context.pages().forEach(bound);
    context.on('page', (p) => {
      bound(p);
      if (context.pages().length > arg.tabs) {
        context.handlerGuard.closed++;
        p.close().catch(() => {});
      }
    });
  }
  for (const p of context.pages().filter((p) => p !== page).slice(arg.tabs - 1)) {
    context.handlerGuard.closed++;
    await p.close().catch(() => {});
  }
  if (arg.stop) {
    // What still loads after all its time does not hold up what comes.
    const devtools = await context.newCDPSession(page);
    await devtools.send('Page.stopLoading');
    await devtools.detach();
  }
  const urls = () => context.pages().map((p) => p.frames().map((f) => f.url()));
  if (arg.settle) {
    for (let i = 0, last = ''; i < 5 && last !== (last = JSON.stringify(urls())); i++)
      await new Promise((done) => setTimeout(done, 100));
  }
  const { closed, dismissed } = context.handlerGuard;
  Object.assign(context.handlerGuard, { closed: 0, dismissed: 0 });
  return { ...where(page, arg.frames), closed, dismissed };
}
