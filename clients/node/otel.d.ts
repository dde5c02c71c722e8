// Types of fairq/otel: see README.md.
import type * as plain from '.';

/** Calls fairq.enqueue in a producer's span, and adds the span's context to the
 * task's headers. */
export const enqueue: typeof plain.enqueue;

/** Calls fairq.enqueueBatch in one span, and adds the span's context to the
 * headers of all tasks. */
export const enqueueBatch: typeof plain.enqueueBatch;

/** Hooks for a worker: a span for each attempt, with a link to the producer's
 * span, and the histogram messaging.process.duration. */
export function hooks(): plain.Hooks;
