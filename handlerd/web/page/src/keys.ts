// The keyboard: J and K move between what can be answered or opened, A allows and R refuses the card that has the focus,
// Esc goes back, Ctrl K or ⌘K goes anywhere. Letters count only outside of fields.

const typing = (e: Element | null): boolean =>
  e instanceof HTMLElement && (e.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(e.tagName));

const stops = "[data-card], [data-stop]";

// keyboard listens until what it gives is called.
export function keyboard(palette: () => void): () => void {
  const on = (e: KeyboardEvent) => {
    if ((e.ctrlKey || e.metaKey) && !e.altKey && e.key.toLowerCase() === "k") {
      e.preventDefault();
      return palette();
    }
    if (e.defaultPrevented || e.ctrlKey || e.metaKey || e.altKey || e.repeat && !/^[jk]$/i.test(e.key)) return;
    const active = document.activeElement;
    if (document.querySelector("dialog[open]")) return;
    if (e.key === "Escape") return back(active);
    if (typing(active)) return;
    switch (e.key.toLowerCase()) {
      case "j":
        return move(1);
      case "k":
        return move(-1);
      case "a":
      case "r":
        active?.closest("[data-card]")?.querySelector<HTMLButtonElement>(e.key.toLowerCase() === "a" ? "[data-allow]" : "[data-refuse]")?.click();
        return;
      case "/": {
        const field = document.querySelector<HTMLElement>(".composer textarea, input[type=search]");
        if (!field) return;
        e.preventDefault();
        return field.focus();
      }
    }
  };
  document.addEventListener("keydown", on);
  return () => document.removeEventListener("keydown", on);
}

function back(active: Element | null): void {
  if (typing(active)) (active as HTMLElement).blur();
  else if (active instanceof HTMLElement && active.closest(stops)) active.blur();
  else if (location.hash.startsWith("#/s/")) location.hash = "#/s";
  else if (!/^#?\/?$/.test(location.hash)) location.hash = "#/";
}

// move goes to the next card; where there is none, to the next row.
function move(by: 1 | -1): void {
  const visible = (e: HTMLElement) => e.offsetParent !== null;
  const cards = [...document.querySelectorAll<HTMLElement>("[data-card]")].filter(visible);
  const list = cards.length > 0 ? cards : [...document.querySelectorAll<HTMLElement>("[data-stop]")].filter(visible);
  if (list.length === 0) return;
  const at = list.findIndex((c) => c.contains(document.activeElement));
  const next = list[at < 0 ? (by > 0 ? 0 : list.length - 1) : Math.max(0, Math.min(list.length - 1, at + by))]!;
  next.focus();
  next.scrollIntoView({ block: "nearest" });
}
