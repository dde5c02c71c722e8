package fairq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// NewTask is a task to be enqueued.  The zero value of each field is fairq's default.
type NewTask struct {
	Group       string         // the unit of fairness, such as a tenant or user
	NoGroup     bool           // Group may be empty; otherwise an empty Group is an error
	Name        string         // the handler's name: the header "task"
	Args        any            // encoded as JSON: the payload; nil: {}
	Priority    int            // from 0, which runs first, to 9
	RunAt       time.Time      // the task does not run before this time; not together with Delay
	Delay       time.Duration  // how long the task waits, by the server's clock
	DedupKey    string         // at most one unfinished task of the queue has this key
	MaxAttempts int            // overrides the queue's setting
	Cost        float32        // for cost-fair queues
	Headers     map[string]any // in addition to the payload, such as "traceparent"
	ExpiresAt   time.Time      // the task does not run if it has not started by this time
	Replace     bool           // an unfinished task with the DedupKey gets this task's values
	DedupUntil  string         // the key is taken until the task is "finished" or "started"
	DedupFor    time.Duration  // how long the key stays taken after DedupUntil's event
	Batch       int64          // the id of the batch to which the task is added; 0: none
	After       []int64        // the task waits until the tasks with these ids have succeeded
	AfterAny    bool           // the task waits only until the tasks of After have ended
}

// Enqueue adds a task to a queue and returns its id.  If an unfinished task of the
// queue has the DedupKey, Enqueue adds nothing and returns that task's id.
//
// If db is a transaction, the task exists once that transaction commits.
func Enqueue(ctx context.Context, db DB, queue string, task NewTask) (int64, error) {
	values, err := task.values(queue)
	if err != nil {
		return 0, err
	}
	var id int64
	err = db.QueryRow(ctx, enqueueSQL, values...).Scan(&id)
	return id, explain(err)
}

// EnqueueOrFind does the same as Enqueue, and also returns whether it has
// added the task.
func EnqueueOrFind(ctx context.Context, db DB, queue string, task NewTask) (id int64, added bool, err error) {
	values, err := task.values(queue)
	if err != nil {
		return 0, false, err
	}
	err = db.QueryRow(ctx, "SELECT id, added FROM fairq.enqueue_or_find"+enqueueArgs, values...).Scan(&id, &added)
	return id, added, explain(err)
}

const enqueueSQL = "SELECT fairq.enqueue" + enqueueArgs

const enqueueArgs = `($1::text, $2::text, $3::text::jsonb, priority => $4::int,
		run_at => coalesce($5::text::timestamptz, clock_timestamp() + $6::text::interval),
		dedup_key => $7::text, max_attempts => $8::int, cost => $9::real,
		headers => $10::text::jsonb, expires_at => $11::text::timestamptz,
		replace => $12::boolean, dedup_until => $13::text, dedup_for => $14::text::interval,
		batch => $15::bigint, after => $16::text::bigint[], after_any => $17::boolean)`

// values returns the values for enqueueArgs.
func (t *NewTask) values(queue string) ([]any, error) {
	row, err := t.encode()
	return []any{queue, t.Group, row.payload, t.Priority, row.runAt, row.delay,
		row.dedupKey, row.maxAttempts, row.cost, row.headers, row.expiresAt, t.Replace,
		row.dedupUntil, row.dedupFor, row.batch, after(t), t.AfterAny}, err
}

// EnqueueTx is Enqueue within a transaction of the caller, whose commit adds the task
// and wakes workers.  A call without a transaction does not compile.
func EnqueueTx(ctx context.Context, tx Tx, queue string, task NewTask) (int64, error) {
	return Enqueue(ctx, tx, queue, task)
}

// EnqueueBatch adds many tasks at once, all or none, and returns their ids in the
// order of tasks.  No task may set MaxAttempts, Replace, DedupUntil or DedupFor.
// ExpiresAt, Batch, After and AfterAny must be the same in all tasks.
func EnqueueBatch(ctx context.Context, db DB, queue string, tasks []NewTask) ([]int64, error) {
	if len(tasks) == 0 {
		return nil, nil
	}
	var columns [8][]*string
	times := false
	for i := range tasks {
		row, err := tasks[i].encode()
		if err == nil {
			err = tasks[i].checkBatch(&tasks[0])
		}
		if err != nil {
			return nil, fmt.Errorf("%w (task %d)", err, i)
		}
		times = times || row.runAt != nil || row.delay != nil
		cost := float32(1)
		if row.cost != nil {
			cost = *row.cost
		}
		for column, value := range []*string{
			&tasks[i].Group, &row.payload, row.runAt, row.delay, row.dedupKey, row.headers,
			pointer(fmt.Sprint(tasks[i].Priority)), pointer(fmt.Sprint(cost)),
		} {
			columns[column] = append(columns[column], value)
		}
	}
	args := []any{queue}
	for _, column := range columns {
		args = append(args, array(column))
	}
	if !times { // the server takes either times or After
		args[3], args[4] = nil, nil
	}
	var encoded string
	err := db.QueryRow(ctx, `
		SELECT array_to_json(ARRAY(
			SELECT fairq.enqueue_batch($1::text, $2::text::text[], $3::text::jsonb[],
				run_ats => (
					SELECT array_agg(coalesce(t.run_at, clock_timestamp() + t.delay) ORDER BY t.n)
					FROM unnest($4::text::timestamptz[], $5::text::interval[])
						WITH ORDINALITY AS t(run_at, delay, n)),
				dedup_keys => $6::text::text[], headers => $7::text::jsonb[],
				priorities => $8::text::int[], costs => $9::text::real[],
				expires_at => $10::text::timestamptz, batch => $11::bigint,
				after => $12::text::bigint[], after_any => $13::boolean)))::text`,
		append(args, expiresAt(&tasks[0]), batch(&tasks[0]), after(&tasks[0]), tasks[0].AfterAny)...).
		Scan(&encoded)
	if err != nil {
		return nil, explain(err)
	}
	var ids []int64
	return ids, json.Unmarshal([]byte(encoded), &ids)
}

// Cancel cancels a task, at once if it is not running.  Otherwise it ends the
// handler's context within a third of the lease.  It returns false if the task is
// finished or unknown.
func Cancel(ctx context.Context, db DB, id int64) (bool, error) {
	var there bool
	err := db.QueryRow(ctx, "SELECT fairq.cancel($1::bigint)", id).Scan(&there)
	return there, explain(err)
}

// encoded has the SQL values of a NewTask; nil is NULL.
type encoded struct {
	payload                         string
	runAt, delay, dedupKey, headers *string
	maxAttempts                     *int32
	cost                            *float32
	expiresAt, dedupUntil, dedupFor *string
	batch                           *int64
}

// field holds the name of a field of NewTask, and whether that field has a
// value.
type field struct {
	name string
	set  bool
}

// refuse returns an error if one of the fields is set.
func refuse(where string, fields ...field) error {
	for _, field := range fields {
		if field.set {
			return fmt.Errorf("fairq: %s cannot be set %s", field.name, where)
		}
	}
	return nil
}

// alone returns the fields that only [Enqueue] accepts.
func (t *NewTask) alone() []field {
	return []field{
		{"Replace", t.Replace}, {"DedupUntil", t.DedupUntil != ""}, {"DedupFor", t.DedupFor != 0},
	}
}

// checkBatch returns an error if the task sets a field that EnqueueBatch does not accept.
// It also returns one if ExpiresAt, Batch, After or AfterAny is not the same as in the
// first task.
func (t *NewTask) checkBatch(first *NewTask) error {
	if !t.ExpiresAt.Equal(first.ExpiresAt) || t.Batch != first.Batch || t.AfterAny != first.AfterAny ||
		fmt.Sprint(t.After) != fmt.Sprint(first.After) {
		return errors.New("fairq: ExpiresAt, Batch, After and AfterAny must be the same in all tasks " +
			"of EnqueueBatch")
	}
	return refuse("in EnqueueBatch", append(t.alone(), field{"MaxAttempts", t.MaxAttempts != 0})...)
}

func (t *NewTask) encode() (encoded, error) {
	e := encoded{payload: "{}"}
	if (t.Group == "") != t.NoGroup {
		if t.NoGroup {
			return e, fmt.Errorf("fairq: task %q has both a Group and NoGroup", t.Name)
		}
		return e, fmt.Errorf("fairq: task %q has no group: set its Group, or NoGroup for the "+
			"empty group", t.Name)
	}
	if t.Args != nil {
		payload, err := json.Marshal(t.Args)
		if err != nil {
			return e, fmt.Errorf("fairq: the arguments of task %q cannot be encoded: %w", t.Name, err)
		}
		e.payload = string(payload)
	}
	if t.Name != "" || len(t.Headers) > 0 {
		all := make(map[string]any, len(t.Headers)+1)
		for key, value := range t.Headers {
			all[key] = value
		}
		if t.Name != "" {
			all["task"] = t.Name
		}
		headers, err := json.Marshal(all)
		if err != nil {
			return e, fmt.Errorf("fairq: the headers of task %q cannot be encoded: %w", t.Name, err)
		}
		e.headers = pointer(string(headers))
	}
	if !t.RunAt.IsZero() && t.Delay != 0 {
		return e, fmt.Errorf("fairq: task %q has both RunAt and Delay", t.Name)
	}
	if !t.RunAt.IsZero() {
		e.runAt = pointer(timestamp(t.RunAt))
	}
	if t.Delay != 0 {
		e.delay = pointer(interval(t.Delay))
	}
	if t.DedupKey != "" {
		e.dedupKey = &t.DedupKey
	}
	if int(int32(t.MaxAttempts)) != t.MaxAttempts || int(int32(t.Priority)) != t.Priority {
		return e, fmt.Errorf("fairq: task %q has MaxAttempts or Priority out of range", t.Name)
	}
	if t.MaxAttempts != 0 {
		e.maxAttempts = pointer(int32(t.MaxAttempts))
	}
	if t.Cost != 0 {
		e.cost = &t.Cost
	}
	e.expiresAt = expiresAt(t)
	e.batch = batch(t)
	if t.DedupUntil != "" {
		e.dedupUntil = &t.DedupUntil
	}
	if t.DedupFor != 0 {
		e.dedupFor = pointer(interval(t.DedupFor))
	}
	return e, nil
}

// expiresAt is nil for a task that never expires.
func expiresAt(t *NewTask) *string {
	if t.ExpiresAt.IsZero() {
		return nil
	}
	return pointer(timestamp(t.ExpiresAt))
}

// batch is nil for a task without a batch.
func batch(t *NewTask) *int64 {
	if t.Batch == 0 {
		return nil
	}
	return &t.Batch
}

// after has the ids as an array in PostgreSQL's format; nil: the task waits for none.
func after(t *NewTask) *string {
	if len(t.After) == 0 {
		return nil
	}
	ids := make([]*string, len(t.After))
	for i, id := range t.After {
		ids[i] = pointer(fmt.Sprint(id))
	}
	return pointer(array(ids))
}

func pointer[T any](value T) *T { return &value }

// timestamp is a time in PostgreSQL's format.
func timestamp(t time.Time) string {
	return t.Format("2006-01-02T15:04:05.999999Z07:00")
}

// interval is a duration in PostgreSQL's format.
func interval(d time.Duration) string {
	return fmt.Sprintf("%d microseconds", d.Microseconds())
}

// array is a text array in PostgreSQL's format, which each driver can send; nil is
// NULL.
func array(elements []*string) string {
	escape := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	texts := make([]string, len(elements))
	for i, element := range elements {
		texts[i] = "NULL"
		if element != nil {
			texts[i] = `"` + escape.Replace(*element) + `"`
		}
	}
	return "{" + strings.Join(texts, ",") + "}"
}
