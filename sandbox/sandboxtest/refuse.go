package sandboxtest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/handlerd/handler/sandbox"
)

// A start that fails, at whatever step, leaves nothing (startFails looks).
func (s *suite) failedStart(t *testing.T) {
	t.Run("image not found", func(t *testing.T) {
		r := s.prepare(t, "wait")
		r.spec.Image = "localhost/handler-test/no-such-image:" + s.owner
		var notFound *sandbox.ImageNotFoundError
		if err := r.startFails(); !errors.As(err, &notFound) || notFound.Ref != r.spec.Image {
			t.Errorf("%v, want *sandbox.ImageNotFoundError of %s", err, r.spec.Image)
		}
	})
	t.Run("image mount not found", func(t *testing.T) {
		r := s.prepare(t, "wait")
		r.spec.Images = []sandbox.ImageMount{{Image: "localhost/handler-test/no-such-mount:" + s.owner, Target: sandbox.HarnessTarget}}
		var notFound *sandbox.ImageNotFoundError
		if err := r.startFails(); !errors.As(err, &notFound) || notFound.Ref != r.spec.Images[0].Image {
			t.Errorf("%v, want *sandbox.ImageNotFoundError of %s", err, r.spec.Images[0].Image)
		}
	})
	t.Run("files that cannot be written", func(t *testing.T) {
		r := s.prepare(t, "wait")
		volume := filepath.Join(t.TempDir(), "volume")
		r.spec.Volumes = []sandbox.Volume{{Source: volume, Target: sandbox.HomeTarget + "/state"}}
		r.spec.Files = []sandbox.File{
			{Path: sandbox.HomeTarget + "/a", Mode: 0o600, Content: []byte("x")},
			{Path: sandbox.HomeTarget + "/a/b", Mode: 0o600, Content: []byte("x")}, // below a file
		}
		_ = r.startFails()
		if _, err := os.Lstat(volume); !os.IsNotExist(err) {
			t.Errorf("left: the volume's new folder (%v)", err)
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		r := s.prepare(t, "wait")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if id, err := s.Driver.Start(ctx, r.spec); err == nil { // a driver may be through before it looks
			r.id = id
			r.remove()
		}
	})
}

// What cannot be is refused as a *sandbox.SpecError, before anything is made.
func (s *suite) badSpecs(t *testing.T) {
	dir := t.TempDir()
	file := sandbox.File{Path: sandbox.SecretsTarget + "/x", Mode: 0o600}
	for name, change := range map[string]func(*sandbox.Spec){
		"no name":         func(sp *sandbox.Spec) { sp.Name = "" },
		"bad name":        func(sp *sandbox.Spec) { sp.Name = "../X" },
		"no command":      func(sp *sandbox.Spec) { sp.Command = nil },
		"relative folder": func(sp *sandbox.Spec) { sp.Dir = "home" },
		"no guest":        func(sp *sandbox.Spec) { sp.Guest = "" },
		"relative file":   func(sp *sandbox.Spec) { sp.Files = []sandbox.File{{Path: "x"}} },
		"file twice":      func(sp *sandbox.Spec) { sp.Files = []sandbox.File{file, file} },
		"mount not there": func(sp *sandbox.Spec) { sp.Mounts = []sandbox.Mount{{Source: dir + "/no", Target: dir + "/no"}} },
		"relative mount":  func(sp *sandbox.Spec) { sp.Mounts = []sandbox.Mount{{Source: "x", Target: "/x"}} },
		"mount over root": func(sp *sandbox.Spec) { sp.Mounts = []sandbox.Mount{{Source: dir, Target: "/"}} },
		"same target twice": func(sp *sandbox.Spec) {
			sp.Mounts = []sandbox.Mount{{Source: dir, Target: dir}, {Source: dir, Target: dir}}
		},
		"unclean volume":  func(sp *sandbox.Spec) { sp.Volumes = []sandbox.Volume{{Source: dir + "/v", Target: "/v/../w"}} },
		"relative tmpfs":  func(sp *sandbox.Spec) { sp.Tmpfs = []sandbox.Tmpfs{{Target: "x", Bytes: 1 << 20}} },
		"unknown display": func(sp *sandbox.Spec) { sp.Display = &sandbox.Display{Mode: "x11", Socket: dir} },
		"relative image":  func(sp *sandbox.Spec) { sp.Images = []sandbox.ImageMount{{Image: s.image, Target: "opt"}} },
	} {
		t.Run(name, func(t *testing.T) {
			r := s.prepare(t, "wait")
			change(&r.spec)
			var spec *sandbox.SpecError
			if err := r.startFails(); !errors.As(err, &spec) {
				t.Errorf("%v, want a *sandbox.SpecError", err)
			}
		})
	}
}

// A limit that was asked for and that the kernel does not keep here is refused; as a default it is not.
func (s *suite) unenforced(t *testing.T) {
	ctx, cancel := s.ctx(t)
	defer cancel()
	info, err := s.Driver.Info(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if info.Engine == "" || info.Version == "" {
		t.Errorf("%+v does not name the engine", info)
	}
	set := func(sp *sandbox.Spec, name string, asked bool) {
		switch name {
		case "memory":
			sp.Limits.Memory = sandbox.Limit{Value: 512 << 20, Asked: asked}
		case "CPU": // a part of a processor, which only a cgroup gives
			sp.Limits.CPU = sandbox.Limit{Value: 500, Asked: asked}
		case "process":
			sp.Limits.Processes = sandbox.Limit{Value: 100, Asked: asked}
		}
	}
	for name, enforced := range map[string]bool{"memory": info.Enforced.Memory, "CPU": info.Enforced.CPU, "process": info.Enforced.Processes} {
		r := s.prepare(t, "wait")
		set(&r.spec, name, true)
		if enforced {
			r.start().ready().remove()
			continue
		}
		var un *sandbox.UnenforcedError
		if err := r.startFails(); !errors.As(err, &un) || un.Limit != name || un.Reason == "" {
			t.Errorf("%s asked for: %v, want *sandbox.UnenforcedError", name, err)
		}
		set(&r.spec, name, false)
		r.start().ready().remove()
	}
}
