// Watching a display: a ticket, a connection for it, and what a person is told meanwhile. A connection that breaks is made
// again; a ticket that is not taken is asked for anew, once.
import { kindAway, kindLogin, Problem } from "../lib/api.ts";
import type { ViewTicket } from "../lib/types.ts";

// What a person sees of it.
export type Watched =
  | { is: "opening"; slow: boolean }
  | { is: "live"; slow: boolean }
  | { is: "lost" } // the daemon does not answer; it is tried again
  | { is: "resting" } // nobody looks at the page
  | { is: "ended" } // the run is gone
  | { is: "refused"; problem: Problem } // tickets are not taken
  | { is: "failed"; problem: Problem; early: boolean } // anything else; early: there was nothing to see yet
  | { is: "over"; why: string }; // a view that is not made again has ended

// A Line is one connection.
export interface Line {
  close(): void;
}

// What a Line tells.
export interface Ear {
  opened(): void;
  picture(): void; // the first one is there
  slow(is: boolean): void; // pictures take long to come, or no longer
  closed(code: number, reason: string): void; // the last thing it tells
}

export interface WatchOptions {
  ticket(): Promise<ViewTicket>;
  open(ticket: ViewTicket, ear: Ear): Line | Promise<Line>;
  tell(state: Watched): void;
  // once: a view that has ended is not made again, such as one that took over.
  once?: boolean;
  wait?: (ms: number, then: () => void) => () => void;
}

const slowAfter = 4_000; // until a view that opens is called slow
const firstWait = 250;
const longestWait = 5_000;
const mostFruitless = 5; // connections that end before a picture, until a person is asked to try again

// What a WebSocket that ends says of why (RFC 6455).
const closePolicy = 1008; // one side said what no view knows
const notTaken: Problem = new Problem({
  kind: "refused", message: "the ticket for this view was not taken, twice",
  hint: "another page of this login may have used it, or this machine was asleep; try again",
});

// A Watch goes on until close.
export class Watch {
  #o: WatchOptions;
  #line: Line | null = null;
  #turn = 0; // changes with each attempt: what an earlier one still says counts for nothing
  #delay = firstWait;
  #refusals = 0;
  #fruitless = 0;
  #stops: (() => void)[] = [];
  #closed = false;

  constructor(options: WatchOptions) {
    this.#o = options;
    void this.#begin();
  }

  close(): void {
    this.#closed = true;
    this.#drop();
  }

  // again begins anew, whatever there was.
  again(): void {
    if (this.#closed) return;
    this.#delay = firstWait;
    this.#refusals = 0;
    this.#fruitless = 0;
    void this.#begin();
  }

  // rest gives the connection back while nobody looks; again goes on.
  rest(): void {
    if (this.#closed) return;
    this.#drop();
    this.#o.tell({ is: "resting" });
  }

  #drop(): void {
    this.#turn++;
    for (const stop of this.#stops) stop();
    this.#stops = [];
    this.#line?.close();
    this.#line = null;
  }

  #later(ms: number, then: () => void): void {
    const wait = this.#o.wait ?? ((after, f) => {
      const t = setTimeout(f, after);
      return () => clearTimeout(t);
    });
    this.#stops.push(wait(ms, then));
  }

  async #begin(): Promise<void> {
    this.#drop();
    const turn = this.#turn;
    const now = () => !this.#closed && turn === this.#turn;
    this.#o.tell({ is: "opening", slow: false });
    let shown = false;
    this.#later(slowAfter, () => {
      if (now() && !shown) this.#o.tell({ is: "opening", slow: true });
    });
    let opened = false;
    try {
      const ticket = await this.#o.ticket();
      if (!now()) return;
      const line = await this.#o.open(ticket, {
        opened: () => {
          opened = true;
        },
        picture: () => {
          if (!now()) return;
          shown = true;
          this.#delay = firstWait;
          this.#refusals = 0;
          this.#fruitless = 0;
          this.#o.tell({ is: "live", slow: false });
        },
        slow: (is) => {
          if (now() && shown) this.#o.tell({ is: "live", slow: is });
        },
        closed: (code, reason) => {
          if (now()) this.#ended(opened, shown, code, reason);
        },
      });
      if (now()) this.#line = line;
      else line.close();
    } catch (err) {
      if (now()) this.#failed(err);
    }
  }

  // ended is called where a connection has.
  #ended(opened: boolean, shown: boolean, code: number, reason: string): void {
    this.#drop();
    if (this.#o.once && opened) return this.#o.tell({ is: "over", why: reason });
    if (!opened) {
      // A refused WebSocket says nothing to a page. The ticket was late or used, or the daemon is gone: asking tells.
      if (++this.#refusals < 2) return void this.#begin();
      return this.#o.tell({ is: "refused", problem: notTaken });
    }
    if (code === closePolicy || (!shown && (reason !== "" || ++this.#fruitless >= mostFruitless))) {
      return this.#o.tell({ is: "failed", problem: new Problem({ kind: "failed", message: reason || "the display said what no view understands" }), early: false });
    }
    // The run or the daemon has ended, or the way between broke: the next ticket, or none, says which.
    this.#again({ is: "opening", slow: false });
  }

  #again(state: Watched): void {
    this.#o.tell(state);
    this.#later(this.#delay, () => void this.#begin());
    this.#delay = Math.min(this.#delay * 2, longestWait);
  }

  #failed(err: unknown): void {
    this.#drop();
    const problem = err instanceof Problem ? err : new Problem({ kind: "failed", message: err instanceof Error ? err.message : String(err) });
    if (problem.kind === kindAway && !this.#o.once) return this.#again({ is: "lost" });
    if (problem.kind === "not-found") return this.#o.tell({ is: "ended" });
    if (problem.kind === "refused" || problem.kind === kindLogin) return this.#o.tell({ is: "refused", problem });
    this.#o.tell({ is: "failed", problem, early: true });
  }
}
