package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/handlerd/handler/sandbox/proctree"
)

// A census is what there is at one moment of all that runs use.
type census struct {
	goroutines, descriptors int
	memory                  int64 // the daemon's own, in bytes
	processes               []string
	containers              []string
	sockets                 []string
	mounts                  []string
	folders                 []string
	layers                  int // of the storage, which a killed service may leave one of
}

func (c census) String() string {
	return fmt.Sprintf("%d goroutines, %d descriptors, %.1f MB, %d processes, %d containers, %d sockets, %d mounts, %d files and folders, %d layers",
		c.goroutines, c.descriptors, float64(c.memory)/1e6, len(c.processes), len(c.containers), len(c.sockets), len(c.mounts), len(c.folders), c.layers)
}

// more says what there is of c and was not of before.
func (c census) more(before census) []string {
	var more []string
	if c.goroutines > before.goroutines {
		more = append(more, fmt.Sprintf("%d goroutines, of %d", c.goroutines, before.goroutines))
	}
	if c.descriptors > before.descriptors {
		more = append(more, fmt.Sprintf("%d descriptors, of %d", c.descriptors, before.descriptors))
	}
	if most := int64(float64(before.memory)*memoryFactor) + memorySlack; c.memory > most {
		more = append(more, fmt.Sprintf("%.1f MB of memory, of %.1f MB", float64(c.memory)/1e6, float64(before.memory)/1e6))
	}
	for _, k := range []struct {
		kind     string
		now, was []string
	}{
		{"process", c.processes, before.processes}, {"container", c.containers, before.containers}, {"socket", c.sockets, before.sockets},
		{"mount", c.mounts, before.mounts}, {"file or folder", c.folders, before.folders},
	} {
		was := slices.Clone(k.was)
		for _, one := range k.now {
			if i := slices.Index(was, one); i >= 0 {
				was = slices.Delete(was, i, i+1)
				continue
			}
			more = append(more, k.kind+" "+one)
		}
	}
	return more
}

// settled waits until no run is left and takes the census; with before until there is no more than before, at most
// settleLimit. What is over then is in the census.
func (d *daemon) settled(ctx context.Context, before *census) (census, error) {
	limit := time.Now().Add(settleLimit)
	last := -1
	for {
		c, err := d.census(ctx)
		switch {
		case err != nil:
			return c, err
		case before != nil && len(c.more(*before)) == 0:
			return c, nil
		case before == nil && len(c.containers) == 0 && c.goroutines == last:
			return c, nil
		case time.Now().After(limit):
			return c, nil
		}
		last = c.goroutines
		select {
		case <-time.After(time.Second): // counts at rest have no event
		case <-ctx.Done():
			return c, ctx.Err()
		}
	}
}

func (d *daemon) census(ctx context.Context) (census, error) {
	var c census
	v, err := d.api.Version(ctx)
	if err != nil {
		return c, fmt.Errorf("the daemon does not answer: %w", err)
	}
	// The connection that asks is one of both, and is there each time.
	c.goroutines, c.descriptors = v.Goroutines, v.Descriptors
	if c.memory, err = ownMemory(v.PID); err != nil {
		return c, err
	}
	if c.containers, err = d.containers(ctx); err != nil {
		return c, err
	}
	if c.processes, c.mounts, err = d.processes(); err != nil {
		return c, err
	}
	if c.sockets, err = d.sockets(); err != nil {
		return c, err
	}
	layers, err := filepath.Glob(filepath.Join(d.data, "podman/storage/overlay/*"))
	if err != nil {
		return c, err
	}
	c.layers = len(layers)
	c.folders, err = d.folders()
	return c, err
}

// ownMemory is what no other process shares with pid.
func ownMemory(pid int) (int64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, err
	}
	var sum int64
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) == 3 && strings.HasPrefix(f[0], "Private_") {
			kb, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				return 0, err
			}
			sum += kb << 10
		}
	}
	return sum, nil
}

// containers asks Handler's podman, and its storage, which may know of what podman does not.
func (d *daemon) containers(ctx context.Context) ([]string, error) {
	http1 := http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(d.runtime, "podman/p.sock"))
		}}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://podman/v4.0.0/libpod/containers/json?all=true&external=true", nil)
	if err != nil {
		return nil, err
	}
	res, err := http1.Do(req)
	if err != nil {
		return nil, fmt.Errorf("podman's service: %w", err)
	}
	defer res.Body.Close()
	var listed []struct {
		Names []string
		State string
	}
	if err := json.NewDecoder(res.Body).Decode(&listed); err != nil {
		return nil, err
	}
	found := []string{}
	for _, l := range listed {
		found = append(found, fmt.Sprint(l.Names, " ", l.State))
	}
	return found, nil
}

var (
	ofRun     = regexp.MustCompile(`/handler/runs/\w+`)
	ofSandbox = regexp.MustCompile(`handler-[0-9a-f]{8}-[a-z0-9]{4}\b|handler-guest|handler-demo-agent`)
)

// processes lists those of sandboxes and of podman, by name, and the mounts of runs in whatever mount namespace.
func (d *daemon) processes() (processes, mounts []string, err error) {
	all, err := proctree.Scan()
	if err != nil {
		return nil, nil, err
	}
	podman := []byte("XDG_RUNTIME_DIR=" + filepath.Join(d.runtime, "podman"))
	seen := map[string]bool{}
	for _, p := range all {
		dir := fmt.Sprintf("/proc/%d/", p.PID)
		argv, _ := os.ReadFile(dir + "cmdline") // all of these fail for one that has ended, and for another's
		environ, _ := os.ReadFile(dir + "environ")
		text := string(bytes.ReplaceAll(argv, []byte{0}, []byte{' '}))
		if !p.Dead() && (ofSandbox.MatchString(text) && owned(dir) || bytes.Contains(environ, podman)) {
			processes = append(processes, fmt.Sprintf("%.200s", text))
		}
		ns, err := os.Readlink(dir + "ns/mnt")
		if err != nil || seen[ns] {
			continue
		}
		seen[ns] = true
		info, _ := os.ReadFile(dir + "mountinfo")
		for line := range strings.Lines(string(info)) {
			// An image that several runs share may stay mounted, one time, until podman's namespace ends.
			if ofRun.MatchString(line) || strings.Contains(line, d.data) && strings.Contains(line, ",upperdir=") {
				mounts = append(mounts, strings.TrimSpace(line))
			}
		}
	}
	return processes, mounts, nil
}

func owned(proc string) bool {
	f, err := os.Open(proc + "environ") // only of one's own processes, in sandboxes too
	if err != nil {
		return false
	}
	f.Close()
	return true
}

// sockets lists the bound ones below Handler's runtime folder, also those whose file has gone.
func (d *daemon) sockets() ([]string, error) {
	data, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		return nil, err
	}
	var found []string
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		// Only what listens: the number of connections to a socket changes with every question.
		if len(f) == 8 && strings.HasPrefix(f[7], d.runtime+"/") && f[3] == "00010000" {
			found = append(found, f[7])
		}
	}
	return found, nil
}

// folders lists what runs leave in Handler's folders and podman's. Podman's lock files are not counted: one may be left
// of each container, and handlerd removes them when there are 128.
func (d *daemon) folders() ([]string, error) {
	var found []string
	for _, pattern := range []string{
		filepath.Join(d.runtime, "*"), filepath.Join(d.runtime, "runs/*"), filepath.Join(d.runtime, "podman/[fl]/*"),
		filepath.Join(d.runtime, "podman/x/runc/*"), filepath.Join(d.runtime, "podman/x/crun/*"),
		filepath.Join(d.runtime, "podman/x/libpod/tmp/[eps]*/*"), filepath.Join(d.data, "podman/storage/overlay-containers/*"),
		filepath.Join(d.data, "podman/storage/volumes/*"), filepath.Join(d.data, "podman/tmp/*"),
		filepath.Join(os.TempDir(), "*handler*"),
	} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			var st unix.Stat_t
			if err := unix.Lstat(path, &st); err == nil && int(st.Uid) == os.Getuid() || strings.HasPrefix(path, d.data) {
				found = append(found, path)
			}
		}
	}
	return found, nil
}

// leftAtEnd says what of the daemon and of podman outlives the daemon.
func (d *daemon) leftAtEnd() ([]string, error) {
	processes, mounts, err := d.processes()
	sockets, serr := d.sockets()
	runs, gerr := filepath.Glob(filepath.Join(d.runtime, "runs/*"))
	return slices.Concat(processes, mounts, sockets, runs), errors.Join(err, serr, gerr)
}
