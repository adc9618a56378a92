package browser

import (
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// Bounds of the masks.
const (
	maxMasks  = 200 // values of secret fields that are remembered in one browser
	maskBytes = 4   // of a value that is masked wherever it stands; a shorter one only as the whole of a field
	masked    = "••••"
	maxShown  = 500 // characters of a value that a person is shown
)

// secretWords are words that name a secret, in a label, a name or an id, as words of their own.
var secretWords = map[string]bool{
	"password": true, "passwords": true, "passwd": true, "passwort": true, "kennwort": true, "passphrase": true, "passcode": true,
	"pwd": true, "pass": true, "otp": true, "totp": true, "tan": true, "pin": true, "mfa": true, "2fa": true, "cvc": true, "cvv": true,
	"csc": true, "secret": true, "token": true, "apikey": true, "credential": true, "credentials": true, "contraseña": true,
	"contrasena": true, "senha": true, "wachtwoord": true, "hasło": true, "haslo": true, "heslo": true, "parola": true, "lösenord": true,
	"adgangskode": true, "salasana": true, "şifre": true, "пароль": true, "geheimzahl": true,
}

// secretPhrases are parts that name a secret wherever they stand, once everything but letters and digits is a space.
var secretPhrases = []string{
	"password", "passwort", "passphrase", "mot de passe", "one time", "onetime", "verification code", "verificationcode",
	"security code", "securitycode", "authentication code", "authenticator code", "recovery code", "recovery phrase", "seed phrase",
	"backup code", "card number", "cardnumber", "credit card", "creditcard", "api key", "access key", "private key", "secret key",
	"client secret", "código de verificación", "código de segurança", "code de vérification", "code de sécurité", "bestätigungscode",
	"sicherheitscode", "einmalcode", "código de seguridad", "密码", "密碼", "口令", "验证码", "驗證碼", "パスワード", "暗証番号",
	"認証コード", "확인 코드", "비밀번호", "인증번호", "รหัสผ่าน", "mật khẩu", "كلمة المرور", "סיסמה", "пароль", "код подтверждения",
}

// namesSecret says whether a text that stands for a field says that the field is for a secret.
func namesSecret(text string) bool {
	words := splitWords(text)
	if slices.ContainsFunc(words, func(w string) bool { return secretWords[w] }) {
		return true
	}
	flat := " " + strings.Join(words, " ") + " "
	lower := strings.ToLower(text)
	return slices.ContainsFunc(secretPhrases, func(p string) bool { return strings.Contains(flat, p) || strings.Contains(lower, p) })
}

// splitWords takes a text or an identifier apart: "userPin", "user_pin" and "User PIN" are "user" and "pin".
func splitWords(text string) []string {
	var words []string
	var word []rune
	flush := func() {
		if len(word) > 0 {
			words = append(words, string(word))
			word = word[:0]
		}
	}
	lower := false
	for _, r := range text {
		switch {
		case !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r):
			flush()
			lower = false
			continue
		case unicode.IsUpper(r) && lower:
			flush()
		}
		lower = unicode.IsLower(r)
		word = append(word, unicode.ToLower(r))
	}
	flush()
	return words
}

// secret says whether an element is a field for a password, a one-time code or a card, whatever is typed into it (F.5),
// and by what that shows; "" if it is none.
func (e element) secret() string {
	if e.Tag == "button" || e.Tag == "a" {
		return "" // it may speak of passwords
	}
	if e.Tag == "input" && slices.Contains([]string{"button", "submit", "reset", "image", "checkbox", "radio", "file", "color", "range"}, e.Type) {
		return ""
	}
	if e.Type == "password" {
		return `its type is "password"`
	}
	for token := range strings.FieldsSeq(e.Autocomplete) {
		if token == "current-password" || token == "new-password" || token == "one-time-code" || strings.HasPrefix(token, "cc-") {
			return fmt.Sprintf("its autocomplete is %q", shorten(token, 40))
		}
	}
	if e.Masked {
		return "its style hides what it holds"
	}
	if e.MaxLength == 1 && (e.InputMode == "numeric" || e.Type == "tel" || e.Type == "number") {
		return "it takes one digit, as fields for one-time codes do"
	}
	for _, c := range []struct{ what, text string }{
		{"label", e.Labels}, {"label", e.AriaLabel}, {"name", e.Name}, {"id", e.ID}, {"placeholder", e.Placeholder}, {"title", e.Title},
	} {
		if namesSecret(c.text) {
			return fmt.Sprintf("its %s says so: %q", c.what, shorten(c.text, 60))
		}
	}
	return ""
}

// secretArguments refuses arguments that are named like secrets, however deep.
func secretArguments(raw json.RawMessage) error {
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		return refuse("F.1", "the arguments are no JSON object", "")
	}
	if name := secretKey(v, 0); name != "" {
		return refuse("F.5", fmt.Sprintf("no tool takes %q: secrets do not go through the agent", shorten(name, 60)),
			"Ask your person to log in themselves, or go on without")
	}
	return nil
}

func secretKey(v any, depth int) string {
	if depth > 20 {
		return ""
	}
	switch v := v.(type) {
	case map[string]any:
		for k, inner := range v {
			if namesSecret(k) {
				return k
			}
			if found := secretKey(inner, depth+1); found != "" {
				return found
			}
		}
	case []any:
		for _, inner := range v {
			if found := secretKey(inner, depth+1); found != "" {
				return found
			}
		}
	}
	return ""
}

// remember keeps the values of secret fields, so that no text that comes back shows them.
func (s *session) remember(fields []field) {
	for _, f := range fields {
		if v := strings.TrimSpace(f.Value); v != "" && f.secret() != "" && !slices.Contains(s.masks, v) && len(s.masks) < maxMasks {
			s.masks = append(s.masks, v)
		}
	}
	// The longest first: none is left half masked because of a shorter one that it holds.
	slices.SortFunc(s.masks, func(a, b string) int { return len(b) - len(a) })
}

// fieldLine is a line of a snapshot for a field, or for the text in one: what is behind the colon is its value.
var fieldLine = regexp.MustCompile(`^(\s*- (?:'(?:[^']|'')*'|(?:textbox|searchbox|spinbutton|combobox|slider)(?: "(?:[^"\\]|\\.)*")?(?: \[[^\]]*\])*|text)): (.+)$`)

// mask takes secrets out of a text: the values of secret fields wherever they stand, and in a snapshot the values of
// fields whose name says that they are secret.
func (s *session) mask(text string) string {
	for _, v := range s.masks {
		for _, spelled := range spellings(v) {
			if len(v) >= maskBytes {
				text = strings.ReplaceAll(text, spelled, masked)
			}
		}
	}
	var out strings.Builder
	within := -1 // the indent of the secret field that the lines are in; -1 for none
	for line := range strings.Lines(text) {
		body := strings.TrimRight(line, "\r\n")
		indent := len(body) - len(strings.TrimLeft(body, " "))
		if indent <= within {
			within = -1
		}
		if n, ok := parseNode(body); ok && isField(n.role) && namesSecret(n.name) {
			within = indent
		}
		out.WriteString(s.maskLine(body, within >= 0) + line[len(body):])
	}
	return out.String()
}

// maskLine takes the value out of a snapshot's line, where the line is of a secret field or the value is one's.
func (s *session) maskLine(line string, secret bool) string {
	m := fieldLine.FindStringSubmatch(line)
	if m == nil {
		return line
	}
	value := strings.TrimSpace(m[2])
	if !secret && !slices.ContainsFunc(s.masks, func(v string) bool { return slices.Contains(spellings(v), value) }) {
		return line
	}
	return m[1] + ": " + masked
}

func isField(role string) bool {
	return slices.Contains([]string{"textbox", "searchbox", "spinbutton", "combobox", "slider"}, role)
}

// spellings are the ways in which a value stands in texts of playwright-mcp: plain, and as JSON and YAML quote it.
func spellings(v string) []string {
	all := []string{v, url.QueryEscape(v), url.PathEscape(v), "'" + strings.ReplaceAll(v, "'", "''") + "'", strings.Join(strings.Fields(v), " ")}
	if b, err := json.Marshal(v); err == nil {
		all = append(all, string(b), strings.Trim(string(b), `"`))
	}
	return slices.Compact(all)
}

// credential is what looks like one by itself: the prefixes that services give theirs, and keys in PEM.
var credential = regexp.MustCompile(`(?:^|\W)(?:sk-|pk-|rk-|ghp_|gho_|ghu_|ghs_|github_pat_|glpat-|xox[abprs]-|AKIA|ASIA|AIza|ya29\.|eyJ[A-Za-z0-9_-]{8,}\.|npm_|pypi-|hf_)[A-Za-z0-9_.-]{8,}|-----BEGIN [A-Z ]*PRIVATE KEY`)

// shown is a value as a person is shown it: bounded, and masked where it is a secret.
func (s *session) shown(v string) string {
	if credential.MatchString(v) || slices.Contains(s.masks, strings.TrimSpace(v)) {
		return fmt.Sprintf("%s (%d characters, a secret)", masked, len([]rune(v)))
	}
	v = s.mask(v)
	hidden := 0
	for _, r := range v {
		if unicode.In(r, unicode.Cf, unicode.Co, unicode.Cc, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point) && !unicode.IsSpace(r) {
			hidden++
		}
	}
	// What is cut, and what does not show, is said: nobody is to allow what they do not know of.
	says := ""
	if n := len([]rune(v)); n > maxShown {
		v, says = string([]rune(v)[:maxShown]), fmt.Sprintf(" (the first %d of %d characters)", maxShown, n)
	}
	if hidden > 0 {
		says += fmt.Sprintf(" (with %d characters that show nothing)", hidden)
	}
	return shorten(v, 4*maxShown) + says
}
