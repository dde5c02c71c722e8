package fairq

import (
	"context"
	"encoding/json"
	"fmt"
)

// TaskArgs are the arguments of tasks of one kind: what [TaskFor] enqueues and [Handle]
// decodes.
type TaskArgs interface {
	// Kind returns the name of the tasks.  It does not depend on the value.
	Kind() string
}

// TaskFor returns a task of the group with these arguments.  The Name of the
// task is the Kind of the arguments.
func TaskFor(group string, args TaskArgs) NewTask {
	return NewTask{Group: group, Name: args.Kind(), Args: args}
}

// Handle makes f the worker's handler for the tasks that the Kind of T names. Their
// arguments have type T.  It panics if these tasks have a handler already, or if the Kind
// is empty.
func Handle[T TaskArgs](worker *Worker, f func(ctx context.Context, task *Task, args T) error) {
	var none T
	kind := none.Kind()
	if kind == "" {
		panic(fmt.Sprintf("fairq: the Kind of %T is empty", none))
	}
	if _, there := worker.Handlers[kind]; there {
		panic(fmt.Sprintf("fairq: there are two handlers for tasks of kind %q", kind))
	}
	if worker.Handlers == nil {
		worker.Handlers = map[string]Handler{}
	}
	worker.Handlers[kind] = Args(f)
}

// Args makes a handler from a function that takes the task's payload as a value of type
// T, decoded by [encoding/json].  If the payload cannot be decoded, the task fails as
// if the handler had returned the error of json.Unmarshal.
func Args[T any](f func(ctx context.Context, task *Task, args T) error) Handler {
	return func(ctx context.Context, task *Task) error {
		var args T
		if err := json.Unmarshal(task.Payload, &args); err != nil {
			return fmt.Errorf("the payload cannot be taken: %w", err)
		}
		return f(ctx, task, args)
	}
}
