package agents

import (
	"fmt"
	"time"

	"github.com/handlerd/handler/configfile"
)

// Bounds of Browser.Lifetime (F.8).
const (
	DefaultBrowserLife = 5 * time.Minute
	MaxBrowserLife     = 15 * time.Minute
	minBrowserLife     = 10 * time.Second
)

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

func (a *Agent) checkBrowser() error {
	if n := a.Browser.Network; n != "" && n != BrowserPublic && n != BrowserRules {
		return fmt.Errorf("browser.network = %q must be \"public\" or \"rules\"", configfile.Clip(n))
	}
	_, err := a.Browser.Life()
	return err
}
