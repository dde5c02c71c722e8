package otelfairq_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	fairq "github.com/fairq/fairq/clients/go"
	"github.com/fairq/fairq/clients/go/otelfairq"

	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	api "go.opentelemetry.io/otel/trace"
)

const patience = 60 * time.Second

// TestSpans enqueues in producers' spans, works in consumers' spans, and reads the SDK's
// exports.
func TestSpans(t *testing.T) {
	if os.Getenv("PGHOST") == "" {
		t.Skip("PGHOST is not set: this test needs a server of its own")
	}
	ctx := context.Background()
	spans := tracetest.NewInMemoryExporter()
	traces := trace.NewTracerProvider(trace.WithSyncer(spans))
	reader := metric.NewManualReader()
	otel.SetTracerProvider(traces)
	otel.SetMeterProvider(metric.NewMeterProvider(metric.WithReader(reader)))
	otel.SetTextMapPropagator(propagation.TraceContext{})

	db, err := pgx.Connect(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(ctx)
	if _, err := db.Exec(ctx, "SELECT fairq.create_queue('otel', max_attempts => 1)"); err != nil {
		t.Fatal(err)
	}
	defer db.Exec(ctx, "SELECT fairq.drop_queue('otel', force => true)")

	root, request := traces.Tracer("test").Start(ctx, "request")
	fails, err := otelfairq.Enqueue(root, db, "otel", fairq.NewTask{Group: "bob", Name: "fails",
		Headers: map[string]any{"mine": 1}})
	if err != nil {
		t.Fatal(err)
	}
	ids, err := otelfairq.EnqueueBatch(root, db, "otel", []fairq.NewTask{{Group: "alice", Name: "works"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := otelfairq.Enqueue(root, db, "nowhere", fairq.NewTask{Group: "bob"}); !errors.Is(err, fairq.ErrUnknownQueue) {
		t.Errorf("an unknown queue: %v", err)
	}
	request.End()

	working, stop := context.WithCancel(ctx)
	done, ended := make(chan bool, 2), make(chan error, 1)
	hooks := otelfairq.Hooks()
	worker := fairq.Worker{Queues: []string{"otel"}, Hooks: hooks, Default: func(ctx context.Context, task *fairq.Task) error {
		_, span := traces.Tracer("test").Start(ctx, "inside "+task.Name)
		span.End()
		done <- true
		if task.Name == "fails" {
			return errors.New("it broke")
		}
		return nil
	}}
	go func() { ended <- worker.Run(working) }()
	for i := 0; i < 2; i++ {
		select {
		case <-done:
		case <-time.After(patience):
			t.Fatal("the tasks have not run")
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}

	found := map[string]tracetest.SpanStub{}
	for _, span := range spans.GetSpans() {
		name := span.Name
		for _, attribute := range span.Attributes {
			if attribute.Key == "fairq.task" || attribute.Key == "messaging.batch.message_count" {
				name += " " + attribute.Value.Emit()
			}
		}
		found[name] = span
	}
	for _, each := range []struct {
		name, producer, inside, failure string
		id                              int64
	}{
		{"process otel fails", "enqueue otel", "inside fails", "it broke", fails},
		{"process otel works", "enqueue otel 1", "inside works", "", ids[0]},
	} {
		span, producer, inside := found[each.name], found[each.producer], found[each.inside]
		if span.SpanKind != api.SpanKindConsumer || producer.SpanKind != api.SpanKindProducer {
			t.Errorf("%s: kinds %v and %v", each.name, span.SpanKind, producer.SpanKind)
		}
		if len(span.Links) != 1 || span.Links[0].SpanContext.SpanID() != producer.SpanContext.SpanID() ||
			span.SpanContext.TraceID() == producer.SpanContext.TraceID() || span.Parent.IsValid() {
			t.Errorf("%s: it has the links %v", each.name, span.Links)
		}
		if producer.Parent.SpanID() != request.SpanContext().SpanID() || inside.Parent.SpanID() != span.SpanContext.SpanID() {
			t.Errorf("%s: parents %v and %v", each.name, producer.Parent, inside.Parent)
		}
		if span.Status.Description != each.failure {
			t.Errorf("%s: its status is %v", each.name, span.Status)
		}
		has := map[string]string{}
		for _, attribute := range span.Attributes {
			has[string(attribute.Key)] = attribute.Value.Emit()
		}
		if has["messaging.system"] != "fairq" || has["messaging.destination.name"] != "otel" ||
			has["messaging.operation.type"] != "process" || has["messaging.message.id"] != fmt.Sprint(each.id) || has["fairq.attempt"] != "1" {
			t.Errorf("%s: attributes %v", each.name, has)
		}
	}
	if span := found["enqueue nowhere"]; len(span.Events) != 1 || span.Status.Description == "" {
		t.Errorf("the span of an enqueue that fails: %v", span.Status)
	}

	var data metricdata.ResourceMetrics
	if err := reader.Collect(ctx, &data); err != nil {
		t.Fatal(err)
	}
	counts := map[bool]uint64{} // of attempts; the key is whether they failed
	for _, scope := range data.ScopeMetrics {
		for _, one := range scope.Metrics {
			if histogram, is := one.Data.(metricdata.Histogram[float64]); is && one.Name == "messaging.process.duration" && one.Unit == "s" {
				for _, point := range histogram.DataPoints {
					_, failed := point.Attributes.Value("error.type")
					counts[failed] += point.Count
				}
			}
		}
	}
	if counts[false] != 1 || counts[true] != 1 {
		t.Errorf("durations: %v", counts)
	}
}
