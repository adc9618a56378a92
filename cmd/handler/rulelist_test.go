package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSplitRules(t *testing.T) {
	for text, want := range map[string][]string{
		"a.example":           {"a.example"},
		"a.example,*.b:80":    {"a.example", "*.b:80"},
		"GET http://a/x*":     {"GET http://a/x*"},
		"GET,HEAD http://a/x": {"GET,HEAD http://a/x"},
		"a,GET,HEAD http://a/x,b,POST upstream/m/x,c": {"a", "GET,HEAD http://a/x", "b", "POST upstream/m/x", "c"},
		"GET,HEAD": {"GET", "HEAD"}, // two hosts, which a comma lists
		"GET,b":    {"GET", "b"},
		"":         {""},
	} {
		if diff := cmp.Diff(want, splitRules(text)); diff != "" {
			t.Errorf("%q: %s", text, diff)
		}
	}
}
