package web

import "github.com/handlerd/handler/handlerd/api/types"

// A Route is a pattern of the API's mux.
type Route struct {
	Pattern string
	Closed  string // why it is not reachable from the page; "" where it is
}

// Routes are all of the API's. What is in no line of this table is not reachable, and a test of handlerd/api says that it
// is missing.
func Routes() []Route {
	const (
		upgrade = "it takes the connection over; a browser has no use for it"
		shell   = "a terminal in a run is more than the page does"
		admin   = "only whoever has the unix socket may do it"
	)
	return []Route{
		{"GET " + types.PathVersion, ""},
		{"GET " + types.PathRuns, ""},
		{"POST " + types.PathRuns, upgrade},
		{"GET " + types.PathRuns + "/{id}", ""},
		{"DELETE " + types.PathRuns + "/{id}", ""},
		{"GET " + types.PathRuns + "/{id}/log", ""},
		{"GET " + types.PathRuns + "/{id}/rules", ""},
		{"GET " + types.PathRuns + "/{id}/servers", ""},
		{"POST " + types.PathRuns + "/{id}/servers/stop", ""},
		{"POST " + types.PathRuns + "/{id}/shell", shell},
		{"POST " + types.PathRuns + "/{id}/forward", upgrade},
		{"POST " + types.PathRuns + "/{id}/dial", upgrade},
		{"GET " + types.PathImages, ""},
		{"POST " + types.PathBuild, ""},
		{"POST " + types.PathRemove, ""},
		{"GET " + types.PathDoctor, ""},
		{"POST " + types.PathSecrets, ""},
		{"POST " + types.PathStop, admin},
		{"GET " + types.PathApprovals, ""},
		{"GET " + types.PathApprovals + "/{id}", ""},
		{"GET " + types.PathApprovals + "/{id}/picture", ""},
		{"POST " + types.PathApprovals + "/{id}", ""},
		{"POST " + types.PathRules, ""},
		{"GET " + types.PathVerdicts, ""},
		{"GET " + types.PathArtifacts, ""},
		{"DELETE " + types.PathArtifacts, ""},
		{"GET " + types.PathArtifacts + "/{id}", ""},
		{"GET " + types.PathArtifacts + "/{id}/info", ""},
		{"POST " + types.PathArtifacts + "/{id}", ""},
		{"DELETE " + types.PathArtifacts + "/{id}", ""},
		{"GET " + types.PathSessions, ""},
		{"GET " + types.PathSessions + "/{id}", ""},
		{"DELETE " + types.PathSessions + "/{id}", ""},
		{"GET " + types.PathSessions + "/{id}/events", ""},
		{"GET " + types.PathFeed, ""},
		{"POST " + types.PathSessions, ""},
		{"POST " + types.PathSessions + "/{id}/prompt", ""},
		{"POST " + types.PathSessions + "/{id}/continue", ""},
		{"POST " + types.PathSessions + "/{id}/answer", ""},
		{"POST " + types.PathSessions + "/{id}/option", ""},
		{"POST " + types.PathSessions + "/{id}/title", ""},
		{"POST " + types.PathSessions + "/{id}/cancel", ""},
		{"POST " + types.PathSessions + "/{id}/end", ""},
		{"GET " + types.PathAgents, ""},
		{"POST " + types.PathAgentCheck, ""},
		{"GET " + types.PathAgents + "/{name}", ""},
		{"PUT " + types.PathAgents + "/{name}", ""},
		{"DELETE " + types.PathAgents + "/{name}", ""},
		{"GET " + types.PathHarnesses, ""},
		{"GET " + types.PathAddons, ""},
		{"GET " + types.PathPresets, ""},
		{"GET " + types.PathDisplay, ""},
		{"GET " + types.PathFolders, ""},
		{"GET " + types.PathAudit, ""},
		{"GET " + types.PathOpenAPI, ""},
		{"POST " + types.PathRuns + "/{id}" + types.SubForwards, ""},
		{"GET " + types.PathRuns + "/{id}" + types.SubForwards, ""},
		{"DELETE " + types.PathRuns + "/{id}" + types.SubForwards + "/{forward}", ""},
		{"POST " + types.PathRuns + "/{id}" + types.SubView, ""},
		{"POST " + types.PathRuns + "/{id}" + types.SubStill, ""},
		{"POST " + types.PathRuns + "/{id}" + types.SubTakeover, ""},
		{"GET " + types.PathView, ""},
		{"GET " + types.PathWeb, ""},
		{"DELETE " + types.PathWebLogins + "/{id}", ""},
		{"POST " + types.PathWebLink, admin},
		{"POST " + types.PathWebOff, admin},
	}
}

// upgrades are the patterns whose requests may ask for a WebSocket.
func upgrades() map[string]bool { return map[string]bool{"GET " + types.PathView: true} }
