// An agent in the lists of the page.
export interface AgentInfo {
  name: string;
  harness: string;
  description?: string;
  builtin?: boolean;
  display?: boolean;
}
