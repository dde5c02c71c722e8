// The progress of a task: what its handler sets, its steps, and its cursor.  The server stores one
// object, whose property "fairq" holds the steps and the cursor.
'use strict';
const { now } = require('./clock');
const { fromJson, toJson } = require('./values');

class Progress {
  // value is the progress of earlier attempts; save() stores JSON.
  constructor(value, { save, interval }) {
    const { fairq: ours, ...rest } = isObject(value) && isObject(value.fairq) ? value : {};
    this.store = save;
    this.interval = interval; // seconds between saves of the cursor
    this.plain = ours ? orNull(rest) : value; // without steps and cursor
    this.steps = new Map(Object.entries((ours && ours.steps) || {})); // results, by name
    this.cursor = ours ? ours.cursor : undefined;
    this.savedCursor = this.cursor;
    this.savedAt = -Infinity;
    this.saving = Promise.resolve(); // the last save
  }

  get value() {
    return this.whole(this.plain, this.steps);
  }

  async set(value) {
    const plain = copy(value, 'the progress');
    await this.save(() => [plain, this.steps]);
  }

  async step(name, run) {
    if (!this.steps.has(name)) {
      propertiesOf(this.plain);
      const result = await run();
      const saved = result === undefined ? null : copy(result, `the result of step ${name}`);
      await this.save(() => [this.plain, new Map(this.steps).set(name, saved)]);
    }
    return this.steps.get(name);
  }

  async checkpoint(cursor) {
    propertiesOf(this.plain);
    this.cursor = copy(cursor, 'the cursor');
    if (now() - this.savedAt >= this.interval) await this.saveCursor();
  }

  async saveCursor() {
    if (this.cursor !== this.savedCursor) await this.save(() => [this.plain, this.steps]);
  }

  // Saves run one after the other, so that none overwrites a later one.
  save(change) {
    const save = async () => {
      const { cursor } = this;
      const [plain, steps] = change();
      await this.store(toJson(this.whole(plain, steps), 'the progress'));
      this.plain = plain;
      this.steps = steps;
      this.savedCursor = cursor;
      this.savedAt = now();
    };
    this.saving = this.saving.then(save, save);
    return this.saving;
  }

  whole(plain, steps) {
    if (steps.size === 0 && this.cursor === undefined) return plain;
    const ours = { cursor: this.cursor };
    if (steps.size > 0) ours.steps = Object.fromEntries(steps);
    return { ...propertiesOf(plain), fairq: ours };
  }
}

function propertiesOf(plain) {
  if (plain !== null && !isObject(plain)) {
    throw new TypeError('the progress of a task with steps or a cursor must be an object');
  }
  return plain;
}

function isObject(value) {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function orNull(object) {
  return Object.keys(object).length > 0 ? object : null;
}

function copy(value, what) {
  return fromJson(toJson(value, what), what);
}

module.exports = { Progress };
