package acpclient_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/handlerd/handler/handlerd/acp/acpclient"
)

func TestParseForm(t *testing.T) {
	fields, err := acpclient.ParseForm(json.RawMessage(` {"type":"object","required":["n"],"properties":{
		"n":{"type":"integer","minimum":1,"maximum":9},"list":{"type":"array"},"b":{"type":"boolean","default":true},
		"s":{"type":"string","oneOf":[{"const":"a","title":"A"},{"const":"b"}],"enum":["x"]},"__proto__":{"type":"string"}}} `))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range fields {
		names = append(names, fmt.Sprint(f.Name, f.Required))
	}
	if diff := cmp.Diff([]string{"ntrue", "bfalse", "sfalse", "__proto__false"}, names); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]acpclient.Constant{{Const: "a", Title: "A"}, {Const: "b", Title: "b"}}, fields[2].Choices()); diff != "" {
		t.Error(diff)
	}
}

// TestChoices: some of several values, in the shape in which Claude Code's agent asks for them.
func TestChoices(t *testing.T) {
	schema := json.RawMessage(`{"type":"object","required":["many"],"properties":{
		"many":{"type":"array","title":"Sizes","minItems":1,"maxItems":2,"items":{"anyOf":[{"const":"S","title":"small","description":"cheap"},{"const":"L"},{"const":"XL"}]}},
		"plain":{"type":"array","items":{"type":"string","enum":["a","b"]}},"open":{"type":"array","items":{"type":"string"}}}}`)
	fields, err := acpclient.ParseForm(schema)
	if err != nil || len(fields) != 2 {
		t.Fatalf("%d fields, %v", len(fields), err)
	}
	want := []acpclient.Constant{{Const: "S", Title: "small", Description: "cheap"}, {Const: "L", Title: "L"}, {Const: "XL", Title: "XL"}}
	if diff := cmp.Diff(want, fields[0].Choices()); diff != "" {
		t.Error(diff)
	}
	for content, want := range map[string]string{
		`{"many":["S","XL"],"plain":["b"]}`: "",
		`{"many":["L"],"plain":[]}`:         "",
		`{"many":[]}`:                       "at least 1",
		`{"many":["S","L","XL"]}`:           "at most 2",
		`{"many":["S","S"]}`:                "twice",
		`{"many":["small"]}`:                "none of the values",
		`{"many":[1]}`:                      "type array",
		`{"many":"S"}`:                      "type array",
		`{"many":["S"],"open":["x"]}`:       "no field",
	} {
		err := acpclient.CheckForm(schema, json.RawMessage(content))
		if got := fmt.Sprint(err); (want == "") != (err == nil) || !strings.Contains(got, want) && want != "" {
			t.Errorf("%s: %v, want %q", content, err, want)
		}
	}
	for _, twice := range []string{`{"enum":["a"],"enum":["b"]}`, `{"anyOf":[],"AnyOf":[{"const":"x"}]}`} {
		if _, err := acpclient.ParseForm(json.RawMessage(`{"properties":{"x":{"type":"array","items":` + twice + `}}}`)); err == nil {
			t.Errorf("%s is taken", twice)
		}
	}
}

// TestHostileForms: what two readers could read as two forms, and what no person would read to its end, is no form.
func TestHostileForms(t *testing.T) {
	one := func(field string) string { return `{"properties":{"x":` + field + `}}` }
	many := func(n int, each func(int) string) string {
		var all []string
		for i := range n {
			all = append(all, each(i))
		}
		return strings.Join(all, ",")
	}
	field := func(i int) string { return fmt.Sprintf(`"f%d":{"type":"string"}`, i) }
	for schema, want := range map[string]string{
		``:                    "wrong shape",
		`[]`:                  "wrong shape",
		`{"properties":`:      "wrong shape",
		`{}`:                  "no fields",
		`{"properties":[]}`:   "no fields",
		`{"properties":null}`: "no fields",
		`{"Properties":{}}`:   "only by case",
		`{"required":"x"}`:    "wrong shape",
		`{"properties":{},"properties":{"x":{"type":"string"}}}`:        "stands twice",
		`{"properties":{"x":{"type":"string"},"x":{"type":"boolean"}}}`: "stands twice",
		one(`{"type":"string","type":"boolean"}`):                       "stands twice",
		one(`{"type":"boolean","TYPE":"string"}`):                       "only by case",
		one(`"string"`):                     "an object is needed",
		one(`{"type":["string","null"]}`):   `field "x"`,
		one(`{"type":"string","enum":[1]}`): `field "x"`,
		one(`{"type":"string","enum":["` + strings.Repeat(`a","`, 100) + `a"]}`):                       "more than 100 values",
		`{"properties":{"":{"type":"string"}}}`:                                                        "1 to 200 bytes",
		`{"properties":{"` + strings.Repeat("x", 201) + `":{"type":"string"}}}`:                        "1 to 200 bytes",
		`{"properties":{` + many(21, field) + `}}`:                                                     "more than 20 fields",
		one(`{"type":"string","title":"` + strings.Repeat("x", acpclient.MaxFormBytes) + `"}`):         "at most 65536",
		`{"required":["x"],"properties":{"x":{"type":"object"}}}`:                                      "cannot be asked for here",
		`{"properties":{"x":` + strings.Repeat(`{"a":`, 9000) + `1` + strings.Repeat(`}`, 9000) + `}}`: "",
	} {
		_, err := acpclient.ParseForm(json.RawMessage(schema))
		if err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 600 {
			t.Errorf("%.80s: %v, want %q", schema, err, want)
		}
	}
}

func TestCheckForm(t *testing.T) {
	schema := json.RawMessage(`{"required":["s"],"properties":{"s":{"type":"string","minLength":2,"maxLength":3},"n":{"type":"integer","minimum":-1,"maximum":1e300},
		"b":{"type":"boolean"},"c":{"type":"string","enum":["x","y"]},"a":{"type":"array"}}}`)
	for content, want := range map[string]string{
		`{"s":"ab","n":1e200,"b":false,"c":"y"}`: "",
		`{"s":"äöü"}`:                            "",
		`{}`:                                     `"s": an answer is needed`,
		`null`:                                   "an object",
		`["ab"]`:                                 "an object",
		`{"s":"a"}`:                              "at least 2 characters",
		`{"s":"abcd"}`:                           "at most 3 characters",
		`{"s":7}`:                                "type string",
		`{"s":null}`:                             "type string",
		`{"s":"ab","n":1.5}`:                     "a whole number",
		`{"s":"ab","n":-2}`:                      "at least -1",
		`{"s":"ab","n":"1"}`:                     "type integer",
		`{"s":"ab","c":"z"}`:                     "none of the values",
		`{"s":"ab","a":[]}`:                      `no field "a"`,
		`{"s":"ab","__proto__":{}}`:              "no field",
	} {
		err := acpclient.CheckForm(schema, json.RawMessage(content))
		if got := fmt.Sprint(err); (want == "") != (err == nil) || !strings.Contains(got, want) && want != "" {
			t.Errorf("%s: %v, want %q", content, err, want)
		}
	}
}

// FuzzForm: whatever a schema is, it is read to fields that encoding/json sees too, each once; and an answer that is taken has
// nothing but those.
func FuzzForm(f *testing.F) {
	f.Add([]byte(`{"required":["s"],"properties":{"s":{"type":"string","enum":["x"],"enumNames":["X"]},"n":{"type":"number","default":1}}}`), []byte(`{"s":"x","n":2}`))
	f.Add([]byte(`{"properties":{"s":{"type":"string","oneOf":[{"const":"x","title":"X"}]},"b":{"type":"boolean"}}}`), []byte(`{"b":true}`))
	f.Fuzz(func(t *testing.T, schema, content []byte) {
		fields, err := acpclient.ParseForm(schema)
		if err != nil {
			return
		}
		var s struct{ Properties map[string]acpclient.Field }
		if err := json.Unmarshal(schema, &s); err != nil || len(s.Properties) < len(fields) {
			t.Fatalf("%v, %d fields of %d", err, len(fields), len(s.Properties))
		}
		known := map[string]bool{}
		for _, field := range fields {
			if known[field.Name] || s.Properties[field.Name].Type != field.Type {
				t.Fatalf("field %q: %+v", field.Name, field)
			}
			known[field.Name] = true
		}
		if acpclient.CheckForm(schema, content) != nil {
			return
		}
		var values map[string]any
		if err := json.Unmarshal(content, &values); err != nil {
			t.Fatal(err)
		}
		for name := range values {
			if !known[name] {
				t.Fatalf("%q is no field", name)
			}
		}
	})
}
