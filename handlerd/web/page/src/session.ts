// One session's conversation, followed while somebody looks at it. What arrives is taken together once a frame.
import { signal, type Signal } from "@preact/signals";
import { get, Problem } from "./lib/api.ts";
import { Stream } from "./lib/stream.ts";
import type { HandlerEvent, Session } from "./lib/types.ts";
import { Conversation } from "./model/conversation.ts";
import { dropSession, putSession } from "./state.ts";

const hiddenFor = 30_000; // a page that nobody sees gives its stream back after this; browsers have few

export class Followed {
  readonly id: string;
  readonly conversation = new Conversation();
  readonly version: Signal<number> = signal(0); // changes with the conversation
  readonly ready = signal(false); // what there was at the start has arrived
  readonly live = signal(false);
  readonly sent = signal(0); // changes when the person says something: then the end is what they want to see
  readonly gone = signal<unknown>(null); // why it cannot be shown
  #stream: Stream | null = null;
  #queue: HandlerEvent[] = [];
  #frame = 0;
  #upTo = 0;
  #hide = 0;
  #closed = false;

  constructor(id: string) {
    this.id = id;
    document.addEventListener("visibilitychange", this.#seen);
    void this.#begin();
  }

  close(): void {
    this.#closed = true;
    document.removeEventListener("visibilitychange", this.#seen);
    clearTimeout(this.#hide);
    cancelAnimationFrame(this.#frame);
    clearTimeout(this.#frame);
    this.#stream?.close();
  }

  // retry begins again after gone.
  retry(): void {
    this.gone.value = null;
    void this.#begin();
  }

  async #begin(): Promise<void> {
    try {
      const s = await get<Session>(`/v1/sessions/${encodeURIComponent(this.id)}`);
      if (this.#closed) return;
      putSession(s);
      this.#upTo = s.events;
      if (s.events === 0) this.ready.value = true;
      this.#follow();
    } catch (err) {
      this.#refuse(err);
    }
  }

  #refuse(err: unknown): void {
    if (this.#closed) return;
    if (err instanceof Problem && err.kind === "not-found") dropSession(this.id);
    this.gone.value = err;
  }

  #follow(): void {
    if (this.#closed) return;
    this.#stream = new Stream({
      url: (after) => `/api/v1/sessions/${encodeURIComponent(this.id)}/events?follow=1&after=${after}`,
      take: (data) => this.#take(data),
      state: (live) => (this.live.value = live),
      broken: async () => {
        try {
          await get(`/v1/sessions/${encodeURIComponent(this.id)}`);
        } catch (err) {
          if (err instanceof Problem && (err.kind === "not-found" || err.kind === "login")) {
            this.#refuse(err);
            return "stop";
          }
        }
        return "retry";
      },
    }, this.conversation.last);
  }

  #take(data: string): number {
    const ev = JSON.parse(data) as HandlerEvent;
    this.#queue.push(ev);
    if (this.#frame === 0) {
      this.#frame = document.visibilityState === "visible"
        ? requestAnimationFrame(this.#flush)
        : window.setTimeout(this.#flush, 200);
    }
    return ev.seq;
  }

  #flush = (): void => {
    this.#frame = 0;
    const queue = this.#queue;
    this.#queue = [];
    for (const ev of queue) this.conversation.take(ev);
    if (!this.ready.value && this.conversation.last >= this.#upTo) this.ready.value = true;
    if (this.ready.value) this.version.value++;
  };

  #seen = (): void => {
    clearTimeout(this.#hide);
    if (document.visibilityState === "hidden") {
      this.#hide = window.setTimeout(() => {
        this.#stream?.close();
        this.#stream = null;
      }, hiddenFor);
      return;
    }
    if (this.#frame !== 0) {
      clearTimeout(this.#frame);
      cancelAnimationFrame(this.#frame);
      this.#flush();
    }
    if (!this.#stream && !this.gone.value) this.#follow();
    else this.#stream?.now();
  };
}
