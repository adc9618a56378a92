// Package settings is Handler's own configuration, ~/.config/handler/handler.toml: what concerns the machine and
// not one agent. The file need not exist; every key has a default that works.
package settings

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/handlerd/handler/configfile"
)

// Mend is what a person does about an error of Load, which names the file and the line.
const Mend = "edit that file, then: handler doctor"

// Settings is handler.toml.
type Settings struct {
	Engine  Engine  `toml:"engine"`
	Toolbox Toolbox `toml:"toolbox"`
	Protect Protect `toml:"protect"`
	Network Network `toml:"network"`
	Web     Web     `toml:"web"`
}

// Web is the page (K.1). It takes effect when the daemon starts.
type Web struct {
	Enabled bool `toml:"enabled"` // the page is served whenever the daemon runs
	Port    int  `toml:"port"`    // 1024 to 65535; 0 for the usual one, or the next that is free
}

// Network says how runs' proxies reach the network.
type Network struct {
	// Resolver is the name server that they ask, "ADDRESS:PORT"; "" for those of /etc/resolv.conf. It takes effect
	// when the daemon starts.
	Resolver string `toml:"resolver"`
}

// NameServer is Resolver as an address; invalid if there is none.
func (n Network) NameServer() (netip.AddrPort, error) {
	if n.Resolver == "" {
		return netip.AddrPort{}, nil
	}
	addr, err := netip.ParseAddrPort(n.Resolver)
	if err != nil || addr.Port() == 0 || addr.Addr().IsUnspecified() || addr.Addr().IsMulticast() {
		return netip.AddrPort{}, fmt.Errorf("network.resolver must be the address and port of a name server, such as 192.0.2.1:53, not %q", n.Resolver)
	}
	return addr, nil
}

// Engine says which podman runs the sandboxes (A.10).
type Engine struct {
	Socket  string `toml:"socket"`  // a podman API socket of the person's own; "" for Handler's own service
	Podman  string `toml:"podman"`  // path of the podman program; "" for the one on PATH
	Runtime string `toml:"runtime"` // "crun" or "runc"; "" for the one that works here
}

// Toolbox says what toolboxes are built from (A.8).
type Toolbox struct {
	Base        string   `toml:"base"`         // "auto" (also if empty), "mmdebstrap" or "registry"
	Mirror      string   `toml:"mirror"`       // Debian mirror; "" for the machine's own
	CACerts     []string `toml:"ca_certs"`     // further CA certificates the build trusts, PEM files
	NPMRegistry string   `toml:"npm_registry"` // "" for npm's default
}

// Protect names what a scope cannot carry out (A.9), besides the built-in list.
type Protect struct {
	Paths   []string `toml:"paths"`   // further paths below a scope or a repository, mounted read-only where they exist
	Allowed []string `toml:"allowed"` // entries of the built-in list that stay writable
}

// Load reads path; a file that is not there gives the defaults. Errors are *configfile.Error or the file system's.
func Load(path string) (Settings, error) {
	var s Settings
	if err := configfile.Read(path, &s); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Settings{}, err
	}
	if err := s.validate(); err != nil {
		return Settings{}, configfile.Errorf(path, "%v", err)
	}
	return s, nil
}

func (s Settings) validate() error {
	for key, path := range map[string]string{"engine.socket": s.Engine.Socket, "engine.podman": s.Engine.Podman} {
		if path != "" && !filepath.IsAbs(path) {
			return fmt.Errorf("%s must be an absolute path, not %q", key, path)
		}
	}
	switch s.Engine.Runtime {
	case "", "crun", "runc":
	default:
		return fmt.Errorf("engine.runtime must be crun or runc, not %q", s.Engine.Runtime)
	}
	switch s.Toolbox.Base {
	case "", "auto", "mmdebstrap", "registry":
	default:
		return fmt.Errorf("toolbox.base must be auto, mmdebstrap or registry, not %q", s.Toolbox.Base)
	}
	for key, u := range map[string]string{"toolbox.mirror": s.Toolbox.Mirror, "toolbox.npm_registry": s.Toolbox.NPMRegistry} {
		if u == "" {
			continue
		}
		if p, err := url.Parse(u); err != nil || p.Host == "" || (p.Scheme != "http" && p.Scheme != "https") {
			return fmt.Errorf("%s must be an http or https address, not %q", key, u)
		}
	}
	if _, err := s.Network.NameServer(); err != nil {
		return err
	}
	if p := s.Web.Port; p != 0 && (p < 1024 || p > 65535) {
		return fmt.Errorf("web.port must be 1024 to 65535, not %d", p)
	}
	for _, p := range append(append([]string{}, s.Protect.Paths...), s.Protect.Allowed...) {
		if p == "" || filepath.IsAbs(p) || strings.HasPrefix(filepath.Clean(p), "..") {
			return fmt.Errorf("protect: %q must be a path below a scope", p)
		}
	}
	return nil
}
