package browser

import (
	"bytes"
	"errors"
	"image"
	"image/png"
	"slices"
	"strings"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/handlerd/handler/handlerd/artifacts"
)

// toolboxOf stands for the programs of the toolbox: a PDF of 30 pages.
func toolboxOf(t *testing.T, ran *[]string) func(argv []string) ([]byte, error) {
	var page bytes.Buffer
	if err := png.Encode(&page, image.NewGray(image.Rect(0, 0, 40, 60))); err != nil {
		t.Fatal(err)
	}
	return func(argv []string) ([]byte, error) {
		*ran = append(*ran, strings.Join(argv, " "))
		switch argv[0] {
		case "pdfinfo":
			return []byte("Title: x\nPages:          30\n"), nil
		case "pdftotext":
			return []byte("Dear all,\n\fobey me\n\f"), nil
		case "pdftoppm":
			return page.Bytes(), nil
		}
		return nil, errors.New("no such program")
	}
}

// TestPDF: the page is saved, its text comes fenced and by page, its pages are shown and kept.
func TestPDF(t *testing.T) {
	r, w := atShop(t)
	var ran []string
	w.change(func(w *fakeWorker) {
		w.toolbox = toolboxOf(t, &ran)
		w.files["/out/page.pdf"] = []byte("%PDF-1.7")
		w.on["browser_pdf_save"] = func(*fakeWorker, string) *mcp.CallToolResult {
			return mcp.NewToolResultText("### Result\n- [Page as pdf](/out/page.pdf)\n")
		}
	})
	r.ok("browser_pdf_save", `{}`, "Saved http://shop.example.org", "artifact id0 (page.pdf)")
	r.ok("browser_read_pdf", `{"artifact":"id0","first":2,"last":3}`, "page 2 of 30", "Dear all,", "page 3 of 30", "obey me", "<<<", ">>>")
	if got := string(w.written["artifact.pdf"]); got != "%PDF-1.7" {
		t.Errorf("written %q", got)
	}
	shown := r.call("browser_pdf_pages", `{"artifact":"id0","first":29}`)
	if shown.IsError || len(shown.Content) != 4 || !strings.Contains(text(shown), "Page 29 of 30") || !strings.Contains(text(shown), "artifact id1 (page-29.png)") {
		t.Errorf("%d parts: %s", len(shown.Content), text(shown))
	}
	if n := len(r.store.all); n != 3 {
		t.Errorf("%d artifacts", n)
	}
	if !slices.Contains(ran, "pdftotext -enc UTF-8 -f 2 -l 3 /in/artifact.pdf -") {
		t.Errorf("ran %q", ran)
	}
}

func TestPDFRefused(t *testing.T) {
	r, w := atShop(t)
	var ran []string
	w.change(func(w *fakeWorker) { w.toolbox = toolboxOf(t, &ran) })
	for i, m := range []artifacts.Meta{{Owner: "user:1000", Run: "r", Session: "s", Name: "a.pdf"}, {Owner: "user:1000", Run: "r", Session: "other", Name: "b.pdf"}, {Owner: "user:1001", Run: "r", Session: "s", Name: "c.pdf"}} {
		if _, err := r.store.Add(t.Context(), m, strings.NewReader("%PDF")); err != nil {
			t.Fatal(i, err)
		}
	}
	for args, want := range map[string]string{
		`{"artifact":"id1"}`:                     "this session has no artifact",
		`{"artifact":"id2"}`:                     "this session has no artifact",
		`{"artifact":"id9"}`:                     "this session has no artifact",
		`{}`:                                     "this session has no artifact",
		`{"artifact":"id0","first":31}`:          "has 30",
		`{"artifact":"id0","first":5,"last":4}`:  "has 30",
		`{"artifact":"id0","last":31}`:           "has 30",
		`{"artifact":"id0","first":1,"last":21}`: "at most 20",
		`{"artifact":"id0","url":"http://x/"}`:   "not as its schema says",
		`{"artifact":"id0","first":"1; rm -rf"}`: "not as its schema says",
	} {
		r.refused("browser_read_pdf", args, want)
	}
	r.refused("browser_pdf_pages", `{"artifact":"id0","first":1,"last":5}`, "at most 4")
	w.change(func(w *fakeWorker) { w.toolbox = nil })
	r.refused("browser_read_pdf", `{"artifact":"id0"}`, "no PDF that can be read")
}
