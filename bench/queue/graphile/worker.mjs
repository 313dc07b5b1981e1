// One process of graphile-worker. The first line of its standard input is its
// settings; it works until that input ends, and tells on its standard output, a
// line of JSON every few milliseconds, what it has done since the last one.
import { EventEmitter } from "node:events";
import { createInterface } from "node:readline";
import { Logger, run, runMigrations } from "graphile-worker";

const input = createInterface({ input: process.stdin });
const settings = JSON.parse((await input[Symbol.asyncIterator]().next()).value);
const { url, migrate, workers, batched, next, drain, stages } = settings;

const logger = new Logger(() => (level, message) => {
  if (level === "error") console.error(message);
});
if (migrate) {
  await runMigrations({ connectionString: url, logger });
  process.exit(0);
}

// Claims are timed for every eighth job only, so that it costs next to nothing.
const claims = new Map();
let said = { hops: [], took: [], begun: 0 };
let jobs = 0;
const events = new EventEmitter();
events.on("worker:getJob:start", ({ worker }) => {
  if (jobs++ % 8 === 0) claims.set(worker.workerId, performance.now());
});
events.on("job:start", ({ worker, job }) => {
  const began = claims.get(worker.workerId);
  if (began !== undefined) {
    claims.delete(worker.workerId);
    said.took.push(performance.now() - began);
  }
  if (settings.wake && job.payload.stage === 0) say({ begun: 1 });
});
events.on("worker:getJob:empty", ({ worker }) => claims.delete(worker.workerId));
events.on("job:complete", ({ job, error }) => {
  if (!error) said.hops.push(job.payload.item * stages + job.payload.stage);
});

const say = (what) => process.stdout.write(JSON.stringify(what) + "\n");
const tell = () => {
  if (said.hops.length === 0) return;
  const what = said;
  said = { hops: [], took: [] };
  say(what);
};
const timer = setInterval(tell, settings.wake ? 1 : 20);

const runner = await run({
  connectionString: url,
  concurrency: workers,
  maxPoolSize: Math.min(workers + 2, 40),
  noHandleSignals: true,
  crontab: "",
  logger,
  events,
  taskList: {
    hop: async ({ item, stage }, helpers) => {
      const following = stage + 1;
      if (next && (following < stages || !drain)) {
        await helpers.addJob("hop", { item, stage: following % stages });
      }
    },
  },
  preset: batched
    ? {
        worker: {
          localQueue: { size: 500 },
          completeJobBatchDelay: 5,
          failJobBatchDelay: 5,
        },
      }
    : {},
});

for await (const _ of input); // until it ends
await runner.stop();
clearInterval(timer);
tell();
process.exit(0);
