// The thread a model runs in: a Worker, or the page itself where there are none. Requests are {id, verb, options};
// answers {id, result}, {id, error} or, on the way, {id, progress}. {cancel: id} ends a request without an answer.

const SLICE = 24; // milliseconds of work between two looks at the messages

class Thread {
  constructor(post) {
    this.post = post;
    this.jobs = [];
    this.reader = null;
    this.running = false;
  }

  receive({ id, verb, options, cancel }) {
    if (cancel !== undefined) {
      this.jobs = this.jobs.filter((job) => job.id !== cancel);
      return;
    }
    try {
      if (verb === "load") {
        this.reader = new Reader(options.model, options.allowSimd);
        this.post({ id, result: { simd: this.reader.network.simd } });
        return;
      }
      this.jobs.push({ id, work: this.reader[verb](options), state: null });
      if (!this.running) this.runSlice();
    } catch (error) {
      this.post({ id, error: error.message });
    }
  }

  // Jobs take turns; each finds the network's state as it left it.
  runSlice() {
    const job = this.jobs.shift();
    this.running = job !== undefined;
    if (!job) return;
    const { network } = this.reader,
      end = performance.now() + SLICE,
      drawn = [];
    if (job.state) network.load(job.state.h, job.state.c);
    try {
      let turn = job.work.next();
      for (; !turn.done && performance.now() < end; turn = job.work.next()) {
        if (turn.value.drawn !== undefined) drawn.push(turn.value.drawn);
      }
      if (!turn.done && turn.value.drawn !== undefined) drawn.push(turn.value.drawn);
      if (drawn.length || !turn.done) this.post({ id: job.id, progress: drawn.length ? drawn : turn.value });
      if (turn.done) {
        this.post({ id: job.id, result: turn.value });
      } else {
        job.state = { h: network.h.values.slice(), c: network.c.slice() };
        this.jobs.push(job);
      }
    } catch (error) {
      this.post({ id: job.id, error: error.message });
    }
    afterMessages(() => this.runSlice());
  }
}

// Calls back once the messages that wait have been taken; unlike setTimeout without a pause.
const afterMessages = (() => {
  const waiting = [],
    { port1, port2 } = new MessageChannel();
  port1.onmessage = () => waiting.shift()();
  return (callback) => {
    waiting.push(callback);
    port2.postMessage(null);
  };
})();

if (typeof WorkerGlobalScope !== "undefined" && self instanceof WorkerGlobalScope) {
  const thread = new Thread((message) => self.postMessage(message));
  self.onmessage = ({ data }) => thread.receive(data);
}
