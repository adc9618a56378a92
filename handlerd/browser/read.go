package browser

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
)

// Bounds of reading.
const (
	maxDepth  = 100
	maxFind   = 500 // bytes of a text that is looked for
	maxHits   = 50
	hitMargin = 2                // lines before and after a hit
	MaxWait   = 30 * time.Second // of browser_wait_for

	waitPause = 250 * time.Millisecond // before a text is waited for again
)

// A reading is the page as it was read.
type reading struct {
	url, title, snapshot string // masked
}

// read reads the page: its references are the newest from now on. The landing check is before it and after it, so that
// a page that moves itself in between is not read either (F.5).
func (u *use) read(ctx context.Context, depth int) (reading, error) {
	if !u.looked {
		if _, err := u.look(ctx, false); err != nil {
			return reading{}, u.explainModal(err)
		}
	}
	var got struct {
		Snapshot string      `json:"snapshot"`
		Title    string      `json:"title"`
		Fields   []field     `json:"fields"`
		At       whereabouts `json:"at"`
	}
	if err := u.probe(ctx, "read", map[string]any{"depth": depth, "frames": maxFrames}, &got); err != nil {
		return reading{}, u.explainModal(err)
	}
	if got.At.URL == "" {
		return reading{}, refuse("F.5", "where the page is cannot be said, and it is not read for that", "Try again")
	}
	if err := u.land(ctx, got.At.urls()); err != nil {
		return reading{}, err
	}
	u.s.remember(got.Fields)
	u.s.snapshot = parseNodes(got.Snapshot)
	return reading{url: u.s.mask(got.At.URL), title: u.s.mask(got.Title), snapshot: u.s.mask(got.Snapshot)}, nil
}

// readPage is read as a result.
func (u *use) readPage(ctx context.Context, depth int) (*mcp.CallToolResult, error) {
	r, err := u.read(ctx, depth)
	if err != nil {
		return nil, err
	}
	text := "URL: " + shorten(r.url, 2000) + "\nTitle: " + shorten(r.title, 300) + "\n\n" + r.snapshot
	return u.fence(ctx, r.url, "snapshot", text, false), nil
}

func runSnapshot(ctx context.Context, u *use) (*mcp.CallToolResult, error) {
	var in struct {
		Depth int `json:"depth"`
	}
	if err := u.decode(&in); err != nil {
		return nil, err
	}
	if in.Depth < 0 || in.Depth > maxDepth {
		return nil, refuse("F.1", fmt.Sprintf("depth is %d; it may be 1 to %d", in.Depth, maxDepth), "")
	}
	if err := u.open(ctx, false); err != nil {
		return nil, err
	}
	defer u.collect(ctx)
	return u.readPage(ctx, in.Depth)
}

func runFind(ctx context.Context, u *use) (*mcp.CallToolResult, error) {
	var in struct {
		Text string `json:"text"`
	}
	if err := u.decode(&in); err != nil {
		return nil, err
	}
	if strings.TrimSpace(in.Text) == "" || len(in.Text) > maxFind {
		return nil, refuse("F.1", fmt.Sprintf("text has %d bytes; it takes 1 to %d", len(in.Text), maxFind), "")
	}
	if err := u.open(ctx, false); err != nil {
		return nil, err
	}
	r, err := u.read(ctx, 0)
	if err != nil {
		return nil, err
	}
	text, hits := find(r.snapshot, in.Text)
	if hits == 0 {
		text = "Nothing on the page says that."
	}
	if hits > maxHits {
		u.notes = append(u.notes, fmt.Sprintf("The first %d of %d places.", maxHits, hits))
	}
	return u.fence(ctx, r.url, "places found", "URL: "+shorten(r.url, 2000)+"\n\n"+text, false), nil
}

// find gives the lines that hold a text, whatever its case, with those around them.
func find(snapshot, text string) (found string, hits int) {
	lines := strings.Split(snapshot, "\n")
	want := strings.ToLower(text)
	var out strings.Builder
	next := 0 // the first line that is not shown yet
	for i, line := range lines {
		if !strings.Contains(strings.ToLower(line), want) {
			continue
		}
		if hits++; hits > maxHits {
			continue
		}
		from := max(next, i-hitMargin)
		if from > next && next > 0 {
			out.WriteString("…\n")
		}
		for next = from; next <= min(i+hitMargin, len(lines)-1); next++ {
			out.WriteString(lines[next] + "\n")
		}
	}
	return out.String(), hits
}

// readList is the tools that give a list which playwright-mcp has as a text.
func (u *use) readList(ctx context.Context, what, tool string, args any) (*mcp.CallToolResult, error) {
	if err := u.open(ctx, false); err != nil {
		return nil, err
	}
	if _, err := u.look(ctx, false); err != nil {
		return nil, u.explainModal(err)
	}
	got, err := u.upstream(ctx, tool, args, OpTime)
	if err != nil {
		return nil, err
	}
	at, err := u.look(ctx, false)
	if err != nil {
		return nil, u.explainModal(err)
	}
	u.collect(ctx)
	if got.failed != "" {
		return u.fence(ctx, at.URL, "error", shorten(got.failed, 2000), true), nil
	}
	_, text, _ := strings.Cut(got.text, "### Result\n") // with all that pages wrote, which may look like a section
	return u.fence(ctx, at.URL, what, text, false), nil
}

func runConsole(ctx context.Context, u *use) (*mcp.CallToolResult, error) {
	var in struct {
		Level string `json:"level"`
		All   bool   `json:"all"`
	}
	if err := u.decode(&in); err != nil {
		return nil, err
	}
	if err := u.oneOf("level", in.Level, "error", "warning", "info", "debug"); err != nil {
		return nil, err
	}
	return u.readList(ctx, "console messages", "browser_console_messages", map[string]any{"level": firstOf(in.Level, "info"), "all": in.All})
}

func runRequests(ctx context.Context, u *use) (*mcp.CallToolResult, error) {
	var in struct {
		Static bool   `json:"static"`
		Filter string `json:"filter"`
	}
	if err := u.decode(&in); err != nil {
		return nil, err
	}
	if err := u.checkText("filter", in.Filter, maxFind); err != nil {
		return nil, err
	}
	// It is ours that is used: upstream's takes as long as its writer wants (catastrophic backtracking).
	filter, err := regexp.Compile(in.Filter)
	if err != nil {
		return nil, refuse("F.1", "filter is no regular expression: "+shorten(err.Error(), 100), "")
	}
	r, err := u.readList(ctx, "requests", "browser_network_requests", map[string]any{"static": in.Static})
	if err != nil || in.Filter == "" || r.IsError {
		return r, err
	}
	return onlyLines(r, filter), nil
}

// onlyLines keeps the lines between the marks that fit.
func onlyLines(r *mcp.CallToolResult, filter *regexp.Regexp) *mcp.CallToolResult {
	for i, part := range r.Content {
		t, ok := part.(mcp.TextContent)
		if !ok {
			continue
		}
		lines := strings.Split(t.Text, "\n")
		kept := lines[:0]
		for n, line := range lines {
			if n == 0 || n == len(lines)-1 || filter.MatchString(line) {
				kept = append(kept, line)
			}
		}
		t.Text = strings.Join(kept, "\n")
		r.Content[i] = t
	}
	return r
}

func runWait(ctx context.Context, u *use) (*mcp.CallToolResult, error) {
	var in struct {
		Time     float64 `json:"time"`
		Text     string  `json:"text"`
		TextGone string  `json:"textGone"`
	}
	if err := u.decode(&in); err != nil {
		return nil, err
	}
	if in.Time < 0 || in.Time > MaxWait.Seconds() || len(in.Text) > maxFind || len(in.TextGone) > maxFind || in.Time == 0 && in.Text == "" && in.TextGone == "" {
		return nil, refuse("F.1", fmt.Sprintf("give time (up to %v), text or textGone (up to %d bytes)", MaxWait, maxFind), "")
	}
	if err := u.open(ctx, false); err != nil {
		return nil, err
	}
	args := map[string]any{}
	for name, text := range map[string]string{"text": in.Text, "textGone": in.TextGone} {
		if text != "" {
			args[name] = text
		}
	}
	if in.Time > 0 {
		args["time"] = in.Time
	}
	u.s.snapshot = nil
	got, err := u.waitFor(ctx, args, time.Duration(in.Time*float64(time.Second)))
	if err != nil {
		return nil, err
	}
	at, err := u.look(ctx, true)
	if err != nil {
		return nil, u.explainModal(err)
	}
	u.collect(ctx)
	if got.failed != "" {
		return u.fence(ctx, at.URL, "error", "It did not come about.\n"+shorten(got.failed, 1000), true), nil
	}
	u.notes = append(u.notes, "It came about. Read the page with browser_snapshot.")
	return u.fence(ctx, at.URL, "place", at.text(), false), nil
}

// waitFor waits for a time and then, up to MaxWait, for a text: playwright-mcp gives up after five seconds, and while the
// page moves on.
func (u *use) waitFor(ctx context.Context, args map[string]any, first time.Duration) (answer, error) {
	end := time.Now().Add(first + MaxWait)
	for {
		got, err := u.upstream(ctx, "browser_wait_for", args, first+OpTime)
		if err != nil || got.failed == "" || got.modal != "" || time.Now().After(end) {
			return got, err
		}
		delete(args, "time")
		if first = 0; len(args) == 0 {
			return got, nil
		}
		timer := time.NewTimer(waitPause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return answer{}, context.Cause(ctx)
		}
	}
}

func runResize(ctx context.Context, u *use) (*mcp.CallToolResult, error) {
	var in struct {
		Width  int `json:"width"`
		Height int `json:"height"`
	}
	if err := u.decode(&in); err != nil {
		return nil, err
	}
	if in.Width < 200 || in.Width > 4096 || in.Height < 200 || in.Height > 4096 {
		return nil, refuse("F.1", "width and height are 200 to 4096 pixels", "")
	}
	if err := u.open(ctx, false); err != nil {
		return nil, err
	}
	u.s.snapshot = nil
	got, err := u.upstream(ctx, "browser_resize", map[string]any{"width": in.Width, "height": in.Height}, OpTime)
	if err != nil {
		return nil, err
	}
	if _, err := u.look(ctx, true); err != nil {
		return nil, u.explainModal(err)
	}
	if got.failed != "" {
		return nil, refuse("F.1", shorten(firstLine(got.failed), 200), "")
	}
	return mcp.NewToolResultText(fmt.Sprintf("The page is %d×%d pixels now; its references are used up.", in.Width, in.Height)), nil
}

// originText is whose page it is, for texts of Handler's.
func (u *use) originText(url string) string {
	if p := u.s.place(url); p.origin != "" {
		return shorten(p.origin, maxOrigin)
	}
	return "a page without an address"
}

// runDialog answers a dialog of the page.
func runDialog(ctx context.Context, u *use) (*mcp.CallToolResult, error) {
	var in struct {
		Accept     bool    `json:"accept"`
		PromptText *string `json:"promptText"`
	}
	if err := u.decode(&in); err != nil {
		return nil, err
	}
	if err := u.open(ctx, false); err != nil {
		return nil, err
	}
	urls, text, err := u.waiting(ctx, "dialog")
	if err != nil {
		return nil, err
	}
	args, verb := map[string]any{"accept": in.Accept}, "dismiss the dialog"
	a := action{tool: "browser_handle_dialog", args: args}
	if in.Accept {
		verb = "accept the dialog"
	}
	if in.PromptText != nil {
		if err := u.checkText("promptText", *in.PromptText, maxTyped); err != nil {
			return nil, err
		}
		if namesSecret(text) {
			return nil, refuse("F.5", "the dialog asks for a password or a code, and nothing is ever typed there", "Dismiss it with accept false; your person logs in themselves")
		}
		args["promptText"], a.values = *in.PromptText, []string{u.s.shown(*in.PromptText)}
	}
	a.verb, a.says = verb, shorten(u.s.mask(text), 300)
	return u.answer(ctx, a, "dialog", urls, text)
}

// waiting gives what the page waits for an answer to, which is to be of a kind, and where the browser is meanwhile: its
// tabs, as far as they can be known while nothing runs in them.
func (u *use) waiting(ctx context.Context, kind string) (urls []string, text string, err error) {
	_, err = u.look(ctx, false)
	var modal *modalError
	switch {
	case err == nil:
		return nil, "", refuse("F.1", "the page waits for no "+kind, "Read it with browser_snapshot")
	case !errors.As(err, &modal):
		return nil, "", err
	case (kind == "dialog") == strings.Contains(modal.text, "File chooser"):
		return nil, "", u.explainModal(err)
	}
	a, err := u.upstream(ctx, "browser_tabs", map[string]any{"action": "list"}, OpTime)
	if err != nil {
		return nil, "", err
	}
	return linkTargets(section(a.text, "Result")), modal.plain(), nil
}

// answer answers what the page waits for: with an approval, where any tab is external.
func (u *use) answer(ctx context.Context, a action, kind string, urls []string, text string) (*mcp.CallToolResult, error) {
	external := len(urls) == 0
	for _, url := range urls {
		external = external || u.s.place(url).external(u.policy.Network)
	}
	f := facts{}
	if len(urls) > 0 {
		f.URL = urls[len(urls)-1]
	}
	if external {
		if u.policy.Unattended {
			return nil, refuse("F.4", "answering it needs an approval, and this run is unattended", "Leave it for your person")
		}
		q := u.newQuestion(a.verb, urls...)
		q.Values, q.Says = a.values, a.says
		if err := u.ask(ctx, q); err != nil {
			return nil, err
		}
		p, err := u.s.grant()
		if err != nil {
			return nil, err
		}
		u.policy = p
		again, now, err := u.waiting(ctx, kind)
		if err != nil {
			return nil, err
		}
		if p.ReadOnly || now != text || strings.Join(again, " ") != strings.Join(urls, " ") {
			return nil, refuse("F.4", "the page has changed while your person was asked, and their answer was for what it was. Nothing was done", "Look again with browser_tabs (list)")
		}
	}
	u.s.snapshot = nil
	got, err := u.upstream(ctx, a.tool, a.args, OpTime)
	if err != nil {
		return nil, err
	}
	return u.acted(ctx, a.verb, got, f)
}
