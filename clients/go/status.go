package fairq

import (
	"context"
	"sync"
)

// A Status is the present state of a worker.
type Status struct {
	Name        string // as in fairq.tasks
	Queues      []string
	Concurrency int
	Running     int     // number of Tasks
	Stopping    bool    // the worker takes no more tasks
	Tasks       []*Task // tasks that the worker has taken, and that have not ended
}

// runs maps a *Worker that runs to its latest *run.
var runs sync.Map

// Status returns the present state of the worker.  The zero Status, without a
// name, means that Run has not been called, or has returned.  Any goroutine may
// call Status.
func (w *Worker) Status() Status {
	value, there := runs.Load(w)
	if !there {
		return Status{}
	}
	r := value.(*run)
	s := Status{Name: r.Name, Queues: append([]string(nil), r.Queues...), Concurrency: r.Concurrency,
		Stopping: r.taking.Err() != nil}
	r.mu.Lock()
	defer r.mu.Unlock()
	for task := range r.tasks {
		s.Tasks = append(s.Tasks, task)
	}
	s.Running = len(s.Tasks)
	return s
}

// show makes Status show the run until the function that it returns is called.
func (r *run) show(w *Worker, taking context.Context) (hide func()) {
	r.taking = taking
	runs.Store(w, r)
	return func() { runs.Delete(w) }
}
