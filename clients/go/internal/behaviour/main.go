// Command behaviour is a worker and a producer for the tests that all clients of
// fairq share.  Its tasks print what they do.
//
//	behaviour work QUEUE...
//	behaviour enqueue QUEUE GROUP ACTION [OPTIONS]
//	behaviour skips
//
// work does the tasks of the queues, strictly in the given order, until
// SIGTERM; enqueue adds a task and prints its id.  ACTION and OPTIONS are JSON
// objects: see action and options.  PGHOST and so on select the database.
// CONCURRENCY is a number; LEASE, GRACE, TIMEOUT, GIVE_UP and POLL are in
// seconds.  LOG may be "info", and HOOKS may be "1".  SCHEDULE is a name, a
// colon and a number of seconds.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	fairq "github.com/fairq/fairq/clients/go"

	"github.com/jackc/pgx/v5"
)

type action struct {
	Do      string          `json:"do"`
	Seconds float64         `json:"seconds"`
	Deaf    bool            `json:"deaf"`
	How     string          `json:"how"`
	Message string          `json:"message"`
	Cause   string          `json:"cause"`
	Attempt int             `json:"attempt"`
	Value   json.RawMessage `json:"value"`
}

type options struct {
	Delay    float64        `json:"delay"`
	Priority int            `json:"priority"`
	Headers  map[string]any `json:"headers"`
	Rollback bool           `json:"rollback"`
	// BatchOf has the actions of tasks for which the task waits.
	BatchOf []json.RawMessage `json:"batch_of"`
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "behaviour:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) >= 2 && args[0] == "work":
		return work(args[1:])
	case (len(args) == 4 || len(args) == 5) && args[0] == "enqueue":
		return enqueue(args[1:])
	case len(args) == 1 && args[0] == "skips":
		return nil
	}
	return errors.New("usage: behaviour work QUEUE... | enqueue QUEUE GROUP ACTION [OPTIONS] | skips")
}

func enqueue(args []string) error {
	task := fairq.NewTask{Group: args[1], Name: "behaviour", Args: json.RawMessage(args[2])}
	var named map[string]json.RawMessage
	if err := json.Unmarshal([]byte(args[2]), &named); err != nil {
		return fmt.Errorf("ACTION is not a JSON object: %w", err)
	}
	var options options
	if len(args) > 3 {
		if err := json.Unmarshal([]byte(args[3]), &options); err != nil {
			return fmt.Errorf("OPTIONS is not a JSON object: %w", err)
		}
		task.Delay, task.Priority = seconds(options.Delay), options.Priority
		task.Headers = options.Headers
	}
	ctx := context.Background()
	// this also works through a pooler
	db, err := pgx.Connect(ctx, "default_query_exec_mode=cache_describe")
	if err != nil {
		return err
	}
	defer db.Close(ctx)
	tx, err := db.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(ctx)
	id, err := add(ctx, tx, args[0], task, options.BatchOf)
	if err != nil {
		return err
	}
	if !options.Rollback {
		if err := tx.Commit(ctx); err != nil {
			return err
		}
	}
	fmt.Println(id)
	return nil
}

// add adds a task, which waits for the tasks of batchOf if batchOf is given.
func add(ctx context.Context, tx fairq.Tx, queue string, task fairq.NewTask, batchOf []json.RawMessage) (int64, error) {
	if batchOf == nil {
		return fairq.EnqueueTx(ctx, tx, queue, task)
	}
	return fairq.InBatch(ctx, tx, fairq.NewBatch{Queue: queue, Then: task}, func(batch int64) error {
		var tasks []fairq.NewTask
		for _, part := range batchOf {
			tasks = append(tasks, fairq.NewTask{Group: task.Group, Name: task.Name, Args: part, Batch: batch})
		}
		_, err := fairq.EnqueueBatch(ctx, tx, queue, tasks)
		return err
	})
}

func work(queues []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	concurrency, err1 := setting("CONCURRENCY", 1)
	lease, err2 := setting("LEASE", 60)
	grace, err3 := setting("GRACE", 5)
	poll, err4 := setting("POLL", 0)
	timeout, err5 := setting("TIMEOUT", 0)
	giveUp, err6 := setting("GIVE_UP", 60)
	for _, err := range []error{err1, err2, err3, err4, err5, err6} {
		if err != nil {
			return err
		}
	}
	if grace == 0 {
		grace = -1
	}
	var logger fairq.Logger
	if os.Getenv("LOG") == "info" {
		logger = stderr{}
	}
	var hooks fairq.Hooks
	if os.Getenv("HOOKS") != "" {
		hooks = sayingHooks()
	}
	schedules, err := schedulesOf(os.Getenv("SCHEDULE"))
	if err != nil {
		return err
	}
	worker := fairq.Worker{
		Schedules:   schedules,
		Hooks:       hooks,
		Logger:      logger,
		Queues:      queues,
		Handlers:    map[string]fairq.Handler{"behaviour": fairq.Args(behave)},
		Concurrency: int(concurrency),
		Lease:       seconds(lease),
		Grace:       seconds(grace),
		Poll:        seconds(poll),
		Timeout:     seconds(timeout),
		GiveUp:      seconds(giveUp),
	}
	return worker.Run(ctx)
}

func schedulesOf(text string) ([]fairq.Schedule, error) {
	if text == "" {
		return nil, nil
	}
	name, interval, _ := strings.Cut(text, ":")
	s, err := strconv.ParseFloat(interval, 64)
	return []fairq.Schedule{{Name: name, Times: fairq.Every(seconds(s)),
		Task: fairq.NewTask{Name: "behaviour", Args: map[string]string{"do": "ok"}}}}, err
}

func sayingHooks() fairq.Hooks {
	say := func(name string, task *fairq.Task) { fmt.Printf("hook %s %d %d\n", name, task.ID, task.Attempt) }
	return fairq.Hooks{
		Before: func(ctx context.Context, task *fairq.Task) context.Context {
			say("before", task)
			return ctx
		},
		After: func(_ context.Context, task *fairq.Task) { say("after", task) },
		Error: func(_ context.Context, task *fairq.Task, _ error) { say("error", task) },
		Lost:  func(_ context.Context, task *fairq.Task) { say("lost", task) },
	}
}

// stderr is a Logger.
type stderr struct{}

func (stderr) Info(line string, pairs ...any)  { fmt.Fprintln(os.Stderr, "info:", line, pairs) }
func (stderr) Warn(line string, pairs ...any)  { fmt.Fprintln(os.Stderr, "warning:", line, pairs) }
func (stderr) Error(line string, pairs ...any) { fmt.Fprintln(os.Stderr, "error:", line, pairs) }

func behave(ctx context.Context, task *fairq.Task, do action) error {
	fmt.Printf("start %d %d %s %s\n", task.ID, task.Attempt, task.Group, task.Queue)
	if err := act(ctx, task, do); err != nil {
		if ctx.Err() != nil {
			fmt.Printf("cancelled %d %d\n", task.ID, task.Attempt)
		}
		return err
	}
	fmt.Printf("end %d %d\n", task.ID, task.Attempt)
	return nil
}

func act(ctx context.Context, task *fairq.Task, do action) error {
	switch do.Do {
	case "ok":
		return nil
	case "sleep":
		if do.Deaf {
			time.Sleep(seconds(do.Seconds))
			return nil
		}
		return sleep(ctx, do.Seconds)
	case "raise":
		return errors.New(do.Message)
	case "raise_from":
		return fmt.Errorf("%s: %w", do.Message, errors.New(do.Cause))
	case "raise_until":
		if task.Attempt < do.Attempt {
			return fmt.Errorf("attempt %d of %d", task.Attempt, do.Attempt)
		}
		return nil
	case "dead":
		return fairq.Dead(errors.New(do.Message))
	case "retry":
		if task.Attempt == 1 {
			return fairq.Retry(errors.New("to be retried"), seconds(do.Seconds))
		}
		return nil
	case "exit", "exit_always":
		if task.Attempt == 1 || do.Do == "exit_always" {
			return syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		return nil
	case "progress":
		if err := task.SetProgress(ctx, do.Value); err != nil {
			return err
		}
		return sleep(ctx, 0.5)
	case "steps":
		return steps(ctx, task, do.How)
	case "cursor":
		return cursor(ctx, task, do.How)
	case "batch":
		fmt.Printf("batch %d %d\n", task.ID, task.Batch)
		return nil
	case "headers":
		headers, err := json.Marshal(task.Headers)
		fmt.Printf("headers %d %s\n", task.ID, headers)
		return err
	}
	return fmt.Errorf("unknown action %q", do.Do)
}

func steps(ctx context.Context, task *fairq.Task, how string) error {
	type result struct {
		Attempt int `json:"attempt"`
	}
	first, err := fairq.Step(ctx, task, "first", func(context.Context) (result, error) {
		fmt.Printf("step %d %d first\n", task.ID, task.Attempt)
		return result{task.Attempt}, nil
	})
	if err != nil {
		return err
	}
	_, err = fairq.Step(ctx, task, "second", func(context.Context) (int, error) {
		fmt.Printf("step %d %d second\n", task.ID, task.Attempt)
		return first.Attempt, breakFirst(task, how)
	})
	return err
}

func cursor(ctx context.Context, task *fairq.Task, how string) error {
	done := 0
	if _, err := task.Cursor(&done); err != nil {
		return err
	}
	for n := done + 1; n <= 20; n++ {
		fmt.Printf("at %d %d %d\n", task.ID, task.Attempt, n)
		if n == 10 {
			if err := breakFirst(task, how); err != nil {
				return err
			}
		}
		if err := sleep(ctx, 0.1); err != nil {
			return err
		}
		if err := task.Checkpoint(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

func breakFirst(task *fairq.Task, how string) error {
	if task.Attempt > 1 {
		return nil
	}
	if how == "exit" {
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	return errors.New("attempt 1")
}

func sleep(ctx context.Context, s float64) error {
	select {
	case <-time.After(seconds(s)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func setting(name string, otherwise float64) (float64, error) {
	text := os.Getenv(name)
	if text == "" {
		return otherwise, nil
	}
	value, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, fmt.Errorf("%s is not a number: %q", name, text)
	}
	return value, nil
}
