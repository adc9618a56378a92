package toolbox

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
)

// recipe is the default toolbox: see recipe/Containerfile.
//
//go:embed recipe
var recipe embed.FS

// packagePattern is a Debian package's name.
var packagePattern = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]{1,100}$`)

// maxPackages bounds a named toolbox's list.
const maxPackages = 500

// defaultPackages reads recipe/packages.
func defaultPackages() ([]string, error) {
	data, err := recipe.ReadFile("recipe/packages")
	if err != nil {
		return nil, err
	}
	var names []string
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		line, _, _ := strings.Cut(lines.Text(), "#")
		if name := strings.TrimSpace(line); name != "" {
			names = append(names, name)
		}
	}
	return names, lines.Err()
}

// recipeDigest is the digest of the default toolbox's recipe, kept in its image's label.
func recipeDigest() (string, error) {
	sum := sha256.New()
	err := fs.WalkDir(recipe, "recipe", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := recipe.ReadFile(name)
		if err != nil {
			return err
		}
		fmt.Fprintf(sum, "%q %d %x\n", name, len(data), sha256.Sum256(data))
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("digest of the toolbox's recipe: %w", err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// digestOf joins digests and texts into one.
func digestOf(parts ...string) string {
	sum := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(sum, "%d %s\n", len(p), p)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// packagesContainerfile is the Containerfile of a named toolbox that only adds packages.
func packagesContainerfile(packages []string) (string, error) {
	if len(packages) > maxPackages {
		return "", fmt.Errorf("%d packages were named; at most %d are possible", len(packages), maxPackages)
	}
	for _, p := range packages {
		if !packagePattern.MatchString(p) {
			return "", fmt.Errorf("%q is not the name of a Debian package", p)
		}
	}
	return "ARG TOOLBOX\nFROM ${TOOLBOX}\n" +
		"RUN apt-get update -o Acquire::Retries=3 \\\n" +
		" && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends -o Acquire::Retries=3 \\\n      " +
		strings.Join(packages, " \\\n      ") + " \\\n" +
		" && apt-get clean && rm -rf /var/lib/apt/lists/*\n", nil
}

// fromToolbox finds the line that puts a person's Containerfile on top of the default toolbox.
var fromToolbox = regexp.MustCompile(`(?im)^[ \t]*FROM[ \t]+(\$\{TOOLBOX\}|\$TOOLBOX)([ \t]|$)`)

// buildStage finds the stage that an addon's or a harness's Containerfile must have.
var buildStage = regexp.MustCompile(`(?im)^[ \t]*FROM[ \t]+\S+[ \t]+AS[ \t]+build[ \t]*$`)
