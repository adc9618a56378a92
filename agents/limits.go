package agents

import (
	"fmt"
	"math/big"
	"regexp"
	"strings"
	"time"

	"github.com/handlerd/handler/configfile"
	"github.com/handlerd/handler/sandbox"
)

var bytesRE = regexp.MustCompile(`^([0-9]{1,15}(?:\.[0-9]{1,6})?) ?([kKMGT]?i?B|[KMGT])$`)

var units = map[string]int64{
	"B": 1, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
	"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
	"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40,
}

// ParseBytes reads an amount of memory as a person writes it: "2GB" (2,000,000,000 bytes), "512MiB", "1.5 GiB", and
// "300M", in which K, M, G and T alone are powers of 1024, as podman, docker and systemd read them. The unit is never
// left out, so that nobody gets 2 bytes for 2 GB. It accepts whole numbers of bytes from 1 to 2^60.
func ParseBytes(text string) (int64, error) {
	bad := fmt.Errorf("%q is not an amount of memory: a number and one of B, kB, MB, GB, TB, KiB, MiB, GiB, TiB, or K, M, G, T for the last four, such as \"512MiB\" or \"2GB\"", configfile.Clip(text))
	m := bytesRE.FindStringSubmatch(text)
	if m == nil {
		return 0, bad
	}
	unit, ok := units[m[2]]
	amount, valid := new(big.Rat).SetString(m[1])
	if !ok || !valid {
		return 0, bad
	}
	amount.Mul(amount, new(big.Rat).SetInt64(unit))
	if !amount.IsInt() {
		return 0, fmt.Errorf("%q is not a whole number of bytes", configfile.Clip(text))
	}
	if amount.Sign() <= 0 || amount.Cmp(new(big.Rat).SetInt64(1<<60)) > 0 {
		return 0, fmt.Errorf("%q must be more than 0 and at most 2^60 bytes", configfile.Clip(text))
	}
	return amount.Num().Int64(), nil
}

// Least and most of what a person may ask for: below, nothing starts; above, a digit slipped.
const (
	leastMemory    = 64 << 20
	leastTmpfs     = 1 << 20
	leastState     = 1 << 20
	leastProcesses = 16
	mostProcesses  = 4 << 20
	mostCPUs       = 1024
	leastTime      = time.Second
	mostTime       = 366 * 24 * time.Hour
)

// NoLimit is what a person writes for a time or the state that is not to be bounded, whatever the default is.
const NoLimit = "none"

// Defaults of what bounds a run and not its sandbox; docs/handlers/limits.md is held against them by a test.
const (
	DefaultState    = 10 << 30 // bytes of the run's state folders together
	DefaultLifetime = 0        // none
	DefaultIdle     = 24 * time.Hour
)

// RunLimits bound a run where no kernel does (A.4): the engine measures and ends it. 0 is no bound.
type RunLimits struct {
	State    int64         // bytes that the run's state folders hold together, as allocated on the disk
	Lifetime time.Duration // from the run's start
	Idle     time.Duration // without an ACP line either way and without a turn
}

// Parse turns what a person wrote into sandbox.Limits. A field that is there is Asked (A.4); an absent one has the
// default of package sandbox and is not.
func (l Limits) Parse() (sandbox.Limits, error) {
	return l.Over(sandbox.Limits{
		Memory:    sandbox.Limit{Value: sandbox.DefaultMemory},
		CPU:       sandbox.Limit{Value: sandbox.DefaultCPU},
		Processes: sandbox.Limit{Value: sandbox.DefaultProcesses},
		TmpBytes:  sandbox.DefaultTmpBytes,
		HomeBytes: sandbox.DefaultHomeBytes,
		ShmBytes:  sandbox.DefaultShmBytes,
		OpenFiles: sandbox.DefaultOpenFiles,
	})
}

// Over is Parse with base in the place of the defaults: what l leaves out stays as it is in base, asked for or not.
func (l Limits) Over(base sandbox.Limits) (sandbox.Limits, error) {
	out := base
	for _, f := range []struct {
		name, text string
		least      int64
		to         *int64
	}{
		{"memory", l.Memory, leastMemory, &out.Memory.Value},
		{"tmp", l.Tmp, leastTmpfs, &out.TmpBytes},
		{"home", l.Home, leastTmpfs, &out.HomeBytes},
		{"shm", l.Shm, leastTmpfs, &out.ShmBytes},
	} {
		if err := parseBytes(f.name, f.text, f.least, f.to); err != nil {
			return sandbox.Limits{}, err
		}
	}
	out.Memory.Asked = out.Memory.Asked || l.Memory != ""
	if l.CPUs != 0 {
		if !(l.CPUs >= 0.01 && l.CPUs <= mostCPUs) { // so that NaN is refused too
			return sandbox.Limits{}, fmt.Errorf("limits.cpus = %v must be 0.01 to %d processors", l.CPUs, mostCPUs)
		}
		out.CPU = sandbox.Limit{Value: int64(l.CPUs*1000 + 0.5), Asked: true}
	}
	if l.Processes != 0 {
		if l.Processes < leastProcesses || l.Processes > mostProcesses {
			return sandbox.Limits{}, fmt.Errorf("limits.processes = %d must be %d to %d", l.Processes, leastProcesses, mostProcesses)
		}
		out.Processes = sandbox.Limit{Value: l.Processes, Asked: true}
	}
	return out, nil
}

// Run turns what a person wrote into RunLimits; an absent field has its default.
func (l Limits) Run() (RunLimits, error) {
	return l.RunOver(RunLimits{State: DefaultState, Lifetime: DefaultLifetime, Idle: DefaultIdle})
}

// RunOver is Run with base in the place of the defaults.
func (l Limits) RunOver(base RunLimits) (RunLimits, error) {
	out := base
	if l.State == NoLimit {
		out.State = 0
	} else if err := parseBytes("state", l.State, leastState, &out.State); err != nil {
		return RunLimits{}, err
	}
	for _, f := range []struct {
		name, text string
		to         *time.Duration
	}{{"lifetime", l.Lifetime, &out.Lifetime}, {"idle", l.Idle, &out.Idle}} {
		switch f.text {
		case "":
			continue
		case NoLimit:
			*f.to = 0
			continue
		}
		d, err := time.ParseDuration(f.text)
		if err != nil || d < leastTime || d > mostTime {
			return RunLimits{}, fmt.Errorf("limits.%s = %q must be a time from 1s to 8784h, such as \"90s\", \"30m\" or \"2h\", or \"none\"", f.name, configfile.Clip(f.text))
		}
		*f.to = d
	}
	return out, nil
}

// parseBytes reads an amount into to; "" leaves it.
func parseBytes(name, text string, least int64, to *int64) error {
	if text == "" {
		return nil
	}
	n, err := ParseBytes(text)
	if err != nil {
		return fmt.Errorf("limits.%s: %w", name, err)
	}
	if n < least {
		return fmt.Errorf("limits.%s = %q is too little to run in: at least %d MiB", name, text, least>>20)
	}
	*to = n
	return nil
}

// FormatBytes writes n so that ParseBytes gives n again, in the largest unit that is exact.
func FormatBytes(n int64) string {
	for _, u := range strings.Fields("TiB GiB MiB KiB TB GB MB kB") {
		if n >= units[u] && n%units[u] == 0 {
			return fmt.Sprintf("%d%s", n/units[u], u)
		}
	}
	return fmt.Sprintf("%dB", n)
}

// Amount writes n for people, in powers of 1024 or of 1000 as the limit that it is compared with was given: "312 MiB"
// of "300MiB", "1.9 GB" of "2GB".
func Amount(n, limit int64) string {
	units, step := []string{"B", "KiB", "MiB", "GiB", "TiB"}, 1024.0
	if limit%(1<<10) != 0 {
		units, step = []string{"B", "kB", "MB", "GB", "TB"}, 1000.0
	}
	value, unit := float64(n), 0
	for value >= step && unit < len(units)-1 {
		value /= step
		unit++
	}
	if unit >= 3 && value != float64(int64(value)) {
		return fmt.Sprintf("%.1f %s", value, units[unit])
	}
	return fmt.Sprintf("%.0f %s", value, units[unit])
}
