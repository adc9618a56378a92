package main

import (
	"github.com/spf13/cobra"

	"github.com/handlerd/handler/agents"
	"github.com/handlerd/handler/handlerd/api/types"
	"github.com/handlerd/handler/handlerd/fault"
)

// displayFlag adds --display: alone it is the person's own screen, and --display=vnc one of the sandbox's own.
func displayFlag(cmd *cobra.Command, to *string, help string) {
	fl := cmd.Flags()
	fl.StringVar(to, "display", "", help)
	fl.Lookup("display").NoOptDefVal = string(agents.DisplayWayland)
}

// wantDisplay puts the value of --display into a request; "" leaves it to the agent.
func wantDisplay(text string, req *types.RunRequest) error {
	if text == "" {
		return nil
	}
	d, err := agents.ParseDisplay(text)
	if err != nil {
		return fault.Wrap(fault.Usage, err, "", "--display")
	}
	req.Display, req.VNC = d == agents.DisplayWayland, d == agents.DisplayVNC
	return nil
}
