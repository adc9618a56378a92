package browser

import (
	"context"
	"embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
)

// programs are what handlerd itself runs in playwright-mcp. The agent never gets to run one, nothing of an agent's goes
// into one but references, numbers and, as JSON, what it types; what they say comes from pages: it only ever makes
// handlerd refuse more.
//
//go:embed programs
var programs embed.FS

// program gives one, with its argument put in as JSON.
func program(name string, arg any) string {
	read := func(name string) string {
		b, err := programs.ReadFile("programs/" + name + ".js")
		if err != nil { // it is built in
			panic(err)
		}
		return uncommented(string(b))
	}
	b, err := json.Marshal(arg)
	if err != nil { // strings, numbers, booleans and what was read from JSON
		panic(err)
	}
	describe := read("describe")
	collect := strings.Replace(read("collect"), "DESCRIBE", describe, 1)
	text := strings.NewReplacer("DESCRIBE", describe, "WHERE", read("where"), "COLLECT", collect).Replace(read(name))
	return strings.Replace(text, "ARGUMENT", string(b), 1) // the last: nothing in it is replaced
}

// uncommented is a program without the comment before it: playwright-mcp takes an expression.
func uncommented(s string) string {
	for strings.HasPrefix(s, "//") {
		_, s, _ = strings.Cut(s, "\n")
	}
	return strings.TrimSpace(s)
}

// Bounds of what is asked of pages.
const (
	maxFrames    = 200 // frames and workers of one tab that are looked at
	upstreamCode = "browser_run_code_unsafe"

	maxSaid = 64 << 10 // bytes of an error and of a dialog's text, which pages write
)

// An answer is what upstream gave.
type answer struct {
	text   string // of its first part: the sections
	images []mcp.ImageContent
	failed string // what went wrong; "" if nothing did
	modal  string // what has to be answered first; "" for nothing
}

// modalError says that a dialog or a file chooser is open: nothing else works until it is answered.
type modalError struct{ text string }

func (e *modalError) Error() string { return "a dialog is open: " + e.text }

// files says whether it is a file chooser: a dialog's own words come behind what kind it is of.
func (e *modalError) files() bool { return strings.HasPrefix(e.text, "- [File chooser]: ") }

// modalLine is how playwright-mcp says what is open, and by which of its tools it is answered.
var modalLine = regexp.MustCompile(`(?s)^- \[(.*)\]: can be handled by [a-z_]+$`)

// plain is what is open, in the page's words.
func (e *modalError) plain() string {
	if m := modalLine.FindStringSubmatch(e.text); m != nil {
		return m[1]
	}
	return e.text
}

// upstream uses a tool of playwright-mcp, within a time. What it reports besides is put down: downloads.
func (u *use) upstream(ctx context.Context, tool string, args any, within time.Duration) (answer, error) {
	u.looked = false
	timed, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	r, err := u.worker.Call(timed, tool, args)
	if err != nil {
		if ctx.Err() == nil && errors.Is(timed.Err(), context.DeadlineExceeded) {
			u.late = true
			return answer{}, refuse("F.8", fmt.Sprintf("the browser did not answer within %v", within), "Whether the call did something is not known: read the page with browser_snapshot")
		}
		return answer{}, err
	}
	var a answer
	for _, part := range r.Content {
		switch p := part.(type) {
		case mcp.TextContent:
			if a.text == "" {
				a.text = p.Text
			}
		case mcp.ImageContent:
			a.images = append(a.images, p)
		}
	}
	a.modal = cutRunes(section(a.text, "Modal state"), maxSaid)
	if events := section(a.text, "Events"); events != "" && len(u.s.events) < maxEvents {
		u.s.events = append(u.s.events, events)
	}
	if r.IsError {
		if a.failed = section(a.text, "Error"); a.failed == "" {
			a.failed = a.text
		}
		a.failed = cutRunes(a.failed, maxSaid)
	}
	return a, nil
}

// patience is how long our own programs may take: not long, once something took too long already.
func (u *use) patience() time.Duration {
	if u.late {
		return StuckTime
	}
	return OpTime
}

// stuck closes a browser in which nothing answers any more, such as one whose page is in an endless loop, and says so.
// It gives nil where the browser is well but for what was too late.
func (u *use) stuck(ctx context.Context) error {
	_, err := u.look(ctx, false)
	var r *refusal
	var modal *modalError
	switch {
	case err == nil, errors.As(err, &modal):
		return nil
	case ctx.Err() != nil, u.landed, !errors.As(err, &r), !u.alive():
		return err
	}
	u.landed = true
	u.s.closeThis(u.worker, "it did not answer any more")
	u.s.tell() // here and now
	return refuse("F.8", "the browser did not answer any more, and was closed", "A page of it may be in an endless loop: go to another one with browser_navigate")
}

// probe runs one of our programs and reads what it gives.
func (u *use) probe(ctx context.Context, name string, arg, into any) error {
	a, err := u.upstream(ctx, upstreamCode, map[string]any{"code": program(name, arg)}, u.patience())
	switch {
	case err != nil:
		return err
	case a.modal != "":
		return &modalError{a.modal}
	case a.failed != "":
		return refuse("F.8", "the page does not let itself be looked at: "+shorten(u.s.mask(a.failed), 300), "It may be changing: try again, or go to another page")
	}
	if err := json.Unmarshal([]byte(section(a.text, "Result")), into); err != nil {
		return refuse("F.8", "what the page gave cannot be read", "Try again, or go to another page")
	}
	return nil
}

// A whereabouts is where the browser is.
type whereabouts struct {
	URL  string `json:"url"`
	Tabs []struct {
		Current bool     `json:"current"`
		URL     string   `json:"url"`
		Frames  []string `json:"frames"`
		More    bool     `json:"more"`
		Workers []string `json:"workers"`
	} `json:"tabs"`
	ServiceWorkers []string `json:"serviceWorkers"`
	Closed         int      `json:"closed"`    // tabs over the bound
	Dismissed      int      `json:"dismissed"` // dialogs that would have blocked other tabs
}

// An element is what the DOM says of one.
type element struct {
	Tag          string   `json:"tag"`
	Type         string   `json:"type"`
	Autocomplete string   `json:"autocomplete"`
	Name         string   `json:"name"`
	ID           string   `json:"id"`
	Placeholder  string   `json:"placeholder"`
	AriaLabel    string   `json:"ariaLabel"`
	Title        string   `json:"title"`
	Labels       string   `json:"labels"`
	InputMode    string   `json:"inputMode"`
	MaxLength    int      `json:"maxLength"`
	Masked       bool     `json:"masked"` // its style hides what it holds
	Closed       bool     `json:"closed"` // it has the focus in it, in a part that cannot be looked at
	Targets      []string `json:"targets"`
}

// A field is one that holds something.
type field struct {
	element
	Value string `json:"value"`
}

// A fact is what is true of one element right now.
type fact struct {
	Ref     string   `json:"ref"`
	Lines   []string `json:"lines"` // of the tree that name the reference
	Frame   string   `json:"frame"` // "" for the page's own
	Element element  `json:"element"`
	// Inside are the fields that lie in it, where something is dropped or pasted there.
	Inside []element `json:"inside"`
}

// facts are what is true of what an action is about.
type facts struct {
	Tab      int    `json:"tab"` // which one of the browser's
	URL      string `json:"url"`
	Title    string `json:"title"`
	Elements []fact `json:"elements"`
	Picture  string `json:"picture"` // PNG in base64
	nodes    []node // of Elements, in order
}

// picture gives the picture of facts, bounded; nil for none.
func (f facts) picture() []byte {
	b, err := base64.StdEncoding.DecodeString(f.Picture)
	if err != nil || len(b) == 0 {
		return nil
	}
	small, err := scale(b, questionPicture)
	if err != nil {
		return nil
	}
	return small.data
}
