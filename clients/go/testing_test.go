package fairq_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	fairq "github.com/fairq/fairq/clients/go"
)

type greeting struct {
	Name string `json:"name"`
	More int    `json:"more"`
}

func (greeting) Kind() string { return "greet" }

type nameless struct{}

func (nameless) Kind() string { return "" }

// TestKinds: the type of the arguments names the task and its handler.
func TestKinds(t *testing.T) {
	db := queue(t, "kinds", "")
	greeted := make(chan greeting, 1)
	greet := func(_ context.Context, _ *fairq.Task, args greeting) error {
		greeted <- args
		return nil
	}
	worker := fairq.Worker{Queues: []string{"kinds"}}
	fairq.Handle(&worker, greet)
	start(t, worker)
	task := fairq.TaskFor("bob", greeting{"world", 2})
	task.Priority = 3
	id, err := fairq.Enqueue(ctx, db, "kinds", task)
	if err != nil {
		t.Fatal(err)
	}
	waitForStatus(t, db, id, "completed")
	expectRow(t, db, id, "group_key, priority, payload, headers", `bob|3|{"more": 2, "name": "world"}|{"task": "greet"}`)
	if args := <-greeted; args != (greeting{"world", 2}) {
		t.Errorf("arguments: %v", args)
	}
	for want, bad := range map[string]func(){
		`two handlers for tasks of kind "greet"`: func() { fairq.Handle(&worker, greet) },
		"the Kind of fairq_test.nameless is empty": func() {
			fairq.Handle(&worker, func(context.Context, *fairq.Task, nameless) error { return nil })
		},
	} {
		func() {
			defer func() {
				if said := fmt.Sprint(recover()); !strings.Contains(said, want) {
					t.Errorf("%s: %s", want, said)
				}
			}()
			bad()
		}()
	}
}

// TestRunTasks: tasks run in the transaction of a test.
func TestRunTasks(t *testing.T) {
	db := queue(t, `te"st\ing`, ", max_attempts => 2")
	for _, driver := range append(drivers, "") {
		t.Run("driver "+driver, func(t *testing.T) {
			testRunTasks(t, driver)
			var left int
			err := db.QueryRow(ctx, "SELECT count(*) FROM fairq.tasks WHERE queue = $1", `te"st\ing`).Scan(&left)
			if err != nil || left != 0 {
				t.Errorf("%d tasks are left: %v", left, err)
			}
		})
	}
}

func testRunTasks(t *testing.T, driver string) {
	const name = `te"st\ing`
	inTx := func(test func(tx fairq.Tx, worker *fairq.Worker)) {
		t.Helper()
		tx := begin(t, driver)
		defer tx.Rollback(ctx)
		test(tx, &fairq.Worker{Queues: []string{name}, Handlers: inTransaction(name, tx)})
	}
	add := func(tx fairq.Tx, task fairq.NewTask) int64 {
		t.Helper()
		return enqueue(t, tx, name, task)
	}
	inTx(func(tx fairq.Tx, worker *fairq.Worker) {
		more := add(tx, fairq.TaskFor("bob", greeting{More: 2}))
		late := add(tx, fairq.NewTask{Name: "greet", Delay: time.Hour})
		statuses := map[int64]string{more: "completed {\"left\": 2}", late: "scheduled null"}
		for name, status := range map[string]string{"dead": "failed null", "retry": "scheduled null",
			"steps": `completed {"at": 5}`} {
			statuses[add(tx, fairq.NewTask{Name: name})] = status
		}
		ran, err := worker.RunTasks(ctx, tx)
		if err != nil || len(ran) != 5 {
			t.Fatalf("%d tasks ran: %v", len(ran), err)
		}
		var dead *fairq.DeadError
		var retry *fairq.RetryError
		for _, one := range ran {
			if one.Task.ID == more && (one.Err != nil || fmt.Sprint(one.Task.Result) != "map[left:2]") {
				t.Errorf("the first: %v, %v", one.Err, one.Task.Result)
			}
			if errors.As(one.Err, &dead) != (one.Task.Name == "dead") ||
				errors.As(one.Err, &retry) != (one.Task.Name == "retry") {
				t.Errorf("%v: %v", one.Task, one.Err)
			}
		}
		for id, want := range statuses {
			var status string
			if err := tx.QueryRow(ctx, "SELECT concat(status, ' ', coalesce(result, 'null')) FROM fairq.tasks WHERE id = $1",
				id).Scan(&status); err != nil || status != want {
				t.Errorf("task %d: %s, not %s: %v", id, status, want, err)
			}
		}
	})
	for task, want := range map[string]error{"fails": errBroken, "nothing": nil, "forever": nil} {
		inTx(func(tx fairq.Tx, worker *fairq.Worker) {
			add(tx, fairq.NewTask{Name: task})
			_, err := worker.RunTasks(ctx, tx)
			text := map[string]string{"fails": "it broke", "nothing": "no handler for task nothing",
				"forever": "the limit of 1000 tasks is reached, and another one is ready"}[task]
			if err == nil || want != nil && !errors.Is(err, want) || !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %v", task, err)
			}
		})
	}
}

var errBroken = errors.New("it broke")

// inTransaction returns handlers that use the transaction of the test.
func inTransaction(queue string, tx fairq.Tx) map[string]fairq.Handler {
	return map[string]fairq.Handler{
		"greet": fairq.Args(func(ctx context.Context, task *fairq.Task, args greeting) error {
			task.Result = map[string]int{"left": args.More}
			if args.More < 2 {
				return nil
			}
			_, err := fairq.EnqueueTx(ctx, tx, queue, fairq.TaskFor("bob", greeting{More: args.More - 1}))
			return err
		}),
		"dead":  func(context.Context, *fairq.Task) error { return fairq.Dead(errors.New("no")) },
		"retry": func(context.Context, *fairq.Task) error { return fairq.Retry(errors.New("later"), time.Hour) },
		"steps": func(ctx context.Context, task *fairq.Task) error {
			five, err := fairq.Step(ctx, task, "first", func(context.Context) (int, error) { return 5, nil })
			if err != nil {
				return err
			}
			if err := task.Checkpoint(ctx, five); err != nil {
				return err
			}
			task.Result = map[string]int{"at": five}
			return task.CompleteTx(ctx, tx)
		},
		"fails": func(context.Context, *fairq.Task) error { return errBroken },
		"forever": func(ctx context.Context, _ *fairq.Task) error {
			_, err := fairq.EnqueueTx(ctx, tx, queue, fairq.NewTask{Group: "bob", Name: "forever"})
			return err
		},
	}
}
