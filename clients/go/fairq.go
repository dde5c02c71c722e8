// Package fairq enqueues and runs tasks of fairq, a fair task queue in PostgreSQL.
//
// A producer calls [Enqueue], within its transaction if it has one:
//
//	id, err := fairq.EnqueueTx(ctx, tx, "mail", fairq.NewTask{
//		Group: customer, Name: "welcome", Args: Mail{To: address}})
//
// tx is a transaction of pgx, or of database/sql: [SQLTx].
//
// A [Worker] runs the tasks of one or several queues, each task with the [Handler] of the
// task's name, until the worker's context is done:
//
//	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
//	defer stop()
//	worker := fairq.Worker{
//		Queues: []string{"mail"},
//		Handlers: map[string]fairq.Handler{
//			"welcome": fairq.Args(func(ctx context.Context, task *fairq.Task, mail Mail) error {
//				return send(ctx, mail.To)
//			}),
//		},
//	}
//	err := worker.Run(ctx)
//
// Delivery is at-least-once: a worker may die between the work and the end of its task.
// [Task.CompleteTx] completes the task in the transaction of the work.
package fairq
