// OpenTelemetry for producers and workers: see README.md.
//
//     fairq.main('mail', handlers, { hooks: otel.hooks() });
//     await otel.enqueue(client, 'mail', 'bob', { to: 'x@example.com' }, { task: 'send' });
//
// It needs the package @opentelemetry/api, and uses only the hooks and functions of fairq.
'use strict';
const {
  context, metrics, propagation, ROOT_CONTEXT, SpanKind, SpanStatusCode, trace,
} = require('@opentelemetry/api');
const fairq = require('.');
const { version } = require('./package.json');

const tracer = () => trace.getTracer('fairq', version);
const meter = () => metrics.getMeter('fairq', version);

// The attributes of OpenTelemetry's conventions for messaging.
const attributesOf = (operation, type, queue) => ({
  'messaging.system': 'fairq',
  'messaging.operation.name': operation,
  'messaging.operation.type': type,
  'messaging.destination.name': queue,
});

// Runs f in a span, and ends the span after f.
function inSpan(name, options, f) {
  return tracer().startActiveSpan(name, options, async (span) => {
    try {
      return await f(span);
    } catch (error) {
      span.recordException(error);
      span.setStatus({ code: SpanStatusCode.ERROR, message: String(error) });
      span.setAttribute('error.type', (error && error.name) || typeof error);
      throw error;
    } finally {
      span.end();
    }
  });
}

// The headers with the active context, which contains the producer's span.
function withContext(headers) {
  const all = { ...headers };
  propagation.inject(context.active(), all);
  return all;
}

// Calls fairq.enqueue in a producer's span, and adds the span's context to the task's headers.
function enqueue(client, queue, group, payload, options = {}) {
  const attributes = attributesOf('enqueue', 'send', queue);
  return inSpan(`enqueue ${queue}`, { kind: SpanKind.PRODUCER, attributes }, async (span) => {
    const id = await fairq.enqueue(client, queue, group, payload,
      { ...options, headers: withContext(options.headers) });
    span.setAttribute('messaging.message.id', String(id));
    return id;
  });
}

// Calls fairq.enqueueBatch in one span, and adds the span's context to the headers of all
// tasks.
function enqueueBatch(client, queue, tasks, options) {
  const attributes = attributesOf('enqueue', 'send', queue);
  return inSpan(`enqueue ${queue}`, { kind: SpanKind.PRODUCER, attributes }, async (span) => {
    const all = Array.from(tasks, (task) => ({ ...task, headers: withContext(task.headers) }));
    span.setAttribute('messaging.batch.message_count', all.length);
    return fairq.enqueueBatch(client, queue, all, options);
  });
}

// Returns hooks for a worker.  Each attempt has a span in a trace of its own, with a link to the
// span of the producer.  The histogram records the durations of attempts.
function hooks() {
  const durations = meter().createHistogram('messaging.process.duration', { unit: 's' });
  return {
    async around(task, next) {
      const began = performance.now();
      const common = attributesOf('process', 'process', task.queue);
      const attributes = {
        ...common,
        'messaging.message.id': String(task.id),
        'fairq.task': task.name,
        'fairq.group': task.group,
        'fairq.attempt': task.attempt,
      };
      const producer = trace.getSpanContext(propagation.extract(ROOT_CONTEXT, task.headers));
      const links = producer === undefined ? [] : [{ context: producer }];
      let failure = {};
      try {
        return await inSpan(`process ${task.queue}`, {
          kind: SpanKind.CONSUMER, root: true, attributes, links,
        }, next);
      } catch (error) {
        failure = { 'error.type': (error && error.name) || typeof error };
        throw error;
      } finally {
        durations.record((performance.now() - began) / 1000, { ...common, ...failure });
      }
    },
  };
}

module.exports = { enqueue, enqueueBatch, hooks };
