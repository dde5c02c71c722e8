package fairq

import (
	"context"
	"fmt"
	"sort"
	"strings"
	"time"
)

// QueueSettings are settings of a queue.  The keys are names of arguments of create_queue
// in SQL.  A value is an int, a bool or a string, a time.Duration for an interval, and an
// []int for shares.  0 removes a limit.
type QueueSettings map[string]any

// kinds has the SQL types of settings.
var kinds = map[string]string{
	"concurrency": "int", "max_running": "int", "lease": "interval", "max_attempts": "int",
	"backoff": "interval", "backoff_max": "interval", "retain": "interval",
	"retain_failed": "interval", "notify": "boolean", "block_length": "bigint",
	"fair_by": "text", "rate": "int", "per": "interval", "burst": "int", "max_rate": "int",
	"shares": "int[]", "in_order": "boolean", "max_run_time": "interval", "separator": "text",
}

// RedriveOptions select failed tasks, and change them.
type RedriveOptions struct {
	Group      *string // only tasks of this group; nil: of all groups
	MaxTasks   int     // the maximum number of tasks; 0: all
	ToQueue    string  // the tasks move to this queue; "": they stay
	ToPriority *int    // the tasks get this priority; nil: they keep theirs
	ToGroup    *string // the tasks move to this group; nil: they stay
}

// EnsureQueues creates the missing queues and changes the given settings of the existing
// ones.  It keeps settings that are not given.  The separator of an existing queue must
// be the same, since it cannot be changed.
func EnsureQueues(ctx context.Context, db DB, queues map[string]QueueSettings) error {
	all := map[string]*declared{}
	for name, settings := range queues {
		queue, err := settings.declare(name)
		if err != nil {
			return err
		}
		all[name] = queue
	}
	for _, name := range sorted(all) { // so that concurrent transactions do not deadlock
		if err := all[name].ensure(ctx, db, name); err != nil {
			return err
		}
	}
	return nil
}

// declared is a queue of EnsureQueues.
type declared struct {
	create, alter *call
	separator     *string // nil: not given
}

// declare encodes the settings.  Only create_queue takes the separator.
func (s QueueSettings) declare(queue string) (*declared, error) {
	d := &declared{newCall("create_queue", "text", queue), newCall("alter_queue", "text", queue), nil}
	d.create.add("if_not_exists", "boolean", "true")
	for _, name := range sorted(s) {
		kind, known := kinds[name]
		if !known {
			return nil, fmt.Errorf("fairq: queue %q: there is no setting %q", queue, name)
		}
		text, err := setting(kind, s[name])
		if err != nil {
			return nil, fmt.Errorf("fairq: queue %q: %s %w", queue, name, err)
		}
		if name == "separator" {
			d.create.add(name, kind, text)
			d.separator = &text
		} else {
			d.alter.add(name, kind, text)
		}
	}
	return d, nil
}

func (d *declared) ensure(ctx context.Context, db DB, name string) error {
	var none, is string
	if err := d.create.run(ctx, db, "text", &none); err != nil {
		return err
	}
	if err := d.alter.run(ctx, db, "text", &none); err != nil || d.separator == nil {
		return err
	}
	err := db.QueryRow(ctx, "SELECT coalesce(separator, '') FROM fairq.queues WHERE queue = $1::text", name).Scan(&is)
	if err == nil && is != *d.separator {
		return fmt.Errorf("fairq: queue %q has the separator %q, which cannot be changed to %q", name, is, *d.separator)
	}
	return explain(err)
}

// sorted returns the keys of a map in sorted order.
func sorted[T any](values map[string]T) []string {
	var keys []string
	for key := range values {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	return keys
}

// setting returns a setting's value as text for its SQL type, the kind.
func setting(kind string, value any) (string, error) {
	switch value := value.(type) {
	case time.Duration:
		if kind == "interval" {
			return interval(value), nil
		}
	case []int:
		if kind == "int[]" {
			return "{" + strings.Trim(strings.ReplaceAll(fmt.Sprint(value), " ", ","), "[]") + "}", nil
		}
	case int:
		if kind == "int" || kind == "bigint" {
			return fmt.Sprint(value), nil
		}
	case bool:
		if kind == "boolean" {
			return fmt.Sprint(value), nil
		}
	case string:
		if kind == "text" || kind == "interval" {
			return value, nil
		}
	}
	return "", fmt.Errorf("must be of the SQL type %s, and is %v (%T)", kind, value, value)
}

// Find returns the id of the queue's unfinished task that has the key, or 0 if there is
// none.
func Find(ctx context.Context, db DB, queue, dedupKey string) (int64, error) {
	var id int64
	err := db.QueryRow(ctx, "SELECT coalesce(fairq.find($1::text, $2::text), 0)", queue, dedupKey).Scan(&id)
	return id, explain(err)
}

// Reschedule moves a task that is not running to another time; the zero time is now.
// It returns false if the task is running, finished, or unknown.
func Reschedule(ctx context.Context, db DB, id int64, runAt time.Time) (bool, error) {
	var at *string
	if !runAt.IsZero() {
		at = pointer(timestamp(runAt))
	}
	var there bool
	err := db.QueryRow(ctx, "SELECT fairq.reschedule($1::bigint, coalesce($2::text::timestamptz, now()))",
		id, at).Scan(&there)
	return there, explain(err)
}

// Redrive enqueues failed tasks of a queue again, the oldest first.  It returns their
// number.
func Redrive(ctx context.Context, db DB, queue string, options RedriveOptions) (int64, error) {
	call := newCall("redrive", "text", queue)
	if options.Group != nil {
		call.add("group_key", "text", *options.Group)
	}
	if options.MaxTasks != 0 {
		call.add("max_tasks", "int", fmt.Sprint(options.MaxTasks))
	}
	options.addTarget(call)
	var tasks int64
	return tasks, call.run(ctx, db, "bigint", &tasks)
}

// RedriveTask enqueues one failed task again.  The options must not have Group
// or MaxTasks.  RedriveTask returns false if the task has not failed, or
// another task has its key now.
func RedriveTask(ctx context.Context, db DB, id int64, options RedriveOptions) (bool, error) {
	if err := refuse("in RedriveTask", field{"Group", options.Group != nil},
		field{"MaxTasks", options.MaxTasks != 0}); err != nil {
		return false, err
	}
	call := newCall("redrive", "bigint", fmt.Sprint(id))
	options.addTarget(call)
	var there bool
	return there, call.run(ctx, db, "boolean", &there)
}

func (o RedriveOptions) addTarget(call *call) {
	if o.ToQueue != "" {
		call.add("to_queue", "text", o.ToQueue)
	}
	if o.ToPriority != nil {
		call.add("to_priority", "int", fmt.Sprint(*o.ToPriority))
	}
	if o.ToGroup != nil {
		call.add("to_group", "text", *o.ToGroup)
	}
}

// call is a call of a function of fairq with the arguments that have values.  All values
// are text, which each driver can send.
type call struct {
	function string
	args     []string
	values   []any
}

// newCall returns a call with the first argument, which has no name.
func newCall(function, kind, value string) *call {
	return &call{function, []string{"$1::text::" + kind}, []any{value}}
}

func (c *call) add(name, kind, value string) {
	c.values = append(c.values, value)
	c.args = append(c.args, fmt.Sprintf("%s => $%d::text::%s", name, len(c.values), kind))
}

// run calls the function, and stores its result.
func (c *call) run(ctx context.Context, db DB, kind string, result any) error {
	sql := fmt.Sprintf("SELECT fairq.%s(%s)::%s", c.function, strings.Join(c.args, ", "), kind)
	return explain(db.QueryRow(ctx, sql, c.values...).Scan(result))
}
