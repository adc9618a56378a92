package api_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/handlerd/handler/handlerd/api"
	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/artifacts"
	"github.com/handlerd/handler/handlerd/history"
	"github.com/handlerd/handler/handlerd/sessions"
	"github.com/handlerd/handler/handlerd/web"
)

var update = flag.Bool("update", false, "write openapi.json")

// An operation is what one route does.
type operation struct {
	says    string
	takes   any      // a value of the type of the body; nil for none
	gives   any      // the same of the answer; raw for bytes
	stream  bool     // the answer is one such value a line, or with Accept: text/event-stream an event each
	query   []string // name, and behind a space what it says
	header  []string // the same of the request's headers
	upgrade string   // the protocol that the connection goes over to
}

// raw are bytes of some media type.
type raw string

type none struct{}

// TestOpenAPI holds openapi.json against the routes and the types, both ways. With -update it writes it.
func TestOpenAPI(t *testing.T) {
	have := map[string]bool{}
	for _, pattern := range patterns(t, api.New(api.Options{Web: new(web.Door), Views: new(sessions.Manager), Artifacts: new(artifacts.Store), Feed: history.NewFeed()})) {
		have[pattern] = true
	}
	delete(have, "/")
	all := operations()
	for pattern := range have {
		if _, ok := all[pattern]; !ok {
			t.Errorf("%s is described nowhere: add it to operations in openapi_operations_test.go, and run: go test ./handlerd/api -run TestOpenAPI -update", pattern)
		}
	}
	g := &generator{schemas: map[string]any{}}
	paths := map[string]map[string]any{}
	for pattern, op := range all {
		if !have[pattern] {
			t.Errorf("%s is described and is no route", pattern)
		}
		method, path, _ := strings.Cut(pattern, " ")
		if paths[path] == nil {
			paths[path] = map[string]any{}
		}
		paths[path][strings.ToLower(method)] = g.operation(method, path, op)
	}
	for _, v := range []any{ // what an Event's data is, by its kind
		types.EventPromptData{}, types.EventTurnData{}, types.EventQuestionData{}, types.EventAnsweredData{}, types.ApprovalEvent{},
		types.EventArtifactData{}, types.NetworkVerdict{}, types.EventRunData{}, types.EventNoticeData{}, types.EventCutData{},
	} {
		g.of(reflect.TypeOf(v))
	}
	got := encode(t, map[string]any{
		"openapi": "3.1.0",
		"info": map[string]any{
			"title": "Handler", "version": "1",
			"description": "HTTP on the unix socket $XDG_RUNTIME_DIR/handler/handlerd.sock, for its owner only; and for the page, under /api of its own origin. docs/handlers/api.md tells more.",
		},
		"paths": paths, "components": map[string]any{"schemas": g.schemas},
	})
	if *update {
		if err := os.WriteFile("openapi.json", got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("openapi.json is not what the routes and the types say; run: go test ./handlerd/api -run TestOpenAPI -update\n%s", diff)
	}
}

func encode(t *testing.T, v any) []byte {
	t.Helper()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	if err := enc.Encode(v); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestOpenAPIIsServed: whoever has the socket gets it.
func TestOpenAPIIsServed(t *testing.T) {
	w := &recorder{header: http.Header{}}
	r, err := http.NewRequest(http.MethodGet, types.PathOpenAPI, nil)
	if err != nil {
		t.Fatal(err)
	}
	api.Mux(api.New(api.Options{})).ServeHTTP(w, r)
	var doc struct{ Paths map[string]any }
	if err := json.Unmarshal(w.body.Bytes(), &doc); err != nil || len(doc.Paths) < 20 {
		t.Errorf("%d paths, %v", len(doc.Paths), err)
	}
}

type recorder struct {
	header http.Header
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) WriteHeader(int)             {}
func (r *recorder) Write(p []byte) (int, error) { return r.body.Write(p) }

// A generator makes schemas of types.
type generator struct{ schemas map[string]any }

func (g *generator) operation(method, path string, op operation) map[string]any {
	params := []any{}
	for _, part := range strings.Split(path, "/") {
		if name, ok := strings.CutPrefix(part, "{"); ok {
			params = append(params, map[string]any{"name": strings.TrimSuffix(name, "}"), "in": "path", "required": true, "schema": map[string]any{"type": "string"}})
		}
	}
	for _, p := range []struct {
		in   string
		list []string
	}{{"query", op.query}, {"header", op.header}} {
		for _, q := range p.list {
			name, says, _ := strings.Cut(q, " ")
			params = append(params, map[string]any{"name": name, "in": p.in, "description": says, "schema": map[string]any{"type": "string"}})
		}
	}
	out := map[string]any{"summary": op.says, "operationId": operationID(method, path)}
	if len(params) > 0 {
		out["parameters"] = params
	}
	if op.takes != nil {
		out["requestBody"] = map[string]any{"required": true, "content": map[string]any{"application/json": map[string]any{"schema": g.of(reflect.TypeOf(op.takes))}}}
	}
	responses := map[string]any{"default": map[string]any{
		"description": "what went wrong, with a status of 400 or more",
		"content":     map[string]any{"application/json": map[string]any{"schema": g.of(reflect.TypeFor[types.Error]())}},
	}}
	if op.upgrade != "" {
		responses["101"] = map[string]any{"description": "the connection goes over to " + op.upgrade}
	} else {
		responses["200"] = g.answer(op)
	}
	out["responses"] = responses
	return out
}

func (g *generator) answer(op operation) map[string]any {
	if media, ok := op.gives.(raw); ok {
		return map[string]any{"description": "the bytes", "content": map[string]any{string(media): map[string]any{}}}
	}
	gives := op.gives
	if gives == nil {
		gives = none{}
	}
	schema := map[string]any{"schema": g.of(reflect.TypeOf(gives))}
	if !op.stream {
		return map[string]any{"description": "done", "content": map[string]any{"application/json": schema}}
	}
	return map[string]any{"description": "one value a line", "content": map[string]any{"application/x-ndjson": schema}}
}

// operationID names an operation after its path: getRunsIdLog.
func operationID(method, path string) string {
	name := strings.ToLower(method)
	for part := range strings.SplitSeq(strings.TrimPrefix(path, "/v1/"), "/") {
		part = strings.Trim(strings.ReplaceAll(part, ".", ""), "{}")
		name += strings.ToUpper(part[:1]) + part[1:]
	}
	return name
}

// of gives the schema of a type as encoding/json writes it.
func (g *generator) of(t reflect.Type) map[string]any {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return map[string]any{"type": "string", "format": "date-time"}
	case t == reflect.TypeFor[json.RawMessage]():
		return map[string]any{} // any JSON
	}
	switch t.Kind() {
	case reflect.Pointer:
		return g.of(t.Elem())
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Float64:
		return map[string]any{"type": "number"}
	case reflect.Int, reflect.Int64, reflect.Int32, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return map[string]any{"type": "integer"}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return map[string]any{"type": "string", "contentEncoding": "base64"}
		}
		return map[string]any{"type": "array", "items": g.of(t.Elem())}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": g.of(t.Elem())}
	case reflect.Struct:
		return g.object(t)
	}
	panic("no schema for " + t.String())
}

// object gives a reference to a named struct's schema, which it makes.
func (g *generator) object(t reflect.Type) map[string]any {
	name := t.Name()
	if name == "" || name == "none" {
		return map[string]any{"type": "object"}
	}
	ref := map[string]any{"$ref": "#/components/schemas/" + name}
	if _, ok := g.schemas[name]; ok {
		return ref
	}
	schema := map[string]any{"type": "object"}
	g.schemas[name] = schema // first, for types that hold themselves
	properties, required := map[string]any{}, []string{}
	g.fields(t, properties, &required)
	schema["properties"] = properties
	if slices.Sort(required); len(required) > 0 {
		schema["required"] = required
	}
	return ref
}

func (g *generator) fields(t reflect.Type, properties map[string]any, required *[]string) {
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("json")
		name, options, _ := strings.Cut(tag, ",")
		switch {
		case f.Anonymous && tag == "":
			g.fields(f.Type, properties, required)
			continue
		case !f.IsExported() || tag == "-":
			continue
		case name == "":
			name = f.Name
		}
		properties[name] = g.of(f.Type)
		if !strings.Contains(options, "omit") && f.Type.Kind() != reflect.Pointer {
			*required = append(*required, name)
		}
	}
}
