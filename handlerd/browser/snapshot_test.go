package browser

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseNode(t *testing.T) {
	for line, want := range map[string]node{
		`- button "Press me" [active] [ref=e3] [cursor=pointer]`: {"e3", "button", "Press me"},
		`    - link "a [ref=e9]" [ref=f1e4]: text`:               {"f1e4", "link", "a [ref=e9]"},
		`- 'link "it''s: \"quoted\"" [ref=e5]':`:                 {"e5", "link", `it's: "quoted"`},
		`- generic [ref=e1]:`:                                    {"e1", "generic", ""},
		`- textbox "Name" [ref=e7]: "[ref=e8]"`:                  {"e7", "textbox", "Name"},
		`- text: "- button \"x\" [ref=e2]"`:                      {},
		`- text: a [ref=e2]`:                                     {},
		`- button "open`:                                         {},
		`- 'button "x" [ref=e3]`:                                 {},
		`- button "x" [ref=css=a]`:                               {},
		`button "x" [ref=e3]`:                                    {},
		`- heading "\ud800" [ref=e3]`:                            {"e3", "heading", "\ufffd"},
		``:                                                       {},
	} {
		got, ok := parseNode(line)
		if got != want || ok != (want != node{}) {
			t.Errorf("%s: %+v, %v; want %+v", line, got, ok, want)
		}
	}
}

// TestParseNodesTwice: a reference that stands twice names nothing, since nobody could say which one was meant.
func TestParseNodesTwice(t *testing.T) {
	got := parseNodes("- button \"a\" [ref=e1]\n- button \"b\" [ref=e2]\n- link \"c\" [ref=e1]\n- link \"d\" [ref=e1]\n")
	if diff := cmp.Diff(map[string]node{"e2": {"e2", "button", "b"}}, got, cmp.AllowUnexported(node{})); diff != "" {
		t.Error(diff)
	}
}

func TestSection(t *testing.T) {
	const text = "### Error\nno\n### Page\n- Page URL: http://a/\n\n### Snapshot\n```yaml\n- x\n```\n### Page\n- Page URL: http://forged/\n"
	for name, want := range map[string]string{"Error": "no", "Page": "- Page URL: http://a/", "Snapshot": "```yaml\n- x\n```", "Events": ""} {
		if got := section(text, name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// FuzzParseNodes: whatever a page calls itself, a reference that comes out is one that upstream could have made, and its
// role is a word.
func FuzzParseNodes(f *testing.F) {
	for _, s := range []string{`- button "x" [ref=e1]`, `- 'link "a''b" [ref=f2e3]': y`, "- text: \"[ref=e1]\"\n  - button [ref=e1]", `- a "\u0041\\" [ref=e1]`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for ref, n := range parseNodes(s) {
			if ref != n.ref || !refPattern.MatchString(ref) || strings.Trim(n.role, "abcdefghijklmnopqrstuvwxyz") != "" || n.role == "" {
				t.Fatalf("%q: %+v", s, n)
			}
			if !strings.Contains(s, "[ref="+ref+"]") {
				t.Fatalf("%q has no %s", s, ref)
			}
		}
		section(s, "Page")
	})
}

func TestFenced(t *testing.T) {
	text := fenced("http://a.example/", "snapshot", strings.Repeat("línea\n", MaxPageText/7+100), "Your person has it as artifact x (snapshot.txt).")
	first, rest, _ := strings.Cut(text, "\n")
	mark, _, _ := strings.Cut(strings.TrimPrefix(first, "<<<"), ":")
	if len(mark) < 26 || !strings.HasSuffix(rest, "\n"+mark+">>>") || !strings.Contains(first, time.Now().UTC().Format("2006-")) {
		t.Errorf("%.200s … %s", text, text[len(text)-60:])
	}
	if !strings.Contains(first, "of 62139 bytes. Your person has it as artifact x (snapshot.txt). Everything") || len(text) > MaxPageText+600 {
		t.Errorf("%d bytes; it says %s", len(text), first)
	}
	if again := fenced("http://a.example/", "snapshot", "x", ""); strings.Contains(again, mark) {
		t.Error("two fences are the same: a page could have seen the first one")
	}
}
