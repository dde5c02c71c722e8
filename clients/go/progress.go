package fairq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"
)

// progress is the data that a task keeps from one attempt to the next.  On the server
// it is one JSON value.  If there are steps or a cursor, it is an object whose member
// "fairq" has them.
type progress struct {
	plain  json.RawMessage            // without steps and cursor; nil: none
	steps  map[string]json.RawMessage // results by name; not changed in place
	cursor json.RawMessage            // value of the last Checkpoint; nil: none
	noted  int                        // number of calls of Checkpoint
}

type resume struct {
	Steps  map[string]json.RawMessage `json:"steps,omitempty"`
	Cursor json.RawMessage            `json:"cursor,omitempty"`
}

// keep holds the progress of a task.  Several goroutines of its handler may change it.
type keep struct {
	interval time.Duration // time between saves of the cursor
	saving   sync.Mutex    // held during a save, so that no save overwrites a later one

	mu      sync.Mutex // protects the fields below
	current progress
	saved   int       // the value of noted that the last save has stored
	savedAt time.Time // time of the last save
}

func (k *keep) get() progress {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.current
}

// Progress returns the progress that this or an earlier attempt saved last; nil: none.
// If there are steps or a cursor, it is an object whose member "fairq" has them.
func (t *Task) Progress() json.RawMessage {
	encoded, _ := t.kept.get().encode()
	return encoded
}

// SetProgress sets the progress, for fairq.tasks and later attempts.  It keeps the steps
// and the cursor.  If the task was cancelled or its lease is lost, SetProgress returns
// ErrLost, and the handler's context is done.  While the server is down, SetProgress
// waits until ctx is done.
func (t *Task) SetProgress(ctx context.Context, value any) error {
	encoded, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("fairq: the progress cannot be encoded: %w", err)
	}
	return t.save(ctx, func(p *progress) { p.plain = encoded })
}

// Step calls run, saves its result as JSON, and returns the result.  If an
// earlier attempt has saved a result of that name, Step returns that result and
// does not call run.  Like SetProgress, it returns ErrLost if the task is lost,
// and waits while the server is down.
func Step[T any](ctx context.Context, task *Task, name string,
	run func(ctx context.Context) (T, error)) (T, error) {
	var result T
	if saved, done := task.kept.get().steps[name]; done {
		if err := json.Unmarshal(saved, &result); err != nil {
			return result, fmt.Errorf("fairq: the result of step %s cannot be decoded: %w", name, err)
		}
		return result, nil
	}
	if _, err := task.kept.get().members(); err != nil {
		return result, err
	}
	result, err := run(ctx)
	if err != nil {
		return result, err
	}
	encoded, err := json.Marshal(result)
	if err != nil {
		return result, fmt.Errorf("fairq: the result of step %s cannot be encoded: %w", name, err)
	}
	return result, task.save(ctx, func(p *progress) {
		steps := map[string]json.RawMessage{name: encoded}
		for other, result := range p.steps {
			if other != name {
				steps[other] = result
			}
		}
		p.steps = steps
	})
}

// Checkpoint records how far the work has got, for Cursor in a later attempt.  It saves the
// cursor only once per heartbeat, so frequent calls are cheap.  If the attempt fails or is
// released, the worker saves the last cursor.  If the task was cancelled or its lease is
// lost, Checkpoint returns ErrLost.
func (t *Task) Checkpoint(ctx context.Context, cursor any) error {
	encoded, err := json.Marshal(cursor)
	if err != nil {
		return fmt.Errorf("fairq: the cursor cannot be encoded: %w", err)
	}
	k := &t.kept
	if _, err := k.get().members(); err != nil {
		return err
	}
	k.mu.Lock()
	k.current.cursor = encoded
	k.current.noted++
	due := time.Since(k.savedAt) >= k.interval
	k.mu.Unlock()
	if t.stopped() == lost {
		return ErrLost
	}
	if !due {
		return nil
	}
	return t.saveCursor(ctx)
}

// Cursor decodes the value of the last Checkpoint into the variable that cursor points
// to.  An earlier attempt may have made that call.  Cursor returns false if there is
// no value.
func (t *Task) Cursor(cursor any) (bool, error) {
	encoded := t.kept.get().cursor
	if encoded == nil {
		return false, nil
	}
	if err := json.Unmarshal(encoded, cursor); err != nil {
		return false, fmt.Errorf("fairq: the cursor cannot be decoded: %w", err)
	}
	return true, nil
}

func (t *Task) saveCursor(ctx context.Context) error {
	k := &t.kept
	k.mu.Lock()
	unsaved := k.current.noted != k.saved
	k.mu.Unlock()
	if !unsaved {
		return nil
	}
	return t.save(ctx, func(*progress) {})
}

// save changes the progress and stores it.
func (t *Task) save(ctx context.Context, change func(*progress)) error {
	k := &t.kept
	k.saving.Lock()
	defer k.saving.Unlock()
	next := k.get()
	change(&next)
	encoded, err := next.encode()
	if err == nil {
		err = t.store(ctx, encoded)
	}
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.current.plain, k.current.steps = next.plain, next.steps
	k.saved, k.savedAt = next.noted, time.Now()
	return nil
}

func (t *Task) store(ctx context.Context, encoded json.RawMessage) error {
	if t.keeper == nil {
		return nil // the handler is called by a test, without a worker
	}
	held := false
	err := t.keeper.do(ctx, func(ctx context.Context, db DB) error {
		return db.QueryRow(ctx, "SELECT fairq.set_progress($1::bigint, $2::int, $3::jsonb)"+t.keeper.briefly(),
			t.ID, t.Attempt, string(encoded)).Scan(&held)
	})
	if err == nil && !held {
		t.stop(lost)
		return ErrLost
	}
	return explain(err)
}

// encode returns the value for the server.
func (p progress) encode() (json.RawMessage, error) {
	if len(p.steps) == 0 && p.cursor == nil {
		return p.plain, nil
	}
	members, err := p.members()
	if err != nil {
		return nil, err
	}
	if members["fairq"], err = json.Marshal(resume{p.steps, p.cursor}); err != nil {
		return nil, err
	}
	return json.Marshal(members)
}

// members returns the progress without steps and cursor.
func (p progress) members() (members map[string]json.RawMessage, err error) {
	if p.plain != nil && json.Unmarshal(p.plain, &members) != nil {
		return nil, errors.New("fairq: the progress of a task with steps or a cursor must be an object")
	}
	if members == nil {
		members = map[string]json.RawMessage{}
	}
	return members, nil
}

// decodeProgress reads the value of the server.
func decodeProgress(text *string) (p progress) {
	if text == nil {
		return p
	}
	p.plain = json.RawMessage(*text)
	var members map[string]json.RawMessage
	var ours resume
	if json.Unmarshal(p.plain, &members) != nil || json.Unmarshal(members["fairq"], &ours) != nil {
		return p // without steps and cursor
	}
	p.steps, p.cursor, p.plain = ours.Steps, ours.Cursor, nil
	delete(members, "fairq")
	if len(members) > 0 {
		p.plain, _ = json.Marshal(members)
	}
	return p
}
