package podman

import (
	"testing"

	"go.uber.org/goleak"
)

// Nothing that a Driver started is left when it is closed.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
