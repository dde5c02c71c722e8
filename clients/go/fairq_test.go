package fairq_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	fairq "github.com/fairq/fairq/clients/go"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/lib/pq"
)

// The tests need the database of PGHOST and so on, with the extension created, as a
// superuser.  FAIRQ_RESTART_COMMAND, if it is set, restarts the server, which no one else
// uses then.

const patience = 60 * time.Second

var ctx = context.Background()

func connect(t *testing.T, settings string) *pgx.Conn {
	t.Helper()
	if os.Getenv("PGHOST") == "" {
		t.Skip("PGHOST is not set: these tests need a server of their own")
	}
	conn, err := pgx.Connect(ctx, settings)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(ctx) })
	return conn
}

// drivers are those of database/sql: pgx's and lib/pq's.
var drivers = []string{"pgx", "postgres"}

func open(t *testing.T, driver string) *sql.DB {
	t.Helper()
	if os.Getenv("PGHOST") == "" {
		t.Skip("PGHOST is not set: these tests need a server of their own")
	}
	db, err := sql.Open(driver, "sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// queue makes a queue of the test's own, which retains; options are arguments more.
func queue(t *testing.T, name string, options string) *pgx.Conn {
	t.Helper()
	db := connect(t, "")
	execute(t, db, "SELECT fairq.create_queue($1, retain => '1 hour'"+options+")", name)
	t.Cleanup(func() {
		// the test may have lost its connection on purpose
		db := connect(t, "")
		execute(t, db, "SELECT fairq.drop_queue($1, force => true)", name)
		db.Close(ctx)
	})
	return db
}

func execute(t *testing.T, db *pgx.Conn, sql string, args ...any) {
	t.Helper()
	if _, err := db.Exec(ctx, sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func enqueue(t *testing.T, db fairq.DB, queue string, task fairq.NewTask) int64 {
	t.Helper()
	if task.Group == "" && !task.NoGroup {
		task.Group = "bob"
	}
	id, err := fairq.Enqueue(ctx, db, queue, task)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// row is what SQL says of a task, as text.
func row(t *testing.T, db *pgx.Conn, id int64, columns string) string {
	t.Helper()
	var text string
	err := db.QueryRow(ctx, "SELECT coalesce(concat_ws('|', "+columns+"), '') FROM fairq.tasks WHERE id = $1",
		id).Scan(&text)
	if err != nil {
		t.Fatalf("task %d: %v", id, err)
	}
	return text
}

func expectRow(t *testing.T, db *pgx.Conn, id int64, columns, want string) {
	t.Helper()
	if got := row(t, db, id, columns); got != want {
		t.Errorf("%s of task %d: %q, not %q", columns, id, got, want)
	}
}

func waitFor(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !condition(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

func waitForStatus(t *testing.T, db *pgx.Conn, id int64, status string) {
	t.Helper()
	waitFor(t, fmt.Sprintf("task %d %s", id, status), func() bool {
		return row(t, db, id, "status") == status
	})
}

// logged is an ErrorLog that can be read.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(text)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// running is a worker that runs.
type running struct {
	t     *testing.T
	log   logged
	stop  context.CancelFunc
	ended chan error
}

// start starts a worker, which the test's end stops.
func start(t *testing.T, worker fairq.Worker) *running {
	t.Helper()
	r := &running{t: t, ended: make(chan error, 1)}
	worker.ErrorLog = log.New(&r.log, "", 0)
	ctx, stop := context.WithCancel(ctx)
	r.stop = stop
	go func() {
		r.ended <- worker.Run(ctx)
	}()
	t.Cleanup(func() {
		r.stop()
		select {
		case <-r.ended:
		case <-time.After(patience):
			t.Error("the worker has not ended")
		}
		if t.Failed() {
			t.Logf("the worker's log:\n%s", r.log.String())
		}
	})
	return r
}

// end stops the worker and returns how long that took.
func (r *running) end() time.Duration {
	r.t.Helper()
	begun := time.Now()
	r.stop()
	select {
	case err := <-r.ended:
		r.ended <- nil
		if err != nil {
			r.t.Errorf("Run: %v", err)
		}
	case <-time.After(patience):
		r.t.Fatal("the worker has not ended")
	}
	return time.Since(begun)
}

type mail struct {
	To    string `json:"to"`
	Count int    `json:"count"`
}

func TestEnqueue(t *testing.T) {
	db := queue(t, "enqueue", "")
	ways := map[string]fairq.DB{"prepared": db, "described": connect(t, "default_query_exec_mode=cache_describe"),
		"simple": connect(t, "default_query_exec_mode=simple_protocol")}
	pool, err := pgxpool.New(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	ways["pool"] = pool
	for _, driver := range drivers {
		ways[driver] = fairq.SQL(open(t, driver))
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			id := enqueue(t, way, "enqueue", fairq.NewTask{Group: "bob's", Name: "send",
				Args: mail{`"quoted"`, 2}, Priority: 3, MaxAttempts: 7, Cost: 2.5,
				DedupKey: name, Delay: time.Hour + 500*time.Millisecond,
				Headers: map[string]any{"traceparent": "00-1-2-01"}})
			expectRow(t, db, id, "group_key, payload, headers, priority, max_attempts, cost, status,"+
				"round(extract(epoch FROM run_at - enqueued_at) / 60)",
				`bob's|{"to": "\"quoted\"", "count": 2}|`+
					`{"task": "send", "traceparent": "00-1-2-01"}|3|7|2.5|scheduled|60`)
			again := enqueue(t, way, "enqueue", fairq.NewTask{Group: "bob", DedupKey: name})
			if again != id {
				t.Errorf("the same DedupKey: tasks %d and %d", id, again)
			}
			at := time.Date(2100, 1, 2, 3, 4, 5, 678901000, time.FixedZone("", 3600))
			id = enqueue(t, way, "enqueue", fairq.NewTask{NoGroup: true, RunAt: at})
			expectRow(t, db, id, "group_key, payload, headers IS NULL, priority, cost,"+
				"run_at AT TIME ZONE 'UTC'", `|{}|t|0|1|2100-01-02 02:04:05.678901`)
			newest := fairq.NewTask{Group: "bob", DedupKey: "newest of " + name, ExpiresAt: at,
				Replace: true, DedupUntil: "started", DedupFor: time.Minute}
			id = enqueue(t, way, "enqueue", newest)
			newest.Args = 2
			if again := enqueue(t, way, "enqueue", newest); again != id {
				t.Errorf("a DedupKey to be replaced: tasks %d and %d", id, again)
			}
			expectRow(t, db, id, "payload, expires_at AT TIME ZONE 'UTC',"+
				"(SELECT concat_ws(' ', until_started, dedup_for) FROM fairq.task t WHERE t.id = tasks.id)",
				"2|2100-01-02 02:04:05.678901|t 00:01:00")
		})
	}
}

func TestEnqueueErrors(t *testing.T) {
	db := queue(t, "errors", "")
	ways := map[string]fairq.DB{"pgx itself": db}
	for _, driver := range drivers {
		ways[driver] = fairq.SQL(open(t, driver))
	}
	for name, way := range ways {
		_, err := fairq.Enqueue(ctx, way, "nowhere", fairq.NewTask{Group: "bob"})
		if !errors.Is(err, fairq.ErrUnknownQueue) ||
			!strings.Contains(err.Error(), `fairq: queue "nowhere" does not exist`) {
			t.Errorf("%s: unknown queue: %v", name, err)
		}
		var server *pgconn.PgError
		var pqServer *pq.Error
		if errors.As(err, &server) && server.Code != "QF001" || errors.As(err, &pqServer) && pqServer.Code != "QF001" ||
			server == nil && pqServer == nil {
			t.Errorf("%s: the driver's error is not in the chain of %v", name, err)
		}
	}
	for what, task := range map[string]fairq.NewTask{
		"task \"lonely\" has no group":    {Name: "lonely"},
		"both a Group and NoGroup":        {Group: "bob", NoGroup: true},
		"cannot be encoded: json":         {Group: "bob", Args: func() {}},
		"headers of task \"x\" cannot be": {Group: "bob", Name: "x", Headers: map[string]any{"f": func() {}}},
		"both RunAt and Delay":            {Group: "bob", RunAt: time.Now(), Delay: time.Second},
		"priority":                        {Group: "bob", Priority: 10},
	} {
		if _, err := fairq.Enqueue(ctx, db, "errors", task); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
	other := connect(t, "dbname=postgres")
	_, err := fairq.Enqueue(ctx, other, "errors", fairq.NewTask{Group: "bob"})
	if !errors.Is(err, fairq.ErrNoExtension) {
		t.Errorf("no extension: %v", err)
	}
	worker := fairq.Worker{Database: "dbname=postgres", Queues: []string{"errors"},
		Default: func(context.Context, *fairq.Task) error { return nil }}
	if err := worker.Run(ctx); !errors.Is(err, fairq.ErrNoExtension) {
		t.Errorf("no extension, a worker: %v", err)
	}
}

// begin begins a transaction by each driver: of pgx itself, and of database/sql.
func begin(t *testing.T, driver string) fairq.Tx {
	t.Helper()
	var tx fairq.Tx
	var err error
	if driver == "" {
		tx, err = connect(t, "").Begin(ctx)
	} else {
		var begun *sql.Tx
		begun, err = open(t, driver).BeginTx(ctx, nil)
		tx = fairq.SQLTx(begun)
	}
	if err != nil {
		t.Fatal(err)
	}
	return tx
}

func TestEnqueueTx(t *testing.T) {
	db := queue(t, "tx", "")
	for _, driver := range append(drivers, "") {
		for _, commit := range []bool{false, true} {
			tx := begin(t, driver)
			id, err := fairq.EnqueueTx(ctx, tx, "tx", fairq.NewTask{Group: "bob"})
			if err != nil {
				t.Fatal(err)
			}
			seen := func() (there bool) {
				err := db.QueryRow(ctx, "SELECT EXISTS (SELECT FROM fairq.tasks WHERE id = $1)", id).Scan(&there)
				if err != nil {
					t.Fatal(err)
				}
				return there
			}
			if seen() {
				t.Errorf("%s: it is there before the commit", driver)
			}
			if commit {
				err = tx.Commit(ctx)
			} else {
				err = tx.Rollback(ctx)
			}
			if err != nil {
				t.Fatal(err)
			}
			if there := seen(); there != commit {
				t.Errorf("%s, commit %v: there %v", driver, commit, there)
			}
		}
	}
}

func TestEnqueueBatch(t *testing.T) {
	db := queue(t, "batch", "")
	ways := map[string]fairq.DB{"prepared": db, "simple": connect(t, "default_query_exec_mode=simple_protocol")}
	for _, driver := range drivers {
		ways[driver] = fairq.SQL(open(t, driver))
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			tasks := []fairq.NewTask{
				{Group: "alice", Name: "a", Args: mail{To: `{"a\"`}, Cost: 2},
				{Group: "bob", Priority: 2, Delay: time.Hour, DedupKey: name},
				{Group: `c"{}, \ `, RunAt: time.Date(2100, 1, 2, 0, 0, 0, 0, time.UTC)},
				{Group: "dave", DedupKey: name, Headers: map[string]any{"x": nil}},
			}
			ids, err := fairq.EnqueueBatch(ctx, way, "batch", tasks)
			if err != nil || len(ids) != 4 || ids[1] != ids[3] {
				t.Fatalf("%v, %v", ids, err)
			}
			columns := "group_key, payload, headers, priority, cost, status"
			expectRow(t, db, ids[0], columns, `alice|{"to": "{\"a\\\"", "count": 0}|{"task": "a"}|0|2|queued`)
			expectRow(t, db, ids[1], columns, `bob|{}|2|1|scheduled`)
			expectRow(t, db, ids[2], columns+", run_at AT TIME ZONE 'UTC'",
				`c"{}, \ |{}|0|1|scheduled|2100-01-02 00:00:00`)
			for _, bad := range []fairq.NewTask{{NoGroup: true}, {MaxAttempts: 1}, {Priority: 1 << 32}, {Args: func() {}}, {Priority: 10},
				{ExpiresAt: time.Now()}, {Replace: true}, {DedupUntil: "started"}, {DedupFor: 1}} {
				var before, after int
				count := "SELECT count(*) FROM fairq.tasks WHERE queue = 'batch'"
				db.QueryRow(ctx, count).Scan(&before)
				if !bad.NoGroup {
					bad.Group = "bob"
				}
				bad.NoGroup = false // of the first one neither is set
				ids, err := fairq.EnqueueBatch(ctx, way, "batch", append(tasks[:1:1], bad))
				db.QueryRow(ctx, count).Scan(&after)
				if err == nil || ids != nil || before != after {
					t.Errorf("%v: %v, %v, %d tasks more", bad, ids, err, after-before)
				}
			}
			if ids, err := fairq.EnqueueBatch(ctx, way, "batch", nil); len(ids) != 0 || err != nil {
				t.Errorf("none: %v, %v", ids, err)
			}
			many := make([]fairq.NewTask, 1000)
			for i := range many {
				many[i] = fairq.NewTask{Group: fmt.Sprint(i), Priority: i % 10}
			}
			ids, err = fairq.EnqueueBatch(ctx, way, "batch", many)
			if err != nil || len(ids) != 1000 {
				t.Fatalf("1000: %d, %v", len(ids), err)
			}
			expectRow(t, db, ids[567], "group_key, priority", "567|7")
			until := time.Date(2100, 1, 2, 0, 0, 0, 0, time.UTC)
			ids, err = fairq.EnqueueBatch(ctx, way, "batch", []fairq.NewTask{
				{Group: "alice", ExpiresAt: until}, {Group: "bob", ExpiresAt: until.Local()}})
			if err != nil {
				t.Fatal(err)
			}
			for _, id := range ids {
				expectRow(t, db, id, "expires_at AT TIME ZONE 'UTC'", "2100-01-02 00:00:00")
			}
		})
	}
	if _, err := fairq.EnqueueBatch(ctx, db, "nowhere", []fairq.NewTask{{Group: "bob"}}); !errors.Is(err, fairq.ErrUnknownQueue) {
		t.Errorf("unknown queue: %v", err)
	}
}

func TestWork(t *testing.T) {
	db := queue(t, "work", ", max_attempts => 3")
	tasks, to := make(chan *fairq.Task, 1), ""
	w := start(t, fairq.Worker{
		Queues: []string{"work"}, Name: "me", Grace: 60 * time.Second,
		Handlers: map[string]fairq.Handler{
			"send": fairq.Args(func(_ context.Context, task *fairq.Task, args mail) error {
				to = args.To
				tasks <- task
				task.Result = map[string]int{"sent": args.Count}
				return nil
			}),
		},
	})
	id := enqueue(t, db, "work", fairq.NewTask{Group: "bob", Name: "send", Args: mail{"x@y", 2},
		Priority: 4, Headers: map[string]any{"traceparent": "00-1", "n": json.Number("12345678901234567890")}})
	waitForStatus(t, db, id, "completed")
	expectRow(t, db, id, "attempt, worker, result", `1|me|{"sent": 2}`)
	task := <-tasks
	if task.ID != id || task.Name != "send" || to != "x@y" || task.Group != "bob" || task.Attempt != 1 ||
		task.AttemptsLeft != 2 || task.Queue != "work" || task.Priority != 4 ||
		task.Headers["traceparent"] != "00-1" || task.Headers["n"] != json.Number("12345678901234567890") ||
		time.Since(task.EnqueuedAt).Abs() > time.Minute {
		t.Errorf("%+v", task)
	}
	// and not after its grace, or when it looks again by itself
	if took := w.end(); took > 15*time.Second {
		t.Errorf("an idle worker has taken %v to end", took)
	}
	// a backend goes some time after its client has closed the connection
	waitFor(t, "no connection is left", func() bool {
		left := -1
		err := db.QueryRow(ctx, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'me'").Scan(&left)
		return err == nil && left == 0
	})
}

func TestDefaultAndUnknown(t *testing.T) {
	db := queue(t, "names", ", max_attempts => 1")
	worker := fairq.Worker{
		Queues:   []string{"names"},
		Handlers: map[string]fairq.Handler{"known": func(context.Context, *fairq.Task) error { return nil }},
	}
	strict := start(t, worker)
	unknown := enqueue(t, db, "names", fairq.NewTask{Name: "new"})
	nameless := enqueue(t, db, "names", fairq.NewTask{})
	known := enqueue(t, db, "names", fairq.NewTask{Name: "known"})
	var array int64
	db.QueryRow(ctx, `SELECT fairq.enqueue('names', 'bob', headers => '["task"]')`).Scan(&array)
	waitForStatus(t, db, unknown, "failed")
	waitForStatus(t, db, nameless, "failed")
	waitForStatus(t, db, known, "completed")
	expectRow(t, db, unknown, "error", "no handler for task new")
	expectRow(t, db, nameless, "error", "no handler for a task without a name")
	if array != 0 { // if the server takes such headers
		waitForStatus(t, db, array, "failed")
	}
	strict.end()

	worker.Default = func(_ context.Context, task *fairq.Task) error {
		task.Result = "default " + task.Name
		return nil
	}
	start(t, worker)
	unknown = enqueue(t, db, "names", fairq.NewTask{Name: "new"})
	nameless = enqueue(t, db, "names", fairq.NewTask{})
	waitForStatus(t, db, unknown, "completed")
	waitForStatus(t, db, nameless, "completed")
	expectRow(t, db, unknown, "result", `"default new"`)
	expectRow(t, db, nameless, "result", `"default "`)
}

// mute is an error that has no text if it is nil, and never a JSON.
type mute struct{ text string }

func (m *mute) Error() string { return m.text }

func (m mute) MarshalJSON() ([]byte, error) { panic("no JSON") }

// wrapper is an error whose text does not have that of its cause.
type wrapper struct{ cause error }

func (w *wrapper) Error() string { return "no more is known" }
func (w *wrapper) Unwrap() error { return w.cause }

// several is what errors.Join makes, which Go 1.19 does not have.
type several []error

func (s several) Error() string   { return fmt.Sprintf("%v\n%v", s[0], s[1]) }
func (s several) Unwrap() []error { return s }

func TestErrors(t *testing.T) {
	db := queue(t, "failures", ", max_attempts => 2, backoff => '1 ms'")
	cause := errors.New("the cause")
	ends := map[string]struct {
		handler fairq.Handler
		want    string // status, attempt, error
	}{
		"error":   {func(context.Context, *fairq.Task) error { return cause }, "failed|2|the cause"},
		"dead":    {func(context.Context, *fairq.Task) error { return fairq.Dead(cause) }, "failed|1|the cause"},
		"wrapped": {func(context.Context, *fairq.Task) error { return fmt.Errorf("w: %w", fairq.Dead(cause)) }, "failed|1|w: the cause"},
		"retry": {func(_ context.Context, task *fairq.Task) error {
			return fairq.Retry(cause, time.Hour)
		}, "scheduled|1|the cause"},
		"retry nil": {func(_ context.Context, task *fairq.Task) error {
			return fairq.Retry(nil, time.Hour)
		}, "scheduled|1"},
		"panic": {func(context.Context, *fairq.Task) error { panic("help") }, "failed|2|panic: help"},
		"nil":   {func(context.Context, *fairq.Task) error { return (*mute)(nil) }, "failed|2|*fairq_test.mute, whose text is not available: runtime error: invalid memory address or nil pointer dereference"},
		"never": {func(context.Context, *fairq.Task) error { return fairq.Retry(cause, -time.Hour) },
			"failed|2|fairq: retry_in must be between 0 and 100 years"},
		"result that panics": {func(_ context.Context, task *fairq.Task) error { task.Result = mute{}; return nil },
			"failed|2|the result cannot be encoded: panic: no JSON"},
		"joined": {func(context.Context, *fairq.Task) error {
			return fmt.Errorf("both: %w", several{cause, errors.New("another")})
		}, "failed|2|both: the cause\nanother"},
		"silent": {func(context.Context, *fairq.Task) error { return &wrapper{errors.New("its cause")} },
			"failed|2|no more is known; caused by: its cause"},
		"panic of an error": {func(context.Context, *fairq.Task) error { panic(&wrapper{cause}) },
			"failed|2|panic: no more is known; caused by: the cause"},
		"goexit": {func(context.Context, *fairq.Task) error { runtime.Goexit(); return nil }, "failed|2|the handler has ended its goroutine"},
		"nul": {func(context.Context, *fairq.Task) error { return errors.New("a\x00b\xff") },
			"failed|2|ab\uFFFD"},
		"args": {fairq.Args(func(context.Context, *fairq.Task, mail) error { return nil }),
			"failed|2|the payload cannot be taken: json: cannot unmarshal number into Go struct field mail.to of type string"},
		"result":     {func(_ context.Context, task *fairq.Task) error { task.Result = func() {}; return nil }, "failed|2|the result cannot be encoded: json: unsupported type: func()"},
		"bad result": {func(_ context.Context, task *fairq.Task) error { task.Result = "\x00"; return nil }, "failed|2|fairq: unsupported Unicode escape sequence"},
	}
	handlers := map[string]fairq.Handler{}
	ids := map[string]int64{}
	for name, end := range ends {
		handlers[name] = end.handler
		ids[name] = enqueue(t, db, "failures", fairq.NewTask{Name: name, Args: map[string]int{"to": 1}})
	}
	w := start(t, fairq.Worker{Queues: []string{"failures"}, Handlers: handlers, Concurrency: 20})
	for name, end := range ends {
		last := ""
		func() {
			for until := time.Now().Add(patience); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
				if last = row(t, db, ids[name], "status, attempt, error"); last == end.want {
					return
				}
			}
			t.Errorf("%s: %q, not %q", name, last, end.want)
		}()
	}
	if text := w.log.String(); !strings.Contains(text, "panic: help\n") || !strings.Contains(text, "fairq_test.go") {
		t.Errorf("of a panic the stack is not in the log")
	}
	var dead *fairq.DeadError
	var retry *fairq.RetryError
	if err := fmt.Errorf("w: %w", fairq.Dead(cause)); !errors.As(err, &dead) || !errors.Is(err, cause) {
		t.Error("Dead")
	}
	if err := fairq.Retry(cause, time.Second); !errors.As(err, &retry) || retry.In != time.Second || !errors.Is(err, cause) {
		t.Error("Retry")
	}
}

func TestUnusable(t *testing.T) {
	db := queue(t, "unusable", "")
	handler := func(context.Context, *fairq.Task) error { return nil }
	execute(t, db, "CREATE ROLE fairq_go_nobody LOGIN")
	defer execute(t, db, "DROP ROLE fairq_go_nobody")
	for what, worker := range map[string]fairq.Worker{
		`queue "nowhere" does not exist`: {Queues: []string{"unusable", "nowhere"}, Default: handler},
		"permission denied":              {Queues: []string{"unusable"}, Default: handler, Database: "user=fairq_go_nobody"},
		"fairq_go_not_there":             {Queues: []string{"unusable"}, Default: handler, Database: "dbname=fairq_go_not_there", GiveUp: 1},
		"no queues":                      {Default: handler},
		"no handlers":                    {Queues: []string{"unusable"}},
		"must not be negative":           {Queues: []string{"unusable"}, Default: handler, Lease: -1},
		"cannot parse":                   {Queues: []string{"unusable"}, Default: handler, Database: "postgresql://["},
	} {
		w := start(t, worker)
		select {
		case err := <-w.ended:
			w.ended <- nil
			if err == nil || !strings.Contains(err.Error(), what) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: %v", what, err)
			}
		case <-time.After(patience):
			t.Errorf("%s: it continues", what)
		}
	}
	// one that is dropped later
	id := enqueue(t, db, "unusable", fairq.NewTask{})
	w := start(t, fairq.Worker{Queues: []string{"unusable"}, Default: handler})
	waitForStatus(t, db, id, "completed")
	execute(t, db, "SELECT fairq.drop_queue('unusable')")
	select {
	case err := <-w.ended:
		w.ended <- nil
		if !errors.Is(err, fairq.ErrUnknownQueue) {
			t.Errorf("a queue that was dropped: %v", err)
		}
	case <-time.After(patience):
		t.Error("a queue that was dropped: it continues")
	}
	execute(t, db, "SELECT fairq.create_queue('unusable')")
}

func TestGiveUp(t *testing.T) {
	db := connect(t, "")
	drop := "DROP DATABASE IF EXISTS fairq_go_later WITH (FORCE)"
	execute(t, db, drop)
	t.Cleanup(func() { execute(t, connect(t, ""), drop) })
	worker := fairq.Worker{Database: "dbname=fairq_go_later", Queues: []string{"later"},
		Default: func(context.Context, *fairq.Task) error { return nil }}
	begun := time.Now()
	worker.GiveUp = 3 * time.Second
	w := start(t, worker)
	select {
	case err := <-w.ended:
		w.ended <- nil
		if took := time.Since(begun); took < worker.GiveUp || err == nil || !strings.Contains(err.Error(), "fairq_go_later") {
			t.Errorf("after %v: %v", took, err)
		}
	case <-time.After(patience):
		t.Fatal("it continues without its database")
	}
	// one that waits for its database, which comes
	worker.GiveUp = -1
	w = start(t, worker)
	waitFor(t, "it misses its database", func() bool { return strings.Contains(w.log.String(), "fairq_go_later") })
	execute(t, db, "CREATE DATABASE fairq_go_template TEMPLATE template0")
	later := connect(t, "dbname=fairq_go_template")
	execute(t, later, "CREATE EXTENSION fairq")
	execute(t, later, "SELECT fairq.create_queue('later', retain => '1 hour')")
	later.Close(ctx)
	execute(t, db, "ALTER DATABASE fairq_go_template RENAME TO fairq_go_later")
	later = connect(t, "dbname=fairq_go_later")
	waitForStatus(t, later, enqueue(t, later, "later", fairq.NewTask{}), "completed")
	w.end()
}

func TestUndecodable(t *testing.T) {
	db := queue(t, "undecodable", ", max_attempts => 2, backoff => '1 ms'")
	nested := strings.Repeat("[", 12000) + strings.Repeat("]", 12000)
	digits := strings.Repeat("9", 5000)
	put := func(payload, headers string) (id int64) {
		err := db.QueryRow(ctx, "SELECT fairq.enqueue('undecodable', $1, $2::text::jsonb, headers => $3::text::jsonb)",
			fmt.Sprint(len(payload), len(headers)), payload, headers).Scan(&id)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	number := put(`{"count": `+digits+`}`, `{"task": "send"}`)
	deep := put(`{"to": `+nested+`}`, `{"task": "send"}`)
	headers := put(`{}`, `{"task": "send", "x": `+nested+`}`)
	fine := put(`{}`, `{"task": "send", "x": `+digits+`}`)
	good := put(`{"to": "x@y"}`, `{"task": "send"}`)
	start(t, fairq.Worker{Queues: []string{"undecodable"}, Concurrency: 9,
		Handlers: map[string]fairq.Handler{"send": fairq.Args(func(context.Context, *fairq.Task, mail) error { return nil })}})
	for _, id := range []int64{number, deep, headers} {
		waitForStatus(t, db, id, "failed")
		expectRow(t, db, id, "attempt", "2")
	}
	for _, id := range []int64{fine, good} {
		waitForStatus(t, db, id, "completed")
		expectRow(t, db, id, "attempt", "1")
	}
	expectRow(t, db, headers, "error LIKE 'the headers cannot be decoded: %exceeded max depth'", "t")
	expectRow(t, db, deep, "error LIKE 'the payload cannot be taken: %exceeded max depth'", "t")
	expectRow(t, db, number, "error LIKE 'the payload cannot be taken: json: cannot unmarshal number 9%'", "t")
}

// Tasks whose lease has expired run alone in the process, whatever else its workers do.
func TestAlone(t *testing.T) {
	db := queue(t, "alone", ", max_attempts => 3")
	queue(t, "beside", "")
	pool, err := pgxpool.New(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	var mu sync.Mutex
	running, seen, beside := 0, map[int64]int{}, 0
	handler := func(_ context.Context, task *fairq.Task) error {
		mu.Lock()
		running++
		suspect := task.Name == "suspect"
		if suspect {
			seen[task.ID] = task.Attempt
			// it must wait, although there are slots for it
			if _, err := fairq.Enqueue(ctx, pool, "beside", fairq.NewTask{Group: "bob"}); err != nil {
				t.Error(err)
			}
		}
		if running > 1 {
			beside++
		}
		alone := running
		mu.Unlock()
		time.Sleep(300 * time.Millisecond)
		mu.Lock()
		defer mu.Unlock()
		if running--; suspect && (alone != 1 || running != 0) {
			t.Errorf("others ran with task %d", task.ID)
		}
		return nil
	}
	var suspects, ids []int64
	for i := 0; i < 3; i++ {
		suspects = append(suspects, enqueue(t, db, "alone", fairq.NewTask{Group: fmt.Sprint("suspect", i), Name: "suspect"}))
	}
	// as if the process that popped them had died
	execute(t, db, "SELECT count(*) FROM fairq.pop('alone', 9, lease => '1 ms')")
	time.Sleep(10 * time.Millisecond)
	for _, name := range []string{"alone", "beside"} {
		for i := 0; i < 20; i++ {
			ids = append(ids, enqueue(t, db, name, fairq.NewTask{Group: fmt.Sprint("group", i)}))
		}
	}
	for _, name := range []string{"beside", "alone"} {
		start(t, fairq.Worker{Queues: []string{name}, Concurrency: 4, Default: handler})
	}
	for _, id := range append(ids, suspects...) {
		waitForStatus(t, db, id, "completed")
	}
	for _, id := range suspects {
		// the expired attempt counts, and one that is released does not
		if seen[id] < 2 {
			t.Errorf("suspect %d was done as attempt %d", id, seen[id])
		}
	}
	if beside < 10 {
		t.Errorf("only %d of the other tasks ran with others", beside)
	}
}

func TestTimeout(t *testing.T) {
	db := queue(t, "timeout", ", max_attempts => 2, backoff => '1 ms'")
	deaf := make(chan bool)
	worker := fairq.Worker{Queues: []string{"timeout"}, Concurrency: 3, Timeout: 2 * time.Second,
		Timeouts: map[string]time.Duration{"patient": 0, "hasty": 100 * time.Millisecond},
		Handlers: map[string]fairq.Handler{
			"deaf": func(context.Context, *fairq.Task) error { <-deaf; return nil },
			"dead": func(ctx context.Context, _ *fairq.Task) error { <-ctx.Done(); return fairq.Dead(ctx.Err()) },
			"patient": func(ctx context.Context, _ *fairq.Task) error {
				if _, limited := ctx.Deadline(); limited {
					return errors.New("it has a deadline")
				}
				time.Sleep(3 * time.Second)
				return nil
			},
		},
		Default: func(ctx context.Context, _ *fairq.Task) error {
			if _, limited := ctx.Deadline(); !limited {
				return errors.New("it has no deadline")
			}
			<-ctx.Done()
			return ctx.Err()
		}}
	w := start(t, worker)
	ids := map[string]int64{}
	for _, name := range []string{"deaf", "dead", "patient", "hasty", "any"} {
		task := fairq.NewTask{Name: name}
		if name == "deaf" {
			task.MaxAttempts = 1
		}
		ids[name] = enqueue(t, db, "timeout", task)
	}
	for name, want := range map[string]string{
		"deaf":    "failed|1|timed out after 2s, and its handler continues",
		"dead":    "failed|1|timed out after 2s: context deadline exceeded",
		"hasty":   "failed|2|timed out after 100ms: context deadline exceeded",
		"any":     "failed|2|timed out after 2s: context deadline exceeded",
		"patient": "completed|1",
	} {
		waitForStatus(t, db, ids[name], strings.Split(want, "|")[0])
		expectRow(t, db, ids[name], "status, attempt, error", want)
	}
	logged := func(text string) {
		t.Helper()
		waitFor(t, text, func() bool { return strings.Contains(w.log.String(), text) })
	}
	logged(fmt.Sprintf(`task %d of queue "timeout", group "bob", attempt 1: its handler ignores the timeout and keeps its slot: 2 of 3`, ids["deaf"]))
	close(deaf)
	logged("its handler has returned at last: 3 of 3 slots are left")
	expectRow(t, db, ids["deaf"], "status", "failed")
	w.end()

	// with no slot left a worker is of no use
	deaf = make(chan bool)
	defer close(deaf)
	worker.Concurrency, worker.GiveUp = 1, time.Second
	w = start(t, worker)
	id := enqueue(t, db, "timeout", fairq.NewTask{Name: "deaf", MaxAttempts: 1})
	select {
	case err := <-w.ended:
		w.ended <- nil
		if err == nil || !strings.Contains(err.Error(), "no slot left") {
			t.Errorf("all handlers are deaf: %v", err)
		}
	case <-time.After(patience):
		t.Error("all handlers are deaf: it continues")
	}
	expectRow(t, db, id, "status", "failed")
}

func TestRefused(t *testing.T) {
	db := queue(t, "refused", "")
	begun, finish := make(chan bool, 2), make(chan bool, 2)
	w := start(t, fairq.Worker{Queues: []string{"refused"}, Default: func(context.Context, *fairq.Task) error {
		begun <- true
		<-finish
		return nil
	}})
	id := enqueue(t, db, "refused", fairq.NewTask{Group: "alice"})
	<-begun
	execute(t, db, "SELECT fairq.release($1, 1)", id)
	<-begun
	finish <- true
	finish <- true
	waitForStatus(t, db, id, "completed")
	warning := fmt.Sprintf(`warning: the server refuses to complete task %d of queue "refused", group "alice", attempt 1: it was cancelled`, id)
	waitFor(t, warning, func() bool { return strings.Contains(w.log.String(), warning) })
	w.end()
	if text := w.log.String(); strings.Count(text, "warning: ") != 1 {
		t.Errorf("not one warning: %s", text)
	}
}

// until is a handler that waits for its context, and says when it begins and ends.
func until(begun chan<- *fairq.Task, ended chan<- error) fairq.Handler {
	return func(ctx context.Context, task *fairq.Task) error {
		begun <- task
		<-ctx.Done()
		ended <- ctx.Err()
		return ctx.Err()
	}
}

func TestCancelAndProgress(t *testing.T) {
	db := queue(t, "cancel", "")
	begun, ended := make(chan *fairq.Task, 1), make(chan error, 1)
	first := start(t, fairq.Worker{Queues: []string{"cancel"}, Default: until(begun, ended), Lease: 3 * time.Second})
	id := enqueue(t, db, "cancel", fairq.NewTask{})
	task := <-begun
	if err := task.SetProgress(ctx, map[string]int{"done": 5}); err != nil {
		t.Error(err)
	}
	expectRow(t, db, id, "status, progress", `running|{"done": 5}`)
	time.Sleep(4 * time.Second)
	select {
	case err := <-ended:
		t.Fatalf("its context is done although its lease is kept: %v", err)
	default:
	}
	expectRow(t, db, id, "status, attempt", "running|1")
	if there, err := fairq.Cancel(ctx, db, id); !there || err != nil {
		t.Errorf("Cancel: %v, %v", there, err)
	}
	<-ended
	waitForStatus(t, db, id, "cancelled")
	if there, err := fairq.Cancel(ctx, db, id); there || err != nil {
		t.Errorf("Cancel of what is finished: %v, %v", there, err)
	}

	// SetProgress reports it before the next heartbeat
	first.end()
	start(t, fairq.Worker{Queues: []string{"cancel"}, Default: until(begun, ended)})
	id = enqueue(t, db, "cancel", fairq.NewTask{})
	task = <-begun
	execute(t, db, "SELECT fairq.cancel($1)", id)
	if err := task.SetProgress(ctx, 1); !errors.Is(err, fairq.ErrLost) {
		t.Errorf("SetProgress of a cancelled task: %v", err)
	}
	<-ended
	waitForStatus(t, db, id, "cancelled")
}

// A task that is stopped since its time is over has failed: handed back, it would run again
// and again.
func TestMaxRun(t *testing.T) {
	db := queue(t, "maxrun", ", max_run_time => '2 s', max_attempts => 1")
	begun, ended := make(chan *fairq.Task, 1), make(chan error, 1)
	start(t, fairq.Worker{Queues: []string{"maxrun"}, Default: until(begun, ended), Lease: 3 * time.Second})
	id := enqueue(t, db, "maxrun", fairq.NewTask{})
	<-ended
	waitForStatus(t, db, id, "failed")
	// by the worker, or by a pop after the end of the lease, whichever comes first
	expectRow(t, db, id, "attempt, error IN ('lease expired', 'stopped, since it was cancelled, its lease was lost, "+
		"or its time (max_run_time) was over: context canceled')", "1|t")
}

func TestLostLease(t *testing.T) {
	db := queue(t, "lost", "")
	begun, ended := make(chan *fairq.Task, 2), make(chan error, 2)
	release := make(chan bool)
	first := true
	w := start(t, fairq.Worker{Queues: []string{"lost"}, Lease: 3 * time.Second, Concurrency: 2,
		Default: func(ctx context.Context, task *fairq.Task) error {
			if first {
				first = false
				return until(begun, ended)(ctx, task)
			}
			begun <- task
			<-release
			return nil
		}})
	id := enqueue(t, db, "lost", fairq.NewTask{})
	<-begun
	// as if it had run out; the same worker gets the second attempt, of which the first
	// one must not take anything away
	execute(t, db, "SELECT fairq.fail($1, retry_in => '0')", id)
	<-ended
	if task := <-begun; task.Attempt != 2 {
		t.Errorf("attempt %d", task.Attempt)
	}
	time.Sleep(4 * time.Second)
	expectRow(t, db, id, "status, attempt", "running|2")
	release <- true
	waitForStatus(t, db, id, "completed")
	w.end()
}

func TestGrace(t *testing.T) {
	db := queue(t, "grace", "")
	begun, ended := make(chan *fairq.Task, 9), make(chan error, 9)
	slow, stopping := make(chan bool), make(chan bool)
	w := start(t, fairq.Worker{Queues: []string{"grace"}, Concurrency: 3, Grace: 3 * time.Second,
		Handlers: map[string]fairq.Handler{
			"heeds": until(begun, ended),
			"deaf":  func(_ context.Context, task *fairq.Task) error { begun <- task; <-slow; return nil },
			"quick": func(_ context.Context, task *fairq.Task) error {
				begun <- task
				<-stopping
				time.Sleep(500 * time.Millisecond)
				return nil
			},
		}})
	defer close(slow)
	ids := map[string]int64{}
	for _, name := range []string{"heeds", "deaf", "quick"} {
		ids[name] = enqueue(t, db, "grace", fairq.NewTask{Name: name})
		<-begun
	}
	ids["after"] = enqueue(t, db, "grace", fairq.NewTask{Name: "quick"})
	stopped := time.Now()
	w.stop()
	close(stopping)
	w.end()
	if took := time.Since(stopped); took < 3*time.Second || took > 15*time.Second {
		t.Errorf("it has taken %v to end", took)
	}
	expectRow(t, db, ids["quick"], "status, attempt", "completed|1")
	for _, name := range []string{"heeds", "deaf", "after"} {
		expectRow(t, db, ids[name], "status", "queued")
	}
	again := map[int64]string{}
	rows, err := db.Query(ctx, "SELECT id, attempt || ' ' || attempts_left FROM fairq.pop('grace', 9)")
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		var id int64
		var next string
		if err := rows.Scan(&id, &next); err != nil {
			t.Fatal(err)
		}
		again[id] = next
	}
	for name, want := range map[string]string{"heeds": "2 19", "deaf": "2 19", "after": "1 19"} {
		// handed back: the attempt does not count
		if got := again[ids[name]]; got != want {
			t.Errorf("%s: the next attempt, and those left, are %s, not %s", name, got, want)
		}
	}
}

func TestCompleteTx(t *testing.T) {
	db := queue(t, "tx", ", max_attempts => 2, backoff => '1 ms'")
	execute(t, db, "CREATE TABLE IF NOT EXISTS fairq_go_sent (id bigint)")
	defer execute(t, db, "DROP TABLE fairq_go_sent")
	pool, err := pgxpool.New(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	driver := "" // of pgx itself
	w := start(t, fairq.Worker{Queues: []string{"tx"}, Default: func(ctx context.Context, task *fairq.Task) error {
		tx := begin(t, driver)
		defer tx.Rollback(ctx)
		if err := tx.QueryRow(ctx, "INSERT INTO fairq_go_sent VALUES ($1) RETURNING 1", task.ID).Scan(new(int)); err != nil {
			return err
		}
		if task.Name == "cancelled" {
			if _, err := pool.Exec(ctx, "SELECT fairq.cancel($1)", task.ID); err != nil {
				return err
			}
		}
		task.Result = "sent"
		if err := task.CompleteTx(ctx, tx); err != nil {
			return err
		}
		if task.Name == "fails" && task.Attempt == 1 {
			return errors.New("after all")
		}
		return tx.Commit(ctx)
	}})
	for _, driver = range append(drivers, driver) {
		id := enqueue(t, db, "tx", fairq.NewTask{})
		fails := enqueue(t, db, "tx", fairq.NewTask{Name: "fails"})
		waitForStatus(t, db, id, "completed")
		waitForStatus(t, db, fails, "completed")
		expectRow(t, db, id, "attempt, result", `1|"sent"`)
		expectRow(t, db, fails, "attempt, result", `2|"sent"`)
		cancelled := enqueue(t, db, "tx", fairq.NewTask{Name: "cancelled"})
		waitFor(t, "a cancelled task is ended", func() bool {
			status := row(t, db, cancelled, "status")
			return status == "cancelled" || status == "completed"
		})
	}
	w.end()
	var sent, same int
	db.QueryRow(ctx, "SELECT count(*), count(*) FILTER (WHERE t.status = 'completed') FROM fairq_go_sent s JOIN fairq.tasks t USING (id)").Scan(&sent, &same)
	if sent != same || sent < 6 {
		t.Errorf("%d rows are written, %d of them of tasks that are done", sent, same)
	}
	if strings.Contains(w.log.String(), "warning") {
		t.Error("of a task that was completed in a transaction the worker warns")
	}
}

func TestConcurrency(t *testing.T) {
	db := queue(t, "many", "")
	var mu sync.Mutex
	var now, most int
	count := func(n int) {
		mu.Lock()
		defer mu.Unlock()
		if now += n; now > most {
			most = now
		}
	}
	tasks := make([]fairq.NewTask, 40)
	for i := range tasks {
		tasks[i].Group = "bob"
	}
	ids, err := fairq.EnqueueBatch(ctx, db, "many", tasks)
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	start(t, fairq.Worker{Queues: []string{"many"}, Concurrency: 10,
		Default: func(context.Context, *fairq.Task) error {
			count(1)
			defer count(-1)
			time.Sleep(500 * time.Millisecond)
			return nil
		}})
	waitFor(t, "all are done", func() bool {
		var done int
		db.QueryRow(ctx, "SELECT count(*) FROM fairq.tasks WHERE id = ANY($1) AND status = 'completed'", ids).Scan(&done)
		return done == len(ids)
	})
	if took := time.Since(begun); most > 10 || most < 2 || took > 15*time.Second {
		t.Errorf("%d at a time, %v for all", most, took)
	}
}

func TestOrderAndPoll(t *testing.T) {
	for i, poll := range []time.Duration{0, 50 * time.Millisecond, -1} {
		first, second := fmt.Sprint("first", i), fmt.Sprint("second", i)
		db := queue(t, first, "")
		queue(t, second, "")
		done := make(chan string, 9)
		block := make(chan bool)
		w := start(t, fairq.Worker{Queues: []string{first, second}, Concurrency: 1, Poll: poll,
			Default: func(_ context.Context, task *fairq.Task) error {
				done <- task.Queue
				<-block
				return nil
			}})
		time.Sleep(300 * time.Millisecond)
		enqueue(t, db, second, fairq.NewTask{})
		var order []string
		order = append(order, <-done)
		enqueue(t, db, second, fairq.NewTask{})
		enqueue(t, db, first, fairq.NewTask{})
		enqueue(t, db, first, fairq.NewTask{})
		close(block)
		for i := 0; i < 3; i++ {
			order = append(order, <-done)
		}
		want := []string{second, first, first, second}
		if got, want := strings.Join(order, " "), strings.Join(want, " "); got != want {
			t.Errorf("poll %v: %s, not %s", poll, got, want)
		}
		w.end()
	}
}

// trouble makes something happen to a busy and to an idle worker, and ends it a second later
// or when the log has its sign.  The worker must survive that.
func trouble(t *testing.T, name string, happen, mend func(), signs ...string) *running {
	db := queue(t, name, "")
	begun, finish := make(chan *fairq.Task, 9), make(chan bool)
	w := start(t, fairq.Worker{Queues: []string{name}, Concurrency: 1, Name: name,
		Default: func(_ context.Context, task *fairq.Task) error {
			begun <- task
			<-finish
			return nil
		}})
	last := func(phase int) {
		time.Sleep(time.Second)
		if phase < len(signs) {
			waitFor(t, signs[phase], func() bool { return strings.Contains(w.log.String(), signs[phase]) })
		}
	}
	id := enqueue(t, db, name, fairq.NewTask{})
	<-begun
	happen()
	finish <- true
	last(0)
	mend()
	db = connect(t, "")
	waitForStatus(t, db, id, "completed")
	expectRow(t, db, id, "attempt", "1")
	time.Sleep(500 * time.Millisecond) // it waits
	happen()
	last(1)
	mend()
	db = connect(t, "")
	id = enqueue(t, db, name, fairq.NewTask{})
	<-begun
	finish <- true
	waitForStatus(t, db, id, "completed")
	w.end()
	if !strings.Contains(w.log.String(), "retrying") {
		t.Errorf("nothing of it is in the log: %s", w.log.String())
	}
	return w
}

func TestConnectionsKilled(t *testing.T) {
	db := connect(t, "")
	trouble(t, "killed", func() {
		execute(t, db, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'killed'")
	}, func() {})
}

func TestReadOnly(t *testing.T) {
	if os.Getenv("FAIRQ_RESTART_COMMAND") == "" {
		t.Skip("FAIRQ_RESTART_COMMAND is not set: the server may have other users")
	}
	db := connect(t, "")
	execute(t, db, "SET default_transaction_read_only = off")
	reload := func(want string) {
		execute(t, db, "SELECT pg_reload_conf()")
		waitFor(t, "default_transaction_read_only is "+want, func() bool {
			conn, err := pgx.Connect(ctx, "")
			if err != nil {
				return false
			}
			defer conn.Close(ctx)
			is := ""
			return conn.QueryRow(ctx, "SHOW default_transaction_read_only").Scan(&is) == nil && is == want
		})
	}
	trouble(t, "readonly", func() {
		execute(t, db, "ALTER SYSTEM SET default_transaction_read_only = on")
		reload("on")
		// what waits looks again
		execute(t, db, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'readonly'")
	}, func() {
		execute(t, db, "ALTER SYSTEM RESET default_transaction_read_only")
		reload("off")
	}, "cannot execute fairq.complete() in a read-only transaction",
		"cannot execute fairq.pop() in a read-only transaction")
}

func TestMuteHost(t *testing.T) {
	db := queue(t, "mute", "")
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	port := os.Getenv("PGPORT")
	if port == "" {
		port = "5432"
	}
	id := enqueue(t, db, "mute", fairq.NewTask{})
	start(t, fairq.Worker{Queues: []string{"mute"},
		Database: fmt.Sprintf("host=127.0.0.1,%s port=%d,%s connect_timeout=3", os.Getenv("PGHOST"),
			mute.Addr().(*net.TCPAddr).Port, port),
		Default: func(context.Context, *fairq.Task) error { return nil }})
	waitForStatus(t, db, id, "completed")
}

func TestEncoding(t *testing.T) {
	db := connect(t, "")
	execute(t, db, "CREATE DATABASE fairq_go_latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
	t.Cleanup(func() { execute(t, db, "DROP DATABASE fairq_go_latin WITH (FORCE)") })
	latin := connect(t, "dbname=fairq_go_latin client_encoding=UTF8")
	execute(t, latin, "CREATE EXTENSION fairq")
	execute(t, latin, "SELECT fairq.create_queue('latin', retain => '1 hour')")
	groups := make(chan string, 1)
	start(t, fairq.Worker{Database: "dbname=fairq_go_latin", Queues: []string{"latin"},
		Default: func(_ context.Context, task *fairq.Task) error {
			groups <- task.Group
			return fairq.Dead(errors.New("käse"))
		}})
	id := enqueue(t, latin, "latin", fairq.NewTask{Group: "bücher"})
	if group := <-groups; group != "bücher" {
		t.Errorf("the group is %q", group)
	}
	waitForStatus(t, latin, id, "failed")
	expectRow(t, latin, id, "group_key, error", "bücher|käse")
}

func TestServerRestart(t *testing.T) {
	command := os.Getenv("FAIRQ_RESTART_COMMAND")
	if command == "" {
		t.Skip("FAIRQ_RESTART_COMMAND is not set")
	}
	control := func(what string) func() {
		command := strings.Replace(command, "restart", what, 1)
		return func() {
			if err := exec.Command("sh", "-c", command+" >/dev/null 2>&1").Run(); err != nil {
				t.Fatalf("%s: %v", command, err)
			}
		}
	}
	trouble(t, "restarted", control("stop"), control("start"))
}
