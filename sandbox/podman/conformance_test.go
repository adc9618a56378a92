package podman

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/handlerd/handler/sandbox/sandboxtest"
)

// TestConformance holds the driver to contract A. It needs podman and an ordinary user, like real_test.go.
func TestConformance(t *testing.T) {
	needUser(t)
	sandboxtest.Run(t, func(t *testing.T) sandboxtest.Target {
		r := newRig(t)
		return sandboxtest.Target{
			Driver: r.Driver, Images: r.Images(), Strict: true,
			Inspect:   func(ctx context.Context, id string) (string, error) { return r.everything(ctx, id) },
			Leftovers: r.leftovers,
		}
	})
}

// everything is all that podman shows and keeps of a sandbox.
func (r *rig) everything(ctx context.Context, id string) (string, error) {
	api, _, err := r.ready(ctx)
	if err != nil {
		return "", err
	}
	var inspected json.RawMessage
	if err := get(api, &inspected, nil, "/containers/%s/json", id); err != nil {
		return "", err
	}
	logs, err := r.Output(ctx, id)
	if err != nil {
		return "", err
	}
	return string(inspected) + string(logs), nil
}

// leftovers lists what podman still has, in its own words and in its folders.
func (r *rig) leftovers(ctx context.Context) ([]string, error) {
	api, _, err := r.ready(ctx)
	if err != nil {
		return nil, err
	}
	var left []string
	for _, path := range []string{"/containers/json?all=true&external=true", "/volumes/json", "/pods/json"} {
		var found []json.RawMessage
		if err := get(api, &found, nil, path); err != nil {
			return nil, err
		}
		for _, f := range found {
			left = append(left, path+": "+string(f))
		}
	}
	l := r.layout()
	for _, dir := range []string{l.files(), l.logs(), filepath.Join(l.xdg(), "libpod/tmp/socket"), filepath.Join(l.xdg(), "libpod/tmp/persist")} {
		entries, err := os.ReadDir(dir)
		if err != nil && !os.IsNotExist(err) {
			return nil, err
		}
		for _, e := range entries {
			left = append(left, fmt.Sprintf("%s/%s", dir, e.Name()))
		}
	}
	return left, nil
}
