package acp_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/handlerd/handler/handlerd/acp"
)

func TestScan(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"id":2}}`, `request "initialize" id 1 key i1 params {"id":2}`},
		{`{"id":"1","method":"a"}`, `request "a" id "1" key s1`},
		{`{"method":"a","id":null}`, `request "a" id null key null`},
		{`{"id":0,"method":"a"}`, `request "a" id 0 key i0`},
		{`{"id":-0,"method":"a"}`, `request "a" id -0 key i0`},
		{`{"id":-7,"method":"a"}`, `request "a" id -7 key i-7`},
		{`{"id":123456789012345678901234567890,"method":"a"}`, `request "a" id 123456789012345678901234567890 key i123456789012345678901234567890`},
		{`{"id":"a\/\u0062","method":"a"}`, `request "a" id "a\/\u0062" key sa/b`},
		{`{"\u006dethod":"session\/new","params":[]}`, `notification "session/new" params []`},
		{` { "method" : "x" , "params" : { "method" : "y" } } `, `notification "x" params { "method" : "y" }`},
		{`{"id":2,"result":null}`, `response id 2 key i2 result null`},
		{`{"id":2,"result":{},"error":null}`, `response id 2 key i2 result {} error null`},
		{`{"id":2}`, `response id 2 key i2`},
		{`{"id":null,"error":{"code":-32700}}`, `response id null key null error {"code":-32700}`},
		{`{"id":3,"method":"","x":"}","y":{"z":"\"]}"}}`, `request "" id 3 key i3`},

		{`{"id":1.0,"method":"a"}`, `-32600 the id is not an integer`},
		{`{"id":1e2,"method":"a"}`, `-32600 the id is not an integer`},
		{`{"id":{},"method":"a"}`, `-32600 the id is neither a string nor an integer nor null`},
		{`{"id":[1],"method":"a"}`, `-32600 the id is neither`},
		{`{"id":true,"method":"a"}`, `-32600 the id is neither`},
		{`{"id":"\ud800","method":"a"}`, `-32600 the id is half a surrogate pair`},
		{`{"id":"` + strings.Repeat("a", 2000) + `","method":"a"}`, `-32600 an id of more than 1024 bytes`},
		{`{"method":"a","id":1,"id":2}`, `-32600 the key "id" stands twice; method a`},
		{`{"id":1,"method":"a","method":"b"}`, `-32600 the key "method" stands twice; id 1; method a`},
		{`{"id":1,"method":"a","params":{},"p\u0061rams":{}}`, `-32600 the key "params" stands twice; id 1`},
		{`{"id":1,"method":"a","METHOD":"session/new"}`, `-32600 the key "METHOD" differs from "method" only by case; id 1`},
		{`{"id":1,"re\u017fult":{}}`, `-32600 the key "re\u017fult" differs from "result" only by case; id 1`},
		{`{"id":1,"method":"a","result":{}}`, `-32600 a method and an answer in one message; id 1`},
		{`{"id":1,"result":{},"error":{}}`, `-32600 an answer with both result and error; id 1`},
		{`{"id":1,"method":7}`, `-32600 the method is not a string; id 1`},
		{`{"params":{}}`, `-32600 a message with neither method nor id`},
		{`{}`, `-32600 a message with neither method nor id`},
		{`[{"id":1,"method":"a"}]`, `-32600 a batch; ACP has one message a line`},
		{`null`, `-32700 the line is not JSON`},
		{`npm warn deprecated`, `-32700 the line is not JSON`},
		{`{"id":1,"method":"a"`, `-32700 the line is not JSON`},
		{`{"id":1,"method":"a"}{"id":2,"method":"b"}`, `-32700 something follows the message on its line; id 1`},
		{`{"id":1,"method":"a","x":` + strings.Repeat("[", 3000) + strings.Repeat("]", 3000) + `}`, `-32700 the line is not JSON: more than 1024 levels`},
		{"{\"id\":1,\"method\":\"a\",\"x\":\"\xff\"}", `-32700 the line is not UTF-8; id 1`},
		{"\ufeff{\"id\":1,\"method\":\"a\"}", `-32700 the line is not JSON`},
	} {
		e, err := acp.Scan([]byte(c.line))
		got := describe([]byte(c.line), e, err)
		if err == nil && got != c.want || err != nil && !matches(got, c.want) {
			t.Errorf("%.100s\n got %s\nwant %s", c.line, got, c.want)
		}
	}
}

// matches tells whether every part of want, which are set apart by semicolons, is in got.
func matches(got, want string) bool {
	for part := range strings.SplitSeq(want, "; ") {
		if !strings.Contains(got, part) {
			return false
		}
	}
	return true
}

func describe(line []byte, e acp.Envelope, err error) string {
	var out []string
	var scan *acp.ScanError
	if errors.As(err, &scan) {
		out = append(out, fmt.Sprintf("%d %s", scan.Code, scan.Reason))
	}
	switch e.Kind {
	case acp.Request:
		out = append(out, fmt.Sprintf("request %q", e.Method))
	case acp.Notification:
		out = append(out, fmt.Sprintf("notification %q", e.Method))
	case acp.Response:
		out = append(out, "response")
	default:
		out = append(out, "method "+e.Method)
	}
	if e.ID.Present() {
		out = append(out, "id "+string(e.ID.Of(line)), "key "+e.Key)
	}
	if e.Params.Present() {
		out = append(out, "params "+string(e.Params.Of(line)))
	}
	if e.Result.Present() {
		out = append(out, "result "+string(e.Result.Of(line)))
	}
	if e.Error.Present() {
		out = append(out, "error "+string(e.Error.Of(line)))
	}
	return strings.Join(out, " ")
}

// FuzzScan: Scan never panics; it takes nothing that encoding/json does not; and of what it takes, encoding/json finds
// the same parts, by exact keys and byte for byte.
func FuzzScan(f *testing.F) {
	for _, s := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}`,
		`{"id":"a\"b","result":{"x":[1,2,{"y":"\\"}]}}`, `{"\u0069d":1,"m\u0065thod":"x"}`, `{"id":null,"error":{}}`,
		`{"id":1,"method":"a","Method":"b"}`, `[]`, `{"a":{"id":1}}`, "{\"id\":\"\xff\"}", `{"id":1}x`, `{"id":1,"method":"\ud83d\ude00"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := acp.Scan(b)
		if err != nil {
			return
		}
		if !json.Valid(b) || !utf8.Valid(b) {
			t.Fatalf("took %q", b)
		}
		var want map[string]json.RawMessage
		if err := json.Unmarshal(b, &want); err != nil {
			t.Fatal(err)
		}
		for key, got := range map[string]string{
			"id": string(e.ID.Of(b)), "params": string(e.Params.Of(b)), "result": string(e.Result.Of(b)), "error": string(e.Error.Of(b)),
		} {
			if got != string(want[key]) {
				t.Fatalf("%s of %q is %q, want %q", key, b, got, want[key])
			}
		}
		var method *string
		if raw, ok := want["method"]; ok {
			if err := json.Unmarshal(raw, &method); err != nil {
				t.Fatal(err)
			}
		}
		if e.HasMethod != (method != nil) || e.HasMethod && e.Method != *method {
			t.Fatalf("method of %q is %q", b, e.Method)
		}
		if (e.Kind == acp.Request) != (e.HasMethod && want["id"] != nil) || (e.Kind == acp.Notification) != (e.HasMethod && want["id"] == nil) {
			t.Fatalf("kind of %q is %v", b, e.Kind)
		}
	})
}

func TestReader(t *testing.T) {
	long := strings.Repeat("x", 100<<10)
	type got struct {
		Line string
		Size int64
		Long bool
	}
	for name, c := range map[string]struct {
		in   string
		max  int
		want []got
		err  error
	}{
		"lines":                 {"a\nb\n", 0, []got{{"a", 1, false}, {"b", 1, false}}, io.EOF},
		"CRLF, one trimmed":     {"a\r\nb\r\r\n", 0, []got{{"a", 1, false}, {"b\r", 2, false}}, io.EOF},
		"blank lines":           {"\n\r\n  \t\na\n\n", 0, []got{{"a", 1, false}}, io.EOF},
		"half a line":           {"a\nb", 0, []got{{"a", 1, false}}, acp.ErrHalfLine},
		"blank half a line":     {"a\n  ", 0, []got{{"a", 1, false}}, io.EOF},
		"nothing":               {"", 0, nil, io.EOF},
		"long":                  {long + "\n" + long + "\r\na\n", 0, []got{{long, 100 << 10, false}, {long, 100 << 10, false}, {"a", 1, false}}, io.EOF},
		"at the bound":          {"12345\r\n12345\n", 5, []got{{"12345", 5, false}, {"12345", 5, false}}, io.EOF},
		"over the bound":        {"123456\n123456\r\n1234567\n1\n", 5, []got{{"12345", 6, true}, {"12345", 7, true}, {"12345", 7, true}, {"1", 1, false}}, io.EOF},
		"far over the bound":    {long + "\n1\n", 10, []got{{"xxxxxxxxxx", 100 << 10, true}, {"1", 1, false}}, io.EOF},
		"over, and half a line": {long, 10, nil, acp.ErrHalfLine},
		"long at the bound":     {long + "\n1\n", 100 << 10, []got{{long, 100 << 10, false}, {"1", 1, false}}, io.EOF},
		"long over the bound":   {long + "\n1\n", 100<<10 - 1, []got{{long[1:], 100 << 10, true}, {"1", 1, false}}, io.EOF},
		"longer than one chunk": {long + long + long + "y\nz\n", 0, []got{{long + long + long + "y", 300<<10 + 1, false}, {"z", 1, false}}, io.EOF},
	} {
		for way, from := range map[string]func(io.Reader) io.Reader{
			"at once": func(r io.Reader) io.Reader { return r }, "by halves": iotest.HalfReader, "by bytes": iotest.OneByteReader, "data with error": iotest.DataErrReader,
		} {
			r := acp.NewReader(from(strings.NewReader(c.in)), c.max)
			var lines []got
			var buf []byte
			var err error
			for {
				var l acp.Line
				if l, err = r.Next(buf); err != nil {
					break
				}
				if cap(l.Bytes) <= len(l.Bytes) && !l.TooLong {
					t.Errorf("%s, %s: no room for a newline", name, way)
				}
				lines = append(lines, got{string(l.Bytes), l.Size, l.TooLong})
				buf = l.Bytes
			}
			if !errors.Is(err, c.err) {
				t.Errorf("%s, %s: %v, want %v", name, way, err, c.err)
			}
			if diff := cmp.Diff(c.want, lines); diff != "" {
				t.Errorf("%s, %s: %.300s", name, way, diff)
			}
		}
	}
	if _, err := acp.NewReader(iotest.ErrReader(io.ErrClosedPipe), 0).Next(nil); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("another error became %v", err)
	}
}
