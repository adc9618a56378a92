// Where the browser is: the URLs of all tabs, frames and workers, once they stand still. It also sees to the bounds on
// tabs and downloads, once a browser.
async (page) => {
  const arg = ARGUMENT;
  const context = page.context();
  if (!context.handlerGuard) {
    context.handlerGuard = { closed: 0 };
    const bound = (p) => p.on('download', (d) => setTimeout(() => d.cancel().catch(() => {}), arg.downloadTime));
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
  const urls = () => context.pages().map((p) => p.frames().map((f) => f.url()));
  if (arg.settle) {
    for (let i = 0, last = ''; i < 5 && last !== (last = JSON.stringify(urls())); i++)
      await new Promise((done) => setTimeout(done, 100));
  }
  const closed = context.handlerGuard.closed;
  context.handlerGuard.closed = 0;
  return {
    url: page.url(),
    tabs: context.pages().map((p) => ({
      current: p === page,
      url: p.url(),
      frames: p.frames().slice(0, arg.frames).map((f) => f.url()),
      more: p.frames().length > arg.frames,
      workers: p.workers().slice(0, arg.frames).map((w) => w.url()),
    })),
    serviceWorkers: context.serviceWorkers().slice(0, arg.frames).map((w) => w.url()),
    closed,
  };
}
