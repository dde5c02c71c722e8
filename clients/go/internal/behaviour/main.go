// Command behaviour is a worker and a producer whose tasks say what they do, for the
// tests that all clients of fairq share.
//
//	behaviour work QUEUE...
//	behaviour enqueue QUEUE GROUP ACTION [OPTIONS]
//	behaviour skips
//
// work does the tasks of the queues, strictly in that order, until SIGTERM; enqueue
// adds a task and prints its id.  ACTION and OPTIONS are JSON objects: see action and
// options.  The database is that of PGHOST and so on; CONCURRENCY, LEASE, GRACE,
// TIMEOUT, GIVE_UP and POLL are a number and seconds.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	fairq "github.com/fairq/fairq/clients/go"

	"github.com/jackc/pgx/v5"
)

type action struct {
	Do      string          `json:"do"`
	Seconds float64         `json:"seconds"`
	Deaf    bool            `json:"deaf"`
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
		return fmt.Errorf("ACTION is no JSON object: %w", err)
	}
	var options options
	if len(args) > 3 {
		if err := json.Unmarshal([]byte(args[3]), &options); err != nil {
			return fmt.Errorf("OPTIONS is no JSON object: %w", err)
		}
		task.Delay, task.Priority = seconds(options.Delay), options.Priority
		task.Headers = options.Headers
	}
	ctx := context.Background()
	// as is right through a pooler, too
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
	id, err := fairq.EnqueueTx(ctx, tx, args[0], task)
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
	worker := fairq.Worker{
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
	case "headers":
		headers, err := json.Marshal(task.Headers)
		fmt.Printf("headers %d %s\n", task.ID, headers)
		return err
	}
	return fmt.Errorf("unknown action %q", do.Do)
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
		return 0, fmt.Errorf("%s is no number: %q", name, text)
	}
	return value, nil
}
