// Numbers and times as a person reads them; the same words as the command line's.

// bytes gives "312 MB"; units are of a thousand, as the command line's.
export function bytes(n: number): string {
  if (!Number.isFinite(n) || n < 0) return "–";
  if (n < 1000) return `${n} B`;
  let v = n;
  for (const unit of ["kB", "MB", "GB", "TB"]) {
    v /= 1000;
    if (v < 999.5 || unit === "TB") return `${v < 9.95 ? v.toFixed(1).replace(/\.0$/, "") : Math.round(v)} ${unit}`;
  }
  return `${n} B`;
}

// count gives "41k".
export function count(n: number): string {
  if (n < 1000) return String(n);
  if (n < 999_500) return `${n < 9_950 ? (n / 1000).toFixed(1).replace(/\.0$/, "") : Math.round(n / 1000)}k`;
  return `${(n / 1e6).toFixed(1).replace(/\.0$/, "")}M`;
}

// ago gives "4 min ago", and a date where it is long ago.
export function ago(time: string, now: number): string {
  const t = Date.parse(time);
  if (Number.isNaN(t)) return "";
  const s = Math.max(0, (now - t) / 1000);
  if (s < 45) return "just now";
  if (s < 3600) return `${Math.max(1, Math.round(s / 60))} min ago`;
  if (s < 86_400) return `${Math.round(s / 3600)} h ago`;
  if (s < 7 * 86_400) return `${Math.round(s / 86_400)} d ago`;
  return new Date(t).toISOString().slice(0, 10);
}

// lasting gives "0.6 s", "41 s", "2 min 5 s".
export function lasting(ms: number): string {
  if (!Number.isFinite(ms) || ms < 0) return "";
  if (ms < 10_000) return `${(ms / 1000).toFixed(1)} s`;
  const s = Math.round(ms / 1000);
  if (s < 60) return `${s} s`;
  if (s < 3600) return s % 60 ? `${Math.floor(s / 60)} min ${s % 60} s` : `${s / 60} min`;
  return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
}

// left gives "1:42" until a time, "0:00" behind it.
export function left(until: string, now: number): string {
  const s = Math.max(0, Math.ceil((Date.parse(until) - now) / 1000));
  if (!Number.isFinite(s)) return "";
  return `${Math.floor(s / 60)}:${String(s % 60).padStart(2, "0")}`;
}

// money gives "$0.12" where the currency has a sign.
export function money(amount: number, currency: string): string {
  const digits = amount !== 0 && Math.abs(amount) < 0.01 ? 4 : 2;
  const sign: Record<string, string> = { USD: "$", EUR: "€", GBP: "£" };
  const s = sign[currency.toUpperCase()];
  return s ? `${s}${amount.toFixed(digits)}` : `${amount.toFixed(digits)} ${currency}`;
}

// tilde shortens a path in the person's home.
export function tilde(path: string, home: string): string {
  if (home !== "" && (path === home || path.startsWith(home + "/"))) return "~" + path.slice(home.length);
  return path;
}

// one gives "1 file" or "3 files".
export function one(n: number, word: string): string {
  return `${n} ${word}${n === 1 ? "" : "s"}`;
}
