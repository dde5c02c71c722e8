// Package promfairq measures a worker of fairq for Prometheus.
//
//	http.Handle("/metrics", promfairq.Instrument(&worker))
//
// It needs no other module, and uses only the worker's hooks and its status.
package promfairq

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sort"
	"strings"
	"sync"
	"time"

	fairq "github.com/fairq/fairq/clients/go"
)

// buckets are the upper bounds of the histogram, in seconds.
var buckets = [...]float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800}

// Metrics has the metrics of one worker.
type Metrics struct {
	worker *fairq.Worker
	mu     sync.Mutex // protects series
	series map[labels]*durations
}

type labels struct{ queue, task, outcome string }

type durations struct {
	count   uint64
	sum     float64
	buckets [len(buckets)]uint64
}

type key struct{}

// Instrument adds hooks to a worker, which still calls the hooks that it has.
// Call Instrument before Run, with the worker that Run uses, not with a copy of
// it.
func Instrument(worker *fairq.Worker) *Metrics {
	m := &Metrics{worker: worker, series: map[labels]*durations{}}
	given := worker.Hooks
	worker.Hooks = fairq.Hooks{
		Before: func(ctx context.Context, task *fairq.Task) context.Context {
			ctx = context.WithValue(ctx, key{}, time.Now())
			if given.Before != nil {
				if changed := given.Before(ctx, task); changed != nil {
					return changed
				}
			}
			return ctx
		},
		After: func(ctx context.Context, task *fairq.Task) {
			m.count(ctx, task, "completed")
			if given.After != nil {
				given.After(ctx, task)
			}
		},
		Error: func(ctx context.Context, task *fairq.Task, err error) {
			m.count(ctx, task, "failed")
			if given.Error != nil {
				given.Error(ctx, task, err)
			}
		},
		Lost: func(ctx context.Context, task *fairq.Task) {
			m.count(ctx, task, "lost")
			if given.Lost != nil {
				given.Lost(ctx, task)
			}
		},
	}
	return m
}

func (m *Metrics) count(ctx context.Context, task *fairq.Task, outcome string) {
	begun, there := ctx.Value(key{}).(time.Time)
	if !there {
		return // the hook Before has panicked
	}
	seconds := time.Since(begun).Seconds()
	m.mu.Lock()
	defer m.mu.Unlock()
	l := labels{task.Queue, task.Name, outcome}
	d := m.series[l]
	if d == nil {
		d = &durations{}
		m.series[l] = d
	}
	d.count++
	d.sum += seconds
	for i, most := range buckets {
		if seconds <= most {
			d.buckets[i]++
		}
	}
}

var escaper = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

func (l labels) String() string {
	return fmt.Sprintf(`queue="%s",task="%s",outcome="%s"`, escaper.Replace(l.queue), escaper.Replace(l.task), l.outcome)
}

// WriteTo writes the metrics in the text format of Prometheus.
func (m *Metrics) WriteTo(w io.Writer) (int64, error) {
	n, err := io.WriteString(w, m.text())
	return int64(n), err
}

// ServeHTTP answers with the metrics.
func (m *Metrics) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = m.WriteTo(w) // the client may have left
}

func (m *Metrics) text() string {
	const attempts, seconds = "fairq_worker_attempts_total", "fairq_worker_attempt_seconds"
	var counters, histograms []string
	m.mu.Lock()
	for l, d := range m.series {
		counters = append(counters, fmt.Sprintf("%s{%s} %d\n", attempts, l, d.count))
		var b strings.Builder
		for i, most := range buckets {
			fmt.Fprintf(&b, "%s_bucket{%s,le=\"%v\"} %d\n", seconds, l, most, d.buckets[i])
		}
		fmt.Fprintf(&b, "%s_bucket{%s,le=\"+Inf\"} %d\n", seconds, l, d.count)
		fmt.Fprintf(&b, "%s_sum{%s} %v\n%s_count{%s} %d\n", seconds, l, d.sum, seconds, l, d.count)
		histograms = append(histograms, b.String())
	}
	m.mu.Unlock()
	sort.Strings(counters)
	sort.Strings(histograms)
	status := m.worker.Status()
	return metric(attempts, "counter", "Attempts that have ended: completed, failed, lost", counters...) +
		metric(seconds, "histogram", "Their durations", histograms...) +
		metric("fairq_worker_running", "gauge", "Tasks that run", fmt.Sprintf("fairq_worker_running %d\n", status.Running)) +
		metric("fairq_worker_concurrency", "gauge", "Tasks that may run at a time",
			fmt.Sprintf("fairq_worker_concurrency %d\n", status.Concurrency))
}

func metric(name, kind, help string, samples ...string) string {
	return fmt.Sprintf("# HELP %s %s\n# TYPE %s %s\n%s", name, help, name, kind, strings.Join(samples, ""))
}
