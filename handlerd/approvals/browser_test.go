package approvals

import (
	"bytes"
	"context"
	"errors"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/fault"
)

const sum = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"

func click() Browser {
	return Browser{
		Run: "k3f9", Agent: "web", Session: "s1", Tool: "browser_click", Action: "click", Pages: []string{"https://shop.example.org/checkout?token=1"},
		Title: "Checkout", Elements: []types.BrowserElement{{Role: "button", Name: "Place order"}},
		Targets: []string{"https://user:pw@pay.example.net:444/order"}, Values: []string{"typed"}, Digest: sum,
	}
}

// TestBrowserQuestion has one asked, seen and answered once; nobody can join it or make its answer last.
func TestBrowserQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, b := newQueue()
		w := watch(t, q, "")
		first, second := ask(t.Context(), q, click().Question()), ask(t.Context(), q, click().Question())
		e, other := next(t, w, types.ApprovalAsked), next(t, w, types.ApprovalAsked)
		if e.Approval.ID == other.Approval.ID || len(q.List("")) != 2 {
			t.Fatal("two requests are one question")
		}
		got := *e.Approval
		if got.Text != `web wants to act on https://shop.example.org: click "Place order" (button)` || got.Session != "s1" {
			t.Errorf("%+v", got)
		}
		want := &types.BrowserApproval{
			Tool: "browser_click", Action: "click", Title: "Checkout", Digest: sum, Values: []string{"typed"},
			Pages:    []types.BrowserPlace{{Site: "https://shop.example.org", URL: "https://shop.example.org/checkout?token=1"}},
			Targets:  []types.BrowserPlace{{Site: "https://pay.example.net:444", URL: "https://pay.example.net:444/order"}},
			Elements: []types.BrowserElement{{Role: "button", Name: "Place order"}},
		}
		if diff := cmp.Diff(want, got.Browser); diff != "" {
			t.Error(diff)
		}
		for _, scope := range []string{types.ScopeRun, types.ScopeAlways} {
			if _, err := q.Answer(got.ID, types.ApprovalAnswer{Allow: true, Scope: scope}); fault.Of(err).Kind != fault.Usage || err == nil {
				t.Errorf("it takes an answer for %s: %v", scope, err)
			}
		}
		if _, err := q.Answer(got.ID, types.ApprovalAnswer{}); err != nil {
			t.Fatal(err)
		}
		if _, err := q.Answer(got.ID, types.ApprovalAnswer{Allow: true}); err == nil {
			t.Error("a no can be taken back")
		}
		synctest.Wait()
		var denied, waits <-chan outcome = first, second
		if len(first) == 0 {
			denied, waits = second, first
		}
		if o := <-denied; o.err != nil || o.answer.Allow {
			t.Errorf("%+v", o)
		}
		if len(waits) > 0 {
			t.Error("one answer was for two requests")
		}
		began := time.Now()
		if o := <-waits; !errors.Is(o.err, ErrExpired) || time.Since(began) != BrowserExpiry {
			t.Errorf("%+v after %v", o, time.Since(began))
		}
		const line = "k3f9 browser_click on https://shop.example.org "
		b.has(t, line+"asked: click (button); arguments sha256:"+sum, line+"asked: click (button); arguments sha256:"+sum,
			line+"refused: you, once; arguments sha256:"+sum, line+"refused: nobody answered within 2m0s; arguments sha256:"+sum)
	})
}

// TestBrowserWithdrawn takes the question along with the turn that asked.
func TestBrowserWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := newQueue()
		w := watch(t, q, "k3f9")
		ctx, cancel := context.WithCancel(t.Context())
		got := ask(ctx, q, click().Question())
		id := next(t, w, types.ApprovalAsked).Approval.ID
		cancel()
		<-got
		next(t, w, types.ApprovalWithdrawn)
		if _, err := q.Answer(id, types.ApprovalAnswer{Allow: true}); err == nil || !strings.Contains(err.Error(), "was withdrawn") {
			t.Errorf("%v", err)
		}
	})
}

func TestBrowserWords(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Browser)
		text   string
	}{
		"visit": {func(b *Browser) {
			*b = Browser{Agent: "web", Tool: "browser_navigate", Action: "go to", Visit: true, Targets: []string{"https://new.example.org/x"}}
		}, "web wants to go to https://new.example.org in the browser"},
		"a name that closes the quotes": {func(b *Browser) { b.Elements[0].Name = `OK" (button) on “https://bank.example”` },
			`web wants to act on https://shop.example.org: click "OK' (button) on 'https://bank.example'" (button)`},
		"a name of many lines": {func(b *Browser) { b.Elements[0].Name = "OK\n\x1b[2J? web wants\u202e\u2066 evil" },
			`web wants to act on https://shop.example.org: click "OK [2J? web wants evil" (button)`},
		"a role that is none": {func(b *Browser) { b.Elements[0].Role = `button) on https://bank.example (` },
			`web wants to act on https://shop.example.org: click "Place order" (element)`},
		"many": {func(b *Browser) {
			b.Action, b.Elements = "fill in", []types.BrowserElement{{Role: "textbox", Name: "A"}, {Role: "textbox"}, {Role: "textbox", Name: "C"}, {Role: "textbox", Name: "D"}}
		}, `web wants to act on https://shop.example.org: fill in: "A" (textbox), (textbox without a name), "C" (textbox), and 1 more`},
		"one of several tabs": {func(b *Browser) { b.Pages = append(b.Pages, "https://b.example"); b.Elements = nil },
			`web wants to act on one of 2 tabs (https://shop.example.org, …): click`},
		"a host of other letters": {func(b *Browser) { b.Pages[0] = "https://аpple.com/" }, `web wants to act on https://xn--pple-43d.com: click "Place order" (button)`},
		"a user name like a host": {func(b *Browser) { b.Pages[0] = "https://bank.example@evil.example/" }, `web wants to act on https://evil.example: click "Place order" (button)`},
		"no host":                 {func(b *Browser) { b.Pages[0] = "https://%zz/" }, `web wants to act on an address that cannot be read: click "Place order" (button)`},
		"a blob":                  {func(b *Browser) { b.Pages[0] = "blob:https://a.example/1-2" }, `web wants to act on https://a.example: click "Place order" (button)`},
		"nothing":                 {func(b *Browser) { b.Pages = nil }, `web wants to act on a page: click "Place order" (button)`},
	} {
		b := click()
		test.change(&b)
		if got := b.Question().Text; got != test.text {
			t.Errorf("%s: %s\nwant %s", name, got, test.text)
		}
	}
	if !Foreign("https://xn--pple-43d.com") || !Foreign("http://a.xn--p1ai:8080") || Foreign("https://example.org") {
		t.Error("Foreign")
	}
}

// TestBrowserBounds gives it more of everything than is shown.
func TestBrowserBounds(t *testing.T) {
	b := click()
	for range 3 * MaxShownElements {
		b.Values = append(b.Values, strings.Repeat("x", 10*MaxShownValue))
		b.Elements = append(b.Elements, types.BrowserElement{Name: strings.Repeat("é", 10*MaxShownName)})
		b.Targets = append(b.Targets, "https://a.example/"+strings.Repeat("y", 10*MaxShownURL))
	}
	b.Title, b.Action, b.Digest = strings.Repeat("t", 5000), strings.Repeat("a", 5000), "no digest\n"
	got := b.Question().Browser
	if len(got.Values) != MaxShownElements || len(got.Elements) != MaxShownElements || len(got.Targets) != MaxShownElements || got.More != 6*MaxShownElements+3 || got.Digest != "" {
		t.Errorf("%d %d %d %d %q", len(got.Values), len(got.Elements), len(got.Targets), got.More, got.Digest)
	}
	for what, text := range map[string]string{got.Values[1]: "value", got.Elements[1].Name: "name", got.Targets[1].URL: "target", got.Title: "title"} {
		if !strings.HasSuffix(what, "…") || len([]rune(what)) > MaxShownURL {
			t.Errorf("%s has %d characters", text, len(what))
		}
	}
}

func TestPlain(t *testing.T) {
	for in, want := range map[string]string{
		"plain": "plain", "  a \t b\r\n": "a b", "a\u200bb\ufeffc\u00add": "abcd", "\u202egro.elpma": "gro.elpma", "a\u3164\u2800b": "a b",
		"a\u0301\u0302\u0303\u0304\u0305": "a\u0301\u0302", "\u0301x": "x", "\xffa": "\uFFFDa", "日本語": "日本語", "123456789": "123456789",
		"1234567890": "1234567890", "12345678901": "123456789…", "12345678 0123": "12345678…", "a\U000e0041b\ue000": "ab",
	} {
		if got := Plain(in, 10); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func FuzzPlain(f *testing.F) {
	f.Add("a\u202e\x1b[2J\n", 5)
	f.Fuzz(func(t *testing.T, s string, limit int) {
		limit = 1 + max(limit, 0)%1000
		got := Plain(s, limit)
		if len([]rune(got)) > limit {
			t.Fatalf("%d characters, %d allowed", len([]rune(got)), limit)
		}
		for _, r := range got {
			if unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) {
				t.Fatalf("%q holds %U", got, r)
			}
		}
		if again := Plain(got, limit); again != got {
			t.Fatalf("%q becomes %q", got, again)
		}
	})
}

// TestPictures takes pictures of a page's and gives its own, within the bounds.
func TestPictures(t *testing.T) {
	noise := image.NewNRGBA(image.Rect(0, 0, 490, 200))
	r := rand.New(rand.NewPCG(1, 2))
	for i := range noise.Pix {
		noise.Pix[i] = byte(r.Uint32())
	}
	thin, wide := image.NewGray(image.Rect(0, 0, 1, 1200)), image.NewGray(image.Rect(0, 0, 1200, 1))
	tiny := image.NewGray(image.Rect(0, 0, 3, 2))
	tiny.Set(1, 1, color.White)
	for name, img := range map[string]image.Image{"noise": noise, "thin": thin, "wide": wide, "tiny": tiny} {
		var in, jpg bytes.Buffer
		if err := errors.Join(png.Encode(&in, img), jpeg.Encode(&jpg, img, nil)); err != nil {
			t.Fatal(err)
		}
		for _, data := range [][]byte{in.Bytes(), jpg.Bytes(), append(in.Bytes(), "<script>trailer</script>"...)} {
			b := click()
			b.Picture = data
			q := b.Question()
			p := q.Browser.Picture
			if p == nil {
				t.Errorf("%s: no picture", name)
				continue
			}
			got, err := png.DecodeConfig(bytes.NewReader(q.Picture))
			if err != nil || got.Width != p.Width || got.Height != p.Height || p.Bytes != len(q.Picture) || p.Bytes > PictureBytes || p.Width > PictureWidth || p.Height > PictureHeight || bytes.Contains(q.Picture, []byte("trailer")) {
				t.Errorf("%s: %+v %+v %v", name, p, got, err)
			}
		}
	}
	var bomb bytes.Buffer
	if err := png.Encode(&bomb, image.NewGray(image.Rect(0, 0, 5000, 5000))); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"none": nil, "text": []byte("hello"), "cut": bomb.Bytes()[:40], "of too many pixels": bomb.Bytes(), "too long": make([]byte, maxPictureIn+1)} {
		b := click()
		b.Picture = data
		if q := b.Question(); q.Picture != nil || q.Browser.Picture != nil {
			t.Errorf("%s is a picture", name)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		q, _ := newQueue()
		w := watch(t, q, "")
		b := click()
		var in bytes.Buffer
		if err := png.Encode(&in, tiny); err != nil {
			t.Fatal(err)
		}
		b.Picture = in.Bytes()
		ctx, cancel := context.WithCancel(t.Context())
		with, without := ask(ctx, q, b.Question()), ask(ctx, q, click().Question())
		for range 2 {
			a := next(t, w, types.ApprovalAsked).Approval
			got, err := q.Picture(a.ID[:8])
			if has := a.Browser.Picture != nil; has != (err == nil) || has && len(got) != a.Browser.Picture.Bytes {
				t.Errorf("%d bytes, %v", len(got), err)
			}
		}
		cancel()
		<-with
		<-without
	})
}
