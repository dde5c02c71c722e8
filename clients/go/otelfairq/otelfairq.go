// Package otelfairq traces and measures tasks of fairq with OpenTelemetry.
//
// A producer calls [Enqueue], [EnqueueTx] or [EnqueueBatch] of this package, and a worker
// gets [Hooks].  Both use the global providers and the global propagator.
package otelfairq

import (
	"context"
	"fmt"
	"strconv"
	"time"

	fairq "github.com/fairq/fairq/clients/go"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

const scope = "github.com/fairq/fairq/clients/go/otelfairq"

// attributes returns the attributes of OpenTelemetry's conventions for
// messaging.
func attributes(operation, kind, queue string) []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String("messaging.system", "fairq"),
		attribute.String("messaging.operation.name", operation),
		attribute.String("messaging.operation.type", kind),
		attribute.String("messaging.destination.name", queue),
	}
}

// Enqueue calls [fairq.Enqueue] in a producer's span, and adds the span's context to the
// task's headers.
func Enqueue(ctx context.Context, db fairq.DB, queue string, task fairq.NewTask) (id int64, err error) {
	err = produce(ctx, queue, func(ctx context.Context, span trace.Span) error {
		id, err = fairq.Enqueue(ctx, db, queue, withContext(ctx, task))
		span.SetAttributes(attribute.String("messaging.message.id", strconv.FormatInt(id, 10)))
		return err
	})
	return id, err
}

// EnqueueTx calls [fairq.EnqueueTx] in a producer's span, like Enqueue.
func EnqueueTx(ctx context.Context, tx fairq.Tx, queue string, task fairq.NewTask) (int64, error) {
	return Enqueue(ctx, tx, queue, task)
}

// EnqueueBatch calls [fairq.EnqueueBatch] in one span, and adds the span's context to the
// headers of all tasks.
func EnqueueBatch(ctx context.Context, db fairq.DB, queue string, tasks []fairq.NewTask) (ids []int64, err error) {
	err = produce(ctx, queue, func(ctx context.Context, span trace.Span) error {
		span.SetAttributes(attribute.Int("messaging.batch.message_count", len(tasks)))
		all := make([]fairq.NewTask, len(tasks))
		for i, task := range tasks {
			all[i] = withContext(ctx, task)
		}
		ids, err = fairq.EnqueueBatch(ctx, db, queue, all)
		return err
	})
	return ids, err
}

// produce calls f in a producer's span.
func produce(ctx context.Context, queue string, f func(context.Context, trace.Span) error) error {
	ctx, span := otel.Tracer(scope).Start(ctx, "enqueue "+queue, trace.WithSpanKind(trace.SpanKindProducer),
		trace.WithAttributes(attributes("enqueue", "send", queue)...))
	defer span.End()
	err := f(ctx, span)
	fail(span, err)
	return err
}

// withContext returns the task with the span's context in its headers.
func withContext(ctx context.Context, task fairq.NewTask) fairq.NewTask {
	carrier := propagation.MapCarrier{}
	otel.GetTextMapPropagator().Inject(ctx, carrier)
	headers := make(map[string]any, len(task.Headers)+len(carrier))
	for key, value := range task.Headers {
		headers[key] = value
	}
	for key, value := range carrier {
		headers[key] = value
	}
	task.Headers = headers
	return task
}

// fail records an error in the span, if there is one.
func fail(span trace.Span, err error) {
	if err == nil {
		return
	}
	span.RecordError(err)
	span.SetStatus(codes.Error, err.Error())
	span.SetAttributes(errorType(err))
}

func errorType(err error) attribute.KeyValue {
	return attribute.String("error.type", fmt.Sprintf("%T", err))
}

// attempt is the state of an attempt between its hooks.
type attempt struct {
	span  trace.Span
	begun time.Time
}

type key struct{}

// Hooks returns the hooks for a worker.  Each attempt has a span in a trace of its own,
// with a link to the span of the producer.  The histogram messaging.process.duration
// records the durations of attempts.
func Hooks() fairq.Hooks {
	durations, err := otel.Meter(scope).Float64Histogram("messaging.process.duration", metric.WithUnit("s"))
	if err != nil {
		otel.Handle(err)
	}
	end := func(ctx context.Context, task *fairq.Task, err error, more ...attribute.KeyValue) {
		attempt, there := ctx.Value(key{}).(attempt)
		if !there {
			return
		}
		fail(attempt.span, err)
		attempt.span.SetAttributes(more...)
		attempt.span.End()
		all := attributes("process", "process", task.Queue)
		if err != nil {
			all = append(all, errorType(err))
		}
		durations.Record(ctx, time.Since(attempt.begun).Seconds(), metric.WithAttributes(all...))
	}
	return fairq.Hooks{
		Before: begin,
		After:  func(ctx context.Context, task *fairq.Task) { end(ctx, task, nil) },
		Error:  func(ctx context.Context, task *fairq.Task, err error) { end(ctx, task, err) },
		Lost: func(ctx context.Context, task *fairq.Task) {
			end(ctx, task, fairq.ErrLost, attribute.Bool("fairq.lost", true))
		},
	}
}

// begin starts the span of an attempt.
func begin(ctx context.Context, task *fairq.Task) context.Context {
	carrier := propagation.MapCarrier{}
	for name, value := range task.Headers {
		if text, is := value.(string); is {
			carrier[name] = text
		}
	}
	producer := otel.GetTextMapPropagator().Extract(context.Background(), carrier)
	options := []trace.SpanStartOption{
		trace.WithNewRoot(),
		trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(attributes("process", "process", task.Queue)...),
		trace.WithAttributes(
			attribute.String("messaging.message.id", strconv.FormatInt(task.ID, 10)),
			attribute.String("fairq.task", task.Name),
			attribute.String("fairq.group", task.Group),
			attribute.Int("fairq.attempt", task.Attempt),
		),
	}
	if link := trace.LinkFromContext(producer); link.SpanContext.IsValid() {
		options = append(options, trace.WithLinks(link))
	}
	ctx, span := otel.Tracer(scope).Start(ctx, "process "+task.Queue, options...)
	return context.WithValue(ctx, key{}, attempt{span, time.Now()})
}
