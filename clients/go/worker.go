package fairq

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// A Worker runs the tasks of one or several queues.  It has two connections of its own,
// so it renews leases even while the handlers are busy.
type Worker struct {
	// Database is a connection URI, or keywords and values.  PGHOST, PGDATABASE and so on
	// provide the defaults.
	Database string
	// Queues are served strictly in this order: while the first one has a task that
	// can run, the others wait.
	Queues []string
	// Handlers run the tasks whose names are the keys.
	Handlers map[string]Handler
	// Default runs tasks without a name, and tasks whose name Handlers does not have.
	// Without it, such tasks fail with the error "no handler for task NAME".
	Default Handler
	// Concurrency is the number of tasks at a time; 0: 4.
	Concurrency int
	// Lease is the time after which other workers may run the tasks of a dead worker.
	// The worker renews its leases after each third of that time, and so learns which
	// tasks were cancelled.  0: a minute.
	Lease time.Duration
	// Timeout is the time limit of a handler: the deadline of its context.  After it
	// the task fails with the error "timed out", and is retried as usual.  A handler
	// that does not return within 5 seconds of the deadline keeps its slot until it
	// returns.  0: no limit.
	Timeout time.Duration
	// Timeouts override Timeout for tasks whose names are the keys; 0: no
	// limit.
	Timeouts map[string]time.Duration
	// Grace is the time for which running tasks may continue when the worker stops; 0:
	// 5 seconds, less than 0: no time.
	Grace time.Duration
	// Poll is the time between polls while there are no tasks.  0: the worker
	// sleeps in fairq.wait; through a pooler it polls every second, since
	// fairq.wait would occupy a connection.  Less than 0: it sleeps in
	// fairq.wait, also through a pooler.
	Poll time.Duration
	// GiveUp is how long the worker retries if the server refuses its connections: the
	// database or role does not exist, or the password is wrong.  It is also how long the
	// worker waits while handlers that ignore their Timeout keep all slots.  Then Run
	// returns an error.  0: a minute, less than 0: forever.
	GiveUp time.Duration
	// Name is the worker's name in fairq.tasks; "": the host and the process id.
	Name string
	// Logger gets a line when the worker starts, a line for each attempt, and the worker's
	// problems.  It may be a *slog.Logger.  nil: warnings and errors go to the standard
	// logger.
	Logger Logger
	// Hooks are called around each attempt.
	Hooks Hooks
	// Schedules add tasks at regular times.
	Schedules []Schedule
	// Alive is a file that the worker writes every second while it works, for a probe that
	// looks at the file's age.  "": none.
	Alive string
}

// Run runs tasks until ctx is done.  Then it takes no more tasks, and waits for running
// ones for at most Grace.  It cancels the contexts of handlers that have not returned by
// then, releases their tasks, and returns nil.  Their attempts do not count.  Run does
// not wait for a handler that continues.
//
// If the server restarts, is down or is read-only, the worker reconnects every second,
// and completes the tasks that ended meanwhile.  If it cannot work, Run returns an
// error.  It does so at once for a missing queue, extension or privilege (ErrUnknownQueue,
// ErrNoExtension), and after GiveUp for a missing database or role.
//
// A task whose lease has expired may have killed its worker's process.  Such a task runs
// with no other task in the process: the worker first waits for its other tasks, and takes
// no new ones meanwhile.
//
// Run may take 5 seconds longer than Grace if the server is down.
func (w *Worker) Run(ctx context.Context) error {
	r, err := newRun(w, ctx)
	if err != nil {
		return err
	}
	go r.heartbeat()
	if r.Alive != "" {
		r.showing.Add(1)
		go r.keepAlive()
	}
	ctx, stop := context.WithCancel(ctx)
	defer r.show(w, ctx)()
	go r.keepSchedules(ctx)
	err = r.popTasks(ctx)
	stop()
	r.finish()
	return err
}

// run is one call of Run.
type run struct {
	Worker
	values  context.Context // has the values of the handlers' contexts
	taking  context.Context // done: the worker takes no more tasks
	popper  *database       // for pop and fairq.wait
	keeper  *database       // for calls that must not wait behind fairq.wait
	keeping context.Context // done: keeper does not retry any more
	giveUp  context.CancelFunc
	slots   chan struct{} // one for each free slot
	left    chan struct{} // closed: Run does not wait for handlers that have not returned
	beaten  chan struct{} // closed: the heartbeat has ended
	ticked  chan struct{} // closed: no schedule adds a task any more
	working sync.WaitGroup
	showing sync.WaitGroup // goroutines that show that the worker works

	registers bool      // keepRegistered runs
	announced bool      // the log has the line of the start
	careful   bool      // the last pop had a task whose lease had expired
	refusedAt time.Time // time of the first refused connection; zero: the server accepts them

	mu     sync.Mutex // protects the fields below
	tasks  map[*Task]struct{}
	deaf   int       // number of slots of handlers that ignore their timeout
	deafAt time.Time // when deaf last changed

	tellOfPooler sync.Once
	schedules    []*schedule
}

func newRun(w *Worker, ctx context.Context) (*run, error) {
	r := &run{Worker: *w, values: detached{ctx}, left: make(chan struct{}),
		beaten: make(chan struct{}), ticked: make(chan struct{}), tasks: map[*Task]struct{}{}}
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
		r.Name = fmt.Sprintf("%s:%d", hostname(), os.Getpid())
	}
	if r.Logger == nil {
		r.Logger = standard{}
	}
	for _, given := range w.Schedules {
		schedule, err := newSchedule(given, w.Queues)
		if err != nil {
			return nil, err
		}
		r.schedules = append(r.schedules, schedule)
	}
	config, err := parseConfig(r.Database, r.Name)
	if err != nil {
		return nil, err
	}
	r.popper = &database{config: config, log: r.Logger}
	r.keeper = &database{config: config, log: r.Logger}
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
		if err == nil && !r.registers {
			r.registers = true
			r.showing.Add(1)
			go r.keepRegistered()
		}
		if err == nil && !r.announced {
			r.announce()
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

// survive returns an error that must end the worker, and only logs other errors.
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
		r.Logger.Warn("retrying", "error", err.Error())
	}
	return nil
}

// takeSlots waits for a free slot and takes all free slots.  If the last pop
// had a task that must run alone, it takes only one.  It returns 0 if ctx is
// done.  If an error ends the worker, it returns 0 and that error.
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
		return 0, nil // if both cases are ready, select may choose either
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

// startAll starts tasks that were popped.  If leases of several tasks have expired
// before, it keeps one of these tasks and releases the others.  The kept task starts
// when no other task runs.  So if it kills the process, no other task is affected.
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
			r.Logger.Warn("the task's lease has expired before, so it waits for all other tasks of "+
				"the process; if one hangs, set a Timeout", suspect.pairs()...)
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
	claim := func(conn *pgx.Conn, columns string) (err error) {
		ctx, cancel := context.WithTimeout(context.Background(), popTimeout)
		defer cancel()
		tasks, err = r.claim(ctx, conn, slots, columns)
		return err
	}
	err := r.popper.try(ctx, func(conn *pgx.Conn) error {
		if err := claim(conn, texts); !isTooLarge(err) {
			return err
		}
		// A few kB of jsonb can expand to more text than the server can print.
		if err := claim(conn, "NULL::text, NULL::text, NULL::text"); err != nil {
			return err
		}
		for _, task := range tasks {
			if err := task.read(conn); err != nil {
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

// texts are the columns for a task's payload, headers and progress.
const texts = "payload::text, headers::text, progress::text"

func (r *run) claim(ctx context.Context, conn *pgx.Conn, slots int, texts string) ([]*Task, error) {
	rows, err := conn.Query(ctx, popSQL(texts), r.popValues(slots)...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var tasks []*Task
	for rows.Next() {
		task, err := r.newTask(rows, r.keeper)
		if err != nil {
			return nil, err
		}
		tasks = append(tasks, task)
	}
	return tasks, rows.Err()
}

// popSQL takes tasks, with these columns for newTask.
func popSQL(texts string) string {
	return `SELECT id, attempt, attempts_left, queue, group_key, priority, enqueued_at, lapses,
			coalesce(batch, 0), ` + texts + `
		FROM fairq.pop($1::text::text[], $2::int, lease => $3::interval, worker => $4::text)`
}

// popValues are the parameters of popSQL.
func (r *run) popValues(slots int) []any {
	queues := make([]*string, len(r.Queues))
	for i := range r.Queues {
		queues[i] = &r.Queues[i]
	}
	return []any{array(queues), slots, interval(r.Lease), r.Name}
}

func (r *run) newTask(row pgx.Row, keeper keeper) (*Task, error) {
	var payload, headers, progress *string
	task := &Task{keeper: keeper}
	task.kept.interval = r.Lease / 3
	if err := row.Scan(&task.ID, &task.Attempt, &task.AttemptsLeft, &task.Queue,
		&task.Group, &task.Priority, &task.EnqueuedAt, &task.lapses, &task.Batch,
		&payload, &headers, &progress); err != nil {
		return nil, err
	}
	task.readTexts(payload, headers, progress)
	return task, nil
}

// wait sleeps until there may be tasks, or ctx is done.
func (r *run) wait(ctx context.Context) error {
	poll := r.Poll
	if poll == 0 && r.popper.pooled {
		poll = time.Second
		r.tellOfPooler.Do(func() {
			r.Logger.Warn("the connection goes through a pooler, so the worker looks for " +
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

// interruptCall cancels the call on the server.  It repeats this, since the first request
// may arrive before the statement.  Finally it closes the connection, since the server may
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

// start runs a task, whose lease the heartbeat renews, in a goroutine.  The goroutine calls
// leave at the end.
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

// do runs and ends a task.  It returns a channel that is closed when the
// handler has returned.  A handler that ignores its context may return after do
// has returned.
func (r *run) do(ctx context.Context, task *Task) <-chan struct{} {
	returned := make(chan struct{})
	if ctx.Err() != nil {
		task.stop(handedBack) // the worker stops, so no handler begins
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
	r.before(task)
	var result error
	go func() {
		defer close(returned)
		r.handle(task, &result)
	}()
	err := sayable(r.await(task, returned, deaf, &result))
	took := time.Since(task.begun)
	r.after(task, err)
	r.end(task, err, took)
	return returned
}

// await returns the handler's error, or the error for a handler that does not return in
// time.
func (r *run) await(task *Task, returned <-chan struct{}, deaf <-chan time.Time, result *error) error {
	select {
	case <-returned:
		if *result != nil && task.timeout > 0 && errors.Is(task.ctx.Err(), context.DeadlineExceeded) {
			return fmt.Errorf("timed out after %v: %w", task.timeout, *result)
		}
		return *result
	case <-deaf:
		return fmt.Errorf("timed out after %v, and its handler continues", task.timeout)
	case <-r.left:
		return context.Canceled
	}
}

// endure takes the slot out of use while a handler ignores its context, until the
// handler returns.
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
	told := func(line string, left int) {
		r.Logger.Error(fmt.Sprintf("%s: %d of %d slots are left", line, left, r.Concurrency), task.pairs()...)
	}
	told("the handler ignores the timeout and keeps its slot", left)
	<-returned
	told("the handler has returned at last", count(-1))
	r.slots <- struct{}{}
}

// handle calls the task's handler in the present goroutine, which the handler
// may end (runtime.Goexit) or never leave.
func (r *run) handle(task *Task, result *error) {
	err := errors.New("the handler has ended its goroutine")
	defer func() {
		if problem := recover(); problem != nil {
			err = fmt.Errorf("panic: %v", problem)
			if cause, is := problem.(error); is {
				err = fmt.Errorf("panic: %w", cause)
			}
			err = &panicked{err, framesOf(string(debug.Stack()))}
		}
		*result = err
	}()
	err = r.handler(task)(task.ctx, task)
}

// handler returns the handler for the task's name, or a handler that fails.
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

// sayable returns the error, or another error if its methods panic, for example on a nil
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
	err = sayable(err)
	if err != nil {
		r.saveRest(task)
	}
	switch {
	case err == nil && task.ended.Load():
		r.ended(task, "completed", took) // if the transaction was rolled back, the lease expires
	case err == nil:
		err = r.endWell(task, took)
	case task.stopped() == handedBack:
		r.ended(task, "released", took)
		_, err = r.call(`SELECT fairq.release($1::bigint, $2::int)`, task.ID, task.Attempt)
	case task.stopped() == lost:
		err = r.endLost(task, err, took)
	default:
		err = r.endBadly(task, err, took)
	}
	if err != nil {
		r.about(task, "the task cannot be ended", explain(err))
	}
}

func (r *run) endWell(task *Task, took time.Duration) error {
	result, err := task.encodeResult()
	if err != nil {
		return r.endBadly(task, err, took)
	}
	held, err := r.call(completeSQL, task.ID, task.Attempt, result, interval(took))
	if err != nil && !isTransient(err) {
		return r.endBadly(task, explain(err), took) // the server cannot store the result
	}
	if held {
		r.ended(task, "completed", took)
	} else if err == nil {
		r.Logger.Warn("the server refuses to complete the task: it was cancelled, or may run twice, since "+
			"its lease was lost", task.pairs()...)
	}
	return err
}

func (r *run) endBadly(task *Task, err error, took time.Duration) error {
	var dead *DeadError
	r.failed(task, err, errors.As(err, &dead), took)
	_, refused := r.fail(task, err, took)
	if refused != nil && !isTransient(refused) {
		_, refused = r.fail(task, explain(refused), took) // the time of the retry is out of range
	}
	return refused
}

// endLost ends a task whose lease the server no longer extends.  If its time
// (max_run_time) is over, the attempt counts.
func (r *run) endLost(task *Task, err error, took time.Duration) error {
	err = fmt.Errorf("stopped, since it was cancelled, its lease was lost, or its time "+
		"(max_run_time) was over: %w", err)
	held, refused := r.fail(task, err, took)
	if held {
		r.failed(task, err, false, took)
	} else if refused == nil {
		r.ended(task, "stopped", took)
	}
	return refused
}

// saveRest saves the cursor of a task that fails or is released.
func (r *run) saveRest(task *Task) {
	if err := task.saveCursor(r.keeping); err != nil && !errors.Is(err, ErrLost) {
		r.about(task, "the cursor cannot be saved", err)
	}
}

func (r *run) fail(task *Task, err error, took time.Duration) (bool, error) {
	return r.call(failSQL, failValues(task, err, took)...)
}

const failSQL = `
	SELECT fairq.fail($1::bigint, $2::int, $3::text, retry_in => $4::interval, dead => $5::bool,
		took => $6::interval)`

// failValues returns the parameters of failSQL.
func failValues(task *Task, err error, took time.Duration) []any {
	var dead *DeadError
	var retry *RetryError
	var in, message *string
	if errors.As(err, &retry) {
		in = pointer(interval(retry.In))
	}
	if retry == nil || retry.Err != nil {
		message = pointer(archived(err))
	}
	return []any{task.ID, task.Attempt, message, in, errors.As(err, &dead), interval(took)}
}

// call calls a function of fairq and returns whether the attempt still held the
// lease.  It also returns true if the answer to an earlier try was lost.
func (r *run) call(sql string, args ...any) (held bool, err error) {
	answered := true
	err = r.keeper.do(r.keeping, func(ctx context.Context, db DB) error {
		err := db.QueryRow(ctx, sql+r.keeper.briefly(), args...).Scan(&held)
		if err != nil && isLost(err) {
			answered = false
		}
		return err
	})
	return err == nil && (held || !answered), err
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
			r.Logger.Error("leases cannot be renewed", "error", explain(err).Error())
		}
	}
}

func (r *run) extend(ctx context.Context, db DB) error {
	tasks := map[int64]*Task{}
	var ids []int64
	var attempts []int32
	r.mu.Lock()
	for task := range r.tasks {
		// the worker may have two attempts of a task, one of them with an expired lease
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
	err := db.QueryRow(ctx, "SELECT fairq.extend_batch($1::bigint[], $2::int[], $3::interval)",
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
	<-r.ticked
	r.showing.Wait()
	r.keeper.close()
}
