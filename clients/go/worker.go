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

	"github.com/jackc/pgx/v5"
)

// A Worker runs the tasks of one or several queues.  It has two connections of its own,
// so it renews leases however busy the handlers are.
type Worker struct {
	// Database is a connection URI, or keywords and values.  PGHOST, PGDATABASE and so
	// on have the defaults.
	Database string
	// Queues are served strictly in this order: while the first one has a task that
	// can run, the others wait.
	Queues []string
	// Handlers run the tasks with these names.
	Handlers map[string]Handler
	// Default runs tasks without a name, and tasks whose name Handlers does not have.
	// Without it these fail with the error "no handler for task NAME".
	Default Handler
	// Concurrency is the number of tasks at a time; 0: 4.
	Concurrency int
	// Lease is the time after which others may run the tasks of a worker that died.
	// The worker renews its leases every third of that, and then learns which tasks
	// were cancelled.  0: a minute.
	Lease time.Duration
	// Timeout is the time limit of a handler: the deadline of its context.  After it
	// the task fails with the error "timed out", and is retried as usual.  A handler
	// that does not return within 5 seconds of that keeps its slot until it returns.
	// 0: no limit.
	Timeout time.Duration
	// Timeouts override Timeout for tasks with these names; 0: no limit.
	Timeouts map[string]time.Duration
	// Grace is how long running tasks may continue when the worker stops; 0: 5 seconds,
	// less than 0: no time.
	Grace time.Duration
	// Poll is the time between looks for tasks while there are none.  0: the worker
	// sleeps in fairq.wait; through a pooler it looks every second, since fairq.wait
	// would occupy a connection.  Less than 0: it sleeps in fairq.wait, also through a
	// pooler.
	Poll time.Duration
	// GiveUp is how long the worker retries if the server refuses its connections: the
	// database or role does not exist, or the password is wrong.  It is also how long the
	// worker waits while handlers that ignore their Timeout keep all slots.  Then Run
	// returns an error.  0: a minute, less than 0: forever.
	GiveUp time.Duration
	// Name is the worker's name in fairq.tasks; "": the host and the process id.
	Name string
	// ErrorLog gets errors and warnings, also of handlers; nil: the standard logger.
	ErrorLog *log.Logger
}

// Run runs tasks until ctx is done.  Then it takes no more tasks, and gives running
// ones Grace.  It cancels the contexts of handlers that have not returned by then,
// releases their tasks, and returns nil.  Their attempts do not count.  Run does not
// wait for a handler that still continues.
//
// If the server restarts, is down or is read-only, the worker reconnects every second,
// and completes the tasks that ended meanwhile.  If it cannot work, Run returns an
// error.  It does so at once for a missing queue, extension or privilege (ErrUnknownQueue,
// ErrNoExtension), and after GiveUp for a missing database or role.
//
// A task whose lease has expired may have killed its worker's process.  It runs with no
// other task in the process: the worker first waits for its other tasks, and takes no
// new ones meanwhile.
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
	popper  *database       // for pop and fairq.wait
	keeper  *database       // for calls that must not wait behind fairq.wait
	keeping context.Context // done: keeper does not retry any more
	giveUp  context.CancelFunc
	slots   chan struct{} // one for each free slot
	left    chan struct{} // closed: Run does not wait for handlers that have not returned
	beaten  chan struct{} // closed: the heartbeat has ended
	working sync.WaitGroup

	careful   bool      // the last pop had a task whose lease had expired
	refusedAt time.Time // since when the server has refused connections; zero: it has not

	mu     sync.Mutex // protects the fields below
	tasks  map[*Task]struct{}
	deaf   int       // slots of handlers that ignore their timeout
	deafAt time.Time // time of the last change of deaf

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
	case w.Concurrency < 0 || w.Lease < 0 || w.Timeout < 0:
		return nil, errors.New("fairq: Concurrency, Lease and Timeout must not be negative")
	}
	if r.Concurrency == 0 {
		r.Concurrency = 4
	}
	if r.Lease == 0 {
		r.Lease = time.Minute
	}
	if r.GiveUp == 0 {
		r.GiveUp = time.Minute
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

// detached has the values of a context, but does not end with it.
type detached struct{ context.Context }

func (detached) Deadline() (time.Time, bool) { return time.Time{}, false }
func (detached) Done() <-chan struct{}       { return nil }
func (detached) Err() error                  { return nil }

// popTasks takes tasks, never more than there are free slots, until ctx is done or an
// error ends the worker.
func (r *run) popTasks(ctx context.Context) error {
	defer r.popper.close()
	for {
		slots, err := r.takeSlots(ctx)
		if slots == 0 {
			return err
		}
		if !process.share(ctx) {
			return nil
		}
		tasks, err := r.pop(ctx, slots)
		for i := len(tasks); i < slots; i++ {
			r.slots <- struct{}{}
		}
		r.startAll(ctx, tasks)
		if err == nil && len(tasks) == 0 {
			err = r.wait(ctx)
		}
		if ctx.Err() == nil {
			if err := r.survive(err); err != nil {
				return err
			}
			if err != nil {
				sleep(ctx, retryInterval)
			}
		}
	}
}

// survive returns an error that ends the worker, and reports one that does not.
func (r *run) survive(err error) error {
	if err == nil || isTransient(err) {
		r.refusedAt = time.Time{}
	} else if !isRefusal(err) {
		return explain(err)
	} else if r.refusedAt.IsZero() {
		r.refusedAt = time.Now()
	} else if r.GiveUp >= 0 && time.Since(r.refusedAt) >= r.GiveUp {
		return explain(err)
	}
	if err != nil {
		r.ErrorLog.Printf("fairq: %v; retrying", err)
	}
	return nil
}

// takeSlots waits for a free slot and takes it and all others.  It takes only one if
// tasks must run alone.  0: ctx is done, or the error is why there will be no slot.
func (r *run) takeSlots(ctx context.Context) (int, error) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for n := 0; n == 0; {
		select {
		case <-ctx.Done():
			return 0, nil
		case <-ticker.C:
			if r.isStuck() {
				return 0, fmt.Errorf("fairq: all %d handlers have ignored their timeouts for %v: "+
					"the worker has no slot left", r.Concurrency, r.GiveUp)
			}
		case <-r.slots:
			n = 1
		}
	}
	if ctx.Err() != nil {
		return 0, nil // if both cases are ready, select takes any
	}
	for n := 1; ; n++ {
		if r.careful {
			return n, nil
		}
		select {
		case <-r.slots:
		default:
			return n, nil
		}
	}
}

func (r *run) isStuck() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.deaf == r.Concurrency && r.GiveUp >= 0 && time.Since(r.deafAt) >= r.GiveUp
}

// startAll starts tasks that were popped.  It keeps one of those whose lease has
// expired before, and releases the others.  That one starts when no other task runs: if
// it kills the process, no other task is affected.
func (r *run) startAll(ctx context.Context, tasks []*Task) {
	var suspect *Task
	for _, task := range tasks {
		r.hold(task)
		if task.lapses > 0 {
			if suspect == nil {
				suspect = task
				continue
			}
			task.stop(handedBack)
		}
		process.join()
		r.start(ctx, task, process.leave)
	}
	r.careful = suspect != nil
	process.leave()
	if suspect != nil {
		late := time.AfterFunc(r.Lease, func() {
			r.ErrorLog.Printf("fairq: %v: its lease has expired before, so it waits for all other "+
				"tasks of the process; if one hangs, set a Timeout", suspect)
		})
		leave := process.exclude(ctx)
		late.Stop()
		r.start(ctx, suspect, leave)
	}
}

// pop takes tasks.  It does not end with ctx, so that no task that the server has
// leased is lost.  If the connection breaks, the tasks come back when their leases
// expire.
func (r *run) pop(ctx context.Context, slots int) ([]*Task, error) {
	var tasks []*Task
	err := r.popper.try(ctx, func(conn *pgx.Conn) error {
		ctx, cancel := context.WithTimeout(context.Background(), popTimeout)
		defer cancel()
		var err error
		if tasks, err = r.claim(ctx, conn, slots, texts); !isTooLarge(err) {
			return err
		}
		// A few kB of jsonb may be more text than the server can print.
		if tasks, err = r.claim(ctx, conn, slots, "NULL::text, NULL::text"); err != nil {
			return err
		}
		for _, task := range tasks {
			if err := task.read(ctx, conn); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err // a failed statement takes no task
	}
	return tasks, nil
}

// texts are the columns for a task's payload and headers.
const texts = "payload::text, headers::text"

func (r *run) claim(ctx context.Context, conn *pgx.Conn, slots int, texts string) ([]*Task, error) {
	rows, err := conn.Query(ctx, `
		SELECT id, attempt, attempts_left, queue, group_key, priority, enqueued_at, lapses, `+texts+`
		FROM fairq.pop($1::text[], $2::int, lease => $3::interval, worker => $4::text)`,
		r.Queues, slots, interval(r.Lease), r.Name)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var tasks []*Task
	for rows.Next() {
		var payload, headers *string
		task := &Task{keeper: r.keeper}
		if err := rows.Scan(&task.ID, &task.Attempt, &task.AttemptsLeft, &task.Queue,
			&task.Group, &task.Priority, &task.EnqueuedAt, &task.lapses, &payload,
			&headers); err != nil {
			return nil, err
		}
		task.readTexts(payload, headers)
		tasks = append(tasks, task)
	}
	return tasks, rows.Err()
}

// wait sleeps until there may be tasks, or ctx is done.
func (r *run) wait(ctx context.Context) error {
	poll := r.Poll
	if poll == 0 && r.popper.pooled {
		poll = time.Second
		r.tellOfPooler.Do(func() {
			r.ErrorLog.Print("fairq: the connection goes through a pooler, so the worker looks for " +
				"tasks every second; Poll sets another interval, and less than 0 waits")
		})
	}
	if poll > 0 {
		sleep(ctx, poll)
		return nil
	}
	const timeout = 30 * time.Second
	err := r.popper.try(ctx, func(conn *pgx.Conn) error {
		call, cancel := context.WithTimeout(context.Background(), timeout+waitMargin)
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
	if sqlState(err) == "57014" {
		return nil // canceled by interruptCall or a statement_timeout
	}
	return err
}

// interruptCall cancels the call on the server.  It repeats this, since the first time
// may be before the statement.  At last it closes the connection, since the server may
// not answer.
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

// hold makes the heartbeat renew a task's lease.
func (r *run) hold(task *Task) {
	task.timeout = r.Timeout
	if timeout, there := r.Timeouts[task.Name]; there {
		task.timeout = timeout
	}
	task.ctx, task.cancel = context.WithCancel(r.values)
	r.mu.Lock()
	r.tasks[task] = struct{}{}
	r.mu.Unlock()
}

// start runs a task that is held in its own goroutine, which calls leave at the end.
func (r *run) start(ctx context.Context, task *Task, leave func()) {
	r.working.Add(1)
	go func() {
		defer r.working.Done()
		returned := r.do(ctx, task)
		task.cancel()
		r.mu.Lock()
		delete(r.tasks, task)
		r.mu.Unlock()
		leave()
		select {
		case <-returned:
			r.slots <- struct{}{}
		default:
			go r.endure(task, returned)
		}
	}()
}

// do runs and ends a task.  It returns a channel that is closed when the handler has
// returned, which may be later if it ignores its context.
func (r *run) do(ctx context.Context, task *Task) <-chan struct{} {
	returned := make(chan struct{})
	if ctx.Err() != nil {
		task.stop(handedBack) // the worker stops: nothing new begins
	}
	if task.stopped() != 0 {
		close(returned)
		r.end(task, context.Canceled, 0)
		return returned
	}
	task.begun = time.Now()
	var deaf <-chan time.Time
	if task.timeout > 0 {
		var cancel context.CancelFunc
		task.ctx, cancel = context.WithTimeout(task.ctx, task.timeout)
		defer cancel()
		timer := time.NewTimer(task.timeout + patience)
		defer timer.Stop()
		deaf = timer.C
	}
	var err error
	go func() {
		defer close(returned)
		r.handle(task, &err)
	}()
	select {
	case <-returned:
		if err != nil && task.timeout > 0 && errors.Is(task.ctx.Err(), context.DeadlineExceeded) {
			err = fmt.Errorf("timed out after %v: %w", task.timeout, err)
		}
		r.end(task, err, time.Since(task.begun))
	case <-deaf:
		err := fmt.Errorf("timed out after %v, and its handler continues", task.timeout)
		r.end(task, err, time.Since(task.begun))
	case <-r.left:
		r.end(task, context.Canceled, time.Since(task.begun))
	}
	return returned
}

// endure takes the slot of a handler that ignores its context out of use until it
// returns.
func (r *run) endure(task *Task, returned <-chan struct{}) {
	count := func(n int) int {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.deaf += n
		r.deafAt = time.Now()
		return r.Concurrency - r.deaf
	}
	left := count(1)
	select {
	case <-r.left: // the worker has ended
		return
	default:
	}
	r.ErrorLog.Printf("fairq: %v: its handler ignores the timeout and keeps its slot: %d of %d slots are left",
		task, left, r.Concurrency)
	<-returned
	left = count(-1)
	r.ErrorLog.Printf("fairq: %v: its handler has returned at last: %d of %d slots are left",
		task, left, r.Concurrency)
	r.slots <- struct{}{}
}

// handle calls the task's handler in a goroutine, which the handler may end
// (runtime.Goexit) or never leave.
func (r *run) handle(task *Task, result *error) {
	err := errors.New("the handler has ended its goroutine")
	defer func() {
		if problem := recover(); problem != nil {
			err = fmt.Errorf("panic: %v", problem)
			if cause, is := problem.(error); is {
				err = fmt.Errorf("panic: %w", cause)
			}
			r.ErrorLog.Printf("fairq: %v: %v\n%s", task, sayable(err), debug.Stack())
		}
		*result = err
	}()
	err = r.handler(task)(task.ctx, task)
}

// handler returns the handler for the task's name, or one that fails.
func (r *run) handler(task *Task) Handler {
	fail := func(err error) Handler {
		return func(context.Context, *Task) error { return err }
	}
	if task.undecodable != nil {
		return fail(task.undecodable)
	}
	handler := r.Handlers[task.Name]
	if handler == nil {
		handler = r.Default
	}
	if handler == nil {
		if task.Name == "" {
			return fail(errors.New("no handler for a task without a name"))
		}
		return fail(fmt.Errorf("no handler for task %s", task.Name))
	}
	return handler
}

// sayable returns the error, or another one if its methods panic, for example on a nil
// pointer.
func sayable(err error) (said error) {
	defer func() {
		if problem := recover(); problem != nil {
			said = fmt.Errorf("%T, whose text is not available: %v", err, problem)
		}
	}()
	if err != nil {
		var any *explained
		errors.As(err, &any)
		_ = describe(err)
	}
	return err
}

// end sends the outcome of a task to the server.
func (r *run) end(task *Task, err error, took time.Duration) {
	var held bool
	err = sayable(err)
	switch {
	case err == nil && task.ended.Load():
		return // if the transaction was rolled back, the lease expires
	case err == nil:
		held, err = r.complete(task, took)
		if err != nil && !isTransient(err) {
			// the server cannot store the result
			held, err = r.fail(task, explain(err), took)
		}
		if err == nil && !held {
			r.ErrorLog.Printf("fairq: warning: the server refuses to complete %v: "+
				"it was cancelled, or its lease was lost and it may run twice", task)
		}
	case task.stopped() == handedBack:
		_, err = r.call(`SELECT fairq.release($1::bigint, $2::int)`, task.ID, task.Attempt)
	default:
		if task.stopped() == lost {
			err = fmt.Errorf("stopped, since it was cancelled, its lease was lost, or its time "+
				"(max_run_time) was over: %w", err)
		}
		r.ErrorLog.Printf("fairq: %v: %s", task, describe(err))
		_, err = r.fail(task, err, took)
		if err != nil && !isTransient(err) {
			// the time of the retry is out of range
			_, err = r.fail(task, explain(err), took)
		}
	}
	if err != nil {
		r.ErrorLog.Printf("fairq: %v cannot be ended: %v", task, explain(err))
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
		// in PostgreSQL's format
		message = pointer(strings.ToValidUTF8(strings.ReplaceAll(describe(err), "\x00", ""), "\uFFFD"))
	}
	return r.call(`SELECT fairq.fail($1::bigint, $2::int, $3::text, retry_in => $4::interval,
		dead => $5::bool, took => $6::interval)`,
		task.ID, task.Attempt, message, in, errors.As(err, &dead), interval(took))
}

// call calls a function that returns whether the attempt still held the lease.  It also
// returns true if the answer to an earlier try was lost.
func (r *run) call(sql string, args ...any) (held bool, err error) {
	tries := 0
	err = r.keeper.do(r.keeping, func(ctx context.Context, conn *pgx.Conn) error {
		tries++
		return conn.QueryRow(ctx, sql+r.keeper.briefly(), args...).Scan(&held)
	})
	return held || tries > 1, err
}

// heartbeat renews the leases of running tasks, and stops tasks that have lost theirs.
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
			r.ErrorLog.Printf("fairq: leases cannot be renewed: %v", explain(err))
		}
	}
}

func (r *run) extend(ctx context.Context, conn *pgx.Conn) error {
	tasks := map[int64]*Task{}
	var ids []int64
	var attempts []int32
	r.mu.Lock()
	for task := range r.tasks {
		// the worker may have two attempts of a task, of which the lease of one has
		// expired
		if other := tasks[task.ID]; other != nil && other.Attempt > task.Attempt {
			task.stop(lost)
			continue
		} else if other != nil {
			other.stop(lost)
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
	if limit := r.Lease / 3; limit < callTimeout {
		// so that a connection without answers is closed before leases expire
		if limit < minTimeout {
			limit = minTimeout
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	var gone []int64
	err := conn.QueryRow(ctx, "SELECT fairq.extend_batch($1::bigint[], $2::int[], $3::interval)",
		ids, attempts, interval(r.Lease)).Scan(&gone)
	for _, id := range gone {
		tasks[id].stop(lost)
	}
	return err
}

// finish waits for running tasks to end, and releases the others.
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
			task.stop(handedBack)
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
