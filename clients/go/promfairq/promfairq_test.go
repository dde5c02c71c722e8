package promfairq_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	fairq "github.com/fairq/fairq/clients/go"
	"github.com/fairq/fairq/clients/go/promfairq"

	"github.com/jackc/pgx/v5"
)

const patience = 60 * time.Second

func TestMetrics(t *testing.T) {
	if os.Getenv("PGHOST") == "" {
		t.Skip("PGHOST is not set: this test needs a server of its own")
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	db, err := pgx.Connect(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(context.Background())
	name := "prom \"x\" \\ \n."
	if _, err := db.Exec(ctx, "SELECT fairq.create_queue($1, max_attempts => 1)", name); err != nil {
		t.Fatal(err)
	}
	defer db.Exec(context.Background(), "SELECT fairq.drop_queue($1, force => true)", name)

	own := make(chan string, 10)
	waits := make(chan struct{})
	worker := fairq.Worker{
		Queues: []string{name}, Concurrency: 3, Lease: 6 * time.Second,
		Handlers: map[string]fairq.Handler{
			"works": func(context.Context, *fairq.Task) error { return nil },
			"fails": func(context.Context, *fairq.Task) error { return errors.New("it broke") },
			"waits": func(ctx context.Context, _ *fairq.Task) error { close(waits); <-ctx.Done(); return ctx.Err() },
		},
		Hooks: fairq.Hooks{
			Before: func(context.Context, *fairq.Task) context.Context { own <- "before"; return nil },
			After:  func(context.Context, *fairq.Task) { own <- "after" },
			Error:  func(context.Context, *fairq.Task, error) { own <- "error" },
			Lost:   func(context.Context, *fairq.Task) { own <- "lost" },
		},
	}
	metrics := promfairq.Instrument(&worker)
	text := func() string {
		answer := httptest.NewRecorder()
		metrics.ServeHTTP(answer, nil)
		if kind := answer.Header().Get("Content-Type"); kind != "text/plain; version=0.0.4; charset=utf-8" {
			t.Errorf("the type is %q", kind)
		}
		return answer.Body.String()
	}
	has := func(line string) {
		t.Helper()
		for end := time.Now().Add(patience); !strings.Contains("\n"+text(), "\n"+line+"\n"); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("no line %q in\n%s", line, text())
			}
		}
	}
	has("fairq_worker_running 0")
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }()
	has("fairq_worker_concurrency 3")

	var id int64
	for _, task := range []string{"works", "works", "fails", "waits"} {
		if id, err = fairq.Enqueue(ctx, db, name, fairq.NewTask{Group: "bob", Name: task}); err != nil {
			t.Fatal(err)
		}
	}
	labels := func(task, outcome string) string {
		return fmt.Sprintf(`{queue="prom \"x\" \\ \n.",task="%s",outcome="%s"`, task, outcome)
	}
	has("fairq_worker_attempts_total" + labels("works", "completed") + "} 2")
	has("fairq_worker_attempts_total" + labels("fails", "failed") + "} 1")
	has("fairq_worker_attempt_seconds_bucket" + labels("works", "completed") + `,le="1800"} 2`)
	has("fairq_worker_attempt_seconds_bucket" + labels("works", "completed") + `,le="+Inf"} 2`)
	has("fairq_worker_attempt_seconds_count" + labels("works", "completed") + "} 2")
	// If a task is cancelled before its handler begins, the worker calls no hook for it.
	// Until then, the number of running tasks may be 1 because of the failed task.
	select {
	case <-waits:
	case <-time.After(patience):
		t.Fatal("the last task does not begin")
	}
	has("fairq_worker_running 1")
	if _, err := db.Exec(ctx, "SELECT fairq.cancel($1)", id); err != nil {
		t.Fatal(err)
	}
	has("fairq_worker_attempts_total" + labels("waits", "lost") + "} 1")
	has("fairq_worker_running 0")
	if promtool, err := exec.LookPath("promtool"); err == nil {
		check := exec.Command(promtool, "check", "metrics")
		check.Stdin = strings.NewReader(text())
		if said, err := check.CombinedOutput(); err != nil || len(said) > 0 {
			t.Errorf("promtool: %v %s", err, said)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	close(own)
	calls := map[string]int{}
	for call := range own {
		calls[call]++
	}
	if got := fmt.Sprint(calls); got != "map[after:2 before:4 error:1 lost:1]" {
		t.Errorf("the worker's own hooks: %s", got)
	}
}
