package audit

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
)

// TestStream gives what was there and what comes, across files put aside, none twice and none left out.
func TestStream(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	l, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	l.max = 500
	n := 0
	add := func(kind string) {
		t.Helper()
		if err := l.Append(Record{Kind: kind, Subject: fmt.Sprint(n)}); err != nil {
			t.Fatal(err)
		}
		n++
	}
	for range 20 {
		add(KindNetwork)
	}
	match := func(r Record) bool { return r.Kind == KindNetwork }
	var got []string
	if err := Stream(t.Context(), path, 12, false, match, func(r Record) error { got = append(got, r.Subject); return nil }); err != nil || fmt.Sprint(got) != "[8 9 10 11 12 13 14 15 16 17 18 19]" {
		t.Errorf("%v %v", got, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	got = nil
	err = Stream(ctx, path, 12, true, match, func(r Record) error {
		got = append(got, r.Subject)
		switch r.Subject {
		case "8":
			add(KindMessage) // between what was there and what comes
			add(KindNetwork)
		case "21":
			for range 3 { // into the next file
				add(KindNetwork)
			}
		case "24":
			cancel()
		}
		return nil
	})
	if want := "[8 9 10 11 12 13 14 15 16 17 18 19 21 22 23 24]"; err != nil || fmt.Sprint(got) != want {
		t.Errorf("%v\n%v\n%v", err, got, want)
	}
	stop := errors.New("enough")
	if err := Stream(t.Context(), path, 1, true, nil, func(Record) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("%v", err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := Stream(ended, filepath.Join(t.TempDir(), "none"), 5, true, nil, func(Record) error { return stop }); err != nil {
		t.Errorf("no log: %v", err)
	}
}
