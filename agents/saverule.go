package agents

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/handlerd/handler/configfile"
)

// SaveRules changes the network rules of the saved agent called name by edit, which adds or takes away rules of the
// three lists, and keeps everything else of its file byte for byte, comments too. check sees the agent before it is
// written. A missing agent is a *NotFoundError. A file that spells its rules in a way that cannot be edited so is left
// alone, and the error says what to do.
func SaveRules(dir, name string, edit func(*Agent) error, check func(*Agent) error) (*Agent, error) {
	path, data, err := load(dir, name)
	if err != nil {
		return nil, err
	}
	before, err := Parse(name, path, data)
	if err != nil {
		return nil, err
	}
	after, err := Parse(name, path, data)
	if err != nil {
		return nil, err
	}
	if err := edit(after); err != nil {
		return nil, fmt.Errorf("agent %s: %w", name, err)
	}
	if err := check(after); err != nil {
		return nil, err
	}
	changed, err := patch(data, before, after)
	if err != nil {
		return nil, fmt.Errorf("the rules in %s: %w — write the rule into it: handler agent edit %s", path, err, name)
	}
	if bytes.Equal(changed, data) {
		return after, nil
	}
	if err := write(dir, path, changed, true); err != nil {
		return nil, fmt.Errorf("save agent %s: %w", name, err)
	}
	return after, nil
}

// patch makes the file of before that of after by changing the lists of its network rules, those of its bindings too, and
// nothing else.
func patch(data []byte, before, after *Agent) ([]byte, error) {
	data, err := patchNetwork(data, "network", before.Network, after.Network)
	if err != nil {
		return nil, err
	}
	for _, name := range sortedKeys(after.Bindings) {
		if data, err = patchNetwork(data, "bindings."+name+".network", before.Bindings[name].Network, after.Bindings[name].Network); err != nil {
			return nil, err
		}
	}
	got, err := Parse(after.Name, after.File, data)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(Format(got), Format(after)) {
		return nil, errors.New("the file spells them in a way that cannot be edited without rewriting it")
	}
	return data, nil
}

// patchNetwork changes the lists of one table of rules.
func patchNetwork(data []byte, table string, before, after Network) ([]byte, error) {
	var err error
	for _, l := range []struct {
		key      string
		old, new []string
	}{
		{"allow", before.Allow, after.Allow}, {"deny", before.Deny, after.Deny}, {"private", before.Private, after.Private},
	} {
		for _, rule := range l.old {
			if !slices.Contains(l.new, rule) {
				if data, err = configfile.RemoveFromList(data, table, l.key, rule); err != nil {
					return nil, err
				}
			}
		}
		for _, rule := range l.new {
			if !slices.Contains(l.old, rule) {
				if data, err = configfile.AddToList(data, table, l.key, rule); err != nil {
					return nil, err
				}
			}
		}
	}
	return data, nil
}
