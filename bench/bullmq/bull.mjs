// bull.mjs SOCKET WINDOW SECONDS RATE CONCURRENCY: the same flow as bench_control's, through BullMQ on the same redis-server. Jobs
// are added in bulk, processed by one Worker whose processor does nothing, and removed when done. One JSON line.
import { Queue, Worker } from 'bullmq';
import IORedis from 'ioredis';

const [socket, windowText, secondsText, rateText, concurrencyText] = process.argv.slice(2);
const windowMax = Number(windowText), seconds = Number(secondsText), rate = Number(rateText);
const connect = () => new IORedis({ path: socket, maxRetriesPerRequest: null });
const queue = new Queue('bench', { connection: connect() });
const worker = new Worker('bench', async () => 'ok', { connection: connect(), concurrency: Number(concurrencyText) });
let submitted = 0, finished = 0;
const samples = [];
worker.on('completed', (job) => {
    finished++;
    samples.push(performance.now() - job.data.at);
});
worker.on('error', (e) => console.error(e.message));
await worker.waitUntilReady();
const start = performance.now(), end = start + seconds * 1000;
const chunkMax = Math.max(1, Math.min(256, Math.floor(windowMax / 3)));
while (performance.now() < end) {
    const now = performance.now(), room = windowMax - (submitted - finished);
    const due = rate > 0 ? Math.floor(((now - start) * rate) / 1000) - submitted : room;
    const n = Math.min(due, room, chunkMax);
    if (rate > 0 ? n > 0 : n >= chunkMax || room === windowMax) {
        const jobs = [];
        for (let i = 0; i < n; i++) {
            jobs.push({
                name: 'job',
                data: { at: now, template: 'python', command: ['scripted', 'accepted', '0', 'ok\n'] },
                opts: { removeOnComplete: true },
            });
        }
        await queue.addBulk(jobs);
        submitted += n;
    } else {
        await new Promise((r) => setTimeout(r, 1));
    }
}
const took = (performance.now() - start) / 1000;
samples.sort((a, b) => a - b);
const q = (p) => samples[Math.floor((samples.length - 1) * p)] ?? 0;
console.log(JSON.stringify({ what: 'bullmq', jobs: finished, seconds: took, jobs_per_s: finished / took,
    p50_ms: q(0.5), p99_ms: q(0.99), max_ms: q(1) }));
await worker.close(true);
await queue.obliterate({ force: true });
process.exit(0);
