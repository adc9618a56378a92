package acpclient

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"
)

// MaxFields bounds the fields of a form.
const MaxFields = 20

// A Field is one property of a form's schema.
type Field struct {
	Name     string `json:"-"`
	Required bool   `json:"-"`

	Type        string          `json:"type"` // "string", "boolean", "number" or "integer"
	Title       string          `json:"title"`
	Description string          `json:"description"`
	Enum        []string        `json:"enum"`
	EnumNames   []string        `json:"enumNames"`
	OneOf       []Constant      `json:"oneOf"`
	Default     json.RawMessage `json:"default"`
	MinLength   int             `json:"minLength"`
	MaxLength   int             `json:"maxLength"`
	Minimum     *float64        `json:"minimum"`
	Maximum     *float64        `json:"maximum"`
}

// A Constant is one value that a field may have, and its name.
type Constant struct {
	Const string `json:"const"`
	Title string `json:"title"`
}

// ParseForm reads the fields of an elicitation's schema in the order in which it names them. A field of a type that
// nobody here can ask for is left out; the error says which one where it is required.
func ParseForm(schema json.RawMessage) ([]Field, error) {
	var s struct {
		Properties json.RawMessage `json:"properties"`
		Required   []string        `json:"required"`
	}
	if err := json.Unmarshal(schema, &s); err != nil {
		return nil, fmt.Errorf("the form has a wrong shape: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(s.Properties))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New("the form has no fields")
	}
	var fields []Field
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		name, _ := key.(string)
		f := Field{Name: name, Required: slices.Contains(s.Required, name)}
		if err := d.Decode(&f); err != nil {
			return nil, fmt.Errorf("field %q of the form: %w", name, err)
		}
		switch f.Type {
		case "string", "boolean", "number", "integer":
			fields = append(fields, f)
		default:
			if f.Required {
				return nil, fmt.Errorf("field %q of the form has type %q, which cannot be asked for here", name, f.Type)
			}
		}
		if len(fields) > MaxFields {
			return nil, fmt.Errorf("the form has more than %d fields", MaxFields)
		}
	}
	return fields, nil
}

// Choices gives the values that the field is chosen from, and a name for each; none where it is free.
func (f Field) Choices() (values, names []string) {
	for _, c := range f.OneOf {
		values, names = append(values, c.Const), append(names, c.Title)
	}
	if values == nil {
		values, names = f.Enum, slices.Clone(f.EnumNames)
	}
	for len(names) < len(values) {
		names = append(names, values[len(names)])
	}
	return values, names
}

// CheckText says whether a text is as long as the field wants it.
func (f Field) CheckText(s string) error {
	if n := utf8.RuneCountInString(s); n < f.MinLength || f.MaxLength > 0 && n > f.MaxLength {
		return fmt.Errorf("the length must be %d to %d characters", f.MinLength, f.MaxLength)
	}
	return nil
}

// CheckNumber says whether a number is one that the field takes.
func (f Field) CheckNumber(n float64) error {
	if f.Type == "integer" && n != float64(int64(n)) {
		return errors.New("a whole number is needed")
	}
	if f.Minimum != nil && n < *f.Minimum {
		return fmt.Errorf("at least %g", *f.Minimum)
	}
	if f.Maximum != nil && n > *f.Maximum {
		return fmt.Errorf("at most %g", *f.Maximum)
	}
	return nil
}

// check says whether a value that a form was answered with is one that the field takes.
func (f Field) check(raw json.RawMessage) error {
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		return err
	}
	switch v := v.(type) {
	case string:
		if f.Type != "string" {
			break
		}
		if values, _ := f.Choices(); len(values) > 0 {
			if !slices.Contains(values, v) {
				return errors.New("it is none of the values to choose from")
			}
			return nil
		}
		return f.CheckText(v)
	case bool:
		if f.Type == "boolean" {
			return nil
		}
	case float64:
		if f.Type == "number" || f.Type == "integer" {
			return f.CheckNumber(v)
		}
	}
	return fmt.Errorf("a value of type %s is needed", f.Type)
}

// CheckForm says whether content, a JSON object, answers the form of schema.
func CheckForm(schema, content json.RawMessage) error {
	fields, err := ParseForm(schema)
	if err != nil {
		return err
	}
	var values map[string]json.RawMessage
	if err := json.Unmarshal(content, &values); err != nil || values == nil {
		return errors.New("the answer to a form is an object with a value for each field")
	}
	for _, f := range fields {
		raw, given := values[f.Name]
		delete(values, f.Name)
		switch {
		case given:
			if err := f.check(raw); err != nil {
				return fmt.Errorf("field %q: %w", f.Name, err)
			}
		case f.Required:
			return fmt.Errorf("field %q: an answer is needed", f.Name)
		}
	}
	for name := range values {
		return fmt.Errorf("the form has no field %q", name)
	}
	return nil
}

// PlainURL reads the address that an agent wants its person to open. Only https is, to a host, with no user name, and in
// plain ASCII: a letter of another script may look like one of it (P5).
func PlainURL(address string) (*url.URL, bool) {
	u, err := url.Parse(address)
	notPlain := func(r rune) bool { return r <= ' ' || r > '~' }
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || strings.ContainsFunc(address, notPlain) {
		return nil, false
	}
	return u, true
}
