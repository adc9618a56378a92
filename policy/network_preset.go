package policy

import (
	"fmt"
	"slices"
	"strings"
)

// A Preset is a table of facts: the hosts from which an ecosystem's own tools fetch (D.4).
type Preset struct {
	Name   string
	Title  string   // what it is for
	Rules  []string // texts of allow rules
	Source string   // who says so, for whoever keeps the table
	Note   string   // what does not work with it, and why; "" for nothing
}

// presets is sorted by name. No host in it is one where strangers keep what they like, such as storage.googleapis.com:
// where a registry redirects there, the note says so.
var presets = []Preset{
	{Name: "alpine", Title: "apk, Alpine's packages", Rules: []string{"dl-cdn.alpinelinux.org"},
		Source: "wiki.alpinelinux.org/wiki/Repositories"},
	{Name: "conda", Title: "conda and mamba: conda-forge and Anaconda's own channels", Rules: []string{"conda.anaconda.org", "repo.anaconda.com"},
		Source: "docs.anaconda.com, allowlist of a firewall"},
	{Name: "crates", Title: "cargo, Rust's crates", Rules: []string{"crates.io", "index.crates.io", "static.crates.io"},
		Source: "doc.rust-lang.org/cargo/reference/registry-index.html"},
	{Name: "debian", Title: "apt, Debian's packages", Rules: []string{"deb.debian.org", "security.debian.org"},
		Source: "deb.debian.org"},
	{Name: "docker", Title: "images of Docker Hub",
		Rules: []string{"auth.docker.io", "docker-images-prod.6aa30f8b08e16409b46e0173d6de2f56.r2.cloudflarestorage.com", "hub.docker.com",
			"index.docker.io", "production.cloudflare.docker.com", "production.cloudfront.docker.com", "registry-1.docker.io"},
		Source: "docs.docker.com/desktop/setup/allow-list"},
	{Name: "fedora", Title: "dnf, Fedora's packages", Rules: []string{"dl.fedoraproject.org", "download.fedoraproject.org", "mirrors.fedoraproject.org"},
		Source: "docs.fedoraproject.org, dnf.conf and metalinks",
		Note:   "mirrors elsewhere, which the metalink names, are refused; dnf goes on to dl.fedoraproject.org"},
	{Name: "ghcr", Title: "images of GitHub's container registry", Rules: []string{"ghcr.io", "pkg-containers.githubusercontent.com"},
		Source: "docs.github.com, communicating with self-hosted runners"},
	{Name: "github", Title: "git, releases, archives, large files and the API of GitHub",
		Rules: []string{"api.github.com", "codeload.github.com", "github-cloud.githubusercontent.com", "github-cloud.s3.amazonaws.com", "github.com",
			"media.githubusercontent.com", "objects.githubusercontent.com", "raw.githubusercontent.com", "release-assets.githubusercontent.com",
			"uploads.github.com"},
		Source: "docs.github.com, communicating with self-hosted runners; api.github.com/meta"},
	{Name: "gitlab", Title: "git, the API and images of gitlab.com", Rules: []string{"cdn.registry.gitlab-static.net", "gitlab.com", "registry.gitlab.com"},
		Source: "docs.gitlab.com/user/gitlab_com"},
	{Name: "go", Title: "go, modules and checksums", Rules: []string{"proxy.golang.org", "sum.golang.org"},
		Source: "proxy.golang.org",
		Note:   "a module that the mirror redirects to storage.googleapis.com is refused, since everybody keeps files there"},
	{Name: "gradle", Title: "Gradle's plugins", Rules: []string{"downloads.gradle.org", "plugins-artifacts.gradle.org", "plugins.gradle.org", "services.gradle.org"},
		Source: "plugins.gradle.org/docs/mirroring",
		Note:   "the wrapper's distributions are releases on GitHub: add the preset github; libraries are in the preset maven"},
	{Name: "hex", Title: "mix and rebar3, Elixir's and Erlang's packages", Rules: []string{"builds.hex.pm", "hex.pm", "repo.hex.pm"},
		Source: "hex.pm/docs"},
	{Name: "huggingface", Title: "models and data sets of Hugging Face",
		Rules: []string{"*.cdn.hf.co", "cas-bridge.xethub.hf.co", "cas-server.xethub.hf.co", "cdn-lfs-eu-1.hf.co", "cdn-lfs-us-1.hf.co", "cdn-lfs.hf.co",
			"hf.co", "huggingface.co", "transfer.xethub-eu.hf.co", "transfer.xethub.hf.co"},
		Source: "huggingface.co/.well-known/meta.json"},
	{Name: "maven", Title: "Maven Central", Rules: []string{"repo.maven.apache.org", "repo1.maven.org"},
		Source: "central.sonatype.org/consume"},
	{Name: "npm", Title: "npm, pnpm and yarn", Rules: []string{"registry.npmjs.org", "registry.yarnpkg.com", "repo.yarnpkg.com"},
		Source: "docs.npmjs.com, yarnpkg.com"},
	{Name: "nuget", Title: "dotnet, NuGet's packages", Rules: []string{"api.nuget.org", "globalcdn.nuget.org", "www.nuget.org"},
		Source: "learn.microsoft.com/nuget, api.nuget.org/v3/index.json"},
	{Name: "packagist", Title: "composer, PHP's packages", Rules: []string{"packagist.org", "repo.packagist.org"},
		Source: "getcomposer.org/doc",
		Note:   "most packages are archives on GitHub: add the preset github"},
	{Name: "pypi", Title: "pip, uv and poetry", Rules: []string{"files.pythonhosted.org", "pypi.org"},
		Source: "docs.pypi.org"},
	{Name: "rubygems", Title: "gem and bundler", Rules: []string{"index.rubygems.org", "rubygems.org"},
		Source: "guides.rubygems.org/rubygems-org-compact-index-api"},
	{Name: "rust", Title: "rustup, Rust's toolchains", Rules: []string{"static.rust-lang.org"},
		Source: "rust-lang.github.io/rustup"},
	{Name: "ubuntu", Title: "apt, Ubuntu's packages", Rules: []string{"archive.ubuntu.com", "ports.ubuntu.com", "security.ubuntu.com"},
		Source: "documentation.ubuntu.com",
		Note:   "a country's or a cloud's mirror, such as de.archive.ubuntu.com, needs an allow rule of its own"},
}

// AllPresets gives every preset, sorted by name. They are the caller's.
func AllPresets() []Preset {
	list := slices.Clone(presets)
	for i := range list {
		list[i].Rules = slices.Clone(list[i].Rules)
	}
	return list
}

// Presets gives the texts of the allow rules that a preset stands for (D.4).
func Presets(name string) ([]string, error) {
	for _, p := range presets {
		if p.Name == name {
			return slices.Clone(p.Rules), nil
		}
	}
	return nil, fmt.Errorf("there is no network preset %s: there are %s", quoteHost(name), strings.Join(PresetNames(), ", "))
}

// PresetNames lists the presets in order.
func PresetNames() []string {
	names := make([]string, len(presets))
	for i, p := range presets {
		names[i] = p.Name
	}
	return names
}
