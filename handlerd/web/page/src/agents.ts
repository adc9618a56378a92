// The agents, harnesses and addons, as the daemon lists them.
import { signal } from "@preact/signals";
import { get } from "./lib/api.ts";
import type { AgentInfo } from "./model/settings.ts";

export const agents = signal<AgentInfo[]>([]);
export const agentsLoaded = signal(false);
export const agentsFailed = signal<unknown>(null);

// loadAgents reads them anew.
export async function loadAgents(): Promise<void> {
  try {
    agents.value = (await get<AgentInfo[] | null>("/v1/agents")) ?? [];
    agentsFailed.value = null;
  } catch (err) {
    agentsFailed.value = err;
  }
  agentsLoaded.value = true;
}
