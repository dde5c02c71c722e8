// The clients of node-postgres, with that package's own types: see readme.js.
import { Client, Pool } from 'pg';
import { enqueue, enqueueBatch, cancel, work } from 'fairq';

export async function produce(pool: Pool, client: Client): Promise<void> {
  const lent = await pool.connect();
  for (const one of [pool, client, lent]) await cancel(one, await enqueue(one, 'mail', 'bob'));
  await enqueueBatch(pool, 'mail', []);
  work('mail', (task) => task.complete(lent));
}
