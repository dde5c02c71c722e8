package fairq

import (
	"context"
	"errors"
	"fmt"
)

// Hooks are functions that a worker calls around each attempt; nil: none.  After Before, the
// worker calls one of After, Error and Lost, with the context that Before has returned.  If
// a hook panics, the worker logs it and continues.
type Hooks struct {
	// Before returns the context of the handler, which is ctx or derived from it.
	Before func(ctx context.Context, task *Task) context.Context
	// The worker calls After if the handler has returned nil.
	After func(ctx context.Context, task *Task)
	// The worker calls Error if the handler has returned an error, has panicked, or
	// ignores its timeout.  It also calls Error if there is no handler.
	Error func(ctx context.Context, task *Task, err error)
	// The worker calls Lost after an attempt that has no effect because the task was
	// cancelled, its lease is lost, or the worker stops.
	Lost func(ctx context.Context, task *Task)
}

func (r *run) before(task *Task) {
	if r.Hooks.Before == nil {
		return
	}
	r.guard(task, "Before", func() {
		if ctx := r.Hooks.Before(task.ctx, task); ctx != nil {
			task.ctx = ctx
		}
	})
}

// after calls After, Error or Lost at the end of an attempt.
func (r *run) after(task *Task, err error) {
	why := task.stopped()
	switch {
	case why == lost || err != nil && why == handedBack:
		if r.Hooks.Lost != nil {
			r.guard(task, "Lost", func() { r.Hooks.Lost(task.ctx, task) })
		}
	case err != nil:
		if r.Hooks.Error != nil {
			r.guard(task, "Error", func() { r.Hooks.Error(task.ctx, task, err) })
		}
	case r.Hooks.After != nil:
		r.guard(task, "After", func() { r.Hooks.After(task.ctx, task) })
	}
}

// guard calls a hook and logs its panic.
func (r *run) guard(task *Task, name string, hook func()) {
	err := errors.New("it has ended its goroutine")
	defer func() {
		if problem := recover(); problem != nil {
			err = fmt.Errorf("panic: %v", problem)
		}
		if err != nil {
			r.about(task, "the hook \""+name+"\" failed", err)
		}
	}()
	hook()
	err = nil
}
