package browser

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
)

// An action is one interaction with a page, ready to be checked, asked about and done.
type action struct {
	verb   string   // "click", for the question
	refs   []string // the elements it is about, in order
	values []string // what is typed, selected or pressed, as the person is shown it
	says   string   // what the page says about it
	types  bool     // something is typed or selected: not into fields for secrets (F.5)
	drops  bool     // something may be dropped or pasted: not into what holds such a field either
	focus  bool     // it goes where the focus is, instead of to refs
	moves  bool     // it is a key that types nothing
	tool   string   // of upstream
	args   any
}

// act does one interaction: references, credentials, approval, all of it again, and then the action (F.3, F.4, F.5).
func (u *use) act(ctx context.Context, a action) (*mcp.CallToolResult, error) {
	if err := u.open(ctx, false); err != nil {
		return nil, err
	}
	if err := u.checkRefs(a.refs); err != nil {
		return nil, err
	}
	at, err := u.look(ctx, false)
	if err != nil {
		return nil, u.explainModal(err)
	}
	asking := u.s.place(at.URL).external(u.policy.Network) && !u.policy.Unattended
	before, err := u.gather(ctx, a, asking)
	if err != nil {
		return nil, u.explainModal(err)
	}
	if a.types {
		if err := before.refuseSecrets(); err != nil {
			return nil, err
		}
	}
	if u.asks(before) {
		if err := before.oneFrame(); err != nil && !a.focus {
			return nil, err
		}
		if !asking && !u.policy.Unattended { // what it leads to is external, or its frame: the person sees it too
			if before, err = u.gather(ctx, a, true); err != nil {
				return nil, u.explainModal(err)
			}
		}
		if before, err = u.approve(ctx, a, before); err != nil {
			return nil, err
		}
		u.letTargets(before)
	}
	u.s.snapshot = nil // whatever comes of it, the page is not the one that was read
	got, err := u.does(ctx, a, before)
	if err != nil {
		return nil, err
	}
	return u.acted(ctx, a.verb, got, before)
}

// does is the action itself, in the tab and on the page that were looked at. It is a program of ours and no tool of
// upstream's, which would act on the tab that is the current one by then: pages close their tabs when they like.
func (u *use) does(ctx context.Context, a action, f facts) (answer, error) {
	got, err := u.upstream(ctx, upstreamCode, map[string]any{"code": program("do", map[string]any{
		"tab": f.Tab, "url": f.URL, "tool": a.tool, "args": a.args,
	})}, OpTime)
	if err != nil || got.failed != "" || got.modal != "" {
		return got, err
	}
	var done struct{ Moved bool }
	if json.Unmarshal([]byte(section(got.text, "Result")), &done) == nil && done.Moved {
		return got, refuse("F.4", "the page went elsewhere, or another tab took its place, just before the action. Nothing was done", "Read the page again with browser_snapshot")
	}
	return got, nil
}

// checkRefs refuses references that are not of the newest snapshot (F.3).
func (u *use) checkRefs(refs []string) error {
	const again = "Read the page again with browser_snapshot, and use a reference from there"
	for _, ref := range refs {
		if !refPattern.MatchString(ref) {
			return refuse("F.3", fmt.Sprintf("%q is no reference: only those of a snapshot are taken (e12, f1e3), no selectors and no coordinates", shorten(ref, 80)), again)
		}
		if u.s.snapshot == nil {
			return refuse("F.3", ref+" is used up: every action uses up the snapshot before it, and after a navigation there is none", again)
		}
		if _, known := u.s.snapshot[ref]; !known {
			return refuse("F.3", ref+" is not in the newest snapshot of this session", again)
		}
	}
	return nil
}

// gather finds out what is true of an action right now, with a picture of its first element if it is wanted.
func (u *use) gather(ctx context.Context, a action, picture bool) (facts, error) {
	var f facts
	if a.focus {
		err := u.probe(ctx, "focus", nil, &f)
		if a.moves {
			f.Elements = slices.DeleteFunc(f.Elements, func(e fact) bool { return e.Element.Closed })
		}
		return f, err
	}
	if err := u.probe(ctx, "facts", map[string]any{"refs": a.refs, "picture": picture, "inside": a.drops}, &f); err != nil {
		return facts{}, err
	}
	if len(f.Elements) != len(a.refs) {
		return facts{}, refuse("F.3", "the elements could not be looked at", "Read the page again with browser_snapshot")
	}
	for i, ref := range a.refs {
		var now node
		for _, line := range f.Elements[i].Lines {
			if n, ok := parseNode(line); ok && n.ref == ref {
				now = n
			}
		}
		if was := u.s.snapshot[ref]; now != was {
			return facts{}, refuse("F.3", ref+" has changed or is gone since the snapshot", "Read the page again with browser_snapshot, and use a reference from there")
		}
		f.nodes = append(f.nodes, now)
	}
	return f, nil
}

// refuseSecrets refuses to type where any of the elements is for a secret (F.5): before anything is filled in.
func (f facts) refuseSecrets() error {
	for i, e := range f.Elements {
		why := e.Element.secret()
		for _, inside := range e.Inside {
			why = firstOf(why, inside.secret())
		}
		if e.Element.Closed {
			why = "it has fields that cannot be looked at"
		}
		if why == "" && i < len(f.nodes) && isField(f.nodes[i].role) && namesSecret(f.nodes[i].name) {
			why = fmt.Sprintf("its label says so: %q", shorten(f.nodes[i].name, 60))
		}
		if why != "" {
			what := e.Ref
			if what == "" {
				what = "what has the focus"
			}
			return refuse("F.5", fmt.Sprintf("%s is a field for a password, a code or a card (%s), and nothing is ever typed there", what, why),
				"Nothing was done. Ask your person to log in themselves, or go on without")
		}
	}
	return nil
}

// asks says whether a person has to be asked (F.4): the page, the element's frame or anything it leads to is external.
func (u *use) asks(f facts) bool {
	page := u.s.place(f.URL)
	if page.external(u.policy.Network) {
		return true
	}
	return slices.ContainsFunc(f.Elements, func(e fact) bool {
		inner := u.s.place(e.Frame)
		if inner.kind != placeBlank && inner.external(u.policy.Network) { // a blank one is its page's
			return true
		}
		return slices.ContainsFunc(e.Element.Targets, func(t string) bool { return !script(t) && u.s.place(t).external(u.policy.Network) })
	})
}

// script says whether a link runs a script of its page instead of leading anywhere.
func script(target string) bool { return strings.HasPrefix(strings.ToLower(target), "javascript:") }

// unattended is why nobody is asked.
const unattended = "this run is unattended: it was started with --unattended, or where there was no terminal"

// approve asks the person about an action, and looks again after the answer: an approval is for what was shown (F.4).
func (u *use) approve(ctx context.Context, a action, before facts) (facts, error) {
	if u.policy.Unattended {
		return facts{}, refuse("F.4", "acting on "+u.where(before)+" needs an approval, and "+unattended, "Do what needs no approval, or leave it for your person")
	}
	q := u.question(a, before)
	if err := u.ask(ctx, q); err != nil {
		return facts{}, err
	}
	policy, err := u.s.grant()
	if err != nil {
		return facts{}, err
	}
	u.policy = policy
	if policy.ReadOnly {
		return facts{}, refuse("F.4", "this run may only read pages by now", "")
	}
	const changed = "the page has changed while your person was asked, and their answer was for what it was. Nothing was done"
	const again = "Read the page again with browser_snapshot and try again; your person is asked anew"
	if _, err := u.look(ctx, false); err != nil {
		return facts{}, u.explainModal(err)
	}
	after, err := u.gather(ctx, a, false)
	var stale *refusal
	if errors.As(err, &stale) && stale.rule == "F.3" {
		return facts{}, refuse("F.4", changed, again)
	}
	if err != nil {
		return facts{}, err
	}
	if !reflect.DeepEqual(before.asked(), after.asked()) {
		u.s.snapshot = nil
		return facts{}, refuse("F.4", changed, again)
	}
	if a.types {
		if err := after.refuseSecrets(); err != nil {
			return facts{}, err
		}
	}
	return after, nil
}

// asked is what an approval holds for.
func (f facts) asked() facts {
	f.Picture, f.Title = "", "" // pages count in their titles
	f.Elements = slices.Clone(f.Elements)
	for i := range f.Elements {
		f.Elements[i].Lines = nil // states such as [active] come and go; role and name are in nodes
	}
	return f
}

// oneFrame refuses what is about several frames at once: a question names one.
func (f facts) oneFrame() error {
	for _, e := range f.Elements {
		if e.Frame != f.Elements[0].Frame {
			return refuse("F.4", "these elements are in different frames of the page, and your person is asked about one", "Do it one frame at a time")
		}
	}
	return nil
}

func (u *use) where(f facts) string {
	p := u.s.place(f.URL)
	if p.origin != "" {
		return p.origin
	}
	return shorten(f.URL, 80)
}

// question puts an action before a person.
func (u *use) question(a action, f facts) Question {
	q := u.newQuestion(a.verb, f.URL)
	q.Title = shorten(u.s.mask(f.Title), 200)
	q.Values, q.Picture = a.values, f.picture()
	for i, e := range f.Elements {
		if e.Frame != "" && q.Frame == "" {
			q.Frame = shorten(e.Frame, 2000)
		}
		var shown Element
		if i < len(f.nodes) {
			shown = Element{Role: f.nodes[i].role, Name: shorten(u.s.mask(f.nodes[i].name), 200)}
		} else {
			shown = Element{Role: e.Element.Tag, Name: shorten(u.s.mask(firstOf(e.Element.Labels, e.Element.AriaLabel, e.Element.Placeholder, e.Element.Name, e.Element.ID)), 200)}
		}
		q.Elements = append(q.Elements, shown)
		for _, t := range e.Element.Targets {
			if t = shorten(t, 500); !slices.Contains(q.Targets, t) {
				q.Targets = append(q.Targets, t)
			}
		}
	}
	return q
}

// newQuestion is what all questions of a call have: the digest is over the exact arguments.
func (u *use) newQuestion(action string, pages ...string) Question {
	sum := sha256.Sum256(u.call.Args)
	q := Question{
		Run: u.s.key.run, Agent: u.policy.Agent, Session: u.s.key.session, Tool: u.tool.name, Action: action,
		Digest: hex.EncodeToString(sum[:]), Expiry: AskTime,
	}
	for _, p := range pages {
		q.Pages = append(q.Pages, shorten(p, 2000))
	}
	return q
}

func firstOf(all ...string) string {
	for _, s := range all {
		if s != "" {
			return s
		}
	}
	return ""
}

// ask waits for a person's yes.
func (u *use) ask(ctx context.Context, q Question) error {
	u.call.Progress(0, 0, "waiting for your person's answer")
	timed, cancel := context.WithTimeout(ctx, AskTime+time.Second) // the question's own expiry comes first
	defer cancel()
	allow, err := u.s.b.o.Ask(timed, q)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return refuse("F.4", "your person has to be asked, and "+shorten(err.Error(), 200)+". Nothing was done",
			"They answer with handler approvals, or in the terminal of handler run; try again when they are there")
	case !allow:
		return refuse("F.4", "your person said no. Nothing was done", "Do not try it again in another way; ask them what they want instead")
	}
	return nil
}

// explainModal makes what upstream says while a dialog is open understandable.
func (u *use) explainModal(err error) error {
	var modal *modalError
	if !errors.As(err, &modal) {
		return err
	}
	if modal.files() {
		return refuse("F.1", "the page waits for files", "Give it some with browser_file_upload, or call that without paths to cancel")
	}
	return refuse("F.1", "a dialog of the page is open and blocks everything else", "Read it with browser_tabs (list) and answer it with browser_handle_dialog")
}

// acted says what came of an action, after the landing check.
func (u *use) acted(ctx context.Context, verb string, got answer, f facts) (*mcp.CallToolResult, error) {
	at, err := u.look(ctx, true)
	var modal *modalError
	if err != nil && !errors.As(err, &modal) {
		return nil, err
	}
	u.collect(ctx)
	if modal == nil {
		for _, e := range f.Elements {
			for _, t := range e.Element.Targets {
				u.allowSame(t, at.URL)
			}
		}
	}
	if got.failed != "" {
		u.notes = append(u.notes, "The action failed; it may have been done in part.")
		return u.fence(ctx, f.URL, "error", shorten(u.s.mask(got.failed), 2000), true), nil
	}
	text := "Done: " + verb + ".\n"
	if modal != nil {
		text += "The page waits for an answer:\n" + modal.text
		return u.fence(ctx, f.URL, "dialog", text, false), nil
	}
	u.notes = append(u.notes, "Done. To act again, read the page with browser_snapshot: the references of before are used up.")
	return u.fence(ctx, at.URL, "place", text+at.text(), false), nil
}

// allowSame remembers an origin that a person let an element lead to, once it did.
func (u *use) allowSame(target, landed string) {
	t, l := u.s.place(target), u.s.place(landed)
	if t.origin != "" && t.origin == l.origin {
		u.s.allowed[t.origin] = true
	}
}

// text says where the browser is.
func (w whereabouts) text() string {
	text := "URL: " + shorten(w.URL, 2000)
	if strings.HasPrefix(w.URL, "chrome-error:") {
		text = "The page could not be loaded."
	}
	if len(w.Tabs) > 1 {
		text += fmt.Sprintf("\nTabs: %d", len(w.Tabs))
	}
	return text
}
