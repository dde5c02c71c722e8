// Hooks of a worker, OpenTelemetry with its own SDK, and pino.
'use strict';
const fs = require('fs');
const path = require('path');
const { spawnSync } = require('child_process');
const {
  WORK, INSTALLED, fairq, check, equal, errorOf, until, fromNpm, sleep, admin, queue, drop, add, ended, work,
} = require('./harness');

// The worker calls the hooks in order, with these arguments.
async function hooks() {
  const name = await queue('hooks', 'max_attempts => 1');
  const calls = {};
  const call = (task, ...what) => { (calls[task.id] = calls[task.id] || []).push(what.join(' ')); };
  const worker = work(name, {
    works: (_, task) => { call(task, 'handler'); return 5; },
    fails: () => { throw new Error('it broke'); },
    late: async (_, task) => { await sleep(60e3, undefined, { signal: task.signal }); },
    waits: { run: async (_, task) => { await sleep(60e3, undefined, { signal: task.signal }); }, timeout: Infinity },
  }, {
    lease: 6,
    timeout: 2,
    grace: 0.1,
    hooks: {
      before: async (task) => { await sleep(5); call(task, 'before'); },
      after: (task, result) => { call(task, 'after', result); throw new Error('no hook of this kind'); },
      error: (task, error) => call(task, 'error', error.message),
      lost: async (task) => { await sleep(5); call(task, 'lost'); },
      around: async (task, next) => {
        call(task, 'around');
        try {
          return 2 * await next();
        } finally {
          call(task, 'round');
        }
      },
    },
  });
  const wanted = {};
  for (const [task, status, list] of [
    ['works', 'completed', ['before', 'around', 'handler', 'round', 'after 10']],
    ['fails', 'failed', ['before', 'around', 'round', 'error it broke']],
    ['late', 'failed', ['before', 'around', 'error timed out after 2 s', 'round']],
    ['nobody', 'failed', ['before', 'error no handler for task nobody']],
    ['waits', 'cancelled', ['before', 'around', 'round', 'lost']],
  ]) {
    const id = await add(name, {}, task);
    if (status === 'cancelled') {
      await ended(id, 'running');
      await fairq.cancel(admin, id);
    }
    const { result } = await ended(id, status);
    wanted[id] = list.slice().sort();
    await until(() => (calls[id] || []).length === list.length);
    if (task === 'works') equal(result, 10, 'around may change the result');
  }
  const id = await add(name, {}, 'waits');
  await until(() => (calls[id] || []).includes('around'));
  await worker.stop();
  wanted[id] = ['before', 'around', 'round', 'lost'].sort();
  const seen = Object.fromEntries(Object.entries(calls).map(([task, list]) => [task, list.slice().sort()]));
  equal(seen, wanted, 'for each attempt the hook before runs, and one of after, error and lost');
  equal(Object.values(calls)[0], ['before', 'around', 'handler', 'round', 'after 10'], 'in this order');
  equal(worker.lines.filter((line) => /the hook "after" failed: Error: no hook of this kind/.test(line)).length, 1,
    'a hook that throws is in the log');
  for (const [bad, message] of [[{ befor: () => {} }, 'hooks has no option "befor"'], [{ before: 5 }, 'the hook before is not a function']]) {
    equal((await errorOf(() => new fairq.Worker('q', () => {}, { hooks: bad }))).message, message, message);
  }
  await drop(name);
}

async function opentelemetry() {
  const modules = fromNpm('@opentelemetry/api@1.9.0', '@opentelemetry/sdk-trace-node@2.0.1', '@opentelemetry/sdk-metrics@2.0.1');
  if (modules === null) return;
  fs.symlinkSync(path.join(modules, '@opentelemetry'), path.join(WORK, 'node_modules/@opentelemetry'));
  const load = (one) => require(path.join(modules, '@opentelemetry', one));
  const { trace, metrics, context, SpanKind, SpanStatusCode } = load('api');
  const { NodeTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } = load('sdk-trace-node');
  const { MeterProvider, MetricReader } = load('sdk-metrics');
  const exporter = new InMemorySpanExporter();
  new NodeTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] }).register();
  const reader = new (class extends MetricReader { onForceFlush() {} onShutdown() {} })();
  metrics.setGlobalMeterProvider(new MeterProvider({ readers: [reader] }));
  const otel = require(path.join(INSTALLED, 'otel.js'));
  const tracer = trace.getTracer('test');

  const name = await queue('otel', 'max_attempts => 1');
  const request = tracer.startSpan('request');
  const ids = await context.with(trace.setSpan(context.active(), request), async () => [
    await otel.enqueue(admin, name, 'bob', {}, { task: 'fails', headers: { mine: 1 } }),
    ...await otel.enqueueBatch(admin, name, [{ group: 'alice', task: 'works' }]),
  ]);
  await errorOf(otel.enqueue(admin, 'nowhere', 'bob'));
  request.end();
  const worker = work(name, {
    works: () => { tracer.startSpan('inside works').end(); },
    fails: async () => {
      await sleep(1);
      tracer.startSpan('inside fails').end();
      throw new RangeError('it broke');
    },
  }, { hooks: otel.hooks() });
  for (const id of ids) await ended(id, id === ids[0] ? 'failed' : 'completed');
  await worker.stop();

  const spans = exporter.getFinishedSpans();
  const find = (text, attribute, value) => spans.find((span) => span.name === text && span.attributes[attribute] === value);
  for (const [task, id, producer, status] of [
    ['fails', ids[0], find(`enqueue ${name}`, 'messaging.message.id', String(ids[0])), SpanStatusCode.ERROR],
    ['works', ids[1], find(`enqueue ${name}`, 'messaging.batch.message_count', 1), SpanStatusCode.UNSET],
  ]) {
    const span = find(`process ${name}`, 'fairq.task', task);
    const inside = find(`inside ${task}`);
    equal([producer.kind, span.kind], [SpanKind.PRODUCER, SpanKind.CONSUMER], `${task}: kinds of its spans`);
    equal(producer.parentSpanContext.spanId, request.spanContext().spanId, 'the producer\'s span is in the active span');
    equal([span.parentSpanContext, span.links.map((link) => link.context.spanId), span.spanContext().traceId
      === producer.spanContext().traceId], [undefined, [producer.spanContext().spanId], false],
    'the consumer\'s span has a link to the producer\'s span');
    equal(inside.parentSpanContext.spanId, span.spanContext().spanId, 'the handler\'s spans are in that span');
    const { 'error.type': type, ...attributes } = span.attributes;
    equal([span.status.code, type, attributes], [status, task === 'fails' ? 'RangeError' : undefined, {
      'messaging.system': 'fairq',
      'messaging.operation.name': 'process',
      'messaging.operation.type': 'process',
      'messaging.destination.name': name,
      'messaging.message.id': String(id),
      'fairq.task': task,
      'fairq.group': task === 'fails' ? 'bob' : 'alice',
      'fairq.attempt': 1,
    }], 'its status and attributes');
  }
  equal(find('enqueue nowhere').status.code, SpanStatusCode.ERROR, 'an enqueue that fails is an error');
  const { resourceMetrics } = await reader.collect();
  const [histogram] = resourceMetrics.scopeMetrics.flatMap((scope) => scope.metrics);
  const counts = histogram.dataPoints.map((point) => [point.attributes['error.type'] || 'none', point.value.count]);
  equal([histogram.descriptor.name, histogram.descriptor.unit, Object.fromEntries(counts)],
    ['messaging.process.duration', 's', { RangeError: 1, none: 1 }], 'the histogram of durations');
  await drop(name);
}

async function prometheus() {
  const { Metrics } = require(path.join(INSTALLED, 'prometheus.js'));
  const metrics = new Metrics();
  const server = metrics.serve(0, '127.0.0.1');
  await new Promise((resolve) => { server.once('listening', resolve); });
  const get = (url) => fetch(`http://127.0.0.1:${server.address().port}${url}`);
  const name = await queue('say "hi"\n\\', 'max_attempts => 1');
  const worker = work(name, {
    works: () => {},
    fails: () => { throw new Error('it broke'); },
    waits: (_, task) => sleep(60e3, undefined, { signal: task.signal }),
  }, { lease: 6, hooks: metrics.hooks });
  for (const [task, status] of [['works', 'completed'], ['works', 'completed'], ['fails', 'failed'], ['waits', 'cancelled']]) {
    const id = await add(name, {}, task);
    if (status === 'cancelled') {
      await until(() => metrics.text().includes('fairq_worker_running 1\n'));
      await fairq.cancel(admin, id);
    }
    equal((await ended(id, status)).status, status, `metrics: a task that is ${status}`);
  }
  await worker.stop();
  const response = await get('/metrics');
  const text = await response.text();
  const values = Object.fromEntries(text.split('\n').filter((line) => line.startsWith('fairq_')).map((line) => {
    const [, key, value] = /^(.*) (\S+)$/.exec(line);
    return [key, Number(value)];
  }));
  const of = (metric, task, outcome, more = '') => values[
    `${metric}{queue="say \\"hi\\"\\n\\\\",task="${task}",outcome="${outcome}"${more}}`];
  equal([response.headers.get('content-type'), (await get('/')).status], ['text/plain; version=0.0.4; charset=utf-8', 404], 'the metrics are at /metrics');
  equal([['works', 'completed'], ['fails', 'failed'], ['waits', 'lost']].map((one) => of('fairq_worker_attempts_total', ...one)), [2, 1, 1],
    'attempts are counted by their outcomes');
  const durations = (most) => of('fairq_worker_attempt_seconds_bucket', 'works', 'completed', `,le="${most}"`);
  equal([durations(1800), durations('+Inf'), of('fairq_worker_attempt_seconds_count', 'works', 'completed'),
    of('fairq_worker_attempt_seconds_sum', 'waits', 'lost') > 0, values.fairq_worker_running], [2, 2, 2, true, 0], 'and measured');
  const promtool = spawnSync('promtool', ['check', 'metrics'], { input: text, encoding: 'utf8' });
  if (promtool.error === undefined) equal([promtool.status, promtool.stdout + promtool.stderr], [0, ''], 'promtool reads them');
  server.close();
  await drop(name);
}

// A worker can log to a logger of pino.
async function pino() {
  const modules = fromNpm('pino@9.6.0');
  if (modules === null) return;
  const lines = [];
  const logger = require(path.join(modules, 'pino'))({ level: 'info' }, { write: (line) => lines.push(JSON.parse(line)) });
  const name = await queue('pino');
  const worker = work(name, { fails: () => { throw new Error('it broke', { cause: new Error('why') }); } }, { log: logger });
  const id = await add(name, {}, 'fails', { maxAttempts: 1 });
  await ended(id, 'failed');
  await worker.stop();
  const line = lines.find((one) => one.id === id);
  equal([lines[0].queues, line.level, line.outcome, line.err.type, /why/.test(line.err.stack), /: failed after /.test(line.msg)],
    [[name], 50, 'failed', 'Error', true, true], 'pino has the fields, the error and its cause');
  await drop(name);
}

module.exports = { hooks, opentelemetry, prometheus, pino };
