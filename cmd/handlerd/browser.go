package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"

	"github.com/handlerd/handler/handlerd/acp"
	"github.com/handlerd/handler/handlerd/artifacts"
	"github.com/handlerd/handler/handlerd/browser"
	"github.com/handlerd/handler/handlerd/egress"
	"github.com/handlerd/handler/handlerd/fault"
	"github.com/handlerd/handler/handlerd/mcpbox"
	"github.com/handlerd/handler/sandbox"
)

// The variables by which a person bounds the guarded browser.
const (
	envBrowserSessions = "HANDLER_BROWSER_MAX_SESSIONS"
	envBrowserTabs     = "HANDLER_BROWSER_MAX_TABS"
	envBrowserDenied   = "HANDLER_BROWSER_DENIED_HOSTS"
)

// countVariable reads a variable that is a number from 1 to most; 0 where it is not set.
func countVariable(name string, most int) (int, error) {
	text := os.Getenv(name)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, fault.New(fault.Usage, "export "+name+"="+strconv.Itoa(most), "%s is %q, and must be a number from 1 to %d", name, text, most)
	}
	return n, nil
}

// boxes is how MCP servers are run in sandboxes of their own.
func (w *wired) boxes(guest string, resolver egress.Resolver) mcpbox.Options {
	return mcpbox.Options{
		Driver:   w.driver,
		Enforced: func(ctx context.Context) (sandbox.Enforced, error) { return w.runs.Enforced(ctx) },
		Watch: func(ctx context.Context, id string, l sandbox.Limits, stop func(error)) {
			w.runs.WatchBox(ctx, id, l, stop)
		},
		Live:  func(a mcpbox.About) func() { return w.runs.BoxLives(a) },
		Owed:  func(id string, err error) { w.runs.Owe(id, err) },
		Owner: owner(w.dirs), RunRoot: filepath.Join(w.dirs.Run, "runs"), Guest: guest,
		OwnListeners: func() []netip.AddrPort { return w.runs.Listeners() },
		Resolver:     resolver,
	}
}

// wireBrowser makes the guarded browser over w.runs, which is made after it.
func (w *wired) wireBrowser(guest string, resolver egress.Resolver) error {
	denied, err := browser.ParseDenied(os.Getenv(envBrowserDenied))
	if err != nil {
		return fault.Wrap(fault.Usage, err, "", envBrowserDenied)
	}
	var limits browser.Limits
	if limits.Sessions, err = countVariable(envBrowserSessions, browser.MaxSessions); err != nil {
		return err
	}
	if limits.Tabs, err = countVariable(envBrowserTabs, browser.MaxTabs); err != nil {
		return err
	}
	log := w.log.With("part", "browser")
	box := w.boxes(guest, resolver)
	box.Logger = log
	launcher := browser.NewLauncher(browser.SandboxOptions{
		Options: box, Denied: denied,
		Audit:  func(run string, r egress.Record) { w.runs.BoxRefused(run, r) },
		Failed: func(run string, f egress.Failure) { w.runs.BoxFailed(run, f) },
	})
	var names lookup = &net.Resolver{PreferGo: true}
	if resolver != nil {
		names = resolver
	}
	w.browser, err = browser.New(browser.Options{
		Launcher: launcher,
		Policy:   func(run string) (browser.Policy, bool) { return w.runs.BrowserPolicy(run) },
		Ask:      func(ctx context.Context, q browser.Question) (bool, error) { return w.runs.AskBrowser(ctx, q) },
		Resolve: func(ctx context.Context, host string) ([]netip.Addr, error) {
			return names.LookupNetIP(ctx, "ip", host)
		},
		Hosts:     func(run, session string) (func(string) http.Handler, func()) { return w.runs.Previews(run, session) },
		OpenFile:  func(run, path string) (io.ReadCloser, error) { return w.runs.OpenScopeFile(run, path) },
		Artifacts: w.artifacts, Owner: artifacts.Principal(os.Getuid()), Limits: limits, Logger: log,
	})
	if err != nil {
		return err
	}
	w.closing(w.browser.Close)
	return nil
}

// lookup is what a resolver of the landing check must be able to.
type lookup interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// A hostedBrowser is the guarded browser as the server of one run.
type hostedBrowser struct {
	*browser.Browser
	run string
}

// Event tells the browser of turns and sessions (F.2).
func (b *hostedBrowser) Event(e acp.Event) {
	switch e.Kind {
	case acp.TurnStarted:
		b.TurnStarted(b.run, e.Session)
	case acp.TurnCancelled:
		b.TurnCancelled(b.run, e.Session)
	case acp.TurnEnded:
		b.TurnEnded(b.run, e.Session)
	case acp.SessionClosed:
		b.SessionClosed(b.run, e.Session)
	}
}

// Recheck cuts what the run's browsers have open and rules refuse by now.
func (b *hostedBrowser) Recheck() { b.Browser.Recheck(b.run) }

// Stop ends the run's browsers; the gateway lets no call through any more.
func (b *hostedBrowser) Stop() { b.RunEnded(b.run) }

// Close ends the run's browsers, and not the Browser, which is the daemon's.
func (b *hostedBrowser) Close() error {
	b.RunEnded(b.run)
	return nil
}
