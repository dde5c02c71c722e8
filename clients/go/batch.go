package fairq

import "context"

// NewBatch describes a new batch and the task that waits for its end.
type NewBatch struct {
	Queue     string  // of the task that waits
	Then      NewTask // the task that waits
	OnSuccess bool    // true: Then fails as soon as a task of the batch ends without success
}

// CreateBatch creates a batch, and adds the task that waits for it.  It returns the id
// that both have.  Then may have a Group, NoGroup, Name, Args, Priority, MaxAttempts,
// Headers and Batch.  Tasks are added with the batch's id as their Batch, until
// [CloseBatch].
func CreateBatch(ctx context.Context, db DB, batch NewBatch) (int64, error) {
	task := batch.Then
	row, err := task.encode()
	if err != nil {
		return 0, err
	}
	if err := refuse("in a task that waits for a batch", append(task.alone(), field{"RunAt", row.runAt != nil},
		field{"Delay", row.delay != nil}, field{"DedupKey", row.dedupKey != nil},
		field{"Cost", row.cost != nil}, field{"ExpiresAt", row.expiresAt != nil},
		field{"After", len(task.After) > 0}, field{"AfterAny", task.AfterAny})...); err != nil {
		return 0, err
	}
	var id int64
	err = db.QueryRow(ctx, `
		SELECT fairq.create_batch($1::text, $2::text, $3::text::jsonb, priority => $4::int,
			on_success => $5::boolean, max_attempts => $6::int, headers => $7::text::jsonb,
			batch => $8::bigint)`,
		batch.Queue, task.Group, row.payload, task.Priority, batch.OnSuccess, row.maxAttempts,
		row.headers, row.batch).Scan(&id)
	return id, explain(err)
}

// InBatch creates a batch, calls add with its id, and closes it.  If add returns an
// error, the batch stays open: roll the transaction back.
func InBatch(ctx context.Context, tx Tx, batch NewBatch, add func(id int64) error) (int64, error) {
	id, err := CreateBatch(ctx, tx, batch)
	if err != nil {
		return 0, err
	}
	if err := add(id); err != nil {
		return 0, err
	}
	_, err = CloseBatch(ctx, tx, id)
	return id, err
}

// CloseBatch closes a batch, so that no more tasks can be added.  The waiting task runs
// once all tasks of the batch have ended.  It returns false if the batch is closed,
// finished, or unknown.
func CloseBatch(ctx context.Context, db DB, id int64) (bool, error) {
	var closed bool
	err := db.QueryRow(ctx, "SELECT fairq.close_batch($1::bigint)", id).Scan(&closed)
	return closed, explain(err)
}

// CancelBatch closes a batch, cancels those of its tasks that are not running, and returns
// their number.
func CancelBatch(ctx context.Context, db DB, id int64) (int64, error) {
	var tasks int64
	err := db.QueryRow(ctx, "SELECT fairq.cancel_batch($1::bigint)", id).Scan(&tasks)
	return tasks, explain(err)
}
