package acpclient

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/handlerd/handler/policy/rawjson"
)

// Bounds of a form.
const (
	MaxFormBytes = 64 << 10 // of its schema
	MaxFields    = 20
	MaxChoices   = 100 // of one field
	maxFieldName = 200 // bytes
)

// A Field is one property of a form's schema.
type Field struct {
	Name     string `json:"-"`
	Required bool   `json:"-"`

	Type        string          `json:"type"` // "string", "boolean", "number", "integer", or "array" of some of its choices
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
	Items       Items           `json:"items"` // of an array
	MinItems    int             `json:"minItems"`
	MaxItems    int             `json:"maxItems"`
}

// Items are what an array is chosen from.
type Items struct {
	Enum  []string   `json:"enum"`
	AnyOf []Constant `json:"anyOf"`
	OneOf []Constant `json:"oneOf"`
}

// A Constant is one value that a field may have, its name, and what is said of it.
type Constant struct {
	Const       string `json:"const"`
	Title       string `json:"title"`
	Description string `json:"description"`
}

// ParseForm reads the fields of an elicitation's schema in the order in which it names them. A field of a type that
// nobody here can ask for is left out; the error says which one where it is required. It is strict where two readers
// could see two forms: no key stands twice, and none looks like one that is read (P5).
func ParseForm(schema json.RawMessage) ([]Field, error) {
	if len(schema) > MaxFormBytes {
		return nil, fmt.Errorf("the form has %d bytes; at most %d are taken", len(schema), MaxFormBytes)
	}
	var s struct {
		Required []string `json:"required"`
	}
	whole, err := object(schema, rawjson.Span{End: len(schema)}, "properties", "required")
	if err == nil {
		err = json.Unmarshal(schema, &s)
	}
	if err != nil {
		return nil, fmt.Errorf("the form has a wrong shape: %w", err)
	}
	properties, err := object(schema, whole.Get("properties"))
	if err != nil {
		return nil, fmt.Errorf("the form has no fields: %w", err)
	}
	var fields []Field
	for _, m := range properties.Members {
		f, err := parseField(schema, m)
		if err != nil {
			return nil, fmt.Errorf("field %q of the form: %w", clip(m.Name), err)
		}
		f.Required = slices.Contains(s.Required, f.Name)
		switch {
		case f.known():
			fields = append(fields, f)
		case f.Required:
			return nil, fmt.Errorf("field %q of the form has type %q, which cannot be asked for here", f.Name, clip(f.Type))
		}
		if len(fields) > MaxFields {
			return nil, fmt.Errorf("the form has more than %d fields", MaxFields)
		}
	}
	return fields, nil
}

// parseField reads one property of a schema.
func parseField(schema []byte, m rawjson.Member) (Field, error) {
	f := Field{Name: m.Name}
	if m.Name == "" || len(m.Name) > maxFieldName {
		return f, fmt.Errorf("a name has 1 to %d bytes", maxFieldName)
	}
	o, err := object(schema, m.Value, "type", "title", "description", "enum", "enumNames", "oneOf", "default", "minLength", "maxLength", "minimum",
		"maximum", "items", "minItems", "maxItems")
	if items := o.Get("items"); err == nil && items.Present() {
		_, err = object(schema, items, "type", "enum", "anyOf", "oneOf")
	}
	if err == nil {
		err = json.Unmarshal(m.Value.Of(schema), &f)
	}
	if err != nil {
		return f, err
	}
	if len(f.Choices()) > MaxChoices {
		return f, fmt.Errorf("it has more than %d values to choose from", MaxChoices)
	}
	return f, nil
}

// known tells whether a person can be asked for the field.
func (f Field) known() bool {
	switch f.Type {
	case "string", "boolean", "number", "integer":
		return true
	case "array":
		return len(f.Choices()) > 0
	}
	return false
}

// object reads the object at s of b, whose keys are known but for those that look like none of them.
func object(b []byte, s rawjson.Span, known ...string) (rawjson.Object, error) {
	whole, err := rawjson.Whole(s.Of(b))
	if err != nil {
		return rawjson.Object{}, err
	}
	whole = whole.Shift(s.Start)
	if b[whole.Start] != '{' {
		return rawjson.Object{}, errors.New("an object is needed")
	}
	return rawjson.ParseObject(b, whole, known...)
}

// clip bounds what an error repeats of an agent's words.
func clip(s string) string {
	if len(s) <= maxFieldName {
		return s
	}
	return strings.ToValidUTF8(s[:maxFieldName], "") + "…"
}

// Choices gives the values that the field is chosen from, each with a name; none where it is free.
func (f Field) Choices() []Constant {
	constants, enum, names := f.OneOf, f.Enum, f.EnumNames
	if f.Type == "array" {
		constants, enum, names = append(slices.Clone(f.Items.AnyOf), f.Items.OneOf...), f.Items.Enum, nil
	}
	all := slices.Clone(constants)
	if len(all) == 0 {
		for i, value := range enum {
			all = append(all, Constant{Const: value})
			if i < len(names) {
				all[i].Title = names[i]
			}
		}
	}
	for i := range all {
		all[i].Title = cmp.Or(all[i].Title, all[i].Const)
	}
	return all
}

// chosen tells whether a value is one of the choices.
func (f Field) chosen(value string) bool {
	return slices.ContainsFunc(f.Choices(), func(c Constant) bool { return c.Const == value })
}

// CheckList says whether the field takes these values together.
func (f Field) CheckList(values []string) error {
	for i, v := range values {
		if !f.chosen(v) {
			return errors.New("one is none of the values to choose from")
		}
		if slices.Contains(values[:i], v) {
			return errors.New("one is chosen twice")
		}
	}
	switch n := len(values); {
	case n < f.MinItems:
		return fmt.Errorf("at least %d have to be chosen", f.MinItems)
	case f.MaxItems > 0 && n > f.MaxItems:
		return fmt.Errorf("at most %d can be chosen", f.MaxItems)
	}
	return nil
}

// CheckText says whether a text is as long as the field wants it.
func (f Field) CheckText(s string) error {
	n := utf8.RuneCountInString(s)
	switch {
	case n < f.MinLength:
		return fmt.Errorf("at least %d characters are needed", f.MinLength)
	case f.MaxLength > 0 && n > f.MaxLength:
		return fmt.Errorf("at most %d characters are taken", f.MaxLength)
	}
	return nil
}

// CheckNumber says whether a number is one that the field takes.
func (f Field) CheckNumber(n float64) error {
	if f.Type == "integer" && n != math.Trunc(n) {
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
		switch {
		case len(f.Choices()) == 0:
			return f.CheckText(v)
		case !f.chosen(v):
			return errors.New("it is none of the values to choose from")
		}
		return nil
	case bool:
		if f.Type == "boolean" {
			return nil
		}
	case []any:
		var values []string
		if f.Type != "array" || json.Unmarshal(raw, &values) != nil {
			break
		}
		return f.CheckList(values)
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
