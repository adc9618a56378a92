package browser

import (
	"bytes"
	"encoding/base64"
	"errors"
	"image"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"
)

// drawn is a picture that does not compress to nothing.
func drawn(t testing.TB, w, h int) []byte {
	t.Helper()
	m := image.NewRGBA(image.Rect(0, 0, w, h))
	for i := range m.Pix {
		m.Pix[i] = uint8(i/w) ^ uint8(i/3) | 15
	}
	var b bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestSpeed}).Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestScale: whatever comes, what goes on is a PNG within its bounds, encoded anew.
func TestScale(t *testing.T) {
	for _, c := range []struct {
		w, h         int
		bound        pictureBound
		wantW, wantH int
	}{
		{100, 50, modelPicture, 100, 50}, {3136, 200, modelPicture, 1568, 100}, {160, 1600, croppedPicture, 160, 1568},
		{3000, 1, modelPicture, 1568, 1}, {640, 360, questionPicture, 0, 0},
	} {
		p, err := scale(drawn(t, c.w, c.h), c.bound)
		if err != nil {
			t.Fatal(err)
		}
		if c.wantW != 0 && (p.width != c.wantW || p.height != c.wantH) || len(p.data) > c.bound.bytes || max(p.width, p.height) > c.bound.side {
			t.Errorf("%d×%d became %d×%d in %d bytes", c.w, c.h, p.width, p.height, len(p.data))
		}
		if _, err := png.Decode(bytes.NewReader(p.data)); err != nil {
			t.Error(err)
		}
	}
	bomb := drawn(t, 1, 1)
	bomb = bytes.Replace(bomb, []byte{0, 0, 0, 1, 0, 0, 0, 1}, []byte{0, 1, 0, 0, 0, 1, 0, 0}, 1)
	for _, bad := range [][]byte{nil, []byte("<svg/>"), bomb, drawn(t, 9, 9)[:60]} {
		if _, err := scale(bad, modelPicture); err == nil {
			t.Errorf("%.20q became a picture", bad)
		}
	}
}

// TestScreenshot: the model gets the picture, the person the artifact, and a full store is said and no failure.
func TestScreenshot(t *testing.T) {
	r, w := atShop(t)
	big := drawn(t, 2000, 100)
	w.change(func(w *fakeWorker) {
		w.on["browser_take_screenshot"] = func(*fakeWorker, string) *mcp.CallToolResult {
			return &mcp.CallToolResult{Content: []mcp.Content{mcp.NewTextContent("### Result\n- [Screenshot](x.png)"), mcp.NewImageContent(base64.StdEncoding.EncodeToString(big), "image/png")}}
		}
		w.on["shot"] = func(_ *fakeWorker, args string) *mcp.CallToolResult {
			if strings.Contains(args, `\"top\":10000`) {
				return result(map[string]any{"width": 1280, "height": 20000, "picture": base64.StdEncoding.EncodeToString(drawn(t, 150, 30))})
			}
			return result(map[string]any{"width": 1280, "height": 20000, "picture": base64.StdEncoding.EncodeToString(drawn(t, 160, 1600))})
		}
	})
	res := r.call("browser_take_screenshot", `{}`)
	if len(res.Content) != 2 || res.IsError {
		t.Fatal(text(res))
	}
	shot, ok := res.Content[1].(mcp.ImageContent)
	if !ok || shot.MIMEType != "image/png" {
		t.Fatalf("%+v", res.Content[1])
	}
	r.has(text(res), "1568×78", "made of one of 2000×100", "artifact id0", "screenshot.png")
	if !bytes.Equal(r.store.data[0], big) || r.store.all[0].Owner != "user:1000" || r.store.all[0].Session != "s" {
		t.Errorf("%+v", r.store.all[0])
	}
	// What the model gets whole is the artifact, so that the same picture in the session's messages is not kept again.
	whole := big
	big = drawn(t, 300, 200)
	res = r.call("browser_take_screenshot", `{}`)
	if raw := base64.StdEncoding.EncodeToString(r.store.data[1]); raw != res.Content[1].(mcp.ImageContent).Data {
		t.Error("the artifact is another picture than the model's")
	}
	big = whole
	r.ok("browser_take_screenshot", `{"fullPage":true}`, "160×1568", "the first 1280×10000 of the page's 1280×20000", "artifact id2 (screenshot.png). What is below: ", "artifact id3 (screenshot-2.png)")
	r.store.full = errors.New("artifacts are full: 1 GiB of 1 GiB, of which run r has 900 MiB")
	r.ok("browser_take_screenshot", `{}`, "could not be kept", "artifacts are full")
	r.refused("browser_take_screenshot", `{"target":"e99"}`, "F.3")
	r.refused("browser_take_screenshot", `{"target":"e2","fullPage":true}`, "F.1")
}

// TestLargeSnapshot: a snapshot of 540 KB comes back within its bound, the truncation said, the whole kept.
func TestLargeSnapshot(t *testing.T) {
	r, w := atShop(t)
	tree := strings.Repeat("- button \"one of very many\" [ref=e1]\n", 15000)
	w.change(func(w *fakeWorker) { w.current.tree = tree })
	got := r.ok("browser_snapshot", `{}`, "the first ", " of 555", "artifact id0")
	if len(got) > MaxPageText+1000 || !strings.Contains(string(r.store.data[0]), tree) {
		t.Errorf("%d bytes came back, %d were kept", len(got), len(r.store.data[0]))
	}
}

// TestDownloads: what upstream says is complete becomes an artifact; what cannot is said.
func TestDownloads(t *testing.T) {
	r, w := atShop(t)
	w.change(func(w *fakeWorker) {
		w.files["/out/a.bin"] = []byte("hello")
		w.on["browser_click"] = func(w *fakeWorker, _ string) *mcp.CallToolResult {
			w.events = "- Downloading file a.bin ...\n- Downloading file huge.iso ...\n- Downloaded file a.bin to \"/out/a.bin\"\n- Downloaded file ../x to \"/etc/passwd\""
			return nil
		}
	})
	r.ok("browser_click", `{"target":"e2"}`, "Downloaded a.bin (5 bytes)", "artifact id0 (a.bin)", "A download, x, was not kept")
	if string(r.store.data[0]) != "hello" || r.store.all[0].Source != "browser_click" {
		t.Errorf("%+v", r.store.all)
	}
	r.ok("browser_snapshot", `{}`)
	w.change(func(w *fakeWorker) {
		w.events = strings.Repeat("- Downloaded file a.bin to \"/out/a.bin\"\n", 60)
		w.on["browser_click"] = nil
	})
	r.ok("browser_click", `{"target":"e2"}`, "of this browser are already")
	if n := len(r.store.all); n > MaxDownloads {
		t.Errorf("%d were kept", n)
	}
}

// TestUpload: files of the workspace and nothing else, shown with their digest, copied before the question.
func TestUpload(t *testing.T) {
	r, w := atShop(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "cv.txt"), []byte("my life"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.b.o.OpenFile = func(run, p string) (io.ReadCloser, error) {
		if run != "r" || filepath.Dir(p) != dir {
			return nil, errors.New("not in the workspace")
		}
		return os.Open(p)
	}
	r.refused("browser_file_upload", `{}`, "waits for no file chooser", "click what chooses a file")
	w.change(func(w *fakeWorker) {
		w.modal = "- [File chooser]: can be handled by browser_file_upload"
		w.on["browser_file_upload"] = func(w *fakeWorker, _ string) *mcp.CallToolResult { w.modal = ""; return nil }
	})
	r.refused("browser_snapshot", `{}`, "waits for files", "browser_file_upload")
	r.refused("browser_handle_dialog", `{"accept":true}`, "waits for files")
	r.refused("browser_file_upload", `{"paths":["/etc/passwd"]}`, "not in the workspace")
	r.answer = func(Question) (bool, error) {
		return true, os.WriteFile(filepath.Join(dir, "cv.txt"), []byte("another life"), 0o600)
	}
	r.ok("browser_file_upload", `{"paths":["`+dir+`/cv.txt"]}`, "Done")
	q := r.questions()[0]
	if q.Action != "upload" || len(q.Values) != 1 || !strings.Contains(q.Values[0], "cv.txt (7 bytes, SHA-256 ") || string(w.written["cv.txt"]) != "my life" {
		t.Errorf("%+v, written %q", q, w.written)
	}
	if w.args["browser_file_upload"] != `{"paths":["/in/cv.txt"]}` {
		t.Error(w.args["browser_file_upload"])
	}
}

// TestDialog: a dialog is understandable, is asked about, and asks for no password.
func TestDialog(t *testing.T) {
	r, w := atShop(t)
	r.refused("browser_handle_dialog", `{"accept":true}`, "waits for no dialog")
	w.change(func(w *fakeWorker) {
		w.modal = `- ["prompt" dialog with message "Your password?"]: can be handled by browser_handle_dialog`
		w.on["browser_handle_dialog"] = func(w *fakeWorker, _ string) *mcp.CallToolResult { w.modal = ""; return nil }
	})
	r.refused("browser_click", `{"target":"e2"}`, "a dialog of the page is open", "browser_handle_dialog")
	r.ok("browser_tabs", `{"action":"list"}`, "Your password?", "written by the page")
	r.refused("browser_handle_dialog", `{"accept":true,"promptText":"x"}`, "F.5")
	r.answer = func(Question) (bool, error) {
		w.change(func(w *fakeWorker) {
			w.modal = `- ["confirm" dialog with message "Delete all?"]: can be handled by browser_handle_dialog`
		})
		return true, nil
	}
	r.refused("browser_handle_dialog", `{"accept":false}`, "F.4", "has changed")
	r.answer = func(Question) (bool, error) { return true, nil }
	r.ok("browser_handle_dialog", `{"accept":true}`, "Done")
	if q := r.questions()[1]; q.Action != "accept the dialog" || q.Says != `"confirm" dialog with message "Delete all?"` || strings.Join(q.Pages, " ") != "http://shop.example.org/" {
		t.Errorf("%+v", q)
	}
}
