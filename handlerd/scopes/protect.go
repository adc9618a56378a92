package scopes

import (
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// DefaultProtected are the paths, below a scope and below every folder in it, that the person's own tools would run
// or read orders from. Where they exist they are mounted read-only; where one appears the run's end names it.
func DefaultProtected() []string {
	return []string{
		// git runs hooks, and programs that its configuration names (core.fsmonitor, diff and filter drivers,
		// aliases, core.hooksPath). "commondir" would send it to a configuration elsewhere. ".git" itself is a
		// protected path only where it is a file (a worktree's or submodule's).
		".git/hooks", ".git/config", ".git/config.worktree", ".git/commondir", ".git/info/attributes", ".gitmodules", ".gitconfig",
		".githooks", ".husky", ".pre-commit-config.yaml", ".lefthook.yml", "lefthook.yml",
		// Shells and what hooks into them at "cd".
		".envrc", ".direnv", ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".profile", ".zshrc", ".zshenv", ".zprofile",
		".zlogin", ".config/fish", ".mise.toml", "mise.toml", ".mise", ".autoenv", ".env.zsh",
		// Editors: tasks, launch settings, programs to start as language servers.
		".vscode", ".idea", ".zed", ".fleet", ".nvim.lua", ".nvimrc", ".exrc", ".vimrc", ".dir-locals.el", ".devcontainer",
		// Package managers: registries, scripts to run, programs to call for a credential.
		".npmrc", ".yarnrc", ".yarnrc.yml", ".yarn/releases", ".yarn/plugins", ".pnpmfile.cjs", ".bunfig.toml", "bunfig.toml",
		".cargo", ".bundle/config", ".gemrc", ".pypirc", "pip.conf", ".mvn", "rust-toolchain.toml",
		// Coding agents that the person runs outside a sandbox: their hooks and servers are programs.
		".claude/settings.json", ".claude/settings.local.json", ".mcp.json", ".cursor", ".gemini/settings.json", ".codex", ".opencode", ".pi",
		// Handler's own.
		".handler",
	}
}

// publicApps may be written by an agent: it says which of its own apps it shows (F.6).
const publicApps = ".handler/public-apps.json"

// rules are the protected paths and their exceptions, as components.
type rules struct {
	protected [][]string
	allowed   [][]string
}

func (c Config) rules() rules {
	allow := append([]string{publicApps}, c.Allow...)
	var r rules
	for _, p := range append(DefaultProtected(), c.Protect...) {
		if p = path.Clean(p); !slices.Contains(allow, p) && filepath.IsLocal(p) && p != "." {
			r.protected = append(r.protected, strings.Split(p, "/"))
		}
	}
	for _, p := range allow {
		if p = path.Clean(p); filepath.IsLocal(p) && p != "." {
			r.allowed = append(r.allowed, strings.Split(p, "/"))
		}
	}
	return r
}

// covers tells whether a path, relative to a scope, is protected or lies in something that is: wherever in the scope,
// and whether it exists or not.
func (r rules) covers(rel string) bool {
	parts := strings.Split(rel, "/")
	for i := range parts {
		rest := parts[i:]
		if hasPrefix(r.protected, rest) && !hasPrefix(r.allowed, rest) {
			return true
		}
		if len(rest) == 1 && rest[0] == ".git" { // a file that says where the repository is, or the whole of it
			return true
		}
	}
	return false
}

// hasPrefix tells whether one of list is a beginning of parts, case folded: some file systems do not tell .Git
// from .git.
func hasPrefix(list [][]string, parts []string) bool {
	return slices.ContainsFunc(list, func(p []string) bool {
		return len(p) <= len(parts) && slices.EqualFunc(p, parts[:len(p)], strings.EqualFold)
	})
}

// ReadOnly tells resolved paths that nothing of an agent writes although their scope is rw, whether they exist or
// not (policy.Config.ReadOnly). Scopes are those of the run, resolved; a path outside of all of them is not read-only
// by this rule.
func (c Config) ReadOnly(scopes []string) func(resolved string) bool {
	r := c.rules()
	return func(resolved string) bool {
		for _, s := range scopes {
			if rel, err := filepath.Rel(s, resolved); err == nil && filepath.IsLocal(rel) && rel != "." && r.covers(rel) {
				return true
			}
		}
		return false
	}
}
