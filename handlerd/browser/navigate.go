package browser

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/handlerd/handler/policy"
)

const maxURL = 8 << 10 // bytes of an address that is gone to

func runNavigate(ctx context.Context, u *use) (*mcp.CallToolResult, error) {
	var in struct {
		URL string `json:"url"`
	}
	if err := u.decode(&in); err != nil {
		return nil, err
	}
	return u.visit(ctx, in.URL, func(ctx context.Context) (answer, error) {
		return u.navigate(ctx, in.URL)
	})
}

// visit goes to an address, by going, and reads what is there: the checks and the question before, the landing check
// after it.
func (u *use) visit(ctx context.Context, raw string, going func(context.Context) (answer, error)) (*mcp.CallToolResult, error) {
	if err := u.goTo(ctx, raw, going); err != nil {
		return nil, err
	}
	return u.readPage(ctx, 0)
}

// goTo is visit without the reading.
func (u *use) goTo(ctx context.Context, raw string, going func(context.Context) (answer, error)) error {
	if err := u.mayVisit(ctx, raw); err != nil {
		return err
	}
	if err := u.open(ctx, true); err != nil {
		return err
	}
	switch p := u.s.place(raw); {
	case p.kind == placeLocal:
		u.s.comesNear()
		u.s.enter(p)
	case p.origin != "":
		u.s.enter(p)
	}
	u.s.snapshot = nil
	got, err := going(ctx)
	if err != nil && u.late && u.alive() {
		return refuse("F.8", fmt.Sprintf("the page did not load within %v", OpTime),
			"What there is of it so far can be read with browser_snapshot; else try again later, or another page")
	}
	if err != nil {
		return err
	}
	if _, err := u.look(ctx, true); err != nil {
		return u.explainModal(err)
	}
	u.collect(ctx)
	if got.failed != "" {
		return refuse("F.1", "the page could not be opened: "+shorten(firstLine(u.s.mask(got.failed)), 300), u.loadHint(ctx, got.failed, u.s.place(raw)))
	}
	return nil
}

func (u *use) alive() bool {
	select {
	case <-u.worker.Done():
		return false
	default:
		return true
	}
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return s
}

// loadHint says what a browser's network error at a place means here.
func (u *use) loadHint(ctx context.Context, failed string, p place) string {
	switch {
	case strings.Contains(failed, "ERR_TUNNEL_CONNECTION_FAILED"), strings.Contains(failed, "ERR_BLOCKED"):
		if _, err := netip.ParseAddr(p.host); err != nil && p.kind == placeWeb {
			if found, err := u.s.lookup(ctx, p.host); err == nil && len(found.addrs) == 0 {
				return p.host + " has no address: the name is wrong, or your person's machine resolves no names at this time"
			}
		}
		return "The network rules do not let it through, or the host does not answer"
	case strings.Contains(failed, "ERR_PROXY_CONNECTION_FAILED"):
		return "The browser's network is cut; try again"
	case strings.Contains(failed, "Download is starting"), strings.Contains(failed, "ERR_ABORTED"):
		return "It may be a download: those become artifacts once they are complete"
	}
	return ""
}

// mayVisit checks an address before anything goes there (F.4, F.5): its scheme, the worker's rules, what its name
// resolves to; then whether a person has to be asked about its origin.
func (u *use) mayVisit(ctx context.Context, raw string) error {
	if len(raw) > maxURL {
		return refuse("F.1", fmt.Sprintf("the address has %d bytes, and at most %d are taken", len(raw), maxURL), "")
	}
	p := u.s.place(raw)
	if (p.kind != placeWeb && p.kind != placeLocal) || strings.HasPrefix(raw, "blob:") || (p.scheme != "http" && p.scheme != "https") {
		return refuse("F.5", fmt.Sprintf("%q is no address of a page", shorten(raw, 200)), "Only http and https are gone to, written whole: https://example.org/")
	}
	if userInfo(raw) {
		return refuse("F.5", "an address with a name or password before the host is not gone to", "Write it without")
	}
	if p.kind == placeLocal || u.hosted(p) {
		return nil
	}
	if err := u.s.public(ctx, u.policy.Network, p); err != nil {
		return refuse("F.5", shorten(err.Error(), 300), u.privateHint(p))
	}
	if v := u.policy.Network.Decide(p.host, p.port); v.Action == policy.Refuse {
		return refuse(v.Rule, v.Reason, v.Hint)
	}
	return u.mayEnter(ctx, p)
}

// privateHint says what can be done about a place that is not public: by the agent, if it means the workspace's own
// server, and by the person. What has no such rule (link-local: the cloud's metadata) gets no advice.
func (u *use) privateHint(p place) string {
	hint := "The browser goes to public pages only"
	addr, literal := netip.ParseAddr(p.host)
	switch {
	case loopback(p.host):
		hint += ". What the workspace serves itself is registered in .handler/public-apps.json and opened as http://NAME.workspace.invalid/"
		if literal != nil {
			addr = netip.AddrFrom4([4]byte{127, 0, 0, 1})
		}
	case literal != nil || !addr.IsPrivate():
		return hint
	}
	return hint + ". A page of your person's own network they can allow: handler agent edit " + u.policy.Agent +
		" --browser-network rules --private " + netip.AddrPortFrom(addr, p.port).String()
}

// hosted says whether an address is one that handlerd will answer once the browser is there.
func (u *use) hosted(p place) bool {
	return u.s.b.o.Hosts != nil && p.scheme == "http" && p.port == 80 && (p.host == "workspace.invalid" || strings.HasSuffix(p.host, ".workspace.invalid"))
}

// mayEnter asks about an origin that neither the agent's rules nor the person allowed yet (F.4).
func (u *use) mayEnter(ctx context.Context, p place) error {
	if v, denied := u.policy.Rules.Denies(p.host, p.port); denied {
		return refuse(v.Rule, v.Reason, v.Hint)
	}
	if u.s.allowed[p.origin] && u.running() || u.policy.Rules.Decide(p.host, p.port).Action == policy.Allow {
		return nil
	}
	if u.policy.Unattended {
		return refuse("F.4", "going to "+p.origin+" needs an approval, and "+unattended,
			"Your person can allow the host beforehand: handler agent edit "+u.policy.Agent+" --allow "+policy.Wanted(p.host, p.port))
	}
	q := u.newQuestion("go to")
	q.Visit, q.Targets = true, []string{shorten(p.url, 2000)}
	if err := u.ask(ctx, q); err != nil {
		return err
	}
	now, err := u.s.grant()
	if err != nil {
		return err
	}
	u.policy = now
	if v := now.Network.Decide(p.host, p.port); v.Action == policy.Refuse {
		return refuse(v.Rule, v.Reason, v.Hint)
	}
	return nil
}

// userInfo says whether an address names a user before its host.
func userInfo(raw string) bool {
	_, rest, _ := strings.Cut(raw, "://")
	authority, _, _ := strings.Cut(rest, "/")
	authority, _, _ = strings.Cut(authority, "?")
	authority, _, _ = strings.Cut(authority, "#")
	return strings.Contains(authority, "@")
}

func runBack(ctx context.Context, u *use) (*mcp.CallToolResult, error) {
	if err := u.decode(&struct{}{}); err != nil {
		return nil, err
	}
	if err := u.open(ctx, false); err != nil {
		return nil, err
	}
	if _, served := u.s.isNear(); served > 0 { // it may be back in the workspace, from a cache
		u.s.comesNear()
	}
	u.s.snapshot = nil
	got, err := u.upstream(ctx, "browser_navigate_back", map[string]any{}, OpTime)
	if err != nil {
		return nil, err
	}
	if _, err := u.look(ctx, true); err != nil {
		return nil, u.explainModal(err)
	}
	u.collect(ctx)
	if got.failed != "" {
		return nil, refuse("F.1", "there is no page to go back to, or it does not load: "+shorten(firstLine(u.s.mask(got.failed)), 200), "")
	}
	return u.readPage(ctx, 0)
}

func runTabs(ctx context.Context, u *use) (*mcp.CallToolResult, error) {
	var in struct {
		Action string `json:"action"`
		Index  *int   `json:"index"`
		URL    string `json:"url"`
	}
	if err := u.decode(&in); err != nil {
		return nil, err
	}
	args := map[string]any{"action": in.Action}
	if in.Index != nil {
		if *in.Index < 0 || *in.Index >= MaxTabs {
			return nil, refuse("F.1", "there is no such tab", "browser_tabs with action list says which there are")
		}
		args["index"] = *in.Index
	}
	switch in.Action {
	case "list":
		return u.listTabs(ctx)
	case "new":
		return u.newTab(ctx, in.URL)
	case "close", "select":
		if in.Index == nil && in.Action == "select" {
			return nil, refuse("F.1", "select needs the tab's index", "browser_tabs with action list says which there are")
		}
		return u.changeTab(ctx, args)
	}
	return nil, u.oneOf("action", in.Action+" ", "list", "new", "close", "select")
}

// listTabs lists them, also while a dialog is open: then it shows that too.
func (u *use) listTabs(ctx context.Context) (*mcp.CallToolResult, error) {
	if err := u.open(ctx, false); err != nil {
		return nil, err
	}
	at, err := u.look(ctx, false)
	var modal *modalError
	if err != nil && !errors.As(err, &modal) {
		return nil, err
	}
	if modal != nil {
		return u.fence(ctx, "", "dialog", modal.text, false), nil
	}
	var out strings.Builder
	for i, t := range at.Tabs {
		current := ""
		if t.Current {
			current = " (current)"
		}
		fmt.Fprintf(&out, "%d:%s %s\n", i, current, shorten(t.URL, 2000))
	}
	return u.fence(ctx, at.URL, "tabs", out.String(), false), nil
}

func (u *use) newTab(ctx context.Context, url string) (*mcp.CallToolResult, error) {
	most := u.s.b.o.Limits.Tabs
	if u.running() {
		if err := u.open(ctx, true); err != nil {
			return nil, err
		}
		at, err := u.look(ctx, false)
		if err != nil {
			return nil, u.explainModal(err)
		}
		if len(at.Tabs) >= most {
			return nil, refuse("F.8", fmt.Sprintf("there are %d tabs already, and no more may be", len(at.Tabs)), "Close one with browser_tabs, or use browser_navigate in one that is open")
		}
	}
	if url != "" {
		return u.visit(ctx, url, func(ctx context.Context) (answer, error) {
			return u.upstream(ctx, "browser_tabs", map[string]any{"action": "new", "url": url}, OpTime)
		})
	}
	if err := u.open(ctx, true); err != nil {
		return nil, err
	}
	return u.changeTab(ctx, map[string]any{"action": "new"})
}

// changeTab does something that makes another tab the current one.
func (u *use) changeTab(ctx context.Context, args map[string]any) (*mcp.CallToolResult, error) {
	if err := u.open(ctx, false); err != nil {
		return nil, err
	}
	u.s.snapshot = nil
	got, err := u.upstream(ctx, "browser_tabs", args, OpTime)
	if err != nil {
		return nil, err
	}
	if got.failed != "" {
		return nil, refuse("F.1", shorten(firstLine(u.s.mask(got.failed)), 200), "browser_tabs with action list says which there are")
	}
	return u.listTabs(ctx)
}

func runClose(_ context.Context, u *use) (*mcp.CallToolResult, error) {
	if err := u.decode(&struct{}{}); err != nil {
		return nil, err
	}
	u.s.closeWorker("you closed it")
	u.s.tell()
	return mcp.NewToolResultText("The browser is closed, and nothing of it is left."), nil
}
