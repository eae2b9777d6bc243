// A model of the page: the thread it runs in, and what is known about the text it has read.

// Requests to a thread, a Worker where the browser has one.
class Engine {
  constructor(packed) {
    this.waiting = new Map();
    this.last = 0;
    this.ready = this.start(packed, true).catch(() => this.start(packed, false));
  }

  async start(packed, inWorker) {
    if (inWorker) {
      const source = new Blob([document.getElementById("engine").textContent], { type: "text/javascript" });
      const address = URL.createObjectURL(source),
        worker = new Worker(address);
      worker.onmessage = ({ data }) => this.receive(data);
      this.send = (message) => worker.postMessage(message);
      this.place = "a worker";
      const failed = new Promise((_, reject) => {
        worker.onerror = (event) => {
          event.preventDefault();
          reject(event);
        };
      });
      const answer = await Promise.race([this.call("load", { model: packed, allowSimd: true }), failed]);
      URL.revokeObjectURL(address);
      return answer;
    }
    const thread = new Thread((message) => this.receive(message));
    this.send = (message) => thread.receive(message);
    this.place = "the page, in slices";
    return this.call("load", { model: packed, allowSimd: true });
  }

  receive({ id, result, error, progress }) {
    const request = this.waiting.get(id);
    if (!request) return;
    if (progress !== undefined) {
      request.told?.(progress);
      return;
    }
    this.waiting.delete(id);
    if (error === undefined) request.resolve(result);
    else request.reject(new Error(error));
  }

  // The answer to come; `signal` may be aborted, and then there is none.
  call(verb, options, { told, signal } = {}) {
    const id = ++this.last;
    return new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(new DOMException("stopped", "AbortError"));
      this.waiting.set(id, { resolve, reject, told });
      signal?.addEventListener("abort", () => {
        this.waiting.delete(id);
        this.send({ cancel: id });
        reject(new DOMException("stopped", "AbortError"));
      });
      this.send({ id, verb, options });
    });
  }
}

class Model {
  constructor(packed, index) {
    Object.assign(this, { name: packed.name, index, config: packed.config, parameters: packed.parameters });
    const { num_layers: L, hidden_size: H, vocabulary, wiring } = packed.config;
    Object.assign(this, { L, H, vocabulary });
    this.sources = (j) => (wiring === "stacked" ? [j] : Array.from({ length: L }, (_, i) => i));
    this.pairs = []; // [to j, from i] of every gate, from the top layer down
    for (let j = L - 1; j >= 0; j--) for (const i of this.sources(j)) this.pairs.push([j, i]);
    this.known = new Set(vocabulary);
    this.letGo();
    this.forget();
    this.engine = new Engine(packed);
    this.ready = this.engine.ready.then((answer) => Object.assign(this, answer));
  }

  forget() {
    Object.assign(this, { bits: [], learntBits: [], g: [], next: null, symbols: [], length: 0 });
  }

  get kind() {
    const units = { tanh: "tanh", gru: "GRU", lstm: "LSTM", "bounded-lstm": "bounded LSTM" }[this.config.unit];
    const wiring = { gated: "gated-feedback", feedback: "feedback (gates fixed to 1)", stacked: "stacked" }[
      this.config.wiring
    ];
    return `${wiring} ${units}${this.config.epsilon ? ", normalised" : ""}, ${this.L} × ${this.H} units`;
  }

  letGo() {
    this.forced = Array(this.L * this.L).fill(null);
  }

  hold(j, i, value) {
    this.forced[j * this.L + i] = value;
  }

  get isTouched() {
    return this.forced.some((value) => value !== null);
  }

  gate(t, j, i) {
    return this.g[(t * this.L + j) * this.L + i];
  }

  // Read a text with the gates as they are set; an unfinished reading is dropped.
  async read(text, unknown, told) {
    this.reading?.abort();
    this.reading = new AbortController();
    const { symbols, replaced } = symbolsOf(text.bytes, this.vocabulary, unknown);
    await this.ready;
    const forced = this.isTouched ? this.forced.slice() : null;
    const answer = await this.ask("read", { symbols, forced }, { told });
    Object.assign(this, { symbols, replaced, length: symbols.length });
    Object.assign(this, { learntBits: answer.learnt.bits, bits: answer.shown.bits, g: answer.shown.g });
  }

  // A question about the text that was read last; it ends with the reading.
  ask(verb, options, more = {}) {
    return this.engine.call(verb, options, { signal: this.reading?.signal, ...more });
  }
}
