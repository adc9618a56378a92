package browser

import (
	"context"
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

	MaxSnapshot = 4 << 20 // characters of a page's tree that are taken at all
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
		More     int         `json:"more"` // characters that were left out
		Title    string      `json:"title"`
		Fields   []field     `json:"fields"`
		At       whereabouts `json:"at"`
	}
	if err := u.probe(ctx, "read", map[string]any{"depth": depth, "frames": maxFrames, "most": MaxSnapshot}, &got); err != nil {
		return reading{}, u.explainModal(err)
	}
	if got.At.URL == "" {
		return reading{}, refuse("F.5", "where the page is cannot be said, and it is not read for that", "Try again")
	}
	if err := u.land(ctx, got.At.urls()); err != nil {
		return reading{}, err
	}
	if err := got.At.whole(); err != nil {
		return reading{}, err
	}
	if got.More > 0 {
		got.Snapshot = got.Snapshot[:strings.LastIndexByte(got.Snapshot, '\n')+1] // no line in part
		u.note("The page is too large: %d characters of its tree were not read. A smaller depth shows more of it.", got.More)
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
		return u.fence(ctx, at.URL, "error", shorten(u.s.mask(got.failed), 2000), true), nil
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
		return u.fence(ctx, at.URL, "error", "It did not come about.\n"+shorten(u.s.mask(got.failed), 1000), true), nil
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
		if _, err := u.look(ctx, false); err != nil { // where it has gone meanwhile
			return answer{}, u.explainModal(err)
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
