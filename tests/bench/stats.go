package main

import (
	"context"
	"math"
	"slices"
	"time"
)

// quantile gives the value below which a part of the values lies, 0.5 for the median. The values are not changed.
func quantile(values []float64, part float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	at := part * float64(len(sorted)-1)
	low := int(at)
	if low+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[low] + (at-float64(low))*(sorted[low+1]-sorted[low])
}

func median(values []float64) float64 { return quantile(values, 0.5) }

// ratio gives the median of the ratios of pairs: each pair was measured side by side, so what disturbed the machine
// for a while disturbed both.
func ratio(a, b []float64) float64 {
	var all []float64
	for i := range min(len(a), len(b)) {
		all = append(all, a[i]/b[i])
	}
	return median(all)
}

// minus gives the median of the differences of pairs.
func minus(a, b []float64) float64 {
	var all []float64
	for i := range min(len(a), len(b)) {
		all = append(all, a[i]-b[i])
	}
	return median(all)
}

// A contender is one of the things that are compared. Measure gives one value.
type contender struct {
	measure func(context.Context) (float64, error)
}

// turns measures the contenders in turns, each turn beginning with another one, and gives each one's values. The first
// turn is not counted: it warms caches and makes what is made once.
func turns(ctx context.Context, n int, all ...contender) ([][]float64, error) {
	values := make([][]float64, len(all))
	for turn := range n + 1 {
		for i := range all {
			at := (turn + i) % len(all)
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			v, err := all[at].measure(ctx)
			if err != nil {
				return nil, err
			}
			if turn > 0 {
				values[at] = append(values[at], v)
			}
		}
	}
	return values, nil
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
func microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// megabytes a second.
func rate(bytes int64, d time.Duration) float64 { return float64(bytes) / 1e6 / d.Seconds() }
