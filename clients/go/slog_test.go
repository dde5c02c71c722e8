//go:build go1.21

package fairq_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"

	fairq "github.com/fairq/fairq/clients/go"
)

// TestSlog uses a *slog.Logger as the Logger.
func TestSlog(t *testing.T) {
	db := queue(t, "slog", "")
	var text bytes.Buffer
	w := start(t, fairq.Worker{Queues: []string{"slog"}, Logger: slog.New(slog.NewJSONHandler(&text, nil)),
		Default: func(context.Context, *fairq.Task) error { return fairq.Dead(errors.New("it broke")) }})
	waitForStatus(t, db, enqueue(t, db, "slog", fairq.NewTask{Name: "send"}), "failed")
	w.end()
	lines := strings.Split(strings.TrimSpace(text.String()), "\n")
	var last struct {
		Level, Task, Queue, Group, Outcome, Error string
		Attempt                                   int
		Duration                                  int64
	}
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil {
		t.Fatal(err)
	}
	if last.Duration > 0 {
		last.Duration = 1
	}
	want := last
	want.Level, want.Task, want.Queue, want.Group, want.Attempt = "ERROR", "send", "slog", "bob", 1
	want.Outcome, want.Error, want.Duration = "failed", "it broke", 1
	if last != want || len(lines) != 2 {
		t.Errorf("%s", text.String())
	}
}
