package agents

import (
	"fmt"
	"strconv"
	"time"

	"github.com/handlerd/handler/configfile"
	"github.com/handlerd/handler/sandbox"
)

// ServerLimits bound an MCP server that is hosted in a sandbox of its own. An empty field is the engine's default.
type ServerLimits struct {
	Memory    string `toml:"memory"` // of its sandbox, tmpfs counted in: "512MiB"
	Processes int64  `toml:"processes"`
	Tmp       string `toml:"tmp"`
	Home      string `toml:"home"`
	Shm       string `toml:"shm"`
	CallTime  string `toml:"call_time"` // of one call: "30s"
	Idle      string `toml:"idle"`      // without a call, before it is ended: "10m"
	Lifetime  string `toml:"lifetime"`  // in all, before it is started afresh: "2h"
	Results   string `toml:"results"`   // one text of a result, and its structured content: "64KiB"
}

// BrowserLimits bound a guarded browser. An empty field is the engine's default.
type BrowserLimits struct {
	Memory    string `toml:"memory"` // of its sandbox, tmpfs counted in: "3GiB"
	Processes int64  `toml:"processes"`
	Tmp       string `toml:"tmp"`   // its profile and shared memory
	Files     string `toml:"files"` // downloads, PDFs and uploads together
	Idle      string `toml:"idle"`  // without a call, attended, before it is closed
}

// HostedLimits are ServerLimits or BrowserLimits, read. 0 is the engine's default.
type HostedLimits struct {
	Memory, Processes, Tmp, Home, Shm int64
	Files                             int64 // of a browser
	Results                           int64 // of a server
	CallTime, Idle, Lifetime          time.Duration
}

// Least and most of what bounds a hosted server or browser; docs/handlers/limits.md has those that a person may meet.
const (
	LeastBrowserMemory    = 512 << 20 // Chromium with one page
	LeastBrowserProcesses = 256
	LeastResults          = 1 << 10
	MostResults           = 4 << 20
	MostCallTime          = time.Hour
	leastCallTime         = time.Second
	leastHostedIdle       = 10 * time.Second
	MostHostedTime        = 7 * 24 * time.Hour // of Idle and Lifetime
)

// Parse reads the limits; errors name the key, from "limits." on.
func (l ServerLimits) Parse() (HostedLimits, error) {
	out, err := hostedSandbox(Limits{Memory: l.Memory, Processes: l.Processes, Tmp: l.Tmp, Home: l.Home, Shm: l.Shm})
	if err != nil {
		return HostedLimits{}, err
	}
	if l.Results != "" {
		if out.Results, err = ParseBytes(l.Results); err != nil {
			return HostedLimits{}, fmt.Errorf("limits.results: %w", err)
		}
		if out.Results < LeastResults || out.Results > MostResults {
			return HostedLimits{}, fmt.Errorf("limits.results = %q must be 1KiB to 4MiB", l.Results)
		}
	}
	for _, f := range []struct {
		name, text  string
		least, most time.Duration
		to          *time.Duration
	}{
		{"call_time", l.CallTime, leastCallTime, MostCallTime, &out.CallTime},
		{"idle", l.Idle, leastHostedIdle, MostHostedTime, &out.Idle},
		{"lifetime", l.Lifetime, leastHostedIdle, MostHostedTime, &out.Lifetime},
	} {
		if err := hostedTime(f.name, f.text, f.least, f.most, f.to); err != nil {
			return HostedLimits{}, err
		}
	}
	return out, nil
}

// Parse reads the limits; errors name the key, from "limits." on.
func (l BrowserLimits) Parse() (HostedLimits, error) {
	out, err := hostedSandbox(Limits{Memory: l.Memory, Processes: l.Processes, Tmp: l.Tmp})
	switch {
	case err != nil:
	case l.Memory != "" && out.Memory < LeastBrowserMemory:
		err = fmt.Errorf("limits.memory = %q is too little for a browser: at least 512MiB", l.Memory)
	case l.Processes != 0 && out.Processes < LeastBrowserProcesses:
		err = fmt.Errorf("limits.processes = %d is too few for a browser: at least %d", l.Processes, LeastBrowserProcesses)
	default:
		err = parseBytes("files", l.Files, leastTmpfs, &out.Files)
	}
	if err == nil {
		err = hostedTime("idle", l.Idle, leastHostedIdle, MostHostedTime, &out.Idle)
	}
	if err != nil {
		return HostedLimits{}, err
	}
	return out, nil
}

// hostedSandbox reads what bounds a sandbox, with the words and bounds of an agent's own.
func hostedSandbox(l Limits) (HostedLimits, error) {
	box, err := l.Over(sandbox.Limits{})
	if err != nil {
		return HostedLimits{}, err
	}
	return HostedLimits{Memory: box.Memory.Value, Processes: box.Processes.Value, Tmp: box.TmpBytes, Home: box.HomeBytes, Shm: box.ShmBytes}, nil
}

// hostedTime reads a time into to; "" leaves it.
func hostedTime(name, text string, least, most time.Duration, to *time.Duration) error {
	if text == "" {
		return nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < least || d > most {
		return fmt.Errorf("limits.%s = %q must be a time from %v to %gh, such as \"90s\" or \"10m\"", name, configfile.Clip(text), least, most.Hours())
	}
	*to = d
	return nil
}

// Set changes one limit by its key; "" gives it its default.
func (l *ServerLimits) Set(key, value string) error {
	fields := map[string]*string{"memory": &l.Memory, "tmp": &l.Tmp, "home": &l.Home, "shm": &l.Shm, "call_time": &l.CallTime,
		"idle": &l.Idle, "lifetime": &l.Lifetime, "results": &l.Results}
	if err := setLimit(fields, &l.Processes, key, value); err != nil {
		return err
	}
	_, err := l.Parse()
	return err
}

// Set changes one limit by its key; "" gives it its default.
func (l *BrowserLimits) Set(key, value string) error {
	if err := setLimit(map[string]*string{"memory": &l.Memory, "tmp": &l.Tmp, "files": &l.Files, "idle": &l.Idle}, &l.Processes, key, value); err != nil {
		return err
	}
	_, err := l.Parse()
	return err
}

// setLimit finds a limit by its key; that of processes is a number.
func setLimit(fields map[string]*string, processes *int64, key, value string) error {
	if to := fields[key]; to != nil {
		*to = value
		return nil
	}
	if key != "processes" {
		return fmt.Errorf("there is no limit %q: memory, processes, %s", configfile.Clip(key), others(fields))
	}
	*processes = 0
	if value == "" {
		return nil
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n == 0 {
		return fmt.Errorf("limits.processes = %q must be a number", configfile.Clip(value))
	}
	*processes = n
	return nil
}

// others lists keys but memory's.
func others(fields map[string]*string) string {
	text := ""
	for _, key := range sortedKeys(fields) {
		if key == "memory" {
			continue
		}
		if text != "" {
			text += ", "
		}
		text += key
	}
	return text
}
