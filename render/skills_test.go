package render

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/handlerd/handler/addons"
)

func TestReadSkills(t *testing.T) {
	source := fstest.MapFS{
		"skills/browse/SKILL.md":     {Data: []byte("a")},
		"skills/browse/sub/check.sh": {Data: []byte("b"), Mode: 0o755},
		"other/SKILL.md":             {Data: []byte("c")},
		"bin/not-a-skill":            {},
	}
	got, err := ReadSkills(&addons.Manifest{Name: "x", Skills: []string{"skills/browse", "other"}, Source: source})
	if err != nil {
		t.Fatal(err)
	}
	want := []SkillFile{{"browse/SKILL.md", []byte("a"), false}, {"browse/sub/check.sh", []byte("b"), true}, {"other/SKILL.md", []byte("c"), false}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got, err := ReadSkills(&addons.Manifest{Name: "x"}); got != nil || err != nil {
		t.Errorf("%v, %v", got, err)
	}
}

func TestReadSkillsRefuses(t *testing.T) {
	many := fstest.MapFS{"s/SKILL.md": {}}
	for i := range MaxSkillFiles {
		many[fmt.Sprintf("s/%d", i)] = &fstest.MapFile{}
	}
	for name, tt := range map[string]struct {
		source fstest.MapFS
		want   string
	}{
		"none":    {fstest.MapFS{"s/readme": {}}, "no SKILL.md"},
		"folder":  {fstest.MapFS{"s/SKILL.md/x": {}}, "no SKILL.md"},
		"many":    {many, "more than 500 files"},
		"large":   {fstest.MapFS{"s/SKILL.md": {Data: make([]byte, MaxSkillBytes/2)}, "s/x": {Data: make([]byte, MaxSkillBytes/2+1)}}, "more than 4 MiB"},
		"symlink": {fstest.MapFS{"s/SKILL.md": {}, "s/x": {Data: []byte("SKILL.md"), Mode: os.ModeSymlink}}, "not a regular file"},
	} {
		_, err := ReadSkills(&addons.Manifest{Name: "x", Skills: []string{"s"}, Source: tt.source})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := ReadSkills(&addons.Manifest{Name: "x", Skills: []string{"s"}}); err == nil {
		t.Error("no folder, and no error")
	}
}
