package sessions

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/egress"
)

func TestTroublesAreBounded(t *testing.T) {
	now := time.Unix(1000, 0)
	tr := &troubles{now: func() time.Time { return now }}
	told := 0
	for range 3 {
		for i := range 2 * MaxTroubles {
			if tr.first(fmt.Sprint(i % (MaxTroubles + 50))) {
				told++
			}
		}
	}
	if told != MaxTroubles {
		t.Errorf("%d were told", told)
	}
	now = now.Add(troubleEvery)
	if !tr.first("1") || tr.first("1") || tr.first("new") {
		t.Error("a minute later it is told again, once, and nothing new is")
	}
}

func TestTraffic(t *testing.T) {
	s := egress.Snapshot{Hosts: []egress.HostCount{
		{Host: "a", Requests: 1, Sent: 1, Received: 2}, {Host: "b", Requests: 2, Sent: 1 << 40, Received: 1}, {Host: "c", Requests: 3, Sent: 5},
	}}
	top, rest := traffic(s, 2)
	want := []types.HostTraffic{{Host: "b", Requests: 2, Sent: 1 << 40, Received: 1}, {Host: "c", Requests: 3, Sent: 5}}
	if diff := cmp.Diff(want, top); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(types.HostTraffic{Host: "1 other hosts", Requests: 1, Sent: 1, Received: 2}, rest); diff != "" {
		t.Error(diff)
	}
}
