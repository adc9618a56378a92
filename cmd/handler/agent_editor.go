package main

import (
	"errors"
	"os"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"

	"github.com/handlerd/handler/agents"
	"github.com/handlerd/handler/handlerd/fault"
)

// editAgent opens a copy of the agent's file in the person's editor and reads it back; the saved one is replaced
// only by one that is right.
func (u *ui) editAgent(cmd *cobra.Command, a *agents.Agent) (*agents.Agent, error) {
	if !terminal(u.in) {
		return nil, fault.New(fault.Usage, "say what to change: handler agent edit "+a.Name+" --allow HOST", "no flags were given, and there is no terminal for an editor")
	}
	editor, err := u.editor(exec.LookPath)
	if err != nil {
		return nil, err
	}
	tmp, err := os.CreateTemp("", "handler-agent-*.toml")
	if err != nil {
		return nil, err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(agents.Format(a))
	if err := errors.Join(err, tmp.Close()); err != nil {
		return nil, err
	}
	run := exec.CommandContext(cmd.Context(), editor[0], append(editor[1:], tmp.Name())...)
	run.Stdin, run.Stdout, run.Stderr = u.in, u.out, u.errout
	if err := run.Run(); err != nil {
		return nil, fault.Wrap(fault.Failed, err, "", "the editor %s", editor[0])
	}
	data, err := os.ReadFile(tmp.Name())
	if err != nil {
		return nil, err
	}
	return agents.Parse(a.Name, a.Name+".toml", data)
}

// editor is the person's, as a command line: what VISUAL or EDITOR says, else the first usual one that is installed.
func (u *ui) editor(look func(string) (string, error)) ([]string, error) {
	for _, name := range []string{"VISUAL", "EDITOR"} {
		if words := strings.Fields(u.getenv(name)); len(words) > 0 {
			return words, nil
		}
	}
	for _, name := range []string{"sensible-editor", "nano", "vi"} {
		if path, err := look(name); err == nil {
			return []string{path}, nil
		}
	}
	return nil, fault.New(fault.Usage, "export EDITOR=…, or give flags: see handler agent edit --help", "neither EDITOR is set nor is there a sensible-editor, nano or vi")
}
