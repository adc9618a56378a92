package types

import "time"

// Paths of the approvals and of the network rules of live runs.
const (
	// PathApprovals: GET ?run=ID gives []Approval; with watch=1 a stream of ApprovalEvent, a line each, during which
	// somebody counts as being there to be asked. Below it /{id}: GET gives Approval, POST takes ApprovalAnswer and
	// gives ApprovalDone; an id is accepted by its unique beginning. Below that /picture: GET gives the PNG of one whose
	// Browser has a Picture.
	PathApprovals = "/v1/approvals"
	// PathRules: POST takes RuleChange and gives RuleChanged. The rules of one run: GET PathRuns/{id}/rules gives
	// []LiveRule.
	PathRules = "/v1/rules"
	// PathVerdicts: GET ?agent=&run=&last=N&follow=1 gives a stream of NetworkVerdict, a line each, oldest first.
	PathVerdicts = "/v1/verdicts"
)

// Kinds of an Approval.
const (
	ApprovalNetwork = "network" // may a run reach a destination
	ApprovalBrowser = "browser" // may the guarded browser do this on a page, or go to another origin
)

// How long an answer or a rule holds.
const (
	ScopeOnce   = "once"   // what waits now, or the next connection
	ScopeRun    = "run"    // until the run ends
	ScopeAlways = "always" // in the agent's file
)

// An Approval is a question that waits for a person (contract H).
type Approval struct {
	ID      string    `json:"id"`
	Kind    string    `json:"kind"`
	Run     string    `json:"run"`
	Agent   string    `json:"agent"`
	Session string    `json:"session,omitempty"` // the ACP session, where it is known
	Subject string    `json:"subject"`           // what it is about: "host:port", or the browser's tool and the origin
	Text    string    `json:"text"`              // the question, one line
	Detail  string    `json:"detail"`            // what an answer for longer than once comes to
	Scopes  []string  `json:"scopes"`            // how long an answer may hold
	Waiting int       `json:"waiting"`           // how many wait for the answer
	Asked   time.Time `json:"asked"`
	Expires time.Time `json:"expires"`

	Browser *BrowserApproval `json:"browser,omitempty"` // with ApprovalBrowser
}

// A BrowserApproval is what the guarded browser is about to do. All texts are bounded, of one line, and without
// characters that hide or reorder others. What a page made up is only in Title, Says, URL, Name and Values: show those as the
// page's words. Sites are Handler's own words, and are to be shown apart from them.
type BrowserApproval struct {
	Tool   string `json:"tool"`   // browser_click
	Action string `json:"action"` // in words: "click"
	Visit  bool   `json:"visit"`  // whether to go to a new origin, which is Targets' only one; else an interaction
	// Pages are where it happens: one, or several where it is not known which of the tabs it is; none for a Visit.
	Pages    []BrowserPlace   `json:"pages"`
	Title    string           `json:"title,omitempty"`   // of the page
	Says     string           `json:"says,omitempty"`    // what the page says about it: the text of its dialog
	Frame    *BrowserPlace    `json:"frame,omitempty"`   // that the element is in, if it is not the page's own
	Targets  []BrowserPlace   `json:"targets"`           // where links and forms of the elements lead
	Elements []BrowserElement `json:"elements"`          // what it is done to
	Values   []string         `json:"values"`            // what is typed, selected or uploaded, secrets masked
	More     int              `json:"more,omitempty"`    // elements, targets and values over the bounds, which are not shown
	Digest   string           `json:"digest"`            // SHA-256 of the exact arguments, in hex
	Picture  *BrowserPicture  `json:"picture,omitempty"` // of the first element, from the path below the approval's
}

// A BrowserPlace is an address.
type BrowserPlace struct {
	Site string `json:"site"` // its origin, always in ASCII: "https://xn--pple-43d.example"
	URL  string `json:"url"`  // without user name and password
}

// A BrowserElement is what a page says that an element is.
type BrowserElement struct {
	Role string `json:"role"` // of ARIA, or a tag: one word
	Name string `json:"name"`
}

// A BrowserPicture describes one.
type BrowserPicture struct {
	Width  int `json:"width"`
	Height int `json:"height"`
	Bytes  int `json:"bytes"`
}

// States of an ApprovalEvent.
const (
	ApprovalWatching  = "watching"  // the first event: from now on the watcher counts
	ApprovalAsked     = "asked"     // a question waits
	ApprovalAnswered  = "answered"  // by a person or by a rule that a person made
	ApprovalExpired   = "expired"   // nobody answered
	ApprovalWithdrawn = "withdrawn" // nobody waits for the answer any more
)

// An ApprovalEvent is what happens to a question. What waits when a watcher comes is told as asked.
type ApprovalEvent struct {
	State    string          `json:"state"`
	Approval *Approval       `json:"approval,omitempty"` // not with ApprovalWatching
	Answer   *ApprovalAnswer `json:"answer,omitempty"`   // with ApprovalAnswered
}

// An ApprovalAnswer is a person's answer.
type ApprovalAnswer struct {
	Allow bool   `json:"allow"`
	Scope string `json:"scope"`        // one of the question's Scopes; ScopeOnce if empty
	By    string `json:"by,omitempty"` // where it was given, for the audit log: "handler approvals"; at most 100 bytes
}

// An ApprovalDone says what an answer did.
type ApprovalDone struct {
	Approval Approval       `json:"approval"`
	Answer   ApprovalAnswer `json:"answer"`
	Note     string         `json:"note,omitempty"` // such as the file that a rule was saved in
}

// A RuleChange adds a network rule.
type RuleChange struct {
	Agent string `json:"agent"`
	Run   string `json:"run,omitempty"` // with ScopeOnce and ScopeRun: this run only, by the beginning of its id
	// Server is the hosted MCP server that has a sandbox of its own whose rules are meant; "" for the agent's.
	Server string `json:"server,omitempty"`
	Kind   string `json:"kind"` // "allow", "deny" or "private"
	Rule   string `json:"rule"`
	Scope  string `json:"scope"` // ScopeAlways if empty; of a server's not ScopeOnce
}

// A RuleChanged says what a RuleChange did.
type RuleChanged struct {
	Agent   string   `json:"agent"`
	Server  string   `json:"server,omitempty"`
	Kind    string   `json:"kind"`
	Rule    string   `json:"rule"`
	Scope   string   `json:"scope"`
	Runs    []string `json:"runs"`              // live runs whose next connection is judged by it
	File    string   `json:"file,omitempty"`    // where it was saved
	Created bool     `json:"created,omitempty"` // that file is new: the agent was only a harness's own name
	Note    string   `json:"note,omitempty"`    // what the person should know of it
}

// A LiveRule is one rule of a live run.
type LiveRule struct {
	Kind  string `json:"kind"`
	Rule  string `json:"rule"`
	By    string `json:"by"`
	Scope string `json:"scope,omitempty"` // for rules that came after the start
	// Server is the hosted server whose rule it is; "" for the agent's own.
	Server string `json:"server,omitempty"`
}

// A NetworkVerdict is one line of `handler policy log`.
type NetworkVerdict struct {
	Time    time.Time `json:"time"`
	Run     string    `json:"run,omitempty"`
	Agent   string    `json:"agent"`
	Kind    string    `json:"kind"` // "network", "approval" or "rules"
	Rule    string    `json:"rule,omitempty"`
	Verdict string    `json:"verdict,omitempty"`
	Subject string    `json:"subject"`
	Reason  string    `json:"reason"`
	Hint    string    `json:"hint,omitempty"`
}
