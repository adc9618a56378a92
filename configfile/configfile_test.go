package configfile

import (
	"strings"
	"testing"
)

func TestDecodeNamesThePlace(t *testing.T) {
	type inner struct {
		Size int `toml:"size"`
	}
	type file struct {
		Name  string           `toml:"name"`
		Inner inner            `toml:"inner"`
		Map   map[string]inner `toml:"map"`
		List  []inner          `toml:"list"`
	}
	for _, tt := range []struct{ name, in, want string }{
		{"good", "name = \"x\"\n[inner]\nsize = 3\n", ""},
		{"unknown top", "name = \"x\"\nnmae = \"y\"\n", `f.toml:2:1: unknown key "nmae"`},
		{"unknown nested", "[inner]\nsize = 1\nsise = 2\n", `f.toml:3:1: unknown key "inner.sise"`},
		{"unknown in map", "[map.a]\nsize = 1\nb = 2\n", `f.toml:3:1: unknown key "map.a.b"`},
		{"unknown in list", "[[list]]\nsize = 1\nb = 2\n", `f.toml:3:1: unknown key "list.b"`},
		{"wrong type", "name = \"x\"\n[inner]\nsize = \"big\"\n", "f.toml:3:8: "},
		{"syntax", "name = \n", "f.toml:1:"},
		{"duplicate", "name = \"x\"\nname = \"y\"\n", "f.toml"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var v file
			err := Decode("f.toml", []byte(tt.in), &v)
			switch {
			case tt.want == "" && err != nil:
				t.Fatal(err)
			case tt.want != "" && (err == nil || !strings.HasPrefix(err.Error(), tt.want)):
				t.Fatalf("got %v, want a beginning of %q", err, tt.want)
			}
		})
	}
}
