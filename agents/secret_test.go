package agents

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestParseSecret: every source has one spelling on the command line, and a path stays a path.
func TestParseSecret(t *testing.T) {
	for text, want := range map[string]Secret{
		"/home/ana/key":                    {File: "/home/ana/key"},
		"~/key":                            {File: "~/key"},
		"/home/ana/pass:word":              {File: "/home/ana/pass:word"},
		"~/a:b":                            {File: "~/a:b"},
		"./pass:x":                         {File: "./pass:x"},
		"pass:api/anthropic":               {Pass: "api/anthropic"},
		"pass:a:b":                         {Pass: "a:b"},
		"credential:model_key":             {Credential: "model_key"},
		"command:op read op://Private/k/p": {Command: []string{"op", "read", "op://Private/k/p"}},
		"command:/usr/bin/tool":            {Command: []string{"/usr/bin/tool"}},
		"secret-service:service=a,user=b":  {SecretService: map[string]string{"service": "a", "user": "b"}},
		`secret-service:k=a\,b=c,x=`:       {SecretService: map[string]string{"k": "a,b=c", "x": ""}},
		"secret-service-label:My key, new": {SecretServiceLabel: "My key, new"},
	} {
		got, err := ParseSecret(text)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%q: %v\n%s", text, err, diff)
		}
		if got.Kind() != SecretCommand && got.String() != text {
			t.Errorf("%q is written %q", text, got.String())
		}
	}
	for text, want := range map[string]string{
		"command:":                   "names no program",
		"command:sh -c 'echo x'":     "no shell reads it",
		"command:cat ~/k | head -1":  "no shell reads it",
		"command:echo $KEY":          "no shell reads it",
		"secret-service:":            "NAME=VALUE",
		"secret-service:service":     "NAME=VALUE",
		"secret-service:a=1,a=2":     "twice",
		"secret-service:=x":          "NAME=VALUE",
		"secret-service:a=b,,c=d":    "NAME=VALUE",
		"secret-service:service=a,b": "NAME=VALUE",
	} {
		if _, err := ParseSecret(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	// Of a command the arguments are not shown.
	if s := (Secret{Command: []string{"tool", "hunter2"}}).String(); strings.Contains(s, "hunter2") {
		t.Error(s)
	}
}

func TestSecretSources(t *testing.T) {
	for _, tt := range []struct{ name, toml, want string }{
		{"file", `file = "~/key"`, ""},
		{"pass", `pass = "api/key"`, ""},
		{"attributes", `secret_service = {service = "x", "odd name" = "y, z"}`, ""},
		{"label", `secret_service_label = "My key"`, ""},
		{"credential", `credential = "model.key"`, ""},
		{"command", `command = ["/usr/bin/op", "read", "a b"]`, ""},
		{"command at home", `command = ["~/bin/tool"]`, ""},
		{"none", ``, "has 0 sources"},
		{"empty", `file = ""`, "has 0 sources"},
		{"two", "file = \"/x\"\npass = \"y\"", "has 2 sources"},
		{"both of the service", "secret_service = {a = \"b\"}\nsecret_service_label = \"c\"", "has 2 sources"},
		{"unknown", `vault = "x"`, "unknown key"},
		{"pass option", `pass = "--clip"`, "name of an entry"},
		{"pass up", `pass = "../../etc/x"`, "name of an entry"},
		{"pass within", `pass = "a/../b"`, "name of an entry"},
		{"pass absolute", `pass = "/etc/x"`, "name of an entry"},
		{"pass newline", `pass = "a\nb"`, "name of an entry"},
		{"credential path", `credential = "../x"`, "name as LoadCredential"},
		{"credential up", `credential = ".."`, "name as LoadCredential"},
		{"command text", `command = "op read"`, "a.toml"},
		{"command none", `command = []`, "has 0 sources"},
		{"command option", `command = ["-x"]`, "no program"},
		{"command relative", `command = ["./tool"]`, "absolute"},
		{"command up", `command = ["/usr/../bin/x"]`, "plain path"},
		{"command nul", `command = ["x", "\u0000"]`, "NUL"},
		{"command long", `command = ["x", "` + strings.Repeat("a", 5000) + `"]`, "too long"},
		{"command many", `command = ["x"` + strings.Repeat(`, "a"`, 32) + `]`, "33 entries"},
		{"attribute", `secret_service = {"" = "x"}`, "not empty"},
		{"attribute lines", `secret_service = {a = "x\ny"}`, "one line"},
		{"label lines", `secret_service_label = "x\ny"`, "one line"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := "harness = \"demo\"\n[secrets.key]\n" + tt.toml + "\n[bindings.x.secrets.s]\n" + tt.toml + "\n"
			a, err := Parse("a", "a.toml", []byte(text))
			if tt.want != "" {
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Fatalf("got %v, want %q", err, tt.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			again, err := Parse("a", "a.toml", Format(a))
			if diff := cmp.Diff(a, again); diff != "" || err != nil {
				t.Errorf("%v\n%s\n%s", err, Format(a), diff)
			}
		})
	}
}

func TestSetSecret(t *testing.T) {
	a := &Agent{Name: "a", Harness: "demo", Bindings: map[string]Binding{"playwright": {}}}
	for name, source := range map[string]string{"key": "pass:api/key", "playwright.state": "credential:state"} {
		if err := a.SetSecret(name, source); err != nil {
			t.Fatal(err)
		}
	}
	if a.Secrets["key"].Pass != "api/key" || a.Bindings["playwright"].Secrets["state"].Credential != "state" {
		t.Errorf("%+v", a)
	}
	if err := a.SetSecret("key", "~/key"); err != nil || a.Secrets["key"].Kind() != SecretFile {
		t.Errorf("another source: %+v, %v", a.Secrets, err)
	}
	for name, source := range map[string]string{"other.state": "~/x", "key": "key", "a b": "~/x"} {
		b := *a
		b.Secrets = copied(a.Secrets)
		if err := b.SetSecret(name, source); err == nil {
			t.Errorf("%s=%s was taken", name, source)
		}
	}
	for _, name := range []string{"key", "playwright.state"} {
		if err := a.SetSecret(name, ""); err != nil {
			t.Error(err)
		}
	}
	if len(a.Secrets) != 0 || len(a.Bindings["playwright"].Secrets) != 0 {
		t.Errorf("%+v", a)
	}
}
