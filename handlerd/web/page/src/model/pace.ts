// How fast the pictures of a display come, told from what passes over its WebSocket.
import type { Ear } from "./watch.ts";

const lateAfter = 1_500; // a picture that is on its way for longer is slow
const lookEvery = 500;
const updateRequest = 3; // FramebufferUpdateRequest of RFC 6143: it is sent when the picture before has been drawn

// pace tells of the first picture, and of those that are slow: from their first byte until the next is asked for. It gives
// how to end that.
export function pace(ws: Pick<WebSocket, "send" | "addEventListener">, ear: Ear): () => void {
  let asked = 0;
  let since = -1; // when the picture that is coming began
  let slow = false;
  const say = (is: boolean) => {
    if (slow !== is) ear.slow((slow = is));
  };
  const send = ws.send.bind(ws);
  ws.send = (data) => {
    send(data);
    if (!(data instanceof Uint8Array) || data[0] !== updateRequest) return;
    if (++asked === 2) ear.picture();
    if (since >= 0 && performance.now() - since < lateAfter) say(false);
    since = -1;
  };
  ws.addEventListener("message", () => {
    if (asked > 0 && since < 0) since = performance.now();
  });
  const look = setInterval(() => {
    if (since >= 0 && performance.now() - since >= lateAfter) say(true);
  }, lookEvery);
  return () => clearInterval(look);
}
