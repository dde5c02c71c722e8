// Metrics of a worker for Prometheus, from hooks: see README.md.
//
//     const metrics = new Metrics();
//     metrics.serve(9100);
//     fairq.main('mail', handlers, { hooks: metrics.hooks });
//
// It needs no other package, and uses only the hooks of fairq.
'use strict';
const http = require('http');

const BUCKETS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800]; // seconds

const quoted = (text) => `"${String(text).replace(/["\\]/g, '\\$&').replace(/\n/g, '\\n')}"`;

class Metrics {
  #begun = new Map(); // tasks that run, and when they began

  #series = new Map(); // durations by their labels

  constructor() {
    const begun = this.#begun;
    this.hooks = {
      before: (task) => { begun.set(task, performance.now()); },
      after: (task) => this.#count(task, 'completed'),
      error: (task) => this.#count(task, 'failed'),
      lost: (task) => this.#count(task, 'lost'),
    };
  }

  #count(task, outcome) {
    const seconds = (performance.now() - this.#begun.get(task)) / 1000;
    this.#begun.delete(task);
    const labels = `queue=${quoted(task.queue)},task=${quoted(task.name || '')},outcome="${outcome}"`;
    const series = this.#series.get(labels) || { count: 0, sum: 0, buckets: BUCKETS.map(() => 0) };
    this.#series.set(labels, series);
    series.count += 1;
    series.sum += seconds;
    BUCKETS.forEach((most, i) => { series.buckets[i] += seconds <= most; });
  }

  // The metrics in the text format of Prometheus.
  text() {
    const lines = [];
    const metric = (name, type, help) => lines.push(`# HELP ${name} ${help}`, `# TYPE ${name} ${type}`);
    const attempts = 'fairq_worker_attempts_total';
    const durations = 'fairq_worker_attempt_seconds';
    metric(attempts, 'counter', 'Attempts that have ended: completed, failed, lost');
    for (const [labels, { count }] of this.#series) lines.push(`${attempts}{${labels}} ${count}`);
    metric(durations, 'histogram', 'Their durations');
    for (const [labels, { count, sum, buckets }] of this.#series) {
      BUCKETS.forEach((most, i) => lines.push(`${durations}_bucket{${labels},le="${most}"} ${buckets[i]}`));
      lines.push(`${durations}_bucket{${labels},le="+Inf"} ${count}`);
      lines.push(`${durations}_sum{${labels}} ${sum}`, `${durations}_count{${labels}} ${count}`);
    }
    metric('fairq_worker_running', 'gauge', 'Tasks that run');
    lines.push(`fairq_worker_running ${this.#begun.size}`, '');
    return lines.join('\n');
  }

  // Serves the metrics at /metrics of the port.  Returns the http.Server, which does not
  // keep the process alive.
  serve(port, address = '0.0.0.0') {
    const server = http.createServer((request, response) => {
      if (request.url.split('?')[0] !== '/metrics') {
        response.writeHead(404).end();
        return;
      }
      response.writeHead(200, { 'Content-Type': 'text/plain; version=0.0.4; charset=utf-8' });
      response.end(this.text());
    });
    return server.listen(port, address).unref();
  }
}

module.exports = { Metrics };
