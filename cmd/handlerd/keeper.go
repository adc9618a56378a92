package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/catalog"
	"github.com/handlerd/handler/handlerd/display"
)

// wireKeeper makes what shows and changes agents over the API.
func (w *wired) wireKeeper() {
	w.keeper = &catalog.Keeper{Catalog: w.catalog, Scopes: w.dirs.Scopes, Display: w.displays, Changed: func() { w.feed.Announce(types.Change{Agents: true}) }}
}

// displays says which screens there are for a sandbox's windows: what a run would get that nobody says more of, and
// everything else that answers in the runtime folder.
func (w *wired) displays(ctx context.Context) types.DisplayState {
	v := types.DisplayState{Sockets: []types.DisplaySocket{}}
	chosen, err := findDisplay(w.dirs.XDGRun)(ctx, types.Wayland{})
	v.Chosen = chosen
	if err != nil {
		v.Problem, _ = types.FromError(err)
	}
	sockets, err := display.Live(ctx, w.dirs.XDGRun)
	if err != nil {
		w.log.Warn("the runtime folder could not be looked through for screens", "error", err)
	}
	if chosen != "" && !slices.Contains(sockets, chosen) {
		sockets = append(sockets, chosen)
	}
	for _, socket := range sockets {
		c, err := w.tryContext(ctx, socket)
		if err != nil {
			w.log.Info("a screen that was there is not any more", "socket", socket, "error", err)
			continue
		}
		v.Sockets = append(v.Sockets, describeDisplay(socket, c))
	}
	return v
}

// tryContext asks a compositor for what a sandbox would be given, and gives it back.
func (w *wired) tryContext(ctx context.Context, socket string) (*display.Context, error) {
	c, err := display.Open(ctx, socket, filepath.Join(w.dirs.Run, fmt.Sprintf("try-%s.sock", rand.Text()[:8])), "handler.try", "try")
	if err != nil {
		return nil, err
	}
	return c, c.Close()
}

func describeDisplay(socket string, c *display.Context) types.DisplaySocket {
	v := types.DisplaySocket{Path: socket, Restricted: c.Restricted, Powers: append([]string{}, c.Compositor.Powers()...)}
	v.Says = cmp.Or(c.Compositor.Notice(), "this compositor lets the sandbox show windows and paste, and nothing else")
	v.Says = strings.ReplaceAll(v.Says, "\n", " ")
	return v
}
