// The results of a search: what leads to another site and has words of its own beside it. Whatever the page's markup is,
// a result is the largest part of it whose links all lead to one place.
async (page) => {
  const arg = ARGUMENT;
  const where = WHERE;
  const gather = (most) => {
    const site = (host) => host.split('.').slice(-2).join('.');
    const own = site(location.hostname);
    const text = (s, n) => String(s ?? '').replace(/\s+/g, ' ').trim().slice(0, n);
    const http = (u) => u.protocol === 'http:' || u.protocol === 'https:';
    const parent = (x) => Object.getOwnPropertyDescriptor(Node.prototype, 'parentElement').get.call(x);
    const all = (x, css) => [...Element.prototype.querySelectorAll.call(x, css)].slice(0, 500);
    const words = (x) => Object.getOwnPropertyDescriptor(Node.prototype, 'textContent').get.call(x);
    // Where a link leads in the end: result pages send people through themselves first.
    const target = (a) => {
      try {
        const u = new URL(Element.prototype.getAttribute.call(a, 'href'), document.baseURI);
        if (http(u) && site(u.hostname) !== own)
          return u.href;
        for (const name of ['uddg', 'url', 'u', 'q', 'to', 'target']) {
          const inner = u.searchParams.get(name);
          if (inner && /^https?:\/\//.test(inner) && site(new URL(inner).hostname) !== own)
            return new URL(inner).href;
        }
      } catch {
        // no address
      }
      return '';
    };
    const links = all(document.documentElement, 'a[href]').map((a) => [a, target(a)]);
    const leads = new Map(links);
    const hits = [];
    const seen = new Set();
    for (const [a, to] of links) {
      if (!to || seen.has(to) || hits.length >= most)
        continue;
      let block = a;
      for (let up = parent(a), i = 0; up && up !== document.body && i < 20; up = parent(up), i++) {
        if (all(up, 'a[href]').some((x) => leads.get(x) && leads.get(x) !== to))
          break;
        block = up;
      }
      const named = all(block, 'a[href]').find((x) => leads.get(x) === to && text(words(x), 10)) ?? a;
      const title = text(words(named), 300);
      const beside = [block, ...all(block, '*')].filter((x) => !/^(SCRIPT|STYLE|NOSCRIPT)$/.test(x.tagName))
        .flatMap((x) => [...Object.getOwnPropertyDescriptor(Node.prototype, 'childNodes').get.call(x)])
        .filter((n) => n instanceof Text && !Node.prototype.contains.call(named, n));
      const about = text(beside.map((n) => n.data).join(' '), 1000);
      const headed = Element.prototype.closest.call(named, 'h1, h2, h3, h4') || all(named, 'h1, h2, h3, h4').length;
      if (!title || !headed && about.length < 30)
        continue;
      seen.add(to);
      hits.push({ title, url: to.slice(0, 2000), text: about });
    }
    const signs = [
      ['iframe[src*="captcha" i], iframe[src*="challenges.cloudflare.com" i], iframe[src*="arkoselabs" i]', 'a frame of it'],
      ['form[action*="captcha" i], form[action*="challenge" i], form[action*="anomaly" i], #challenge-form', 'a form of it'],
      ['[id*="captcha" i], [class*="captcha" i], [class*="anomaly" i], #challenge-running', 'a part of it'],
    ];
    let says = '';
    for (const [css, what] of signs) {
      if (!says && all(document.documentElement, css).length)
        says = what;
    }
    if (!says && /\/(sorry|captcha|challenge|anomaly)\b/i.test(location.pathname))
      says = 'its address';
    if (!says && /just a moment|are you (a )?(human|robot)|unusual traffic|attention required/i.test(document.title))
      says = 'its title';
    return { hits, says, status: performance.getEntriesByType('navigation')[0]?.responseStatus ?? 0 };
  };
  const got = await page.mainFrame().evaluate(gather, arg.most, { world: 'utility' });
  return { ...got, at: where(page, arg.frames) };
}
