package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/handlerd/handler/handlerd/audit"
)

// measureAudit holds the audit log against what its promise costs at least: a line of the same length written to a file
// and put on the disk, one after the other.
func measureAudit(ctx context.Context, b *bench) (err error) {
	log, err := audit.Open(filepath.Join(b.dir, "audit", "audit.jsonl"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	bare, err := os.OpenFile(filepath.Join(b.dir, "bare"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bare.Close()) }()
	line := []byte(strings.Repeat("x", 219) + "\n")
	one := func() error {
		return log.Append(audit.Record{Kind: audit.KindNetwork, Verdict: audit.Refused, Rule: "D.4", Subject: "example.org:443"})
	}
	writeBare := func() error {
		_, err := bare.Write(line)
		return errors.Join(err, bare.Sync())
	}
	const writers = 16
	values, err := turns(ctx, b.times(10, 3),
		contender{func(context.Context) (float64, error) { return perSecond(b.times(400, 50), 1, one) }},
		contender{func(context.Context) (float64, error) { return perSecond(b.times(100, 10), writers, one) }},
		contender{func(context.Context) (float64, error) { return perSecond(b.times(400, 50), 1, writeBare) }},
	)
	if err != nil {
		return err
	}
	of := func(i int, name string) number { return number{name, median(values[i]), "/s"} }
	b.report.add(row{
		Group: "audit", What: "audit: records a second, chained and on the disk, against a bare write and fsync", Figure: ratio(values[0], values[2]), Unit: "×",
		Numbers: []number{of(0, "audit"), of(2, "bare")},
	})
	b.report.add(row{
		Group: "audit", What: fmt.Sprintf("audit: the same by %d at once, which share their fsyncs", writers), Figure: ratio(values[1], values[2]), Unit: "×",
		Numbers: []number{of(1, "audit"), of(2, "bare")},
	})
	return nil
}

// perSecond does a thing n times by each of some writers, and gives how many a second that was.
func perSecond(n, writers int, do func() error) (float64, error) {
	var wg sync.WaitGroup
	errs := make([]error, writers)
	start := time.Now()
	for w := range writers {
		wg.Go(func() {
			for range n {
				if errs[w] = do(); errs[w] != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	return float64(n*writers) / time.Since(start).Seconds(), errors.Join(errs...)
}
