// Types of fairq/prometheus: see README.md.
import type { Hooks } from '.';

/** Metrics of one or several workers. */
export class Metrics {
  /** The hooks for the workers. */
  readonly hooks: Required<Pick<Hooks, 'before' | 'after' | 'error' | 'lost'>>;
  /** The metrics in the text format of Prometheus. */
  text(): string;
  /** Serves the metrics at /metrics of the port, by default on all addresses.  Returns the
   * http.Server, which does not keep the process alive. */
  serve(port: number, address?: string): { close(callback?: (error?: Error) => void): unknown };
}
