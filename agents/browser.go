package agents

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/handlerd/handler/configfile"
)

// Bounds of Browser.Lifetime (F.8).
const (
	DefaultBrowserLife = 5 * time.Minute
	MaxBrowserLife     = 15 * time.Minute
	minBrowserLife     = 10 * time.Second
)

// DefaultBrowserSearch is the result page of agents that name none.
const DefaultBrowserSearch = "https://html.duckduckgo.com/html/?q=%s"

// Life gives how long a browser of an unattended run lives.
func (b Browser) Life() (time.Duration, error) {
	if b.Lifetime == "" {
		return DefaultBrowserLife, nil
	}
	d, err := time.ParseDuration(b.Lifetime)
	if err != nil || d < minBrowserLife || d > MaxBrowserLife {
		return 0, fmt.Errorf("browser.lifetime = %q must be a time from 10s to 15m, such as \"10m\"", configfile.Clip(b.Lifetime))
	}
	return d, nil
}

// Watched tells whether the browser has a window, on a display of its own, that its person can watch: unless View is false.
func (b Browser) Watched() bool { return b.View == nil || *b.View }

func (a *Agent) checkBrowser() error {
	if n := a.Browser.Network; n != "" && n != BrowserPublic && n != BrowserRules {
		return fmt.Errorf("browser.network = %q must be \"public\" or \"rules\"", configfile.Clip(n))
	}
	if _, err := a.Browser.Life(); err != nil {
		return err
	}
	if _, err := a.Browser.Limits.Parse(); err != nil {
		return fmt.Errorf("browser.%w", err)
	}
	return checkSearch(a.Browser.Search)
}

// maxSearch bounds Browser.Search, in bytes.
const maxSearch = 1000

// checkSearch holds that an address is a page's, with %s once and not in its host.
func checkSearch(address string) error {
	if address == "" {
		return nil
	}
	u, err := url.Parse(strings.Replace(address, "%s", "words", 1))
	if err != nil || len(address) > maxSearch || strings.Count(address, "%s") != 1 || (u.Scheme != "https" && u.Scheme != "http") ||
		u.Host == "" || u.User != nil || !strings.Contains(u.RequestURI(), "words") {
		return fmt.Errorf("browser.search = %q must be the address of a result page with one %%s for the words, such as \"https://html.duckduckgo.com/html/?q=%%s\"", configfile.Clip(address))
	}
	return nil
}
