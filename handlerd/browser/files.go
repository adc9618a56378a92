package browser

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"path"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/handlerd/handler/handlerd/artifacts"
)

// Bounds of files in and out.
const (
	MaxDownloads   = 50       // downloads of one browser that become artifacts
	MaxUploads     = 20       // files of one upload
	MaxUploadBytes = 50 << 20 // of one file
	maxEvents      = 100      // reports of playwright-mcp that wait to be read
)

// downloaded is how playwright-mcp reports a download that is complete.
var downloaded = regexp.MustCompile(`(?m)^- Downloaded file (.{1,300}) to "([^"\n]{1,1000})"$`)

var downloading = regexp.MustCompile(`(?m)^- Downloading file (.{1,300}) \.\.\.$`)

// collect makes artifacts of the downloads that upstream told of (F.7).
func (u *use) collect(ctx context.Context) {
	events := strings.Join(u.s.events, "\n")
	u.s.events = nil
	complete := downloaded.FindAllStringSubmatch(events, maxEvents)
	for _, m := range complete {
		name := path.Base(m[1])
		shown := quoted(u.s.mask(name))
		if u.s.kept++; u.s.kept > MaxDownloads {
			u.note("A download, %s, was not kept: %d of this browser are already.", shown, MaxDownloads)
			continue
		}
		data, err := u.worker.ReadFile(ctx, m[2], artifacts.MaxBytes)
		if err != nil {
			u.note("A download, %s, was not kept: %s.", shown, shorten(err.Error(), 200))
			continue
		}
		u.note("Downloaded %s (%s). %s", shown, sizeText(int64(len(data))), u.keep(ctx, name, data))
	}
	if begun := len(downloading.FindAllString(events, maxEvents)); begun > len(complete) {
		u.note("%d downloads have begun; what is complete within %v is told of by a later call.", begun-len(complete), DownloadTime)
	}
}

// note adds a line of Handler's; what pages wrote in it is on one line, bounded and quoted by who writes it.
func (u *use) note(format string, args ...any) {
	for i, a := range args {
		if s, ok := a.(string); ok {
			args[i] = shorten(u.s.mask(s), 300)
		}
	}
	if len(u.notes) < 50 {
		u.notes = append(u.notes, fmt.Sprintf(format, args...))
	}
}

// keep makes an artifact and says which; where it cannot, why.
func (u *use) keep(ctx context.Context, name string, data []byte) string {
	if u.s.b.o.Artifacts == nil {
		return ""
	}
	a, err := u.s.b.o.Artifacts.Add(ctx, artifacts.Meta{
		Owner: u.s.b.o.Owner, Run: u.s.key.run, Session: u.s.key.session, Agent: u.policy.Agent, Name: name, Source: u.tool.name,
	}, bytes.NewReader(data))
	if err != nil {
		return "It could not be kept as an artifact: " + shorten(err.Error(), 300) + "."
	}
	return fmt.Sprintf("Your person has it as artifact %s (%s).", a.ID, quoted(a.Name))
}

// fence puts what a page at url ("" for none) says between marks (F.7): masked, bounded, the whole kept as an artifact where it was cut.
func (u *use) fence(ctx context.Context, url, what, text string, failed bool) *mcp.CallToolResult {
	if cut := cutLines(text, MaxSnapshot); len(cut) < len(text) { // masking costs time for every byte
		u.note("Of %d bytes that the page gave, the first %d were taken.", len(text), len(cut))
		text = cut
	}
	text = strings.ToValidUTF8(u.s.mask(text), "�")
	kept := ""
	if len(text) > MaxPageText {
		kept = u.keep(ctx, strings.ReplaceAll(what, " ", "-")+".txt", []byte(text))
	}
	origin := ""
	if url != "" {
		origin = u.originText(url)
	}
	r := mcp.NewToolResultText(fenced(origin, what, text, kept))
	r.IsError = failed
	return r
}

// runUpload gives files of the workspace to the page's file chooser. They are opened, copied and digested before the
// person is asked: what is uploaded is what they were shown.
func runUpload(ctx context.Context, u *use) (*mcp.CallToolResult, error) {
	var in struct {
		Paths []string `json:"paths"`
	}
	if err := u.decode(&in); err != nil {
		return nil, err
	}
	if len(in.Paths) > MaxUploads {
		return nil, refuse("F.1", fmt.Sprintf("%d files are more than the %d that one upload takes", len(in.Paths), MaxUploads), "")
	}
	if err := u.open(ctx, false); err != nil {
		return nil, err
	}
	urls, text, err := u.waiting(ctx, "file chooser")
	if err != nil {
		return nil, err
	}
	if len(in.Paths) == 0 {
		got, err := u.upstream(ctx, "browser_file_upload", map[string]any{}, OpTime)
		if err != nil {
			return nil, err
		}
		return u.acted(ctx, "cancel the file chooser", got, facts{})
	}
	a := action{verb: "upload", tool: "browser_file_upload"}
	var inside []string
	for _, p := range in.Paths {
		to, shown, err := u.bring(ctx, p)
		if err != nil {
			return nil, err
		}
		inside, a.values = append(inside, to), append(a.values, shown)
	}
	a.args = map[string]any{"paths": inside}
	return u.answer(ctx, a, "file chooser", urls, text)
}

// bring copies one file into the worker's sandbox, where no page can reach it yet.
func (u *use) bring(ctx context.Context, p string) (to, shown string, err error) {
	if u.s.b.o.OpenFile == nil || !utf8.ValidString(p) {
		return "", "", refuse("F.1", "no files can be uploaded here", "")
	}
	f, err := u.s.b.o.OpenFile(u.s.key.run, p)
	if err != nil {
		return "", "", refuse("F.1", "the file cannot be uploaded: "+shorten(err.Error(), 300), "Give absolute paths of regular files in the workspace")
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxUploadBytes+1))
	if err != nil {
		return "", "", refuse("F.1", "the file cannot be read: "+shorten(err.Error(), 300), "")
	}
	if len(data) > MaxUploadBytes {
		return "", "", refuse("F.8", fmt.Sprintf("%s is larger than %s", shorten(p, 200), sizeText(MaxUploadBytes)), "")
	}
	to, err = u.worker.WriteFile(ctx, path.Base(p), bytes.NewReader(data))
	if err != nil {
		return "", "", err
	}
	sum := sha256.Sum256(data)
	return to, fmt.Sprintf("%s (%s, SHA-256 %s)", shorten(p, 300), sizeText(int64(len(data))), hex.EncodeToString(sum[:8])), nil
}
