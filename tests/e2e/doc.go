// Package e2e tests Handler as a black box: the real programs of bin/, real podman, the real toolbox, a real browser.
// Each test is a script of testdata/script, with a prose head; script_test.go lists the commands that scripts have
// besides those of testscript. `make test` runs it, as an ordinary user.
package e2e
