package api_test

import "github.com/handlerd/handler/handlerd/api/types"

// What many operations take.
const (
	byRun     = "run of one run, by the beginning of its id"
	byAgent   = "agent of one agent"
	bySession = "session the agent's id of a session"
	follow    = "follow 1: and what comes, until the connection ends"
	ifMatch   = "If-Match the tag of what is replaced"
)

// operations are what each route does, by its pattern.
func operations() map[string]operation {
	all := map[string]operation{}
	for _, group := range []map[string]operation{daemonOperations(), runOperations(), personOperations(), sessionOperations(), catalogOperations()} {
		for pattern, op := range group {
			all[pattern] = op
		}
	}
	return all
}

func daemonOperations() map[string]operation {
	return map[string]operation{
		"GET " + types.PathVersion:                {says: "Which daemon this is", gives: types.Version{}},
		"GET " + types.PathDoctor:                 {says: "What this machine lacks", gives: []types.Finding{}},
		"GET " + types.PathImages:                 {says: "The toolboxes, addons and harnesses, built or not", gives: []types.Image{}},
		"POST " + types.PathBuild:                 {says: "Build or check an image", takes: types.BuildRequest{}, gives: types.Progress{}, stream: true},
		"POST " + types.PathRemove:                {says: "Remove an image", takes: types.BuildRequest{}},
		"POST " + types.PathSecrets:               {says: "Read an agent's secrets and say how that went, never what they are", takes: types.SecretsRequest{}, gives: []types.SecretCheck{}},
		"POST " + types.PathStop:                  {says: "End the daemon and every run; not reachable from the page"},
		"GET " + types.PathWeb:                    {says: "The page's door and who is logged in", gives: types.WebStatus{}},
		"POST " + types.PathWebLink:               {says: "Open the door, and a link that logs a browser in once; not reachable from the page", takes: types.WebOpen{}, gives: types.WebLink{}},
		"POST " + types.PathWebOff:                {says: "Close the door; not reachable from the page"},
		"DELETE " + types.PathWebLogins + "/{id}": {says: "Log a browser out"},
		"GET " + types.PathOpenAPI:                {says: "This description", gives: map[string]string{}},
		"GET " + types.PathAudit: {
			says: "The audit log, oldest first", gives: types.AuditRecord{}, stream: true,
			query: []string{"last how many of the past", "kind of one kind; may be there several times", byAgent, byRun, bySession, "verdict allowed, edited, refused or asked", follow},
		},
	}
}

func runOperations() map[string]operation {
	run := types.PathRuns + "/{id}"
	return map[string]operation{
		"GET " + types.PathRuns:                            {says: "The live runs", gives: []types.Run{}},
		"POST " + types.PathRuns:                           {says: "Start a run that lives as long as the connection", takes: types.RunRequest{}, upgrade: types.UpgradeACP + ": newline-delimited ACP"},
		"GET " + run:                                       {says: "One live run", gives: types.Run{}},
		"DELETE " + run:                                    {says: "End a run; answered when nothing of it is left"},
		"GET " + run + "/log":                              {says: "A run's log, also of one that has ended", gives: types.LogLine{}, stream: true, query: []string{follow}},
		"GET " + run + "/rules":                            {says: "The network rules that hold in a run", gives: []types.LiveRule{}},
		"GET " + run + "/servers":                          {says: "The MCP servers that are hosted for a run", gives: []types.Server{}},
		"POST " + run + "/servers/stop":                    {says: "Stop one of them, or all", takes: types.StopServer{}, gives: []string{}},
		"POST " + run + "/shell":                           {says: "A command of the person's in a run; not reachable from the page", takes: types.ShellRequest{}, upgrade: types.UpgradeShell},
		"POST " + run + "/forward":                         {says: "Open a port of a run while the connection is there; not reachable from the page", takes: types.ForwardRequest{}, upgrade: types.UpgradeForward},
		"POST " + run + types.SubView:                      {says: "A ticket for watching the run's own display", takes: types.ViewRequest{}, gives: types.ViewTicket{}},
		"POST " + run + types.SubStill:                     {says: "Keep a picture of the run's own display", takes: types.ViewRequest{}, gives: types.Artifact{}},
		"POST " + run + types.SubTakeover:                  {says: "Take the run's guarded browser over, or give it back", takes: types.TakeoverRequest{}, gives: types.Takeover{}},
		"GET " + types.PathView:                            {says: "The live view", query: []string{"ticket of a view, good once"}, upgrade: "websocket: RFB"},
		"POST " + run + "/dial":                            {says: "Connect to such a port; not reachable from the page", takes: types.PortRequest{}, upgrade: types.UpgradeDial},
		"POST " + run + types.SubForwards:                  {says: "Show a port of the run's sandbox in the page, at an origin of its own", takes: types.PortRequest{}, gives: types.Forwarded{}},
		"GET " + run + types.SubForwards:                   {says: "The ports of the run that the page shows", gives: []types.Forwarded{}},
		"DELETE " + run + types.SubForwards + "/{forward}": {says: "Show one no more"},
	}
}

func personOperations() map[string]operation {
	artifact := types.PathArtifacts + "/{id}"
	return map[string]operation{
		"GET " + types.PathApprovals:                   {says: "What Handler asks its person; with watch=1 a stream of ApprovalEvent, a line each, while somebody is there", gives: []types.Approval{}, query: []string{byRun, "watch 1: a stream"}},
		"GET " + types.PathApprovals + "/{id}":         {says: "One question", gives: types.Approval{}},
		"GET " + types.PathApprovals + "/{id}/picture": {says: "The picture of what it is about", gives: raw("image/png")},
		"POST " + types.PathApprovals + "/{id}":        {says: "Answer a question", takes: types.ApprovalAnswer{}, gives: types.ApprovalDone{}},
		"POST " + types.PathRules:                      {says: "Add a network rule, to live runs or for good", takes: types.RuleChange{}, gives: types.RuleChanged{}},
		"GET " + types.PathVerdicts: {
			says: "What was decided about destinations, oldest first", gives: types.NetworkVerdict{}, stream: true,
			query: []string{byAgent, byRun, "last how many of the past", follow},
		},
		"GET " + types.PathArtifacts:    {says: "What agents made for their person", gives: types.ArtifactList{}, query: []string{byRun, bySession, byAgent}},
		"DELETE " + types.PathArtifacts: {says: "Remove those of a run or a session", gives: types.ArtifactsRemoved{}, query: []string{byRun, bySession, byAgent}},
		"GET " + artifact:               {says: "The content, with ranges", gives: raw("application/octet-stream"), header: []string{"Range one range of bytes"}},
		"GET " + artifact + "/info":     {says: "What there is to know of it", gives: types.Artifact{}},
		"POST " + artifact:              {says: "Save it into a scope", takes: types.ArtifactSave{}, gives: types.ArtifactSaved{}},
		"DELETE " + artifact:            {says: "Remove it", gives: types.ArtifactsRemoved{}},
	}
}

func sessionOperations() map[string]operation {
	session := types.PathSessions + "/{id}"
	return map[string]operation{
		"GET " + types.PathSessions: {
			says: "The sessions that are kept, the last used first", gives: []types.Session{},
			query: []string{
				byAgent, "acp the agent's id of it", "cwd of one folder", "query in its title, agent, folder, id or a prompt",
				"live 1: those with a run", "before the id of the last one that is known", "limit at most 500",
			},
		},
		"GET " + session:    {says: "One session", gives: types.Session{}},
		"DELETE " + session: {says: "Remove a session with its events and artifacts, and its run where handlerd is its client"},
		"GET " + session + "/events": {
			says: "What happened in a session, as lines, or with Accept: text/event-stream as server-sent events", gives: types.Event{}, stream: true,
			query: []string{"after the number of the last one that is known", follow}, header: []string{"Last-Event-ID as after, of server-sent events"},
		},
		"GET " + types.PathFeed: {
			says: "What changes in the lists of sessions, runs, approvals and agents, as lines or server-sent events", gives: types.Change{}, stream: true,
			query: []string{"watch 1: and be there to be asked for as long"},
		},
		"POST " + types.PathSessions:    {says: "Begin a session whose client is handlerd, in a run of its own", takes: types.NewSession{}, gives: types.Session{}},
		"POST " + session + "/prompt":   {says: "Begin a turn; answered once the prompt is written down, what the agent says comes as events", takes: types.Prompt{}, gives: types.PromptTaken{}},
		"POST " + session + "/cancel":   {says: "Ask the agent to end its turn"},
		"POST " + session + "/answer":   {says: "Answer a question of the agent's", takes: types.QuestionAnswer{}},
		"POST " + session + "/option":   {says: "Set a mode or an option of the agent's", takes: types.SessionOption{}},
		"POST " + session + "/title":    {says: "Name a session", takes: types.SessionTitle{}},
		"POST " + session + "/continue": {says: "Go on with a session that has no run, in a fresh one", takes: types.ContinueSession{}, gives: types.Session{}},
		"POST " + session + "/end":      {says: "End a session's run; the session stays"},
	}
}

func catalogOperations() map[string]operation {
	agent := types.PathAgents + "/{name}"
	return map[string]operation{
		"GET " + types.PathAgents:      {says: "The saved agents, and one for every harness under its own name", gives: []types.AgentInfo{}},
		"POST " + types.PathAgentCheck: {says: "What an agent would be; nothing is saved", takes: types.AgentEdit{}, gives: types.AgentCheck{}},
		"GET " + agent:                 {says: "One agent with all there is to change", gives: types.AgentDetail{}},
		"PUT " + agent:                 {says: "Save an agent", takes: types.AgentEdit{}, gives: types.AgentDetail{}, header: []string{ifMatch, "If-None-Match *: there is to be none"}},
		"DELETE " + agent:              {says: "Remove an agent; its state stays", header: []string{ifMatch}},
		"GET " + types.PathHarnesses:   {says: "The agent programs that Handler knows", gives: types.Harnesses{}},
		"GET " + types.PathAddons:      {says: "What can be bound to agents", gives: types.Addons{}},
		"GET " + types.PathPresets:     {says: "Names for network rules", gives: []types.Preset{}},
		"GET " + types.PathDisplay:     {says: "The screens for a sandbox's windows, and what they give it", gives: types.DisplayState{}},
		"GET " + types.PathFolders:     {says: "The folders in one, for choosing a scope", gives: types.Folders{}, query: []string{"under the folder; the home folder if it is not there"}},
	}
}
