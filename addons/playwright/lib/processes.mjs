// What /proc says of processes. Everything here may vanish between two reads; what is gone is left out.

import { readdirSync, readFileSync } from 'node:fs';

/** list gives {pid, ppid, zombie} of every process. */
export function list() {
  const out = [];
  for (const entry of readdirSync('/proc')) {
    if (!/^\d+$/.test(entry)) continue;
    const fields = status(Number(entry));
    if (fields) out.push({ pid: Number(entry), ppid: Number(fields.PPid), zombie: fields.State.startsWith('Z') });
  }
  return out;
}

/** status gives the fields of /proc/PID/status, or null. Unlike most of /proc it is readable for any process. */
export function status(pid) {
  try {
    const lines = readFileSync(`/proc/${pid}/status`, 'utf8').split('\n');
    return Object.fromEntries(lines.map((l) => l.split(':', 2).map((s) => s.trim())).filter((p) => p.length === 2));
  } catch {
    return null;
  }
}

/** commandLine gives argv of a process, or []. */
export function commandLine(pid) {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0').filter((s) => s !== '');
  } catch {
    return [];
  }
}

/** descendants gives the pids below root, zombies left out, parents before children. */
export function descendants(root, processes = list()) {
  const out = [];
  const queue = [root];
  while (queue.length > 0) {
    const parent = queue.shift();
    for (const p of processes) {
      if (p.ppid !== parent || p.pid === parent || p.zombie) continue;
      out.push(p.pid);
      queue.push(p.pid);
    }
  }
  return out;
}

/**
 * marked gives the pids whose environment or arguments hold text (such as the path of a private folder), so that
 * processes are found after their parent died and they were handed to init. One's own is left out.
 */
export function marked(text) {
  const out = [];
  for (const p of list()) {
    if (p.pid === process.pid || p.zombie) continue;
    try {
      const found = commandLine(p.pid).some((a) => a.includes(text)) ||
        readFileSync(`/proc/${p.pid}/environ`, 'utf8').includes(text);
      if (found) out.push(p.pid);
    } catch {
      // Not ours to read: a sandboxed renderer, which ends with its browser.
    }
  }
  return out;
}

/** kill sends a signal and does not mind a process that is gone. */
export function kill(pid, signal) {
  try {
    process.kill(pid, signal);
    return true;
  } catch {
    return false;
  }
}
