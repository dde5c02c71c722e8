package fairq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// A Task is one attempt to do a task, as a handler gets it.
type Task struct {
	ID           int64
	Attempt      int // 1 the first time
	AttemptsLeft int // 0 the last time
	Queue        string
	Group        string
	Name         string // the header "task"; "" if there is none
	Priority     int
	EnqueuedAt   time.Time
	Payload      json.RawMessage
	Headers      map[string]any // numbers are of type json.Number

	// Result is for the handler to set: it is encoded as JSON and kept with the task
	// if the queue retains.
	Result any

	ctx    context.Context // the handler's
	cancel context.CancelFunc
	keeper *database
	begun  time.Time
	stops  atomic.Int32 // why it is to stop: lost or handedBack; 0: it is not
	ended  atomic.Bool  // by CompleteTx

	lapses      int           // attempts whose lease lapsed
	timeout     time.Duration // 0: none
	undecodable error         // of its headers
}

// Why a task is to stop.
const (
	lost       = 1 + iota // the server says so: cancelled, its lease lost, max_run over
	handedBack            // the worker ends, or has no place for it
)

// A Handler does a task.  To return nil is to have done it.  To return an error is to
// have failed: the error is kept and the task is retried, later each time, unless
// [Dead] or [Retry] say otherwise.  A panic is an error, too.
//
// ctx is done when the task was cancelled, when its lease is lost, so that another
// worker may have it, and when the time for what runs at the worker's end is over.
// Then the handler should return soon, with an error: the attempt does not count.
type Handler func(ctx context.Context, task *Task) error

// Args makes a handler of a function that takes the task's payload as a value of type
// T, decoded as by [encoding/json].  A payload for which that fails is an error as if
// the handler had returned it.
func Args[T any](f func(ctx context.Context, task *Task, args T) error) Handler {
	return func(ctx context.Context, task *Task) error {
		var args T
		if err := json.Unmarshal(task.Payload, &args); err != nil {
			return fmt.Errorf("the payload cannot be taken: %w", err)
		}
		return f(ctx, task, args)
	}
}

// SetProgress says how far the task is, for all to see in fairq.tasks.  It returns
// ErrLost, and the handler's context is done, if the task was cancelled or its lease
// is lost.  It waits while the server is down, until ctx is done.
func (t *Task) SetProgress(ctx context.Context, progress any) error {
	if t.keeper == nil {
		return nil // no worker took it: the handler is being tested
	}
	encoded, err := json.Marshal(progress)
	if err != nil {
		return fmt.Errorf("fairq: the progress cannot be encoded: %w", err)
	}
	held := false
	err = t.keeper.do(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		return conn.QueryRow(ctx, "SELECT fairq.set_progress($1::bigint, $2::int, $3::jsonb)"+t.keeper.briefly(),
			t.ID, t.Attempt, string(encoded)).Scan(&held)
	})
	if err == nil && !held {
		t.stop(lost)
		return ErrLost
	}
	return explain(err)
}

// CompleteTx ends the task, with its Result, in a transaction of the handler: together
// with what the work has changed in the database, so that both are done exactly once.
// If it returns an error, such as ErrLost, the handler is to roll back and return it;
// otherwise to commit, and return nil if that succeeds.
func (t *Task) CompleteTx(ctx context.Context, tx Tx) error {
	result, err := t.encodeResult()
	if err != nil {
		return err
	}
	held := false
	err = tx.QueryRow(ctx, completeSQL, t.ID, t.Attempt, result,
		interval(time.Since(t.begun))).Scan(&held)
	if err == nil && !held {
		t.stop(lost)
		return ErrLost
	}
	t.ended.Store(err == nil)
	return explain(err)
}

const completeSQL = `
	SELECT fairq.complete($1::bigint, $2::int, $3::jsonb, took => $4::interval)`

// encodeResult is the Result as JSON, nil if there is none.
func (t *Task) encodeResult() (result *string, err error) {
	if t.Result == nil {
		return nil, nil
	}
	defer func() {
		if problem := recover(); problem != nil {
			result, err = nil, fmt.Errorf("the result cannot be encoded: panic: %v", problem)
		}
	}()
	encoded, err := json.Marshal(t.Result)
	if err != nil {
		return nil, fmt.Errorf("the result cannot be encoded: %w", err)
	}
	return pointer(string(encoded)), nil
}

// stop ends the handler's context.  The first reason counts.
func (t *Task) stop(why int32) {
	t.stops.CompareAndSwap(0, why)
	if t.cancel != nil {
		t.cancel()
	}
}

func (t *Task) stopped() int32 { return t.stops.Load() }

// String is what the log says of the task.
func (t *Task) String() string {
	return fmt.Sprintf("task %d of queue %q, group %q, attempt %d", t.ID, t.Queue, t.Group, t.Attempt)
}

// read asks for the payload and the headers by themselves.
func (t *Task) read(ctx context.Context, conn *pgx.Conn) error {
	var payload, headers *string
	err := conn.QueryRow(ctx, "SELECT "+texts+" FROM fairq.tasks WHERE id = $1", t.ID).
		Scan(&payload, &headers)
	if isTooLarge(err) {
		t.undecodable = fmt.Errorf("the payload or the headers cannot be read: %w", err)
		return nil
	}
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	t.readTexts(payload, headers)
	return nil
}

func (t *Task) readTexts(payload, headers *string) {
	if payload != nil {
		t.Payload = []byte(*payload)
	}
	t.readHeaders(headers)
}

// readHeaders takes the headers as the server has them.
func (t *Task) readHeaders(headers *string) {
	if headers == nil {
		return
	}
	decoder := json.NewDecoder(strings.NewReader(*headers))
	decoder.UseNumber()
	var kind *json.UnmarshalTypeError
	if err := decoder.Decode(&t.Headers); errors.As(err, &kind) {
		t.Headers = nil // no object, so it has no names
	} else if err != nil {
		t.undecodable = fmt.Errorf("the headers cannot be decoded: %w", err)
	}
	t.Name, _ = t.Headers["task"].(string)
}
