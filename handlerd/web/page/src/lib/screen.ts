// A display's picture, by noVNC. It is loaded where somebody watches, and not with the page.
import RFB from "@novnc/novnc";
import { pace } from "../model/pace.ts";
import type { Ear, Line } from "../model/watch.ts";
import type { ViewTicket } from "./types.ts";

// A Screen is a Line that draws.
export interface Screen extends Line {
  focus(): void;
  blur(): void;
}

// connect draws what a ticket is good for into a box, whose shape it takes. name says what is seen.
export function connect(box: HTMLElement, ticket: ViewTicket, name: string, ear: Ear): Screen {
  const url = new URL("/api" + ticket.path, location.href);
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  url.searchParams.set("ticket", ticket.ticket);
  const ws = new WebSocket(url, ["binary"]);
  let told = false;
  const stop = pace(ws, ear);
  ws.addEventListener("open", () => ear.opened());
  ws.addEventListener("close", (e) => {
    stop();
    if (!told) ear.closed(e.code, e.reason);
    told = true;
  });
  const rfb = new RFB(box, ws, { shared: true });
  let gone = false; // noVNC has put everything away
  rfb.addEventListener("disconnect", () => (gone = true));
  rfb.viewOnly = ticket.viewOnly;
  rfb.focusOnClick = !ticket.viewOnly;
  rfb.scaleViewport = true;
  rfb.background = "transparent";
  const canvas = box.querySelector("canvas");
  const shape = () => {
    if (canvas && canvas.width > 0 && canvas.height > 0) box.style.aspectRatio = `${canvas.width} / ${canvas.height}`;
  };
  const shapes = new MutationObserver(shape);
  if (canvas) {
    canvas.setAttribute("role", ticket.viewOnly ? "img" : "application");
    canvas.setAttribute("aria-label", name);
    if (!ticket.viewOnly) canvas.tabIndex = 0;
    shapes.observe(canvas, { attributes: true, attributeFilter: ["width", "height"] });
  }
  return {
    focus: () => rfb.focus(),
    blur: () => rfb.blur(),
    close: () => {
      told = true; // whoever closes it knows
      stop();
      shapes.disconnect();
      if (!gone) rfb.disconnect();
    },
  };
}
