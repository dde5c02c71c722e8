package fairq

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgtype"
	"github.com/jackc/pgx/v4"
)

// A Worker does the tasks of one or several queues.  It has two connections of its
// own: however busy the handlers are, leases are kept.
type Worker struct {
	// Database is a connection URI, or keywords and values.  What it does not say
	// is taken from PGHOST, PGDATABASE and so on.
	Database string
	// Queues are served strictly in this order: while the first one has a task that
	// can run, the others wait.
	Queues []string
	// Handlers do the tasks by their names.
	Handlers map[string]Handler
	// Default does tasks without a name, and those whose name Handlers does not have.
	// Without it these fail with the error "no handler for task NAME".
	Default Handler
	// Concurrency is how many tasks are done at a time; 0: 4.
	Concurrency int
	// Lease is how long others wait for a worker that is dead before they may do its
	// tasks.  One that lives prolongs it every third of that, and learns by it that a
	// task was cancelled.  0: a minute.
	Lease time.Duration
	// Grace is how long what runs may go on when the worker is to end; 0: 5 seconds,
	// less: no time.
	Grace time.Duration
	// Poll is how often the worker looks for tasks while there are none.  0: it sleeps in
	// fairq.wait until there are some; or, through a pooler, of which that would occupy a
	// connection, looks every second.  Less: it sleeps in fairq.wait, also through a pooler.
	Poll time.Duration
	// Name is what fairq.tasks shows of the worker; "": the host and the process id.
	Name string
	// ErrorLog gets what goes wrong, in handlers and otherwise; nil: the standard
	// logger.
	ErrorLog *log.Logger
}

// Run does tasks until ctx is done.  Then it takes nothing new, lets what runs go on for
// Grace, cancels the contexts of the handlers that have not returned by then, hands
// their tasks back, with attempts that do not count, and returns nil.  A handler that
// goes on all the same is left behind.
//
// It survives restarts of the server, and times in which that is down or read-only: it
// connects again every second, and tells what was done meanwhile.  It returns an error
// if it cannot work at all: ErrUnknownQueue, ErrNoExtension, or one about privileges.
//
// Run may take 5 seconds longer than Grace if the server is down.
func (w *Worker) Run(ctx context.Context) error {
	r, err := newRun(w, ctx)
	if err != nil {
		return err
	}
	go r.heartbeat()
	err = r.popTasks(ctx)
	r.finish()
	return err
}

// run is one call of Run.
type run struct {
	Worker
	values  context.Context // of the handlers
	popper  *database       // fairq.wait takes its time
	keeper  *database       // for all that must not wait
	keeping context.Context // done: keeper is given up
	giveUp  context.CancelFunc
	slots   chan struct{} // one for each task that there is room for
	left    chan struct{} // closed: handlers that have not returned are left behind
	beaten  chan struct{} // closed: the heartbeat has ended
	working sync.WaitGroup
	mu      sync.Mutex // for tasks
	tasks   map[*Task]struct{}

	tellOfPooler sync.Once
}

func newRun(w *Worker, ctx context.Context) (*run, error) {
	r := &run{Worker: *w, values: detached{ctx}, left: make(chan struct{}),
		beaten: make(chan struct{}), tasks: map[*Task]struct{}{}}
	switch {
	case len(w.Queues) == 0:
		return nil, errors.New("fairq: the worker has no queues")
	case len(w.Handlers) == 0 && w.Default == nil:
		return nil, errors.New("fairq: the worker has no handlers")
	case w.Concurrency < 0 || w.Lease < 0:
		return nil, errors.New("fairq: Concurrency and Lease must not be negative")
	}
	if r.Concurrency == 0 {
		r.Concurrency = 4
	}
	if r.Lease == 0 {
		r.Lease = time.Minute
	}
	if r.Grace == 0 {
		r.Grace = 5 * time.Second
	}
	if r.Name == "" {
		host, _ := os.Hostname()
		r.Name = fmt.Sprintf("%s:%d", host, os.Getpid())
	}
	if r.ErrorLog == nil {
		r.ErrorLog = log.Default()
	}
	config, err := parseConfig(r.Database, r.Name)
	if err != nil {
		return nil, err
	}
	r.popper = &database{config: config, log: r.ErrorLog}
	r.keeper = &database{config: config, log: r.ErrorLog}
	r.keeping, r.giveUp = context.WithCancel(context.Background())
	r.slots = make(chan struct{}, r.Concurrency)
	for i := 0; i < r.Concurrency; i++ {
		r.slots <- struct{}{}
	}
	return r, nil
}

// detached has the values of a context, and does not end with it.
type detached struct{ context.Context }

func (detached) Deadline() (time.Time, bool) { return time.Time{}, false }
func (detached) Done() <-chan struct{}       { return nil }
func (detached) Err() error                  { return nil }

// popTasks takes tasks, never more than there is room for, until ctx is done or the
// queues cannot be worked on.
func (r *run) popTasks(ctx context.Context) error {
	defer r.popper.close()
	for {
		slots := r.takeSlots(ctx)
		if slots == 0 {
			return nil
		}
		tasks, err := r.pop(ctx, slots)
		for i := len(tasks); i < slots; i++ {
			r.slots <- struct{}{}
		}
		for _, task := range tasks {
			r.start(ctx, task)
		}
		if err == nil && len(tasks) == 0 {
			err = r.wait(ctx)
		}
		if err != nil && ctx.Err() == nil {
			if !isTransient(err) {
				return explain(err)
			}
			r.ErrorLog.Printf("fairq: %v; trying again", err)
			sleep(ctx, retryInterval)
		}
	}
}

// takeSlots waits for a free slot and takes it and all others; 0: ctx is done.
func (r *run) takeSlots(ctx context.Context) int {
	select {
	case <-ctx.Done():
		return 0
	case <-r.slots:
		if ctx.Err() != nil {
			return 0 // of two cases that are ready, any is taken
		}
	}
	for n := 1; ; n++ {
		select {
		case <-r.slots:
		default:
			return n
		}
	}
}

// pop takes tasks.  Once it has begun, it does not end with ctx, so that none are lost
// that the server has given away; those of a connection that breaks come back when
// their leases end.
func (r *run) pop(ctx context.Context, slots int) ([]*Task, error) {
	var tasks []*Task
	err := r.popper.try(ctx, func(conn *pgx.Conn) error {
		ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
		defer cancel()
		rows, err := conn.Query(ctx, `
			SELECT id, attempt, attempts_left, queue, group_key, priority, enqueued_at,
				payload::text, headers::text
			FROM fairq.pop($1::text[], $2::int, lease => $3::interval, worker => $4::text)`,
			r.Queues, slots, interval(r.Lease), r.Name)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var payload string
			var headers *string
			task := &Task{keeper: r.keeper}
			if err := rows.Scan(&task.ID, &task.Attempt, &task.AttemptsLeft, &task.Queue,
				&task.Group, &task.Priority, &task.EnqueuedAt, &payload, &headers); err != nil {
				return err
			}
			task.Payload = []byte(payload)
			task.readHeaders(headers)
			tasks = append(tasks, task)
		}
		return rows.Err()
	})
	if err != nil {
		return nil, err // of a statement that has failed no task is taken
	}
	return tasks, nil
}

// wait sleeps until a pop is worth it, or ctx is done.
func (r *run) wait(ctx context.Context) error {
	poll := r.Poll
	if poll == 0 && r.popper.pooled {
		poll = time.Second
		r.tellOfPooler.Do(func() {
			r.ErrorLog.Print("fairq: the connection goes through a pooler, of which fairq.wait " +
				"would occupy a connection, so this worker looks for tasks every second; set " +
				"Poll to have another interval, or less than 0 to wait")
		})
	}
	if poll > 0 {
		sleep(ctx, poll)
		return nil
	}
	const timeout = 30 * time.Second
	err := r.popper.try(ctx, func(conn *pgx.Conn) error {
		call, cancel := context.WithTimeout(context.Background(), timeout+callTimeout)
		defer cancel()
		var interrupt sync.WaitGroup
		interrupt.Add(1)
		go func() {
			defer interrupt.Done()
			select {
			case <-call.Done():
			case <-ctx.Done():
				interruptCall(call, cancel, conn)
			}
		}()
		var ready *bool
		err := conn.QueryRow(call, "CALL fairq.wait($1::text[], $2::interval)",
			r.Queues, interval(timeout)).Scan(&ready)
		cancel()
		interrupt.Wait()
		return err
	})
	if hasCode(err, "57014") {
		return nil // by interruptCall, or a statement_timeout
	}
	return err
}

// interruptCall asks the server to end the call, so that it does not sleep on there;
// again, since the first time may be before the statement has come; and at last gives
// the connection up, as the server may be mute.
func interruptCall(call context.Context, cancel context.CancelFunc, conn *pgx.Conn) {
	for try := 0; try < 10; try++ {
		ctx, done := context.WithTimeout(call, time.Second)
		conn.PgConn().CancelRequest(ctx)
		done()
		if !sleep(call, 100*time.Millisecond) {
			return
		}
	}
	cancel()
}

// start has a task done, in a goroutine of its own.
func (r *run) start(ctx context.Context, task *Task) {
	task.ctx, task.cancel = context.WithCancel(r.values)
	r.mu.Lock()
	r.tasks[task] = struct{}{}
	r.mu.Unlock()
	r.working.Add(1)
	go func() {
		defer r.working.Done()
		defer func() {
			task.cancel()
			r.mu.Lock()
			delete(r.tasks, task)
			r.mu.Unlock()
			r.slots <- struct{}{}
		}()
		if ctx.Err() != nil {
			task.stop() // the worker is to end: nothing new begins
			r.end(task, context.Canceled, 0)
			return
		}
		task.begun = time.Now()
		returned := make(chan error, 1)
		go r.handle(task, returned)
		select {
		case err := <-returned:
			r.end(task, err, time.Since(task.begun))
		case <-r.left:
			r.end(task, context.Canceled, time.Since(task.begun))
		}
	}()
}

// handle calls the task's handler, in a goroutine that the handler may end
// (runtime.Goexit) or never return from.
func (r *run) handle(task *Task, returned chan<- error) {
	err := errors.New("the handler has ended its goroutine")
	defer func() {
		if problem := recover(); problem != nil {
			err = fmt.Errorf("panic: %v", problem)
			r.ErrorLog.Printf("fairq: task %d, attempt %d: %v\n%s", task.ID, task.Attempt, err,
				debug.Stack())
		}
		returned <- err
	}()
	handler := r.Handlers[task.Name]
	if handler == nil {
		handler = r.Default
	}
	if handler == nil {
		if task.Name == "" {
			err = errors.New("no handler for a task without a name")
		} else {
			err = fmt.Errorf("no handler for task %s", task.Name)
		}
		return
	}
	err = handler(task.ctx, task)
}

// sayable is the error, or one that says so if its methods panic, as those of a nil
// pointer of its type may.
func sayable(err error) (said error) {
	defer func() {
		if problem := recover(); problem != nil {
			said = fmt.Errorf("%T, whose text cannot be had: %v", err, problem)
		}
	}()
	if err != nil {
		var any *explained
		errors.As(err, &any)
		_ = err.Error()
	}
	return err
}

// end tells the server what has become of a task.
func (r *run) end(task *Task, err error, took time.Duration) {
	var held bool
	err = sayable(err)
	switch {
	case err == nil && task.ended.Load():
		return // unless its transaction was rolled back: then the lease runs out
	case err == nil:
		held, err = r.complete(task, took)
		if err != nil && !isTransient(err) {
			// its result is none that the server can keep
			held, err = r.fail(task, explain(err), took)
		}
	case task.lost.Load():
		// ready again, or cancelled; of a lost one nothing
		_, err = r.call(`SELECT fairq.release($1::bigint, $2::int)`, task.ID, task.Attempt)
		held = true
	default:
		r.ErrorLog.Printf("fairq: task %d, attempt %d: %v", task.ID, task.Attempt, err)
		held, err = r.fail(task, err, took)
		if err != nil && !isTransient(err) {
			// it is to be retried at a time that cannot be
			held, err = r.fail(task, explain(err), took)
		}
	}
	if err != nil {
		r.ErrorLog.Printf("fairq: task %d, attempt %d cannot be ended: %v", task.ID,
			task.Attempt, explain(err))
	} else if !held {
		r.ErrorLog.Printf("fairq: task %d, attempt %d has ended in vain: it was cancelled, or "+
			"its lease is lost", task.ID, task.Attempt)
	}
}

func (r *run) complete(task *Task, took time.Duration) (bool, error) {
	result, err := task.encodeResult()
	if err != nil {
		return r.fail(task, err, took)
	}
	return r.call(completeSQL, task.ID, task.Attempt, result, interval(took))
}

func (r *run) fail(task *Task, err error, took time.Duration) (bool, error) {
	var dead *DeadError
	var retry *RetryError
	var in, message *string
	if errors.As(err, &retry) {
		in = pointer(interval(retry.In))
	}
	if retry == nil || retry.Err != nil {
		// as PostgreSQL takes it
		message = pointer(strings.ToValidUTF8(strings.ReplaceAll(err.Error(), "\x00", ""), "\uFFFD"))
	}
	return r.call(`SELECT fairq.fail($1::bigint, $2::int, $3::text, retry_in => $4::interval,
		dead => $5::bool, took => $6::interval)`,
		task.ID, task.Attempt, message, in, errors.As(err, &dead), interval(took))
}

// call calls a function that says whether the attempt still held the lease.
func (r *run) call(sql string, args ...any) (held bool, err error) {
	err = r.keeper.do(r.keeping, func(ctx context.Context, conn *pgx.Conn) error {
		return conn.QueryRow(ctx, sql+r.keeper.briefly(), args...).Scan(&held)
	})
	return held, err
}

// heartbeat prolongs the leases of what runs, and stops what has lost its own.
func (r *run) heartbeat() {
	defer close(r.beaten)
	ticker := time.NewTicker(r.Lease / 3)
	defer ticker.Stop()
	for {
		select {
		case <-r.keeping.Done():
			return
		case <-ticker.C:
		}
		err := r.keeper.do(r.keeping, r.extend)
		if err != nil && r.keeping.Err() == nil {
			r.ErrorLog.Printf("fairq: leases cannot be prolonged: %v", explain(err))
		}
	}
}

func (r *run) extend(ctx context.Context, conn *pgx.Conn) error {
	tasks := map[int64]*Task{}
	var ids []int64
	var attempts []int32
	r.mu.Lock()
	for task := range r.tasks {
		// two attempts of a task may be here: of one the lease had run out
		if other := tasks[task.ID]; other != nil && other.Attempt > task.Attempt {
			task.stop()
			continue
		} else if other != nil {
			other.stop()
		}
		tasks[task.ID] = task
	}
	r.mu.Unlock()
	for id, task := range tasks {
		ids = append(ids, id)
		attempts = append(attempts, int32(task.Attempt))
	}
	if len(ids) == 0 {
		return nil
	}
	var lost pgtype.Int8Array
	err := conn.QueryRow(ctx, "SELECT fairq.extend_batch($1::bigint[], $2::int[], $3::interval)",
		ids, attempts, interval(r.Lease)).Scan(&lost)
	for _, id := range lost.Elements {
		tasks[id.Int].stop()
	}
	return err
}

// finish lets what runs end, and hands back what does not.
func (r *run) finish() {
	idle := make(chan struct{})
	go func() {
		r.working.Wait()
		close(idle)
	}()
	within := func(d time.Duration) bool {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-idle:
			return true
		case <-timer.C:
			return false
		}
	}
	if !within(r.Grace) {
		r.mu.Lock()
		for task := range r.tasks {
			task.stop()
		}
		r.mu.Unlock()
		if !within(500 * time.Millisecond) {
			close(r.left)
			within(4 * time.Second)
		}
	}
	r.giveUp()
	<-idle
	<-r.beaten
	r.keeper.close()
}
