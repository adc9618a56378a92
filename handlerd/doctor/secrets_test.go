package doctor

import (
	"context"
	"errors"
	"strings"
	"testing"
)

// TestSecrets: a secret that cannot be read is a problem with the command that says more; none is no finding.
func TestSecrets(t *testing.T) {
	with := func(list []Secret, err error) []Finding {
		return checkSecrets(t.Context(), &machine{Sources{Secrets: func(context.Context) ([]Secret, error) { return list, err }}})
	}
	if f := checkSecrets(t.Context(), &machine{}); f != nil {
		t.Errorf("unasked: %v", f)
	}
	if f := with(nil, nil); f != nil {
		t.Errorf("none: %v", f)
	}
	good := Secret{Agent: "web", Name: "model"}
	if f := with([]Secret{good}, nil); len(f) != 1 || f[0].Level != OK {
		t.Errorf("good: %v", f)
	}
	f := with([]Secret{good, {Agent: "docs", Name: "shop.login", Err: errors.New("the secret pass:shop is not there")}}, nil)
	if len(f) != 1 || f[0].Level != Problem || !strings.Contains(f[0].Detail, "shop.login: the secret pass:shop") || f[0].Remedy[0] != "handler secret check docs" {
		t.Errorf("bad: %+v", f)
	}
	if f := with(nil, errors.New("no folder")); len(f) != 1 || f[0].Level != Remark {
		t.Errorf("unreadable: %v", f)
	}
}
