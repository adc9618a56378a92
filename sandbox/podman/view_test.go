package podman

import (
	"errors"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/handlerd/handler/sandbox"
)

func TestParseStat(t *testing.T) {
	line := "7 (a) b) (c) S 1 7 7 0 -1 4194560 1 2 3 4 50 25 0 0 20 0 1 0 99 1000 321 18446744073709551615 1 1"
	if u, ok := parseStat([]byte(line)); !ok || u != (usage{ticks: 75, pages: 321}) {
		t.Errorf("%+v %v", u, ok)
	}
	for _, bad := range []string{"", "7 (a", "7 (a) S 1", "7 (a) Z 1 7 7 0 -1 4194560 1 2 3 4 50 25 0 0 20 0 1 0 99 1000 321 1"} {
		if u, ok := parseStat([]byte(bad)); ok {
			t.Errorf("%q: %+v", bad, u)
		}
	}
}

func TestMapLine(t *testing.T) {
	id, ok := mapLine([]byte("7f3c00000000-7f3c00800000 rw-s 00000000 00:01 1031  /memfd:x (deleted)\n"))
	if !ok || id != (fileID{unix.Mkdev(0, 1), 1031}) {
		t.Errorf("%+v %v", id, ok)
	}
	for _, bad := range []string{"", "Pss:   12 kB", "VmFlags: rd wr mr", "7f-8f rw-s 0 0001 x"} {
		if id, ok := mapLine([]byte(bad)); ok {
			t.Errorf("%q: %+v", bad, id)
		}
	}
}

// The device of memfd files is the one that maps of shared memory without a name show.
func TestAnonymousDevice(t *testing.T) {
	dev, err := anonymousDevice()
	if err != nil {
		t.Fatal(err)
	}
	b, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(b)
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for line := range slices.Values(splitLines(maps)) {
		if id, ok := mapLine(line); ok && id.dev == dev {
			found = true
		}
	}
	if !found {
		t.Errorf("no map lies on %#x:\n%s", dev, maps)
	}
}

func splitLines(text []byte) [][]byte {
	var lines [][]byte
	for len(text) > 0 {
		end := slices.Index(text, '\n') + 1
		if end == 0 {
			end = len(text)
		}
		lines, text = append(lines, text[:end]), text[end:]
	}
	return lines
}

func TestWholeCPUs(t *testing.T) {
	for _, c := range []struct {
		limit  sandbox.Limit
		there  int
		want   int
		remedy string
	}{
		{sandbox.Limit{}, 4, 0, ""},
		{sandbox.Limit{Value: 2000, Asked: true}, 4, 2, ""},
		{sandbox.Limit{Value: 4000, Asked: true}, 4, 0, ""}, // the machine has no more
		{sandbox.Limit{Value: 5500, Asked: true}, 4, 0, ""},
		{sandbox.Limit{Value: 1500, Asked: true}, 4, 0, "cpus = 1 or cpus = 2"},
		{sandbox.Limit{Value: 500, Asked: true}, 4, 0, "cpus = 1"},
		{sandbox.Limit{Value: 500}, 4, 0, ""}, // a default that is not kept
	} {
		n, err := wholeCPUs(c.limit, c.there)
		var un *sandbox.UnenforcedError
		if n != c.want || errors.As(err, &un) != (c.remedy != "") || un != nil && un.Remedy != c.remedy {
			t.Errorf("%+v of %d: %d %v, want %d %q", c.limit, c.there, n, err, c.want, c.remedy)
		}
	}
	load := map[int]int{0: 2, 1: 1, 2: 0, 3: 1}
	if got := chooseCPUs(1, []int{0, 1, 2, 3}, load); !slices.Equal(got, []int{2}) {
		t.Errorf("%v", got)
	}
	if got := chooseCPUs(3, []int{0, 1, 2, 3}, load); !slices.Equal(got, []int{1, 2, 3}) {
		t.Errorf("%v", got)
	}
}
