package harness

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/handlerd/handler/configfile"
)

var (
	tokenRE       = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}$")
	placeholderRE = regexp.MustCompile(`\{[A-Za-z_]+\}`)
	methods       = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
	// framing are the headers that belong to the connection or to the proxy itself.
	framing = []string{"host", "connection", "content-length", "transfer-encoding", "te", "trailer", "upgrade",
		"keep-alive", "proxy-authorization", "proxy-connection", "expect", "origin", "forwarded", "via"}
)

// ValidUpstreamURL checks the address of a model provider: https, or http where the host is a loopback address
// (a model on the person's own machine); no user, query or fragment.
func ValidUpstreamURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Hostname() == "" {
		return errors.New("url must be an absolute one, such as \"https://api.example.com\"") // the cause would repeat the text
	}
	switch {
	case u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return errors.New("url must have no user, query or fragment")
	case u.Path != "" && path.Clean(u.Path) != strings.TrimSuffix(u.Path, "/") && u.Path != "/":
		return errors.New("url must have a plain path")
	case u.Scheme == "https":
		return nil
	case u.Scheme == "http" && loopback(u.Hostname()):
		return nil
	case u.Scheme == "http":
		return fmt.Errorf("url http://%s must be https: only a loopback address may be http", configfile.Clip(u.Host))
	}
	return fmt.Errorf("url has the scheme %q; https is needed", configfile.Clip(u.Scheme))
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.Unmap().IsLoopback()
}

// ValidHeader checks a header that Handler adds to requests: a token that is neither the connection's nor the
// proxy's own, and a value of one line.
func ValidHeader(name, value string) error {
	if !tokenRE.MatchString(name) {
		return fmt.Errorf("%q is not the name of a header", configfile.Clip(name))
	}
	if slices.Contains(framing, strings.ToLower(name)) || strings.HasPrefix(strings.ToLower(name), "sec-") {
		return fmt.Errorf("the header %s cannot be set", name)
	}
	if len(value) > 8<<10 || strings.IndexFunc(value, isControl) >= 0 {
		return fmt.Errorf("the value of header %s must be one line of at most 8 KiB", name)
	}
	return nil
}

func (m *Manifest) checkUpstreams() error {
	seen, env := map[string]bool{}, map[string]string{}
	for i := range m.Upstreams {
		u := &m.Upstreams[i]
		if err := ValidName(u.Name); err != nil {
			return fmt.Errorf("upstreams[%d].name: %w", i, err)
		}
		if seen[u.Name] {
			return fmt.Errorf("upstream %s is there twice", u.Name)
		}
		seen[u.Name] = true
		if err := u.check(); err != nil {
			return fmt.Errorf("upstream %s: %w", u.Name, err)
		}
		for name := range u.Env {
			if other := env[name]; other != "" {
				return fmt.Errorf("upstreams %s and %s both set %s", other, u.Name, name)
			}
			env[name] = u.Name
		}
	}
	return nil
}

func (u *Upstream) check() error {
	if err := ValidUpstreamURL(u.URL); err != nil {
		return err
	}
	if len(u.Methods) == 0 || len(u.Paths) == 0 {
		return fmt.Errorf("methods and paths must each list what is served (at most %d)", maxList)
	}
	if err := ValidServed(u.Methods, u.Paths); err != nil {
		return err
	}
	if len(u.Auth) == 0 || len(u.Auth) > maxList {
		return errors.New("auth is missing: at least one [[upstreams.auth]] with secret and header")
	}
	secrets := map[string]bool{}
	for i, a := range u.Auth {
		if err := a.check(); err != nil {
			return fmt.Errorf("auth[%d]: %w", i, err)
		}
		if secrets[a.Secret] {
			return fmt.Errorf("auth: secret %s is there twice", a.Secret)
		}
		secrets[a.Secret] = true
	}
	if len(u.Env) > maxList {
		return fmt.Errorf("env has %d entries; at most %d are possible", len(u.Env), maxList)
	}
	for _, name := range slices.Sorted(maps.Keys(u.Env)) {
		if err := ValidEnv(name, u.Env[name]); err != nil {
			return fmt.Errorf("env: %w", err)
		}
		for _, p := range placeholderRE.FindAllString(u.Env[name], -1) {
			if p != "{url}" && p != "{key}" {
				return fmt.Errorf("env %s: %s is not known: only {url} and {key} are", name, configfile.Clip(p))
			}
		}
	}
	return nil
}

// ValidServed checks what an upstream serves, or an agent leaves of it: known methods, plain paths with "*" only at
// their end, at most 64 of each, none twice.
func ValidServed(served, paths []string) error {
	if len(paths) > maxList {
		return fmt.Errorf("paths has %d entries; at most %d are possible", len(paths), maxList)
	}
	if err := subset("methods", served, methods...); err != nil {
		return err
	}
	for i, p := range paths {
		if err := validServed(p); err != nil {
			return err
		}
		if slices.Contains(paths[:i], p) {
			return fmt.Errorf("paths: %s is there twice", p)
		}
	}
	return nil
}

// validServed checks a served path: absolute, plain, "*" only at the end.
func validServed(p string) error {
	plain := strings.TrimSuffix(p, "*")
	ok := strings.HasPrefix(p, "/") && len(p) <= 300 && !strings.ContainsAny(plain, "*?#%;\\ ") &&
		strings.IndexFunc(p, isControl) < 0 && !strings.Contains(p, "//")
	for _, part := range strings.Split(plain, "/") {
		ok = ok && part != "." && part != ".."
	}
	if !ok {
		return fmt.Errorf("path %q must begin with \"/\", be plain, and may have \"*\" only at its end", configfile.Clip(p))
	}
	return nil
}

func (a *Auth) check() error {
	if err := ValidKey(a.Secret); err != nil {
		return fmt.Errorf("secret: %w", err)
	}
	if err := ValidHeader(a.Header, a.Prefix); err != nil {
		return err
	}
	if len(a.Extra) > maxList {
		return fmt.Errorf("extra has %d entries; at most %d are possible", len(a.Extra), maxList)
	}
	for _, name := range slices.Sorted(maps.Keys(a.Extra)) {
		if err := ValidHeader(name, a.Extra[name]); err != nil {
			return fmt.Errorf("extra: %w", err)
		}
	}
	return nil
}
