package fake

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/handlerd/handler/sandbox"
)

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// A view maps paths inside a sandbox to paths of the host; the package comment has the rules.
type view struct {
	image string            // the image's unpacked root
	to    map[string]string // target to host path
	tmpfs map[string]string // what of it stands for a tmpfs
	own   []string          // host folders to make
	links map[string]string // symbolic links to make, with what they lead to
}

// view works out the mapping of one sandbox.
func (d *Driver) view(b *box, s sandbox.Spec) (*view, error) {
	root := filepath.Join(b.dir, "root")
	image, err := d.images.root(s.Image)
	if err != nil {
		return nil, err
	}
	v := &view{image: image, to: map[string]string{}, links: map[string]string{}, own: []string{root}}
	for _, target := range []string{"/tmp", sandbox.HomeTarget, sandbox.SecretsTarget, sandbox.RuntimeTarget} {
		v.to[target] = root + target
	}
	for _, t := range s.Tmpfs {
		v.to[t.Target] = root + t.Target
	}
	v.tmpfs = maps.Clone(v.to)
	for _, host := range v.to {
		v.own = append(v.own, host)
	}
	own := len(v.to)
	for _, m := range s.Mounts {
		v.to[m.Target] = m.Source
	}
	for _, vol := range s.Volumes {
		v.to[vol.Target] = vol.Source
	}
	for _, i := range s.Images {
		if v.to[i.Target], err = d.images.root(i.Image); err != nil {
			return nil, err
		}
	}
	if len(v.to) > own {
		v.linkBelow(root)
	}
	if s.RunDir != "" {
		v.to[sandbox.RunDirTarget] = s.RunDir
	}
	if s.Guest != "" {
		v.to[sandbox.GuestTarget] = filepath.Dir(s.Guest)
	}
	if s.Display != nil && s.Display.Mode == sandbox.DisplayWayland {
		host := root + sandbox.DisplayTarget
		v.own = append(v.own, filepath.Dir(host))
		v.links[host] = s.Display.Socket
		v.to[filepath.Dir(sandbox.DisplayTarget)] = filepath.Dir(host)
		v.to[sandbox.DisplayTarget] = s.Display.Socket // itself, since a socket's path must be short
	}
	return v, nil
}

// linkBelow plans links for targets that a walk through a folder of the sandbox's own should meet.
func (v *view) linkBelow(root string) {
	for target, host := range v.to {
		if target == host || strings.HasPrefix(host, root+"/") {
			continue
		}
		// Only where what holds it is the sandbox's own: in a scope or a volume a link would be litter.
		if at := v.path(filepath.Dir(target)); strings.HasPrefix(at, root+"/") {
			v.links[filepath.Join(at, filepath.Base(target))] = host
		}
	}
}

// path maps one path. What is not absolute stays.
func (v *view) path(p string) string {
	if !filepath.IsAbs(p) || strings.HasPrefix(p, "//") { // the rest of a URL is no path
		return p
	}
	for target := filepath.Clean(p); target != "/"; target = filepath.Dir(target) {
		if host, ok := v.to[target]; ok {
			return host + filepath.Clean(p)[len(target):]
		}
	}
	if in := filepath.Join(v.image, p); v.image != "" && p != "/" {
		if _, err := os.Lstat(in); err == nil {
			return in
		}
	}
	return p
}

// argv maps a command. Its program may be one of the host's.
func (v *view) argv(argv []string) []string {
	mapped := make([]string, len(argv))
	for i, a := range argv {
		if name, value, ok := strings.Cut(a, "="); ok && !strings.Contains(name, "/") {
			mapped[i] = name + "=" + v.path(value)
			continue
		}
		mapped[i] = v.path(a)
	}
	if _, err := os.Stat(mapped[0]); err != nil {
		mapped[0] = argv[0]
	}
	return mapped
}

// env returns the command's whole environment and the PATH in it. None of the host's own is in there.
func (v *view) env(s sandbox.Spec, mark string) (env []string, path string) {
	vars := map[string]string{"PATH": defaultPath, "HOME": sandbox.HomeTarget, "TMPDIR": "/tmp",
		"XDG_RUNTIME_DIR": sandbox.RuntimeTarget}
	if s.Display != nil {
		vars["WAYLAND_DISPLAY"] = s.Display.Target()
	}
	for k, val := range s.Env {
		vars[k] = val
	}
	for k, val := range vars {
		parts := strings.Split(val, ":")
		for i := range parts {
			parts[i] = v.path(parts[i])
		}
		vars[k] = strings.Join(parts, ":")
		env = append(env, k+"="+vars[k])
	}
	slices.Sort(env)
	return append(env, markName+"="+mark), vars["PATH"]
}

// files maps the files' paths.
func (v *view) files(files []sandbox.File) []sandbox.File {
	mapped := slices.Clone(files)
	for i := range mapped {
		mapped[i].Path = v.path(mapped[i].Path)
	}
	return mapped
}

// lookPath finds a program in path, which is the sandbox's and not ours.
func lookPath(name, path string) (string, error) {
	if strings.Contains(name, "/") {
		return exec.LookPath(name)
	}
	for _, dir := range filepath.SplitList(path) {
		if p, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return p, nil
		}
	}
	return "", fmt.Errorf("command %s: %w", name, exec.ErrNotFound)
}
