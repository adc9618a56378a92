// Server-sent events that come back by themselves: after a break the stream goes on behind the last number that was
// taken, so that nothing is lost and nothing comes twice.

// The part of EventSource that is used, so that tests can stand in for it.
export interface Source {
  onopen: ((ev: Event) => unknown) | null;
  onmessage: ((ev: MessageEvent<string>) => unknown) | null;
  onerror: ((ev: Event) => unknown) | null;
  close(): void;
}

export interface StreamOptions {
  // url gives the address that follows after seq.
  url: (after: number) => string;
  // take gets each message's data; it gives the message's number, or 0 where it has none.
  take: (data: string) => number;
  // state is told of every opening and break.
  state?: (live: boolean) => void;
  // broken is asked after a break what to do: "retry", or "stop" where the thing is gone.
  broken?: () => Promise<"retry" | "stop">;
  open?: (url: string) => Source;
  wait?: (ms: number, then: () => void) => () => void;
}

const firstWait = 250;
const longestWait = 5_000;

// A Stream follows until close.
export class Stream {
  last: number;
  #o: StreamOptions;
  #source: Source | null = null;
  #cancel: (() => void) | null = null;
  #delay = firstWait;
  #closed = false;

  constructor(options: StreamOptions, after = 0) {
    this.#o = options;
    this.last = after;
    this.#connect();
  }

  close(): void {
    this.#closed = true;
    this.#cancel?.();
    this.#source?.close();
    this.#source = null;
  }

  // now tries at once instead of waiting on.
  now(): void {
    if (this.#closed || this.#source) return;
    this.#cancel?.();
    this.#delay = firstWait;
    this.#connect();
  }

  #connect(): void {
    this.#cancel = null;
    const open = this.#o.open ?? ((url) => new EventSource(url));
    const source = open(this.#o.url(this.last));
    this.#source = source;
    source.onopen = () => {
      this.#delay = firstWait;
      this.#o.state?.(true);
    };
    source.onmessage = (ev: MessageEvent<string>) => {
      if (this.#source !== source) return;
      const seq = this.#o.take(ev.data);
      if (seq > this.last) this.last = seq;
    };
    // The browser's own return would ask from the old number again: it is never left to it.
    source.onerror = () => {
      if (this.#source !== source) return;
      source.close();
      this.#source = null;
      this.#o.state?.(false);
      void this.#again();
    };
  }

  async #again(): Promise<void> {
    const what = (await this.#o.broken?.()) ?? "retry";
    if (this.#closed || this.#source || what === "stop") return;
    const wait = this.#o.wait ?? ((ms, then) => {
      const t = setTimeout(then, ms);
      return () => clearTimeout(t);
    });
    this.#cancel = wait(this.#delay, () => this.#connect());
    this.#delay = Math.min(this.#delay * 2, longestWait);
  }
}
