// What the DOM says of an element. It runs in a world of its own, where pages cannot change what the DOM's functions do;
// they are taken from the prototypes, since a form's fields can hide them behind their names.
(e) => {
  const text = (s, n) => String(s ?? '').replace(/\s+/g, ' ').trim().slice(0, n);
  const attribute = (x, name) => text(Element.prototype.getAttribute.call(x, name), 300);
  const matches = (x, css) => Element.prototype.matches.call(x, css);
  const closest = (x, css) => Element.prototype.closest.call(x, css);
  const all = (x, css) => [...Element.prototype.querySelectorAll.call(x, css)];
  const get = (proto, name, x) => Object.getOwnPropertyDescriptor(proto, name).get.call(x);
  const editable = e instanceof HTMLElement && get(HTMLElement.prototype, 'isContentEditable', e);

  // A label stands for its field, as it does for whoever clicks it or types into it.
  let field = e;
  if (!matches(e, 'input, textarea, select, button, a') && !editable) {
    const label = closest(e, 'label');
    if (label && get(HTMLLabelElement.prototype, 'control', label))
      field = get(HTMLLabelElement.prototype, 'control', label);
  }
  const base = get(Node.prototype, 'baseURI', e);
  const absolute = (url) => {
    try {
      return new URL(url, base).href.slice(0, 2000);
    } catch {
      return 'invalid:' + String(url).slice(0, 200);
    }
  };
  const submits = 'button:not([type]), button[type=submit i], input[type=submit i], input[type=image i]';
  const targets = new Set();
  const follow = (x) => {
    if (matches(x, '[href]'))
      targets.add(absolute(Element.prototype.getAttribute.call(x, 'href')));
    if (x instanceof SVGElement && x.getAttributeNS('http://www.w3.org/1999/xlink', 'href'))
      targets.add(absolute(x.getAttributeNS('http://www.w3.org/1999/xlink', 'href')));
    if (matches(x, '[formaction]'))
      targets.add(absolute(Element.prototype.getAttribute.call(x, 'formaction')));
  };
  for (const x of [closest(e, 'a, area'), closest(e, '[formaction]'), ...all(e, 'a, area, [formaction]').slice(0, 20)]) {
    if (x)
      follow(x);
  }
  const owner = matches(field, 'input, textarea, select, button') && !(field instanceof HTMLFormElement) ? field.form : null;
  const form = owner || closest(field, 'form');
  if (form) {
    // Without an address of its own it goes to its document's, whatever <base> says.
    targets.add(absolute(Element.prototype.getAttribute.call(form, 'action') || get(Node.prototype, 'ownerDocument', form).URL));
    for (const x of [...get(HTMLFormElement.prototype, 'elements', form)].filter((x) => matches(x, submits)).slice(0, 20))
      follow(x);
  }
  const root = Node.prototype.getRootNode.call(field);
  const query = root instanceof Document ? Document.prototype.querySelector
    : root instanceof DocumentFragment ? DocumentFragment.prototype.querySelector : Element.prototype.querySelector;
  const labelledBy = attribute(field, 'aria-labelledby').split(' ').filter(Boolean).slice(0, 10)
      .map((id) => query.call(root, '#' + CSS.escape(id))).filter(Boolean);
  const labels = [...(matches(field, 'input, textarea, select') ? field.labels || [] : []), ...labelledBy].slice(0, 10);
  const style = getComputedStyle(field);
  return {
    tag: field.localName.slice(0, 40),
    type: attribute(field, 'type').toLowerCase(),
    autocomplete: attribute(field, 'autocomplete').toLowerCase(),
    name: attribute(field, 'name'),
    id: attribute(field, 'id'),
    placeholder: attribute(field, 'placeholder'),
    ariaLabel: attribute(field, 'aria-label'),
    title: attribute(field, 'title'),
    labels: text(labels.map((x) => x.textContent).join(' '), 500),
    inputMode: attribute(field, 'inputmode').toLowerCase(),
    maxLength: Number.parseInt(attribute(field, 'maxlength'), 10) || 0,
    masked: !['', 'none', undefined].includes(style.webkitTextSecurity) || /text-security/i.test(style.fontFamily),
    targets: [...targets].sort().slice(0, 40),
  };
}
