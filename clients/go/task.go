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

// A Task is one attempt to run a task, for its handler.
type Task struct {
	ID           int64
	Attempt      int // 1 for the first attempt
	AttemptsLeft int // does not include this attempt
	Queue        string
	Group        string
	Name         string // the header "task"; "" if there is none
	Priority     int
	Batch        int64 // the id of its batch; 0: none
	EnqueuedAt   time.Time
	Payload      json.RawMessage
	Headers      map[string]any // numbers are of type json.Number

	// Result is for the handler to set.  It is encoded as JSON, and stored with the
	// task if the queue has retain.
	Result any

	ctx    context.Context // the handler's
	cancel context.CancelFunc
	keeper keeper
	begun  time.Time
	stops  atomic.Int32 // why the task must stop: lost or handedBack; 0: it may continue
	ended  atomic.Bool  // by CompleteTx
	kept   keep

	lapses      int           // attempts whose lease expired
	timeout     time.Duration // 0: none
	undecodable error         // why the payload or the headers are missing
}

// keeper calls functions of fairq for a task, on a worker's connection or in a
// test's transaction.
type keeper interface {
	do(ctx context.Context, f func(context.Context, DB) error) error
	briefly() string
}

// Why a task must stop.
const (
	lost       = 1 + iota // cancelled, the lease is lost, or max_run_time is over
	handedBack            // the worker stops, or has no slot for the task
)

// A Handler runs a task.  If it returns nil, the task succeeds.  If it returns an error
// or panics, the attempt fails.  The error is stored, and the task is retried with the
// queue's backoff, unless the error is [Dead] or [Retry].
//
// The worker ends ctx if the task was cancelled, its lease is lost, or the worker stops
// and its Grace is over.  Then the handler should return an error soon; the attempt
// does not count.
type Handler func(ctx context.Context, task *Task) error

// CompleteTx completes the task with its Result in a transaction of the
// handler, so that the task and its effects are done exactly once.  If
// CompleteTx returns an error, such as ErrLost, the handler must roll back and
// return that error.  Otherwise the handler must commit and must return nil if
// the commit succeeds.
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

// encodeResult returns the Result as JSON, nil if there is none.
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

// stop ends the handler's context, and keeps the reason of the first call.
func (t *Task) stop(why int32) {
	t.stops.CompareAndSwap(0, why)
	if t.cancel != nil {
		t.cancel()
	}
}

func (t *Task) stopped() int32 { return t.stops.Load() }

// String describes the task for the log.
func (t *Task) String() string {
	return fmt.Sprintf("task %d of queue %q, group %q, attempt %d", t.ID, t.Queue, t.Group, t.Attempt)
}

// read fetches the payload, the headers and the progress of a task that was
// popped without them.
func (t *Task) read(conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(context.Background(), popTimeout)
	defer cancel()
	var payload, headers, progress *string
	err := conn.QueryRow(ctx, "SELECT "+texts+" FROM fairq.tasks WHERE id = $1", t.ID).
		Scan(&payload, &headers, &progress)
	if isTooLarge(err) {
		t.undecodable = fmt.Errorf("the payload or the headers cannot be read: %w", err)
		return nil
	}
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	t.readTexts(payload, headers, progress)
	return nil
}

func (t *Task) readTexts(payload, headers, progress *string) {
	t.kept.current = decodeProgress(progress)
	if payload != nil {
		t.Payload = []byte(*payload)
	}
	t.readHeaders(headers)
}

// readHeaders decodes the headers.
func (t *Task) readHeaders(headers *string) {
	if headers == nil {
		return
	}
	decoder := json.NewDecoder(strings.NewReader(*headers))
	decoder.UseNumber()
	var kind *json.UnmarshalTypeError
	if err := decoder.Decode(&t.Headers); errors.As(err, &kind) {
		t.Headers = nil // the headers are not an object
	} else if err != nil {
		t.undecodable = fmt.Errorf("the headers cannot be decoded: %w", err)
	}
	t.Name, _ = t.Headers["task"].(string)
}
