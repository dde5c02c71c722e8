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
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	_ "time/tzdata"

	fairq "github.com/fairq/fairq/clients/go"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/lib/pq"
	"github.com/robfig/cron/v3"
)

// The tests need a database with the extension, and a superuser; PGHOST and so
// on name both.  If FAIRQ_RESTART_COMMAND is set, the tests restart the server
// with it.  Nothing else may use that server.

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

// drivers are the drivers of database/sql: pgx's and lib/pq's.
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

// queue creates a queue for the test, which retains finished tasks; options are further
// arguments.
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

// row returns columns of a task, as text.
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

// logged is a Logger that can be read.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) add(level, line string, pairs []any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintf(&l.text, "%s: %s", level, line)
	for i := 0; i < len(pairs); i += 2 {
		fmt.Fprintf(&l.text, " %v=%v", pairs[i], pairs[i+1])
	}
	l.text.WriteString("\n")
}

func (l *logged) Info(line string, pairs ...any)  { l.add("info", line, pairs) }
func (l *logged) Warn(line string, pairs ...any)  { l.add("warning", line, pairs) }
func (l *logged) Error(line string, pairs ...any) { l.add("error", line, pairs) }

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// running is a worker that has been started.
type running struct {
	t      *testing.T
	worker *fairq.Worker
	log    logged
	stop   context.CancelFunc
	ended  chan error
}

// start starts a worker.  The end of the test stops it.
func start(t *testing.T, worker fairq.Worker) *running {
	t.Helper()
	r := &running{t: t, worker: &worker, ended: make(chan error, 1)}
	if worker.Logger == nil {
		worker.Logger = &r.log
	}
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
			for _, wanted := range []bool{true, false} {
				_, added, err := fairq.EnqueueOrFind(ctx, way, "enqueue", fairq.NewTask{Group: "bob", DedupKey: "found by " + name})
				if added != wanted || err != nil {
					t.Errorf("EnqueueOrFind: %v, not %v: %v", added, wanted, err)
				}
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

// begin begins a transaction with a driver of database/sql, or with pgx itself.
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
				{ExpiresAt: time.Now()}, {After: []int64{1}}, {AfterAny: true}, {Replace: true}, {DedupUntil: "started"}, {DedupFor: 1}} {
				var before, after int
				count := "SELECT count(*) FROM fairq.tasks WHERE queue = 'batch'"
				db.QueryRow(ctx, count).Scan(&before)
				if !bad.NoGroup {
					bad.Group = "bob"
				}
				// the first bad task gets neither a Group nor NoGroup
				bad.NoGroup = false
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

// TestAfter: a task waits for others.
func TestAfter(t *testing.T) {
	db := queue(t, "after", "")
	for _, driver := range append(drivers, "") {
		tx := begin(t, driver)
		first := enqueue(t, tx, "after", fairq.NewTask{})
		second := enqueue(t, tx, "after", fairq.NewTask{After: []int64{first}})
		both := fairq.NewTask{Group: "alice", After: []int64{first, second}, AfterAny: true}
		ids, err := fairq.EnqueueBatch(ctx, tx, "after", []fairq.NewTask{both, both})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, enqueue(t, tx, "after", both))
		if err := tx.Commit(ctx); err != nil {
			t.Fatal(err)
		}
		expectRow(t, db, second, "status, waits_for", fmt.Sprintf("blocked|{%d}", first))
		for _, id := range ids {
			expectRow(t, db, id, "status, waits_for", fmt.Sprintf("blocked|{%d,%d}", first, second))
		}
		if _, err := fairq.Cancel(ctx, db, first); err != nil {
			t.Fatal(err)
		}
		worker := start(t, fairq.Worker{Queues: []string{"after"},
			Default: func(context.Context, *fairq.Task) error { return nil }})
		for _, id := range ids {
			waitForStatus(t, db, id, "completed")
		}
		expectRow(t, db, second, "status", "cancelled")
		worker.end()
	}
	_, err := fairq.CreateBatch(ctx, db, fairq.NewBatch{Queue: "after", Then: fairq.NewTask{Group: "bob", After: []int64{1}}})
	if err == nil || !strings.Contains(err.Error(), "After cannot be set in a task that waits for a batch") {
		t.Errorf("After and a batch: %v", err)
	}
}

// TestEnsureQueues: queues are created with their settings, and keep settings that are not
// given.
func TestEnsureQueues(t *testing.T) {
	db := connect(t, "")
	settings := fairq.QueueSettings{"concurrency": 1, "max_running": 9, "lease": 1500 * time.Millisecond,
		"max_attempts": 1, "backoff": 2 * time.Second, "backoff_max": "1 minute", "retain": time.Hour,
		"retain_failed": 2 * time.Hour, "notify": true, "fair_by": "cost", "rate": 5,
		"per": 10 * time.Second, "burst": 2, "max_rate": 50, "shares": []int{9, 8, 7, 6, 5, 4, 3, 2, 1, 1},
		"in_order": true, "max_run_time": 30 * time.Second, "separator": "/"}
	seen := func(name string) string {
		var text string
		if err := db.QueryRow(ctx, "SELECT (to_jsonb(q) - 'queue_id' - 'name')::text FROM fairq.queue q WHERE name = $1",
			name).Scan(&text); err != nil {
			t.Fatalf("queue %s: %v", name, err)
		}
		return text
	}
	drop := func() { execute(t, db, "SELECT fairq.drop_queue(queue, force => true) FROM fairq.queues") }
	for _, driver := range append(drivers, "") {
		execute(t, db, "SELECT fairq.create_queue('like first')")
		execute(t, db, `SELECT fairq.create_queue('like second', concurrency => 1, max_running => 9, lease => '1.5 s',
			max_attempts => 1, backoff => '2 s', backoff_max => '60 s', retain => '3600 s', retain_failed => '7200 s',
			notify => true, fair_by => 'cost', rate => 5, per => '10 s', burst => 2, max_rate => 50,
			shares => '{9,8,7,6,5,4,3,2,1,1}', in_order => true, max_run_time => '30 s',
			separator => '/')`)
		ensure := func(queues map[string]fairq.QueueSettings) {
			tx := begin(t, driver)
			if err := fairq.EnsureQueues(ctx, tx, queues); err != nil {
				t.Fatal(err)
			}
			if err := tx.Commit(ctx); err != nil {
				t.Fatal(err)
			}
		}
		ensure(map[string]fairq.QueueSettings{"first": nil, "second": settings})
		for _, name := range []string{"first", "second"} {
			if seen(name) != seen("like "+name) {
				t.Errorf("queue %s: %s, not %s", name, seen(name), seen("like "+name))
			}
		}
		ensure(map[string]fairq.QueueSettings{"second": {"max_running": 0, "notify": false}})
		execute(t, db, "SELECT fairq.alter_queue('like second', max_running => 0, notify => false)")
		if seen("second") != seen("like second") {
			t.Errorf("after a change: %s, not %s", seen("second"), seen("like second"))
		}
		for name, separator := range map[string]string{"second": "/", "first": ""} {
			for _, wanted := range []string{"/", ":"} {
				err := fairq.EnsureQueues(ctx, db, map[string]fairq.QueueSettings{name: {"separator": wanted}})
				want := fmt.Sprintf(`queue %q has the separator %q, which cannot be changed to %q`, name, separator, wanted)
				if wanted == separator && err != nil || wanted != separator && (err == nil || !strings.Contains(err.Error(), want)) {
					t.Errorf("separator %q of queue %s: %v", wanted, name, err)
				}
			}
		}
		drop()
	}
	for what, bad := range map[string]fairq.QueueSettings{
		`there is no setting "concurency"`:       {"concurency": 1},
		"lease must be of the SQL type interval": {"lease": 5},
		"rate must be of the SQL type int":       {"rate": "5"},
		"shares must be of the SQL type int[]":   {"shares": []string{"1"}},
		"notify must be of the SQL type boolean": {"notify": 1},
	} {
		err := fairq.EnsureQueues(ctx, db, map[string]fairq.QueueSettings{"a": nil, "bad": bad})
		if err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
	var queues int
	if db.QueryRow(ctx, "SELECT count(*) FROM fairq.queues").Scan(&queues); queues != 0 {
		t.Errorf("a wrong setting, and %d queues", queues)
	}
}

// TestFindAndRedrive: tasks are found, moved and enqueued again.
func TestFindAndRedrive(t *testing.T) {
	db := queue(t, "redrive", "")
	queue(t, "elsewhere", "")
	must := func(value any, err error) any {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
	expect := func(what string, got, want any) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %v, not %v", what, got, want)
		}
	}
	fail := func() {
		for failed := 1; failed > 0; {
			if err := db.QueryRow(ctx, `SELECT count(fairq.fail(t.id, t.attempt, 'x', dead => true))
				FROM fairq.pop('redrive', 9, per_group => 9) t`).Scan(&failed); err != nil {
				t.Fatal(err)
			}
		}
	}
	group, toGroup, priority := "alice", "carol", 0
	for _, driver := range append(drivers, "") {
		var way fairq.DB = db
		if driver != "" {
			way = fairq.SQL(open(t, driver))
		}
		key := "key of " + driver
		id := enqueue(t, way, "redrive", fairq.NewTask{DedupKey: key, Priority: 4})
		expect("Find", must(fairq.Find(ctx, way, "redrive", key)), id)
		expect("Find of another key", must(fairq.Find(ctx, way, "redrive", "none")), int64(0))
		at := time.Date(2100, 1, 2, 3, 4, 5, 0, time.UTC)
		expect("Reschedule", must(fairq.Reschedule(ctx, way, id, at)), true)
		expectRow(t, db, id, "status, run_at AT TIME ZONE 'UTC'", "scheduled|2100-01-02 03:04:05")
		expect("Reschedule to now", must(fairq.Reschedule(ctx, way, id, time.Time{})), true)
		expectRow(t, db, id, "status", "queued")
		expect("Reschedule of an unknown task", must(fairq.Reschedule(ctx, way, id+99, at)), false)
		other := enqueue(t, way, "redrive", fairq.NewTask{Group: group})
		fail()
		expect("Redrive of a group", must(fairq.Redrive(ctx, way, "redrive", fairq.RedriveOptions{Group: &group})), int64(1))
		expectRow(t, db, other, "status", "queued")
		expectRow(t, db, id, "status", "failed")
		expect("RedriveTask of a task that has not failed",
			must(fairq.RedriveTask(ctx, way, other, fairq.RedriveOptions{})), false)
		fail()
		expect("Redrive of one", must(fairq.Redrive(ctx, way, "redrive", fairq.RedriveOptions{MaxTasks: 1})), int64(1))
		fail()
		expect("RedriveTask", must(fairq.RedriveTask(ctx, way, id,
			fairq.RedriveOptions{ToQueue: "elsewhere", ToPriority: &priority, ToGroup: &toGroup})), true)
		expectRow(t, db, id, "queue, priority, group_key, status", "elsewhere|0|carol|queued")
		expect("Redrive into another queue", must(fairq.Redrive(ctx, way, "redrive",
			fairq.RedriveOptions{ToQueue: "elsewhere", ToPriority: &priority, ToGroup: &toGroup})), int64(1))
		expectRow(t, db, other, "queue, priority, group_key, status", "elsewhere|0|carol|queued")
		if _, err := fairq.RedriveTask(ctx, way, id, fairq.RedriveOptions{Group: &group}); err == nil {
			t.Error("RedriveTask with a Group")
		}
		if _, err := fairq.Redrive(ctx, way, "nowhere", fairq.RedriveOptions{}); !errors.Is(err, fairq.ErrUnknownQueue) {
			t.Errorf("Redrive of an unknown queue: %v", err)
		}
	}
}

// TestBatches: a task waits for others, until all have ended, or until one
// fails.
func TestBatches(t *testing.T) {
	db := queue(t, "waiting", ", max_attempts => 1")
	ways := map[string]func() fairq.Tx{"pgx": func() fairq.Tx {
		tx, err := db.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return tx
	}}
	for _, driver := range drivers {
		driver := driver
		ways[driver] = func() fairq.Tx {
			tx, err := open(t, driver).BeginTx(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			return fairq.SQLTx(tx)
		}
	}
	start(t, fairq.Worker{Queues: []string{"waiting"}, Handlers: map[string]fairq.Handler{
		"fails": func(context.Context, *fairq.Task) error { return errors.New("it broke") },
		"works": func(_ context.Context, task *fairq.Task) error {
			task.Result = task.Batch
			return nil
		},
		"report": func(_ context.Context, task *fairq.Task) error {
			task.Result = []any{task.ID, task.Batch, task.Headers["batch"]}
			return nil
		},
	}})
	for name, begin := range ways {
		t.Run(name, func(t *testing.T) {
			var strict, works int64
			tx := begin()
			outer, err := fairq.InBatch(ctx, tx, fairq.NewBatch{Queue: "waiting", Then: fairq.NewTask{Group: "bob",
				Name: "report", Args: mail{}, Priority: 4, MaxAttempts: 7, Headers: map[string]any{"a": 1}}},
				func(outer int64) (err error) {
					strict, err = fairq.InBatch(ctx, tx, fairq.NewBatch{Queue: "waiting", OnSuccess: true,
						Then: fairq.NewTask{Group: "bob", Batch: outer}}, func(strict int64) error {
						_, err := fairq.EnqueueBatch(ctx, tx, "waiting",
							[]fairq.NewTask{{Group: "bob", Name: "fails", Batch: strict}})
						return err
					})
					if err == nil {
						works, err = fairq.EnqueueTx(ctx, tx, "waiting",
							fairq.NewTask{Group: "bob", Name: "works", Batch: outer})
					}
					return err
				})
			if err != nil {
				t.Fatal(err)
			}
			if err := tx.Commit(ctx); err != nil {
				t.Fatal(err)
			}
			waitForStatus(t, db, outer, "completed")
			numbers := `{"failed": 1, "purged": 0, "expired": 0, "cancelled": 0, "completed": 1}`
			expectRow(t, db, outer, "payload, headers, priority, max_attempts, result", fmt.Sprintf(
				`{"to": "", "count": 0}|{"a": 1, "task": "report", "batch": %s}|4|7|[%d, 0, %[1]s]`, numbers, outer))
			expectRow(t, db, strict, "status", "failed")
			expectRow(t, db, works, "status, result", fmt.Sprintf("completed|%d", outer))

			tx = begin()
			open, err := fairq.CreateBatch(ctx, tx, fairq.NewBatch{Queue: "waiting", Then: fairq.NewTask{Group: "bob"}})
			if err != nil {
				t.Fatal(err)
			}
			enqueue(t, tx, "waiting", fairq.NewTask{Batch: open})
			for i, want := range []int64{1, 0} {
				if n, err := fairq.CancelBatch(ctx, tx, open); n != want || err != nil {
					t.Errorf("CancelBatch %d: %d, %v", i, n, err)
				}
			}
			if closed, err := fairq.CloseBatch(ctx, tx, open); closed || err != nil {
				t.Errorf("a batch is closed twice: %v, %v", closed, err)
			}
			_, err = fairq.Enqueue(ctx, tx, "waiting", fairq.NewTask{Group: "bob", Batch: open})
			var server interface{ SQLState() string }
			if !errors.As(err, &server) || server.SQLState() != "QF009" {
				t.Errorf("a closed batch: %v", err)
			}
			tx.Rollback(ctx)
		})
	}
	for _, bad := range []fairq.NewTask{{}, {Group: "bob", Delay: 1}, {Group: "bob", RunAt: time.Now()}, {Group: "bob", Cost: 1},
		{Group: "bob", DedupKey: "k"}, {Group: "bob", ExpiresAt: time.Now()}, {Group: "bob", Replace: true}} {
		if id, err := fairq.CreateBatch(ctx, db, fairq.NewBatch{Queue: "waiting", Then: bad}); err == nil {
			t.Errorf("%v: batch %d", bad, id)
		}
	}
	if _, err := fairq.EnqueueBatch(ctx, db, "waiting", []fairq.NewTask{{Group: "bob", Batch: 1}, {Group: "bob"}}); err == nil ||
		!strings.Contains(err.Error(), "the same") {
		t.Errorf("tasks of two batches: %v", err)
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
	// the worker ends at once, without waiting for its grace or for its next
	// poll
	if took := w.end(); took > 15*time.Second {
		t.Errorf("an idle worker took %v to end", took)
	}
	// a backend ends some time after its client has closed the connection
	waitFor(t, "it has closed all of its connections", func() bool {
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
	if array != 0 { // 0: the server has refused headers that are an array
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

// mute is an error whose method Error panics if the pointer is nil.  It cannot
// be encoded as JSON.
type mute struct{ text string }

func (m *mute) Error() string { return m.text }

func (m mute) MarshalJSON() ([]byte, error) { panic("no JSON") }

// wrapper is an error whose text does not contain the text of its cause.
type wrapper struct{ cause error }

func (w *wrapper) Error() string { return "no more is known" }
func (w *wrapper) Unwrap() error { return w.cause }

// several is like the result of errors.Join, which Go 1.19 does not have.
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
			"failed|2|no more is known; caused by its cause"},
		"panic of an error": {func(context.Context, *fairq.Task) error { panic(&wrapper{cause}) },
			"failed|2|panic: no more is known; caused by the cause"},
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
				if last = row(t, db, ids[name], "status, attempt, error"); last == end.want ||
					strings.HasPrefix(last, end.want+"\ngithub.com/") { // the stack of a panic
					return
				}
			}
			t.Errorf("%s: %q, not %q", name, last, end.want)
		}()
	}
	kept := row(t, db, ids["panic"], "error")
	if !strings.HasPrefix(kept, "panic: help\n") || !strings.Contains(kept, "fairq_test.go") || strings.Contains(kept, "worker.go") {
		t.Errorf("the stack of a panic is kept as %q", kept)
	}
	if text := w.log.String(); !strings.Contains(text, kept) {
		t.Errorf("the stack of a panic is not in the log")
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
	// a task of a queue that is dropped later
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
	// without a limit for GiveUp, a worker waits until someone creates its
	// database
	worker.GiveUp = -1
	w = start(t, worker)
	waitFor(t, "the worker reports that its database is missing", func() bool { return strings.Contains(w.log.String(), "fairq_go_later") })
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

// Tasks whose lease has expired run alone in the process, even if the process
// has several workers.
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
			// the task must wait, although there are slots for it
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
	// the leases expire, as if the process that popped the tasks had died
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
		// the attempt whose lease has expired counts, but a released one does
		// not
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
	logged(fmt.Sprintf("the handler ignores the timeout and keeps its slot: 2 of 3 slots are left id=%d", ids["deaf"]))
	close(deaf)
	logged("the handler has returned at last: 3 of 3 slots are left")
	expectRow(t, db, ids["deaf"], "status", "failed")
	w.end()

	// a worker ends after GiveUp if handlers that ignore their timeout keep all
	// slots
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

// TestLog checks the lines of the start, and of each outcome.
func TestLog(t *testing.T) {
	db := queue(t, "logs", ", backoff => '0.1 s'")
	begun := make(chan bool, 9)
	w := start(t, fairq.Worker{Queues: []string{"logs"}, Name: "me", Concurrency: 2, Lease: 6 * time.Second, Grace: -1,
		Handlers: map[string]fairq.Handler{
			"works": func(context.Context, *fairq.Task) error { return nil },
			"fails": func(_ context.Context, task *fairq.Task) error { return fmt.Errorf("attempt %d", task.Attempt) },
			"dead":  func(context.Context, *fairq.Task) error { return fairq.Dead(errors.New("no such address")) },
			"waits": func(ctx context.Context, _ *fairq.Task) error {
				begun <- true
				<-ctx.Done()
				return ctx.Err()
			},
			"unfit": func(_ context.Context, task *fairq.Task) error {
				task.Result = func() {}
				return nil
			},
		}})
	ids := map[string]int64{}
	for name, status := range map[string]string{"works": "completed", "fails": "failed", "dead": "failed", "unfit": "failed"} {
		ids[name] = enqueue(t, db, "logs", fairq.NewTask{Name: name, MaxAttempts: 2})
		waitForStatus(t, db, ids[name], status)
	}
	ids["waits"] = enqueue(t, db, "logs", fairq.NewTask{Name: "waits"})
	<-begun
	if there, err := fairq.Cancel(ctx, db, ids["waits"]); !there || err != nil {
		t.Fatalf("cancel: %v, %v", there, err)
	}
	waitForStatus(t, db, ids["waits"], "cancelled")
	last := enqueue(t, db, "logs", fairq.NewTask{Name: "waits"})
	<-begun // the status is "running" before the handler begins
	w.end()
	var extension, server string
	db.QueryRow(ctx, "SELECT fairq.version(), current_setting('server_version')").Scan(&extension, &server)
	text := regexp.MustCompile(`duration=\S+`).ReplaceAllString(w.log.String(), "duration=D")
	line := func(level, outcome string, id int64, name string, attempt int, problem string) string {
		return fmt.Sprintf("%s: task %s id=%d task=%s queue=logs group=bob attempt=%d duration=D outcome=%[2]s%[6]s\n",
			level, outcome, id, name, attempt, problem)
	}
	for _, want := range []string{
		"info: worker of fairq starts worker=me queues=[logs] concurrency=2 client=1.0.0 extension=" + extension + " server=" + server + "\n",
		line("info", "completed", ids["works"], "works", 1, ""),
		line("warning", "retried", ids["fails"], "fails", 1, " error=attempt 1"),
		line("error", "failed", ids["fails"], "fails", 2, " error=attempt 2"),
		line("error", "failed", ids["dead"], "dead", 1, " error=no such address"),
		line("error", "failed", ids["unfit"], "unfit", 2, " error=the result cannot be encoded: json: unsupported type: func()"),
		line("info", "stopped", ids["waits"], "waits", 1, ""),
		line("info", "released", last, "waits", 1, ""),
	} {
		if strings.Count(text, want) != 1 {
			t.Errorf("%q is not in the log once", want)
		}
	}
}

// TestHooks checks which hooks are called, and with which context.
func TestHooks(t *testing.T) {
	db := queue(t, "hooks", "")
	type key struct{}
	var mu sync.Mutex
	said := map[int64][]string{}
	say := func(ctx context.Context, task *fairq.Task, what string) {
		mu.Lock()
		defer mu.Unlock()
		said[task.ID] = append(said[task.ID], fmt.Sprintf("%s %v", what, ctx.Value(key{})))
	}
	release := make(chan bool)
	worker := fairq.Worker{Queues: []string{"hooks"}, Concurrency: 5, Lease: 6 * time.Second, Grace: -1,
		Timeouts: map[string]time.Duration{"late": 100 * time.Millisecond, "deaf": time.Millisecond},
		Handlers: map[string]fairq.Handler{
			"works": func(ctx context.Context, task *fairq.Task) error {
				say(ctx, task, "handler")
				return nil
			},
			"fails": func(context.Context, *fairq.Task) error { return errors.New("it broke") },
			"panic": func(context.Context, *fairq.Task) error { panic("help") },
			"deaf": func(context.Context, *fairq.Task) error {
				<-release
				return nil
			},
			"late": func(ctx context.Context, _ *fairq.Task) error {
				<-ctx.Done()
				return ctx.Err()
			},
			"waits": func(ctx context.Context, _ *fairq.Task) error {
				<-ctx.Done()
				return ctx.Err()
			},
		},
		Hooks: fairq.Hooks{
			Before: func(ctx context.Context, task *fairq.Task) context.Context {
				say(ctx, task, "before")
				return context.WithValue(ctx, key{}, task.Name)
			},
			After: func(ctx context.Context, task *fairq.Task) {
				say(ctx, task, "after")
				panic("no hook of this kind")
			},
			Error: func(ctx context.Context, task *fairq.Task, err error) { say(ctx, task, "error "+err.Error()) },
			Lost:  func(ctx context.Context, task *fairq.Task) { say(ctx, task, "lost") },
		}}
	w := start(t, worker)
	defer close(release)
	want := map[int64]string{}
	for name, calls := range map[string]string{
		"works": "handler works, after works", "fails": "error it broke fails", "panic": "error panic: help panic",
		"nobody": "error no handler for task nobody nobody", "late": "error timed out after 100ms: context deadline exceeded late",
		"deaf": "error timed out after 1ms, and its handler continues deaf",
	} {
		id := enqueue(t, db, "hooks", fairq.NewTask{Name: name, MaxAttempts: 1})
		want[id] = "before <nil>, " + calls
		waitFor(t, name, func() bool { s := row(t, db, id, "status"); return s == "completed" || s == "failed" })
	}
	// the status of a task is "running" before its handler begins
	hasBegun := func(id int64) {
		waitFor(t, "a handler", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(said[id]) > 0
		})
	}
	cancelled := enqueue(t, db, "hooks", fairq.NewTask{Name: "waits"})
	hasBegun(cancelled)
	fairq.Cancel(ctx, db, cancelled)
	waitForStatus(t, db, cancelled, "cancelled")
	released := enqueue(t, db, "hooks", fairq.NewTask{Name: "waits"})
	hasBegun(released)
	w.end()
	want[cancelled], want[released] = "before <nil>, lost waits", "before <nil>, lost waits"
	mu.Lock()
	defer mu.Unlock()
	for id, calls := range want {
		if got := strings.Join(said[id], ", "); got != calls {
			t.Errorf("task %d: %q, not %q", id, got, calls)
		}
	}
	if line := "error: the hook \"After\" failed id="; strings.Count(w.log.String(), line) != 1 {
		t.Errorf("%q is not in the log once", line)
	}
}

// TestStandardLog checks what the standard logger gets.
func TestStandardLog(t *testing.T) {
	db := queue(t, "standard", "")
	var text bytes.Buffer
	log.SetOutput(&text)
	defer log.SetOutput(os.Stderr)
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error)
	worker := fairq.Worker{Queues: []string{"standard"}, Default: func(_ context.Context, task *fairq.Task) error {
		if task.Name == "fails" {
			return errors.New("it \"broke\"")
		}
		return nil
	}}
	go func() { ended <- worker.Run(ctx) }()
	waitForStatus(t, db, enqueue(t, db, "standard", fairq.NewTask{}), "completed")
	id := enqueue(t, db, "standard", fairq.NewTask{Name: "fails", MaxAttempts: 1})
	waitForStatus(t, db, id, "failed")
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	want := fmt.Sprintf(`fairq: error: task failed id=%d task=fails queue=standard group=bob attempt=1 duration=\S+ outcome=failed error="it \\"broke\\""`, id)
	if lines := strings.TrimSpace(text.String()); strings.Contains(lines, "\n") || !regexp.MustCompile(want).MatchString(lines) {
		t.Errorf("the log is %s", lines)
	}
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
	warning := "warning: the server refuses to complete the task"
	about := fmt.Sprintf(" id=%d task= queue=refused group=alice attempt=1\n", id)
	waitFor(t, warning, func() bool { return strings.Contains(w.log.String(), warning) })
	w.end()
	if text := w.log.String(); strings.Count(text, "warning: ") != 1 || strings.Count(text, about) != 1 {
		t.Errorf("not one warning: %s", text)
	}
}

// until is a handler that waits for its context, and reports when it begins and ends.
func until(begun chan<- *fairq.Task, ended chan<- error) fairq.Handler {
	return func(ctx context.Context, task *fairq.Task) error {
		begun <- task
		<-ctx.Done()
		ended <- ctx.Err()
		return ctx.Err()
	}
}

func TestResumed(t *testing.T) {
	db := queue(t, "resumed", ", backoff => '0.1 s'")
	var seen []string
	first := start(t, fairq.Worker{Queues: []string{"resumed"}, Default: func(ctx context.Context, task *fairq.Task) error {
		cursor := 0
		there, err := task.Cursor(&cursor)
		seen = append(seen, fmt.Sprintf("%s %v %d %v", task.Progress(), there, cursor, err))
		step := func(name string) ([]int, error) {
			return fairq.Step(ctx, task, name, func(context.Context) ([]int, error) {
				seen = append(seen, "step "+name)
				return []int{task.Attempt}, nil
			})
		}
		if task.Attempt > 1 {
			result, err := step("one")
			seen = append(seen, fmt.Sprint(result, err))
			return task.SetProgress(ctx, nil)
		}
		task.SetProgress(ctx, 1)
		_, refused := step("zero")
		task.SetProgress(ctx, map[string]int{"page": 1})
		result, err := step("one")
		seen = append(seen, fmt.Sprint(refused != nil, result, err))
		for n := 1; n < 5; n++ {
			if err := task.Checkpoint(ctx, n); err != nil {
				return err
			}
		}
		return fairq.Retry(nil, 0)
	}})
	id := enqueue(t, db, "resumed", fairq.NewTask{})
	waitForStatus(t, db, id, "completed")
	first.end()
	want := []string{" false 0 <nil>", "step one", "true [1] <nil>",
		`{"fairq":{"steps":{"one":[1]},"cursor":4},"page":1} true 4 <nil>`, "[1] <nil>"}
	if !reflect.DeepEqual(seen, want) {
		t.Errorf("seen %q, wanted %q", seen, want)
	}
	expectRow(t, db, id, "progress", `{"fairq": {"steps": {"one": [1]}, "cursor": 4}}`)
}

func TestCancelAndProgress(t *testing.T) {
	db := queue(t, "cancel", "")
	begun, ended := make(chan *fairq.Task, 1), make(chan error, 1)
	first := start(t, fairq.Worker{Queues: []string{"cancel"}, Default: until(begun, ended), Lease: 6 * time.Second})
	id := enqueue(t, db, "cancel", fairq.NewTask{})
	task := <-begun
	if err := task.SetProgress(ctx, map[string]int{"done": 5}); err != nil {
		t.Error(err)
	}
	expectRow(t, db, id, "status, progress", `running|{"done": 5}`)
	time.Sleep(7 * time.Second)
	select {
	case err := <-ended:
		t.Fatalf("the worker renewed its lease, and its context is done: %v", err)
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

	// SetProgress reports the cancellation before the next heartbeat
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

// A task that exceeds max_run_time fails.  If the worker released the task, it would run
// again and again.
func TestMaxRun(t *testing.T) {
	db := queue(t, "maxrun", ", max_run_time => '2 s', max_attempts => 1")
	begun, ended := make(chan *fairq.Task, 1), make(chan error, 1)
	start(t, fairq.Worker{Queues: []string{"maxrun"}, Default: until(begun, ended), Lease: 3 * time.Second})
	id := enqueue(t, db, "maxrun", fairq.NewTask{})
	<-ended
	waitForStatus(t, db, id, "failed")
	// the worker ends the task, or a pop after the end of the lease does,
	// whichever is first
	expectRow(t, db, id, "attempt, error IN ('lease expired', 'stopped, since it was cancelled, its lease was lost, "+
		"or its time (max_run_time) was over: context canceled')", "1|t")
}

func TestLostLease(t *testing.T) {
	db := queue(t, "lost", "")
	begun, ended := make(chan *fairq.Task, 2), make(chan error, 2)
	release := make(chan bool)
	first := true
	w := start(t, fairq.Worker{Queues: []string{"lost"}, Lease: 6 * time.Second, Concurrency: 2,
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
	// this has the effect of an expired lease; the same worker gets the second attempt,
	// which the first one must not affect
	execute(t, db, "SELECT fairq.fail($1, retry_in => '0')", id)
	<-ended
	if task := <-begun; task.Attempt != 2 {
		t.Errorf("attempt %d", task.Attempt)
	}
	time.Sleep(7 * time.Second)
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
		t.Errorf("it took %v to end", took)
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
		// the worker has released the task, so the attempt does not count
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
	driver := "" // pgx itself
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
	if strings.Contains(w.log.String(), "refuses") {
		t.Error("the worker warns about a task that was completed in a transaction")
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

// trouble disturbs a worker while it is busy, and again while it is idle.  Each
// disturbance ends a second later, or once the log has the next one of the
// signs.  The worker must then complete its tasks.
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
	time.Sleep(500 * time.Millisecond) // until the worker is in fairq.wait
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
		t.Errorf("the log does not report the trouble: %s", w.log.String())
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
		// so that the worker does not stay in fairq.wait
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

// A task fails if the server refuses its result or its progress.  Here both are
// nested too deeply for the server, almost as deeply as encoding/json allows.
// The worker's own statements need less of the stack.
func TestTooDeep(t *testing.T) {
	db := queue(t, "deep", ", max_attempts => 1")
	deep := json.RawMessage(strings.Repeat("[", 9900) + strings.Repeat("]", 9900))
	start(t, fairq.Worker{Database: "options='-c max_stack_depth=800kB'", Queues: []string{"deep"},
		Handlers: map[string]fairq.Handler{
			"result": func(_ context.Context, task *fairq.Task) error {
				task.Result = deep
				return nil
			},
			"progress": func(ctx context.Context, task *fairq.Task) error {
				return task.SetProgress(ctx, deep)
			},
		}})
	for _, name := range []string{"result", "progress"} {
		id := enqueue(t, db, "deep", fairq.NewTask{Name: name})
		waitForStatus(t, db, id, "failed")
		expectRow(t, db, id, "error LIKE '%stack depth%'", "t")
	}
}

// moments are Times from a list.
type moments []time.Time

func (m moments) Next(after time.Time) time.Time {
	for _, at := range m {
		if at.After(after) {
			return at
		}
	}
	return time.Time{}
}

// scheduled returns the schedule's name and the scheduled time of each task of
// a queue.
func scheduled(t *testing.T, db *pgx.Conn, queue string) string {
	t.Helper()
	var text string
	if err := db.QueryRow(ctx, `SELECT coalesce(string_agg(concat_ws(' ', headers ->> 'schedule', headers ->> 'scheduled_at'),
		', ' ORDER BY headers ->> 'schedule', headers ->> 'scheduled_at'), '') FROM fairq.tasks WHERE queue = $1`,
		queue).Scan(&text); err != nil {
		t.Fatal(err)
	}
	return text
}

// TestEvery: workers with the same schedule add one task for each time.
func TestEvery(t *testing.T) {
	db := queue(t, "every", "")
	worker := fairq.Worker{Queues: []string{"every"}, Handlers: map[string]fairq.Handler{
		"tidy": func(context.Context, *fairq.Task) error { return nil }},
		Schedules: []fairq.Schedule{{Times: fairq.Every(time.Second), Task: fairq.NewTask{Name: "tidy",
			Args: mail{To: "x"}, Headers: map[string]any{"own": 1, "schedule": "mine"}}}}}
	added := func() (tasks int) {
		db.QueryRow(ctx, "SELECT count(*) FROM fairq.tasks WHERE queue = 'every'").Scan(&tasks)
		return tasks
	}
	// the first worker runs before and after the other one, so it adds the
	// tasks of all times
	first := start(t, worker)
	waitFor(t, "a task", func() bool { return added() > 0 })
	second := start(t, worker)
	waitFor(t, "4 tasks", func() bool { return added() >= 4 })
	second.end()
	before := added()
	waitFor(t, "a task of the first worker", func() bool { return added() > before })
	first.end()
	var tasks, times, keys int
	var length float64
	var same string
	if err := db.QueryRow(ctx, `SELECT count(*), count(DISTINCT at), extract(epoch FROM max(at) - min(at))::float8,
			string_agg(DISTINCT concat_ws('|', group_key, payload, headers - 'scheduled_at'), ' '), sum(keys)::int
		FROM (SELECT *, (headers ->> 'scheduled_at')::timestamptz AS at, (SELECT count(*) FROM fairq.dedup
				WHERE dedup_key = 'schedule tidy ' || (headers ->> 'scheduled_at')) AS keys
			FROM fairq.tasks WHERE queue = 'every') t`).Scan(&tasks, &times, &length, &same, &keys); err != nil {
		t.Fatal(err)
	}
	if tasks != times || length != float64(tasks-1) || keys != tasks {
		t.Errorf("%d tasks, %d times, %v seconds, %d keys: %s", tasks, times, length, keys, scheduled(t, db, "every"))
	}
	if same != `schedule|{"to": "x", "count": 0}|{"own": 1, "task": "tidy", "schedule": "tidy"}` {
		t.Errorf("the tasks have %s", same)
	}
}

// TestCatchUp: a worker that starts adds the last time that was missed.
func TestCatchUp(t *testing.T) {
	db := queue(t, "late", "")
	queue(t, "other", "")
	now := time.Now().Truncate(time.Second)
	times := moments{now.Add(-3 * time.Hour), now.Add(-50 * time.Minute), now.Add(-40 * time.Minute), now.Add(time.Hour)}
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	daily, err := cron.ParseStandard("30 8 * * *")
	if err != nil {
		t.Fatal(err)
	}
	worker := fairq.Worker{Queues: []string{"other"}, Default: func(context.Context, *fairq.Task) error { return nil },
		Schedules: []fairq.Schedule{
			{Name: "hour", Queue: "late", Times: times},
			{Name: "long", Queue: "late", Times: times[:1], CatchUp: 4 * time.Hour},
			{Name: "none", Queue: "late", Times: times, CatchUp: -1},
			{Name: "short", Queue: "late", Times: times, CatchUp: time.Minute},
			{Name: "part", Queue: "late", Times: moments{now.Add(-1500 * time.Millisecond)}},
			{Name: "wrong", Queue: "nowhere", Times: times},
			{Name: "cron", Times: daily, Zone: berlin, CatchUp: 49 * time.Hour, Task: fairq.NewTask{Group: "reports"}},
		}}
	text := func(at time.Time) string { return at.UTC().Format("2006-01-02T15:04:05Z") }
	want := fmt.Sprintf("hour %s, long %s, part %s", text(times[2]), text(times[0]),
		now.Add(-1500*time.Millisecond).UTC().Format("2006-01-02T15:04:05.000000+00:00"))
	for i := 0; i < 2; i++ {
		running := start(t, worker)
		waitFor(t, "a schedule that is refused", func() bool {
			return strings.Contains(running.log.String(), "a task of a schedule cannot be added schedule=wrong")
		})
		waitFor(t, "the schedule after it", func() bool { return scheduled(t, db, "other") != "" })
		running.end()
		if got := scheduled(t, db, "late"); got != want {
			t.Errorf("start %d: %s, not %s", i, got, want)
		}
		worker.Schedules[5].Queue = "nowhere else"
	}
	var seen string
	if err := db.QueryRow(ctx, `SELECT concat_ws(' ', group_key, at AT TIME ZONE 'Europe/Berlin' - date_trunc('day', at AT TIME ZONE 'Europe/Berlin'),
				at BETWEEN now() - interval '26 hours' AND now())
			FROM (SELECT *, (headers ->> 'scheduled_at')::timestamptz AS at FROM fairq.tasks WHERE queue = 'other') t`).Scan(&seen); err != nil {
		t.Fatal(err)
	}
	if seen != "reports 08:30:00 t" {
		t.Errorf("the cron line's task: %s", seen)
	}
	for what, bad := range map[string]fairq.Schedule{
		"needs a Name":                       {Times: times},
		"has no Times":                       {Name: "x"},
		"an interval of less than a second":  {Name: "x", Times: fairq.Every(0)},
		"RunAt cannot be set in a schedule":  {Name: "x", Times: times, Task: fairq.NewTask{RunAt: now}},
		"DedupKey cannot be set in a sched":  {Name: "x", Times: times, Task: fairq.NewTask{DedupKey: "y"}},
		"has both a Group and NoGroup":       {Name: "x", Times: times, Task: fairq.NewTask{Group: "y", NoGroup: true}},
		"the arguments of task \"y\" cannot": {Times: times, Task: fairq.NewTask{Name: "y", Args: func() {}}},
	} {
		worker.Schedules = []fairq.Schedule{bad}
		if err := worker.Run(ctx); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestPresence: a worker is in fairq.workers until it ends, and writes its file.
func TestPresence(t *testing.T) {
	db := queue(t, "presence", "")
	alive := filepath.Join(t.TempDir(), "alive")
	release := make(chan bool)
	worker := fairq.Worker{Queues: []string{"presence"}, Name: "present", Concurrency: 3, Alive: alive,
		Default: func(context.Context, *fairq.Task) error { <-release; return nil }}
	w := start(t, worker)
	row := func() (text string) {
		err := db.QueryRow(ctx, `SELECT coalesce((SELECT concat_ws(' ', host, client, queues, concurrency, running)
			FROM fairq.workers WHERE worker = 'present'), '')`).Scan(&text)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	host, _ := os.Hostname()
	waitFor(t, "a worker", func() bool { return row() == host+" go {presence} 3 0" })
	id := enqueue(t, db, "presence", fairq.NewTask{})
	waitFor(t, "a task that runs", func() bool { return row() == host+" go {presence} 3 1" })
	written := func() time.Time {
		info, err := os.Stat(alive)
		if err != nil {
			t.Fatal(err)
		}
		return info.ModTime()
	}
	before := written()
	waitFor(t, "a newer file", func() bool { return written().After(before) })
	close(release)
	waitForStatus(t, db, id, "completed")
	w.end()
	if left := row(); left != "" {
		t.Errorf("the row of a worker that has ended: %s", left)
	}
	execute(t, db, "ALTER FUNCTION fairq.register_worker RENAME TO register_worker_no_more")
	worker.Alive = filepath.Join(alive, "none")
	w = start(t, worker)
	waitFor(t, "a warning", func() bool { return strings.Contains(w.log.String(), "the worker is not in fairq.workers") })
	execute(t, db, "ALTER FUNCTION fairq.register_worker_no_more RENAME TO register_worker")
	waitFor(t, "an error", func() bool { return strings.Contains(w.log.String(), "the file Alive cannot be written") })
	waitForStatus(t, db, enqueue(t, db, "presence", fairq.NewTask{}), "completed")
}

func TestStatus(t *testing.T) {
	db := queue(t, "status", "")
	release := make(chan bool)
	w := start(t, fairq.Worker{Queues: []string{"status"}, Name: "shown", Concurrency: 3, Grace: patience,
		Default: func(context.Context, *fairq.Task) error { <-release; return nil }})
	shown := func() string {
		s := w.worker.Status()
		text := fmt.Sprintf("%s %v %d %d %v", s.Name, s.Queues, s.Concurrency, s.Running, s.Stopping)
		for _, task := range s.Tasks {
			text += fmt.Sprintf(" %d %s", task.ID, task.Group)
		}
		return text
	}
	waitFor(t, "an idle worker", func() bool { return shown() == "shown [status] 3 0 false" })
	id := enqueue(t, db, "status", fairq.NewTask{Group: "alice"})
	waitFor(t, "a busy one", func() bool { return shown() == fmt.Sprintf("shown [status] 3 1 false %d alice", id) })
	w.stop()
	waitFor(t, "one that stops", func() bool { return shown() == fmt.Sprintf("shown [status] 3 1 true %d alice", id) })
	close(release)
	w.end()
	if got := w.worker.Status(); got.Name != "" || got.Tasks != nil {
		t.Errorf("the status of a worker that has ended: %+v", got)
	}
	waitForStatus(t, db, id, "completed")
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
