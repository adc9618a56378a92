// The URLs of all tabs, frames and workers. All of it is known without asking a page.
(page, most) => ({
  url: page.url(),
  tabs: page.context().pages().map((p) => ({
    current: p === page,
    url: p.url(),
    frames: p.frames().slice(0, most).map((f) => f.url()),
    more: p.frames().length > most || p.workers().length > most || page.context().serviceWorkers().length > most,
    workers: p.workers().slice(0, most).map((w) => w.url()),
  })),
  serviceWorkers: page.context().serviceWorkers().slice(0, most).map((w) => w.url()),
})
