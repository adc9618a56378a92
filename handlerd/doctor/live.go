package doctor

import (
	"context"
	"fmt"

	"github.com/handlerd/handler/agents"
)

// checkLive: what runs at this time, browsers and hosted servers included, and what could not be removed.
func checkLive(_ context.Context, m *machine) []Finding {
	if m.Live == nil {
		return nil
	}
	l := m.Live()
	var found []Finding
	if l.Runs+l.Browsers+l.Servers == 0 {
		found = ok("live", "nothing runs")
	} else {
		title := fmt.Sprintf("%s, %s and %s use %s of memory", number(l.Runs, "run"), number(l.Browsers, "guarded browser"), number(l.Servers, "hosted server"), agents.Amount(l.Memory, 0))
		found = ok("live", title)
	}
	if l.Owed > 0 {
		found = append(found, remark("left", number(l.Owed, "sandbox")+" of ended runs could not be removed",
			"each start of a run, and the end of the daemon, tries again", "handler daemon stop")...)
	}
	return found
}

// number writes a count with its word.
func number(n int, word string) string {
	switch {
	case n == 1:
		return "1 " + word
	case word == "sandbox":
		return fmt.Sprintf("%d sandboxes", n)
	}
	return fmt.Sprintf("%d %ss", n, word)
}
