package api_test

import (
	"reflect"
	"testing"

	"github.com/handlerd/handler/handlerd/api"
	"github.com/handlerd/handler/handlerd/artifacts"
	"github.com/handlerd/handler/handlerd/history"
	"github.com/handlerd/handler/handlerd/sessions"
	"github.com/handlerd/handler/handlerd/web"
)

// Every route says in the table of handlerd/web whether the page reaches it, and if not, why; and the table has none that
// is no more. A route that is in neither list is not reachable from the page, and fails here.
func TestRoutesOfThePage(t *testing.T) {
	have := map[string]bool{}
	for _, pattern := range patterns(t, api.New(api.Options{Web: new(web.Door), Views: new(sessions.Manager), Artifacts: new(artifacts.Store), Feed: history.NewFeed()})) {
		have[pattern] = true
	}
	delete(have, "/") // what the API has no route for
	if len(have) < 20 {
		t.Fatalf("only %d routes were found", len(have))
	}
	for _, r := range web.Routes() {
		if !have[r.Pattern] {
			t.Errorf("%s stands in handlerd/web/routes.go and is no route of the API's: take the line out", r.Pattern)
		}
		delete(have, r.Pattern)
	}
	for pattern := range have {
		t.Errorf("%s is in no line of handlerd/web/routes.go: say there whether the page reaches it, and if not, why", pattern)
	}
}

// patterns gives what the server's mux has. net/http does not say it, so this looks: a Go that keeps it elsewhere fails
// here and misleads nobody.
func patterns(t *testing.T, s *api.Server) []string {
	t.Helper()
	index := reflect.ValueOf(api.Mux(s)).Elem().FieldByName("index")
	var all []string
	for _, list := range append(mapValues(index.FieldByName("segments")), index.FieldByName("multis")) {
		for i := range list.Len() {
			all = append(all, list.Index(i).Elem().FieldByName("str").String())
		}
	}
	return all
}

func mapValues(m reflect.Value) []reflect.Value {
	var all []reflect.Value
	for it := m.MapRange(); it.Next(); {
		all = append(all, it.Value())
	}
	return all
}
