// A display's picture, by noVNC. It is loaded where somebody watches, and not with the page.
import RFB from "@novnc/novnc";
import type { Ear, Line } from "../model/watch.ts";
import type { ViewTicket } from "./types.ts";

const lateAfter = 1_500; // a picture that is on its way for longer is slow
const lookEvery = 500;
const updateRequest = 3; // FramebufferUpdateRequest of RFC 6143: it is sent when the picture before has been drawn

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

// pace tells of the first picture, and of those that are slow: from their first byte until the next is asked for. It gives
// how to end that.
function pace(ws: WebSocket, ear: Ear): () => void {
  let asked = 0;
  let since = 0; // when the picture that is coming began
  let slow = false;
  const say = (is: boolean) => {
    if (slow !== is) ear.slow((slow = is));
  };
  const send = ws.send.bind(ws);
  ws.send = (data) => {
    send(data);
    if (!(data instanceof Uint8Array) || data[0] !== updateRequest) return;
    if (++asked === 2) ear.picture();
    if (since > 0 && performance.now() - since < lateAfter) say(false);
    since = 0;
  };
  ws.addEventListener("message", () => {
    if (asked > 0 && since === 0) since = performance.now();
  });
  const look = setInterval(() => {
    if (since > 0 && performance.now() - since >= lateAfter) say(true);
  }, lookEvery);
  return () => clearInterval(look);
}
