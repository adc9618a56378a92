package browser

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
)

// TestWait: a text is waited for as long as the tool's bound says, though playwright-mcp gives up after five seconds.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := atShop(t)
		began := time.Now()
		appears := 12 * time.Second
		w.change(func(w *fakeWorker) {
			w.on["browser_wait_for"] = func(w *fakeWorker, args string) *mcp.CallToolResult {
				if time.Since(began) >= appears {
					return nil
				}
				if strings.Contains(args, `"time"`) {
					time.Sleep(3 * time.Second) // the bubble's clock: it takes no time
				}
				time.Sleep(5 * time.Second) // the bubble's clock: it takes no time
				return mcp.NewToolResultError("### Error\nTimeoutError: locator.waitFor: Timeout 5000ms exceeded.")
			}
		})
		r.ok("browser_wait_for", `{"text":"Paid"}`, "It came about")
		if took := time.Since(began); took < appears || took > appears+6*time.Second {
			t.Errorf("it took %v", took)
		}
		began, appears = time.Now(), time.Hour
		r.refused("browser_wait_for", `{"text":"Paid","time":3}`, "It did not come about", "Timeout 5000ms")
		if took := time.Since(began); took < MaxWait+3*time.Second || took > MaxWait+3*time.Second+6*time.Second {
			t.Errorf("it took %v", took)
		}
		r.refused("browser_wait_for", `{"time":31}`, "refused by F.1")
		// A page that goes somewhere private is not waited for.
		began = time.Now()
		w.change(func(w *fakeWorker) { w.current.url = "http://10.0.0.1/" })
		r.refused("browser_wait_for", `{"text":"Paid"}`, "refused by F.5")
		if took := time.Since(began); took > 6*time.Second {
			t.Errorf("it took %v", took)
		}
		r.b.Close()
	})
}
