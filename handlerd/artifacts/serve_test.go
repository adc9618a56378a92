package artifacts

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// get asks for an artifact through a real server, since a recorder forgives what net/http does not.
func get(t *testing.T, server *httptest.Server, method, id string, headers ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, server.URL+"/"+id, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var body strings.Builder
	buf := make([]byte, 4096)
	for {
		n, err := resp.Body.Read(buf)
		body.Write(buf[:n])
		if err != nil {
			return resp, body.String()
		}
	}
}

func serve(t *testing.T, s *Store) *httptest.Server {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.Serve(w, r, owner, strings.TrimPrefix(r.URL.Path, "/"))
	}))
	t.Cleanup(server.Close)
	return server
}

func TestRanges(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	server := serve(t, s)
	const content = "0123456789"
	a := add(t, s, Meta{Run: "r", Name: "digits.txt"}, content)
	etag := `"` + a.SHA256 + `"`
	many := "bytes=" + strings.Repeat("0-1,", 300) + "0-1"
	for _, test := range []struct {
		name    string
		method  string
		headers []string
		status  int
		body    string
		rang    string // Content-Range
	}{
		{"whole", "GET", nil, 200, content, ""},
		{"head", "HEAD", nil, 200, "", ""},
		{"head has no ranges", "HEAD", []string{"Range", "bytes=0-1"}, 200, "", ""},
		{"first two", "GET", []string{"Range", "bytes=0-1"}, 206, "01", "bytes 0-1/10"},
		{"one byte", "GET", []string{"Range", "bytes=9-9"}, 206, "9", "bytes 9-9/10"},
		{"open end", "GET", []string{"Range", "bytes=7-"}, 206, "789", "bytes 7-9/10"},
		{"end beyond", "GET", []string{"Range", "bytes=7-100"}, 206, "789", "bytes 7-9/10"},
		{"end beyond any file", "GET", []string{"Range", "bytes=7-99999999999999999999999"}, 206, "789", "bytes 7-9/10"},
		{"suffix", "GET", []string{"Range", "bytes=-3"}, 206, "789", "bytes 7-9/10"},
		{"suffix beyond", "GET", []string{"Range", "bytes=-300"}, 206, content, "bytes 0-9/10"},
		{"unit in capitals", "GET", []string{"Range", "Bytes=0-1"}, 206, "01", "bytes 0-1/10"},
		{"empty suffix", "GET", []string{"Range", "bytes=-0"}, 416, "", "bytes */10"},
		{"behind the end", "GET", []string{"Range", "bytes=10-"}, 416, "", "bytes */10"},
		{"behind any end", "GET", []string{"Range", "bytes=99999999999999999999999-"}, 416, "", "bytes */10"},
		{"several", "GET", []string{"Range", "bytes=0-1,3-4"}, 200, content, ""},
		{"very many", "GET", []string{"Range", many}, 200, content, ""},
		{"two headers", "GET", []string{"Range", "bytes=0-1", "Range", "bytes=3-4"}, 200, content, ""},
		{"no numbers", "GET", []string{"Range", "bytes=abc"}, 200, content, ""},
		{"backwards", "GET", []string{"Range", "bytes=5-2"}, 200, content, ""},
		{"negative", "GET", []string{"Range", "bytes=--2"}, 200, content, ""},
		{"signs", "GET", []string{"Range", "bytes=+1-2"}, 200, content, ""},
		{"nothing", "GET", []string{"Range", "bytes="}, 200, content, ""},
		{"a dash", "GET", []string{"Range", "bytes=-"}, 200, content, ""},
		{"other unit", "GET", []string{"Range", "items=0-1"}, 200, content, ""},
		{"if-range holds", "GET", []string{"Range", "bytes=0-1", "If-Range", etag}, 206, "01", "bytes 0-1/10"},
		{"if-range of another", "GET", []string{"Range", "bytes=0-1", "If-Range", `"x"`}, 200, content, ""},
		{"if-range weak", "GET", []string{"Range", "bytes=0-1", "If-Range", "W/" + etag}, 200, content, ""},
		{"if-range date", "GET", []string{"Range", "bytes=0-1", "If-Range", "Wed, 21 Oct 2037 07:28:00 GMT"}, 200, content, ""},
		{"if-none-match", "GET", []string{"If-None-Match", `"x", W/` + etag}, 304, "", ""},
		{"if-none-match goes before", "GET", []string{"If-None-Match", "*", "Range", "bytes=99-"}, 304, "", ""},
		{"if-match", "GET", []string{"If-Match", etag, "Range", "bytes=0-0"}, 206, "0", "bytes 0-0/10"},
		{"if-match of another", "GET", []string{"If-Match", `"x"`}, 412, "", ""},
		{"if-match weak", "GET", []string{"If-Match", "W/" + etag}, 412, "", ""},
		{"post", "POST", nil, 405, "only GET and HEAD\n", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			resp, body := get(t, server, test.method, a.ID, test.headers...)
			if resp.StatusCode != test.status || body != test.body || resp.Header.Get("Content-Range") != test.rang {
				t.Errorf("%d %q %q", resp.StatusCode, body, resp.Header.Get("Content-Range"))
			}
			if test.method == "HEAD" && resp.ContentLength != 10 {
				t.Errorf("length %d", resp.ContentLength)
			}
			if test.status < 400 && (resp.Header.Get("ETag") != etag || resp.Header.Get("X-Content-Type-Options") != "nosniff" ||
				resp.Header.Get("Content-Security-Policy") != "sandbox; default-src 'none'") {
				t.Errorf("headers %v", resp.Header)
			}
		})
	}
	empty := add(t, s, Meta{Run: "r", Name: "empty"}, "")
	if resp, _ := get(t, server, "GET", empty.ID, "Range", "bytes=0-"); resp.StatusCode != 416 || resp.Header.Get("Content-Range") != "bytes */0" {
		t.Errorf("empty: %d %v", resp.StatusCode, resp.Header)
	}
	if resp, body := get(t, server, "GET", empty.ID); resp.StatusCode != 200 || body != "" || resp.ContentLength != 0 {
		t.Errorf("empty: %d %q", resp.StatusCode, body)
	}
}

// TestShown: what could hold a program is downloaded as bytes, whatever its name says (H08).
func TestShown(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	server := serve(t, s)
	for _, test := range []struct{ name, content, mediaType, disposition string }{
		{"a.png", png, "image/png", `inline; filename="a.png"`},
		{"a.html", png, "image/png", `inline; filename="a.html"`},
		{"notes.txt", "plain words", "text/plain; charset=utf-8", `inline; filename="notes.txt"`},
		{"a.png", "<!doctype html><script>alert(1)</script>", "application/octet-stream", `attachment; filename="a.png"`},
		{"a.png", `<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"/>`, "application/octet-stream", `attachment; filename="a.png"`},
		{"x.pdf", "%PDF-1.7\n", "application/octet-stream", `attachment; filename="x.pdf"`},
		{`a"b;c%.txt`, "plain words", "text/plain; charset=utf-8", `inline; filename="a_b;c_.txt"; filename*=UTF-8''a%22b%3Bc%25.txt`},
		{"ü.txt", "plain words", "text/plain; charset=utf-8", `inline; filename="_.txt"; filename*=UTF-8''%C3%BC.txt`},
		{"a\r\nSet-Cookie: x", "plain words", "text/plain; charset=utf-8", `inline; filename="aSet-Cookie: x"`},
	} {
		a := add(t, s, Meta{Run: "r", Name: test.name}, test.content)
		resp, _ := get(t, server, "GET", a.ID)
		if got := resp.Header.Get("Content-Type"); got != test.mediaType {
			t.Errorf("%s: type %q", test.name, got)
		}
		if got := resp.Header.Get("Content-Disposition"); got != test.disposition {
			t.Errorf("%s: disposition %q", test.name, got)
		}
	}
}

func TestNotServed(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	server := serve(t, s)
	other := add(t, s, Meta{Owner: "user:1001", Run: "r", Name: "a"}, "a")
	mine := add(t, s, Meta{Run: "r", Name: "a"}, "b")
	for _, id := range []string{other.ID, mine.ID[:8], "", "..", "x"} {
		if resp, _ := get(t, server, "GET", id); resp.StatusCode != 404 {
			t.Errorf("%q: %d", id, resp.StatusCode)
		}
	}
}

func FuzzParseRange(f *testing.F) {
	for _, seed := range []string{"bytes=0-1", "bytes=-5", "bytes=5-", "bytes=99999999999999999999-", "x=1-2", "bytes= 1-2 "} {
		f.Add(seed, int64(10))
	}
	f.Fuzz(func(t *testing.T, value string, size int64) {
		if size < 0 {
			return
		}
		first, length, ok := parseRange([]string{value}, size)
		if ok && (first < 0 || length < 0 || length > 0 && (first >= size || first+length > size)) {
			t.Errorf("%q of %d: %d bytes from %d", value, size, length, first)
		}
	})
}
