// A display that is none: just enough of RFB (RFC 6143) over just enough of WebSocket (RFC 6455) for work on the page. It
// shows a colour that changes.
import { createHash, randomBytes } from "node:crypto";
import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";

const width = 320;
const height = 200;
const every = 700;

interface Ticket {
  input: boolean;
  gone: () => void;
}

const tickets = new Map<string, Ticket>();

// ticket gives one; gone is called when its view has ended.
export function ticket(input: boolean, says: string, gone: () => void = () => {}): unknown {
  const text = randomBytes(16).toString("hex");
  tickets.set(text, { input, gone });
  return { ticket: text, path: "/v1/view", expires: new Date(Date.now() + 30_000).toISOString(), viewOnly: !input, says };
}

function frame(kind: number, data: Buffer): Buffer {
  const n = data.length;
  const head = n < 126 ? Buffer.from([0x80 | kind, n]) : n < 65_536 ? Buffer.from([0x80 | kind, 126, n >> 8, n & 255]) : Buffer.from([0x80 | kind, 127, 0, 0, 0, 0, n >>> 24, (n >> 16) & 255, (n >> 8) & 255, n & 255]);
  return Buffer.concat([head, data]);
}

// serve answers an upgrade.
export function serve(req: IncomingMessage, socket: Duplex): void {
  const text = new URL(req.url ?? "/", "http://x").searchParams.get("ticket") ?? "";
  const held = tickets.get(text);
  tickets.delete(text);
  if (!held) return void socket.end("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n");
  const key = createHash("sha1").update(`${req.headers["sec-websocket-key"]}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest("base64");
  socket.write(`HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${key}\r\nSec-WebSocket-Protocol: binary\r\n\r\n`);
  const say = (b: Buffer) => void socket.write(frame(2, b));
  const display = new Display(say);
  let raw = Buffer.alloc(0);
  socket.on("data", (piece: Buffer) => {
    raw = Buffer.concat([raw, piece]);
    for (let m = unframe(raw); m; m = unframe(raw)) {
      raw = raw.subarray(m.size);
      if (m.kind === 8) return void socket.end(frame(8, m.data));
      display.take(m.data);
    }
  });
  socket.on("error", () => {});
  socket.on("close", () => {
    display.close();
    held.gone();
  });
  say(Buffer.from("RFB 003.008\n"));
}

function unframe(b: Buffer): { kind: number; data: Buffer; size: number } | null {
  if (b.length < 6) return null;
  let n = b[1]! & 127;
  let at = 2;
  if (n === 126) {
    n = b.readUInt16BE(2);
    at = 4;
  }
  if (b.length < at + 4 + n) return null;
  const mask = b.subarray(at, at + 4);
  const data = Buffer.from(b.subarray(at + 4, at + 4 + n));
  data.forEach((v, i) => (data[i] = v ^ mask[i % 4]!));
  return { kind: b[0]! & 15, data, size: at + 4 + n };
}

class Display {
  #say: (b: Buffer) => void;
  #in = Buffer.alloc(0);
  #step = 0; // version, security, shared, then messages
  #timer: NodeJS.Timeout | null = null;
  #colour = 0;

  constructor(say: (b: Buffer) => void) {
    this.#say = say;
  }

  close(): void {
    if (this.#timer) clearTimeout(this.#timer);
  }

  take(data: Buffer): void {
    this.#in = Buffer.concat([this.#in, data]);
    for (;;) {
      const n = this.#length();
      if (n === 0 || this.#in.length < n) return;
      const m = this.#in.subarray(0, n);
      this.#in = this.#in.subarray(n);
      this.#message(m);
    }
  }

  #length(): number {
    if (this.#step < 3) return [12, 1, 1][this.#step]!;
    if (this.#in.length < 4) return 0;
    switch (this.#in[0]) {
      case 0:
        return 20;
      case 2:
        return 4 + 4 * this.#in.readUInt16BE(2);
      case 3:
        return 10;
      case 4:
        return 8;
      case 5:
        return 6;
      default:
        return this.#in.length < 8 ? 0 : 8 + Math.abs(this.#in.readInt32BE(4));
    }
  }

  #message(m: Buffer): void {
    if (this.#step < 3) {
      const name = Buffer.from("a made-up display");
      const head = Buffer.alloc(24);
      head.writeUInt16BE(width, 0);
      head.writeUInt16BE(height, 2);
      Buffer.from([32, 24, 0, 1, 0, 255, 0, 255, 0, 255, 0, 8, 16]).copy(head, 4);
      head.writeUInt32BE(name.length, 20);
      this.#say([Buffer.from([1, 1]), Buffer.alloc(4), Buffer.concat([head, name])][this.#step++]!);
      return;
    }
    if (m[0] === 5 && m[1]) this.#colour += 40;
    if (m[0] === 3) this.#timer = setTimeout(() => this.#picture(), m[1] ? every : 0);
  }

  #picture(): void {
    this.#colour += 7;
    const pixels = Buffer.alloc(4 * width * height);
    for (let i = 0; i < width * height; i++) pixels.writeUInt32LE(((this.#colour * 2 + (i % width) / 4) & 255) | (((Math.floor(i / width) + this.#colour) & 255) << 8) | (120 << 16), 4 * i);
    this.#say(Buffer.concat([Buffer.from([0, 0, 0, 1, 0, 0, 0, 0, width >> 8, width & 255, height >> 8, height & 255, 0, 0, 0, 0]), pixels]));
  }
}
