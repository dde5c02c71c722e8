package fairq

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Ran is a task that [Worker.RunTasks] has run.
type Ran struct {
	Task *Task // with the Result that its handler has set
	Err  error // the [Dead] or [Retry] of its handler; nil: the task has succeeded
}

// mostRan limits RunTasks, since handlers may enqueue tasks without end.
const mostRan = 1000

// RunTasks is for tests.  It runs the ready tasks that the transaction sees, and the
// tasks that their handlers enqueue, one by one in this transaction.  No worker sees the
// tasks that the transaction has enqueued, since nothing is committed.  A rollback at the
// end of the test removes them.
//
// RunTasks stops at a handler's error that is neither Dead nor Retry, and returns it.  It
// does not recover from panics, ignores Timeout, and calls no Hooks.
func (w *Worker) RunTasks(ctx context.Context, tx Tx) ([]Ran, error) {
	r, err := newRun(w, ctx)
	if err != nil {
		return nil, err
	}
	defer r.giveUp()
	var all []Ran
	for {
		task, err := r.newTask(tx.QueryRow(ctx, popSQL(texts), r.popValues(1)...), inTx{tx})
		if errors.Is(err, pgx.ErrNoRows) || errors.Is(err, sql.ErrNoRows) {
			return all, nil
		}
		if err != nil {
			return all, explain(err)
		}
		if len(all) == mostRan {
			return all, fmt.Errorf("fairq: the limit of %d tasks is reached, and another one is ready: %v", mostRan, task)
		}
		ran, err := r.runIn(ctx, tx, task)
		if err != nil {
			return all, err
		}
		all = append(all, ran)
	}
}

// runIn runs a task, and ends it in the transaction.
func (r *run) runIn(ctx context.Context, tx Tx, task *Task) (Ran, error) {
	task.ctx, task.cancel = context.WithCancel(ctx)
	defer task.cancel()
	task.begun = time.Now()
	err := r.handler(task)(task.ctx, task)
	took := time.Since(task.begun)
	if err != nil && !isIntended(err) {
		return Ran{}, fmt.Errorf("fairq: %v: %w", task, err)
	}
	var held bool
	if err != nil {
		if err := task.saveCursor(ctx); err != nil && !errors.Is(err, ErrLost) {
			return Ran{}, err
		}
		values := failValues(task, err, took)
		return Ran{task, err}, explain(tx.QueryRow(ctx, failSQL, values...).Scan(&held))
	}
	result, err := task.encodeResult()
	if err != nil {
		return Ran{}, err
	}
	values := []any{task.ID, task.Attempt, result, interval(took)}
	return Ran{task, nil}, explain(tx.QueryRow(ctx, completeSQL, values...).Scan(&held))
}

// isIntended returns whether the error is Dead or Retry.
func isIntended(err error) bool {
	var dead *DeadError
	var retry *RetryError
	return errors.As(err, &dead) || errors.As(err, &retry)
}

// inTx is the keeper of a task in a test.
type inTx struct{ tx Tx }

func (k inTx) do(ctx context.Context, f func(context.Context, DB) error) error {
	return f(ctx, k.tx)
}

func (inTx) briefly() string { return "" }
