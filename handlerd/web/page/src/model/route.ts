// Where the page is. The address's fragment says it, so that no path of the server is needed and a link can be kept.

export type Route =
  | { view: "home" }
  | { view: "new"; agent?: string }
  | { view: "sessions" }
  | { view: "session"; id: string }
  | { view: "agents" }
  | { view: "agent"; name: string; fresh?: boolean }
  | { view: "approvals" }
  | { view: "network" }
  | { view: "artifacts" }
  | { view: "doctor" }
  | { view: "images" };

// parse reads a fragment; what it does not know leads home.
export function parse(hash: string): Route {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const parts = path.split("/").filter((p) => p !== "").map(decode);
  const q = new URLSearchParams(query);
  switch (parts[0]) {
    case "new": {
      const agent = q.get("agent");
      return agent ? { view: "new", agent } : { view: "new" };
    }
    case "s":
      return parts[1] ? { view: "session", id: parts[1] } : { view: "sessions" };
    case "agents":
      if (parts[1] === "new" && parts.length === 2) return { view: "agent", name: "", fresh: true };
      return parts[1] === "of" && parts[2] ? { view: "agent", name: parts[2] } : { view: "agents" };
    case "approvals":
    case "network":
    case "artifacts":
    case "doctor":
    case "images":
      return { view: parts[0] };
    default:
      return { view: "home" };
  }
}

// format writes the fragment of r.
export function format(r: Route): string {
  switch (r.view) {
    case "home":
      return "#/";
    case "new":
      return r.agent ? "#/new?" + new URLSearchParams({ agent: r.agent }).toString() : "#/new";
    case "sessions":
      return "#/s";
    case "session":
      return "#/s/" + encodeURIComponent(r.id);
    case "agent":
      return r.fresh ? "#/agents/new" : "#/agents/of/" + encodeURIComponent(r.name);
    default:
      return "#/" + r.view;
  }
}

function decode(s: string): string {
  try {
    return decodeURIComponent(s);
  } catch {
    return s;
  }
}
