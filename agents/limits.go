package agents

import (
	"fmt"
	"math/big"
	"regexp"
	"strings"

	"github.com/handlerd/handler/sandbox"
)

var bytesRE = regexp.MustCompile(`^([0-9]{1,15}(?:\.[0-9]{1,6})?) ?([kKMGT]?i?B)$`)

var units = map[string]int64{
	"B": 1, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
	"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
}

// ParseBytes reads an amount of memory as a person writes it: "2GB" (2,000,000,000 bytes), "512MiB", "1.5 GiB". The
// unit is never left out, so that nobody gets 2 bytes for 2 GB. It accepts whole numbers of bytes from 1 to 2^60.
func ParseBytes(text string) (int64, error) {
	bad := fmt.Errorf("%q is not an amount of memory: a number and one of B, kB, MB, GB, TB, KiB, MiB, GiB, TiB, such as \"512MiB\" or \"2GB\"", clip(text))
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
		return 0, fmt.Errorf("%q is not a whole number of bytes", clip(text))
	}
	if amount.Sign() <= 0 || amount.Cmp(new(big.Rat).SetInt64(1<<60)) > 0 {
		return 0, fmt.Errorf("%q must be more than 0 and at most 2^60 bytes", clip(text))
	}
	return amount.Num().Int64(), nil
}

// Least and most of what a person may ask for: below, nothing starts; above, a digit slipped.
const (
	leastMemory    = 64 << 20
	leastTmpfs     = 1 << 20
	leastProcesses = 16
	mostProcesses  = 4 << 20
	mostCPUs       = 1024
)

// Parse turns what a person wrote into sandbox.Limits. A field that is there is Asked (A.4); an absent one has the
// default of package sandbox and is not.
func (l Limits) Parse() (sandbox.Limits, error) {
	out := sandbox.Limits{
		Memory:    sandbox.Limit{Value: sandbox.DefaultMemory},
		CPU:       sandbox.Limit{Value: sandbox.DefaultCPU},
		Processes: sandbox.Limit{Value: sandbox.DefaultProcesses},
		TmpBytes:  sandbox.DefaultTmpBytes,
		HomeBytes: sandbox.DefaultHomeBytes,
		ShmBytes:  sandbox.DefaultShmBytes,
		OpenFiles: sandbox.DefaultOpenFiles,
	}
	if l.Memory != "" {
		out.Memory.Asked = true
	}
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
		if f.text == "" {
			continue
		}
		n, err := ParseBytes(f.text)
		if err != nil {
			return sandbox.Limits{}, fmt.Errorf("limits.%s: %w", f.name, err)
		}
		if n < f.least {
			return sandbox.Limits{}, fmt.Errorf("limits.%s = %q is too little to run in: at least %d MiB", f.name, f.text, f.least>>20)
		}
		*f.to = n
	}
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

// FormatBytes writes n so that ParseBytes gives n again, in the largest unit that is exact.
func FormatBytes(n int64) string {
	for _, u := range strings.Fields("TiB GiB MiB KiB TB GB MB kB") {
		if n >= units[u] && n%units[u] == 0 {
			return fmt.Sprintf("%d%s", n/units[u], u)
		}
	}
	return fmt.Sprintf("%dB", n)
}
