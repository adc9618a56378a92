package podman

import (
	"crypto/rand"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/containers/podman/v5/pkg/bindings/containers"

	"github.com/handlerd/handler/sandbox"
	"github.com/handlerd/handler/sandbox/sandboxtest"
)

// BenchmarkStart compares a start through the driver, to the first sign of its command, with the same specification
// through podman's bare API, in turn. It reports medians; make bench holds them against the bound of 1.3.
func BenchmarkStart(b *testing.B) {
	r := newRig(b)
	guest, err := sandboxtest.BuildGuest(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	dir := filepath.Join(r.dir, "d")
	if err := os.Mkdir(dir, 0o700); err != nil {
		b.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, "t.sock"))
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	s := r.spec("dial=" + sandbox.RunDirTarget + "/t.sock")
	s.RunDir, s.Guest = dir, guest
	measure := func(start func() (string, error)) (toSign, removal time.Duration) {
		began := time.Now()
		id, err := start()
		if err != nil {
			b.Fatal(err)
		}
		if err := l.(*net.UnixListener).SetDeadline(time.Now().Add(time.Minute)); err != nil {
			b.Fatal(err)
		}
		c, err := l.Accept()
		if err != nil {
			b.Fatal(err)
		}
		toSign = time.Since(began)
		c.Close()
		if _, err := r.Wait(b.Context(), id); err != nil {
			b.Fatal(err)
		}
		began = time.Now()
		if err := r.Remove(b.Context(), id); err != nil {
			b.Fatal(err)
		}
		return toSign, time.Since(began)
	}
	ours := func() (string, error) { return r.Start(b.Context(), s) }
	raw := func() (string, error) {
		api, m, err := r.ready(b.Context())
		if err != nil {
			return "", err
		}
		made, err := containers.CreateWithSpec(api, build(input{spec: s, owner: "test", nonce: rand.Text(), machine: *m, layout: r.layout(), runDir: dir}), nil)
		if err != nil {
			return "", err
		}
		return made.ID, containers.Start(api, made.ID, nil)
	}
	var through, bare, gone []time.Duration
	for b.Loop() {
		took, removed := measure(ours)
		through, gone = append(through, took), append(gone, removed)
		took, _ = measure(raw)
		bare = append(bare, took)
	}
	for name, all := range map[string][]time.Duration{"driver-ms": through, "bare-ms": bare, "remove-ms": gone} {
		slices.Sort(all)
		b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, name)
	}
}
