package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/handlerd/handler/handlerd/audit"
	"github.com/handlerd/handler/handlerd/fault"
)

func newAudit(u *ui) *cobra.Command {
	return group("audit", "Look at what was decided, verify that nobody changed it, and take it elsewhere",
		newAuditShow(u), newAuditVerify(u), newAuditExport(u))
}

// auditFilter are the flags that choose records.
type auditFilter struct {
	run, agent, since string
	kinds             []string
}

func (f *auditFilter) match(now time.Time) (audit.Match, error) {
	for _, k := range f.kinds {
		if !slices.Contains(audit.Kinds(), k) {
			return nil, fault.New(fault.Usage, "the kinds are "+strings.Join(audit.Kinds(), ", "), "there is no kind of record %q", k)
		}
	}
	since, err := parseSince(f.since, now)
	if err != nil {
		return nil, err
	}
	return func(r audit.Record) bool {
		if len(f.kinds) == 0 && r.Kind == audit.KindChain && (f.run != "" || f.agent != "") {
			return false
		}
		return strings.HasPrefix(r.Run, f.run) && (f.agent == "" || r.Agent == f.agent) &&
			(len(f.kinds) == 0 || slices.Contains(f.kinds, r.Kind)) && !r.Time.Before(since)
	}, nil
}

// parseSince reads "2h", "3d", "2026-11-30" or a time of RFC 3339; "" is the zero time.
func parseSince(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if d, err := time.ParseDuration(days + "h"); err == nil && d >= 0 {
			return now.Add(-24 * d), nil
		}
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02 15:04", "2006-01-02"} {
		if t, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fault.New(fault.Usage, "write 2h, 3d, 2026-11-30 or 2026-11-30T15:04:05Z", "--since %s is no time", text)
}

func newAuditShow(u *ui) *cobra.Command {
	var f auditFilter
	var follow bool
	var lines int
	cmd := &cobra.Command{
		Use: "show", Short: "Print the audit log: verdicts, runs, answers, uses of secrets", Args: usageArgs(cobra.NoArgs),
		Long: `Prints the newest records, oldest of them first. It only reads: whether the log is as it was written is for
handler audit verify.`,
		Example: `  handler audit show --since 2h
  handler audit show --agent web --kind network --kind approval
  handler audit show --run k3f9 --follow --json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if lines < 1 {
				return fault.New(fault.Usage, "", "--lines must be at least 1")
			}
			if f.since != "" && !cmd.Flags().Changed("lines") {
				lines = maxShown
			}
			return u.auditShow(cmd.Context(), f, min(lines, maxShown), follow)
		},
	}
	cmd.Flags().StringVar(&f.run, "run", "", "only of the run whose id begins so")
	cmd.Flags().StringVar(&f.agent, "agent", "", "only of this agent")
	cmd.Flags().StringArrayVar(&f.kinds, "kind", nil, "only of this kind: "+strings.Join(audit.Kinds(), ", ")+" (repeatable)")
	cmd.Flags().StringVar(&f.since, "since", "", "only from then on: 2h, 3d, 2026-11-30, or a time of RFC 3339")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on with what is appended")
	cmd.Flags().IntVarP(&lines, "lines", "n", 50, "how many of the newest; with --since all, unless this is given")
	_ = cmd.RegisterFlagCompletionFunc("kind", cobra.FixedCompletions(audit.Kinds(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// maxShown bounds what is kept in memory to be printed: more records than the log holds.
const maxShown = 1 << 19

func (u *ui) auditShow(ctx context.Context, f auditFilter, lines int, follow bool) error {
	d, err := u.dirs()
	if err != nil {
		return err
	}
	match, err := f.match(time.Now())
	if err != nil {
		return err
	}
	show := func(r audit.Record) error {
		if u.json {
			return writeJSONLine(u.out, r)
		}
		_, err := fmt.Fprintln(u.out, recordText(r))
		return err
	}
	if follow {
		err := audit.Watch(ctx, d.Audit(), lines, match, show)
		if errors.Is(err, context.Canceled) {
			return nil
		}
		return err
	}
	records, err := audit.Tail(d.Audit(), lines, match)
	if err != nil {
		return fault.Wrap(fault.Failed, err, "", "the audit log")
	}
	for _, r := range records {
		if err := show(r); err != nil {
			return err
		}
	}
	if len(records) == 0 && !u.json {
		u.say("the audit log has no such record")
	}
	return nil
}

// recordText is a record in one line. What is in the file may be anything by now, so nothing of it speaks to the
// terminal.
func recordText(r audit.Record) string {
	words := []string{r.Time.Local().Format("2006-01-02 15:04:05"), fmt.Sprintf("%-4s", orDash(r.Run)), fmt.Sprintf("%-10s", orDash(r.Agent)), fmt.Sprintf("%-8s", r.Kind)}
	if r.Verdict != "" {
		verdict := r.Verdict
		if r.Rule != "" {
			verdict += " by " + r.Rule
		}
		words = append(words, verdict)
	}
	if r.Subject != "" {
		words = append(words, r.Subject)
	}
	text := strings.Join(words, "  ")
	if r.Reason != "" {
		text += ": " + r.Reason
	}
	return plain(text)
}

func orDash(text string) string {
	if text == "" {
		return "–"
	}
	return text
}

func newAuditVerify(u *ui) *cobra.Command {
	var kept string
	cmd := &cobra.Command{
		Use: "verify [FILE]", Short: "Say whether the audit log is as it was written; exit code 1 if not", Args: usageArgs(cobra.MaximumNArgs(1)),
		Long: `Holds every line of the audit log, or of a FILE that handler audit export wrote, against the line before it, and
the last one against the head of the log. The first line that was edited, taken out, put in or moved is named, and so
is an end that was cut off.

Whoever can write your files can write the whole log and its head anew. Keep the head that this prints on another
machine or on paper, and give it back with --head: a log that was written anew does not hold it.`,
		Example: `  handler audit verify
  handler audit verify --head 1840:3f1c…
  handler audit verify audit-november.jsonl`,
		RunE: func(_ *cobra.Command, args []string) error { return u.auditVerify(args, kept) },
	}
	cmd.Flags().StringVar(&kept, "head", "", "a head that you kept elsewhere, N:DIGEST or the digest alone")
	return cmd
}

// auditVerified is the answer of audit verify.
type auditVerified struct {
	audit.Report
	OK  bool             `json:"ok"`
	Bad *audit.Tampering `json:"bad,omitempty"`
}

func (u *ui) auditVerify(args []string, kept string) error {
	d, err := u.dirs()
	if err != nil {
		return err
	}
	var report audit.Report
	if len(args) == 1 {
		report, err = audit.VerifyExport(args[0], kept)
	} else {
		report, err = audit.Verify(d.Audit(), kept)
	}
	answer := auditVerified{Report: report, OK: err == nil}
	if err != nil && !errors.As(err, &answer.Bad) {
		return fault.Wrap(fault.Failed, err, "", "the audit log cannot be verified")
	}
	if answer.Bad != nil {
		if u.json {
			return errors.Join(u.result(answer, nil), errReported{1})
		}
		return fault.New(fault.Failed, "what is before it is as it was written; keep a copy before you change anything", "%s", plain(answer.Bad.Error()))
	}
	return u.result(answer, func(w io.Writer) error { return printVerified(w, report) })
}

func printVerified(w io.Writer, r audit.Report) error {
	if r.Lines == 0 {
		_, err := fmt.Fprintln(w, "the audit log is empty")
		return err
	}
	fmt.Fprintf(w, "%s as written, since %s\n", count(r.Lines, "line"), r.From.Local().Format("2006-01-02 15:04"))
	if r.First > 1 {
		fmt.Fprintf(w, "  the %d before them are no longer kept\n", r.First-1)
	}
	if r.Unchained > 0 {
		fmt.Fprintf(w, "  the %s of version 1 before them have no chain: nothing vouches for them\n", count(r.Unchained, "line"))
	}
	if r.Torn > 0 {
		fmt.Fprintf(w, "  %s cut short by a crash\n", count(int64(r.Torn), "line"))
	}
	if r.Behind > 0 {
		fmt.Fprintf(w, "  the last %s just written: the head does not say so yet\n", count(r.Behind, "line"))
	}
	_, err := fmt.Fprintf(w, "head %s\n", r.Head)
	return err
}

func count(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func newAuditExport(u *ui) *cobra.Command {
	var since string
	var force bool
	cmd := &cobra.Command{
		Use: "export FILE", Short: "Write the audit log, verified, into one file that can be verified by itself", Args: usageArgs(cobra.ExactArgs(1)),
		Long: `Verifies the log and writes it as one file of JSON lines: a header, then every line byte for byte. The file is
there whole or not at all, and only you can read it. A log that was tampered with is not exported.`,
		Example: `  handler audit export audit-november.jsonl --since 30d
  handler audit verify audit-november.jsonl`,
		RunE: func(_ *cobra.Command, args []string) error { return u.auditExport(args[0], since, force) },
	}
	cmd.Flags().StringVar(&since, "since", "", "only from then on: 2h, 3d, 2026-11-30, or a time of RFC 3339")
	cmd.Flags().BoolVar(&force, "force", false, "replace FILE if it exists")
	return cmd
}

func (u *ui) auditExport(name, sinceText string, force bool) error {
	d, err := u.dirs()
	if err != nil {
		return err
	}
	since, err := parseSince(sinceText, time.Now())
	if err != nil {
		return err
	}
	if _, err := os.Lstat(name); err == nil && !force {
		return fault.New(fault.Usage, "name another file, or replace it: --force", "%s exists", name)
	}
	var report audit.Report
	err = writeWhole(name, func(w io.Writer) error {
		var err error
		report, err = audit.Export(d.Audit(), since, time.Now(), w)
		return err
	})
	var bad *audit.Tampering
	if errors.As(err, &bad) {
		return fault.New(fault.Failed, "copy the files as they are: cp "+d.Audit()+"* ELSEWHERE", "nothing is exported: %s", plain(bad.Error()))
	}
	if err != nil {
		return fault.Wrap(fault.Failed, err, "", "the export")
	}
	return u.result(map[string]any{"file": name, "lines": report.Lines, "head": report.Head}, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "%s in %s; head %s\n", count(report.Lines, "line"), name, report.Head)
		return err
	})
}

// writeWhole makes a file of mode 0600 that is there whole or not at all.
func writeWhole(name string, write func(io.Writer) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(name), ".handler-*") // 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if err := errors.Join(write(f), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}
