package main

import (
	"context"
	"fmt"
	"os"

	"github.com/handlerd/handler/handlerd/display"
)

// globals is what a client that wants more than windows looks for first.
func globals(args []string) {
	if len(args) != 1 {
		fmt.Fprintln(os.Stderr, "usage: probe globals SOCKET")
		os.Exit(2)
	}
	c, err := display.Ask(context.Background(), args[0])
	result("globals of "+args[0], err)
	for _, g := range c.Globals {
		fmt.Println(g.Interface)
	}
}
