package configfile

import (
	"strings"
	"testing"
)

// TestLists edits lists in every shape that people write, and reads the result back.
func TestLists(t *testing.T) {
	for name, test := range map[string]struct{ in, add, remove, want string }{
		"empty file":  {"", "b", "", "[n]\nk = [\"b\"]\n"},
		"no table":    {"# mine\nx = 1 # one", "b", "", "# mine\nx = 1 # one\n\n[n]\nk = [\"b\"]\n"},
		"no key":      {"[n] # net\n# a comment\nz = 1\n[m]\n", "b", "", "[n] # net\nk = [\"b\"]\n# a comment\nz = 1\n[m]\n"},
		"bare header": {"[n]", "b", "", "[n]\nk = [\"b\"]\n"},
		"empty list":  {"[n]\nk = [ ] # none\n", "b", "", "[n]\nk = [\"b\"] # none\n"},
		"one line":    {"[n]\nk = [\"a\"] # why\n", "b", "", "[n]\nk = [\"a\", \"b\"] # why\n"},
		"literal":     {"[n]\nk = ['a',]\n", "b", "", "[n]\nk = ['a', \"b\",]\n"},
		"lines": {
			"[n]\nk = [\n  # for a\n  \"a\", # a's\n  \"c\" # c's ] not the end\n] # end\n", "b", "",
			"[n]\nk = [\n  # for a\n  \"a\", # a's\n  \"c\", # c's ] not the end\n  \"b\",\n] # end\n",
		},
		"lines with a comma": {"[n]\nk = [\n\t\"a\",\n\t# the end\n]\n", "b", "", "[n]\nk = [\n\t\"a\",\n\t# the end\n\t\"b\",\n]\n"},
		"bracket in line":    {"[n]\nk = [\"a\",\n  \"c\"]\n", "b", "", "[n]\nk = [\"a\",\n  \"c\", \"b\"]\n"},
		"remove first":       {"[n]\nk = [\"a\", \"c\"]\n", "", "a", "[n]\nk = [\"c\"]\n"},
		"remove last":        {"[n]\nk = [\"a\", \"c\"]\n", "", "c", "[n]\nk = [\"a\"]\n"},
		"remove only":        {"[n]\nk = [\"a\"]\n", "", "a", "[n]\nk = []\n"},
		"remove line":        {"[n]\nk = [\n  \"a\", # a's\n  \"c\", # c's\n]\n", "", "a", "[n]\nk = [\n  \"c\", # c's\n]\n"},
		"remove last line":   {"[n]\nk = [\n  \"a\",\n  \"c\" # c's\n]\n", "", "c", "[n]\nk = [\n  \"a\",\n]\n"},
		"odd value":          {"[n]\nk = [\"a\"]\n", "q\"\\\x01é", "", "[n]\nk = [\"a\", \"q\\\"\\\\\\u0001é\"]\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var got []byte
			var err error
			if test.remove != "" {
				got, err = RemoveFromList([]byte(test.in), "n", "k", test.remove)
			} else {
				got, err = AddToList([]byte(test.in), "n", "k", test.add)
			}
			if err != nil || string(got) != test.want {
				t.Fatalf("%v\n%s\nwant\n%s", err, got, test.want)
			}
			var doc map[string]any
			if err := Decode("x.toml", got, &doc); err != nil {
				t.Fatal(err)
			}
			var values []string
			for _, v := range doc["n"].(map[string]any)["k"].([]any) {
				values = append(values, v.(string))
			}
			if joined := strings.Join(values, " "); test.add != "" && !strings.HasSuffix(joined, test.add) || test.remove != "" && strings.Contains(joined, test.remove) {
				t.Errorf("it reads %q", values)
			}
		})
	}
	for _, in := range []string{"[n]\nk = 1\n", "[n]\nk = [1]\n", "[n]\nk = [\n# none yet\n]\n", "[n\n"} {
		if got, err := AddToList([]byte(in), "n", "k", "b"); err == nil {
			t.Errorf("%q became %q", in, got)
		}
	}
	for _, in := range []string{"", "[n]\nk = [\"b\"]\n"} {
		if got, err := RemoveFromList([]byte(in), "n", "k", "a"); err == nil {
			t.Errorf("%q became %q", in, got)
		}
	}
}
