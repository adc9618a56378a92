package browser

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestSecretElement(t *testing.T) {
	for _, e := range []element{
		{Tag: "input", Type: "password"}, {Tag: "input", Autocomplete: "section-a current-password"}, {Tag: "input", Autocomplete: "one-time-code"},
		{Tag: "input", Autocomplete: "cc-number"}, {Tag: "select", Autocomplete: "cc-exp-month"}, {Tag: "input", Labels: "Ihr Passwort"},
		{Tag: "input", Name: "userPassword"}, {Tag: "input", ID: "otp-1"}, {Tag: "input", Placeholder: "Enter PIN"}, {Tag: "input", AriaLabel: "Verification code"},
		{Tag: "input", Name: "loginPin"}, {Tag: "textarea", Labels: "API key"}, {Tag: "div", AriaLabel: "Password"}, {Tag: "input", Masked: true},
		{Tag: "input", MaxLength: 1, InputMode: "numeric"}, {Tag: "input", Labels: "パスワード"}, {Tag: "input", Title: "CVV"}, {Tag: "input", Labels: "Mot de passe"},
		{Tag: "input", Name: "new_passwd"}, {Tag: "input", Name: "2fa"}, {Tag: "input", Labels: "Card number"}, {Tag: "input", Labels: "Введите пароль"},
	} {
		if e.secret() == "" {
			t.Errorf("%+v is taken for a field like any other", e)
		}
	}
	for _, e := range []element{
		{Tag: "input", Type: "text", Labels: "Your name"}, {Tag: "input", Labels: "Shopping list"}, {Tag: "input", Name: "opinion"}, {Tag: "input", Name: "q"},
		{Tag: "button", Labels: "Forgot your password?"}, {Tag: "a", AriaLabel: "Reset password"}, {Tag: "input", Type: "checkbox", Labels: "Show password"},
		{Tag: "input", Name: "company"}, {Tag: "input", Labels: "Compass direction"}, {Tag: "input", MaxLength: 1, Type: "text"}, {Tag: "input", Autocomplete: "email username"},
	} {
		if why := e.secret(); why != "" {
			t.Errorf("%+v: %s", e, why)
		}
	}
}

// FuzzMask: the value of a secret field is in nothing that was masked, in whatever page it stands.
func FuzzMask(f *testing.F) {
	f.Add("hunter2", "- textbox \"x\" [ref=e1]: hunter2\n")
	f.Add(`a"b\c`, `- 'textbox "it''s" [ref=e1]': "a\"b\\c"`)
	f.Add("pin", "- text: pin\n- textbox \"PIN\" [ref=e2]:\n  - /placeholder: x\n  - text: 1234\n- text: pinned")
	f.Fuzz(func(t *testing.T, value, page string) {
		value = strings.TrimSpace(value)
		if len(value) < maskBytes || strings.Contains(masked, value) || strings.ContainsAny(value, "\n\r•") {
			return
		}
		s := &session{}
		s.remember([]field{{element{Tag: "input", Type: "password"}, value}})
		if got := s.mask(page + "\n" + value); strings.Contains(got, value) {
			t.Fatalf("%q is in %q", value, got)
		}
	})
}

func TestMaskLines(t *testing.T) {
	s := &session{}
	s.remember([]field{{element{Tag: "input", Type: "password"}, "abc"}, {element{Tag: "input", Type: "password"}, "abcdef"}, {element{Tag: "input"}, "public"}})
	got := s.mask("- textbox \"Login\" [ref=e1]: abc\n- text: abc and abcdef\n- textbox \"Password\" [ref=e2]:\n  - /placeholder: at least 8\n  - text: unknown\n- textbox \"PIN\" [ref=e3]: \"1234\"\n- link \"Password\" [ref=e4]: x\n- text: public")
	want := "- textbox \"Login\" [ref=e1]: ••••\n- text: abc and ••••\n- textbox \"Password\" [ref=e2]:\n  - /placeholder: at least 8\n  - text: ••••\n- textbox \"PIN\" [ref=e3]: ••••\n- link \"Password\" [ref=e4]: x\n- text: public"
	if got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

func TestShown(t *testing.T) {
	s := &session{masks: []string{"hunter2"}}
	for v, want := range map[string]string{
		"Ada": "Ada", "hunter2": "•••• (7 characters, a secret)", "ghp_abcdefghijklmnop": "•••• (20 characters, a secret)", "x hunter2": "x ••••",
	} {
		if got := s.shown(v); got != want {
			t.Errorf("%s is shown as %s, want %s", v, got, want)
		}
	}
}

func TestSecretArguments(t *testing.T) {
	for args, refused := range map[string]bool{
		`{"target":"e1","text":"password"}`: false, `{"password":"x"}`: true, `{"fields":[{"apiKey":1}]}`: true, `{"a":{"b":[{"otp":1}]}}`: true, `{"accessToken":""}`: true, `x`: true,
	} {
		if err := secretArguments(json.RawMessage(args)); (err != nil) != refused {
			t.Errorf("%s: %v", args, err)
		}
	}
	for _, tool := range tools() {
		var schema struct{ Properties json.RawMessage }
		if err := json.Unmarshal(tool.definition().RawInputSchema, &schema); err != nil {
			t.Fatal(err)
		}
	}
}
