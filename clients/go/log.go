package fairq

import (
	"context"
	"fmt"
	"log"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// version is the version of this package.
const version = "1.0.0"

// Logger receives a worker's reports: each is a line with pairs of keys and
// values.  A *slog.Logger is a Logger.
type Logger interface {
	Info(line string, pairs ...any)
	Warn(line string, pairs ...any)
	Error(line string, pairs ...any)
}

// standard reports warnings and errors to the standard logger.
type standard struct{}

func (standard) Info(string, ...any)             {}
func (standard) Warn(line string, pairs ...any)  { printLine("warning", line, pairs) }
func (standard) Error(line string, pairs ...any) { printLine("error", line, pairs) }

func printLine(level, line string, pairs []any) {
	var text strings.Builder
	fmt.Fprintf(&text, "fairq: %s: %s", level, line)
	for i := 0; i+1 < len(pairs); i += 2 {
		value := fmt.Sprint(pairs[i+1])
		if strings.ContainsAny(value, " \"\n") || value == "" {
			value = strconv.Quote(value)
		}
		fmt.Fprintf(&text, " %v=%s", pairs[i], value)
	}
	log.Print(text.String())
}

// pairs describe a task.
func (t *Task) pairs() []any {
	return []any{"id", t.ID, "task", t.Name, "queue", t.Queue, "group", t.Group, "attempt", t.Attempt}
}

// about reports a problem with a task.
func (r *run) about(task *Task, line string, err error) {
	r.Logger.Error(line, append(task.pairs(), "error", describe(sayable(err)))...)
}

// ended reports the outcome of an attempt.
func (r *run) ended(task *Task, outcome string, took time.Duration) {
	r.Logger.Info("task "+outcome, append(task.pairs(), "duration", took, "outcome", outcome)...)
}

// failed reports a failure: a warning if a retry follows, and an error otherwise.
func (r *run) failed(task *Task, err error, dead bool, took time.Duration) {
	report, outcome := r.Logger.Warn, "retried"
	if dead || task.AttemptsLeft == 0 {
		report, outcome = r.Logger.Error, "failed"
	}
	report("task "+outcome, append(task.pairs(), "duration", took, "outcome", outcome,
		"error", archived(err))...)
}

// announce reports the start, once the first pop has succeeded.
func (r *run) announce() {
	var extension, server string
	err := r.popper.try(context.Background(), func(conn *pgx.Conn) error {
		ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
		defer cancel()
		return conn.QueryRow(ctx, "SELECT fairq.version(), current_setting('server_version')").
			Scan(&extension, &server)
	})
	if err != nil {
		return // the next pop tries again
	}
	r.announced = true
	r.Logger.Info("worker of fairq starts", "worker", r.Name, "queues", r.Queues,
		"concurrency", r.Concurrency, "client", version, "extension", extension, "server", server)
}
