// What the page asks of a network. Long work is written as generators that pause after every few steps, so that the
// thread they run in stays reachable; what they return is the answer, what they yield the number of steps done.

const PAUSE = 16; // steps

// -log2 p of one symbol.
function bitsOf(logits, symbol) {
  let most = -Infinity;
  for (const logit of logits) most = Math.max(most, logit);
  let total = 0;
  for (const logit of logits) total += Math.exp(logit - most);
  return (Math.log(total) + most - logits[symbol]) / Math.LN2;
}

function probabilities(logits) {
  let most = -Infinity;
  for (const logit of logits) most = Math.max(most, logit);
  const p = Float64Array.from(logits, (logit) => Math.exp(logit - most)),
    total = sum(p);
  return p.map((value) => value / total);
}

// Gates by number, NaN where they are as learnt; null when all are.
function heldGates(forced) {
  return forced ? Float64Array.from(forced, (gate) => gate ?? NaN) : null;
}

// All that is known about a text: bits, gates and states of every byte. Another text is read from where it differs.
class Reading {
  constructor(network) {
    this.network = network;
    this.symbols = [];
    this.forced = "";
    this.length = 0; // symbols read
    this.room = 0;
  }

  grow(length) {
    if (length <= this.room) return;
    const { L, H } = this.network;
    this.room = Math.max(length, 2 * this.room);
    const larger = (old, size) => {
      const array = new Float64Array(this.room * size);
      if (old) array.set(old);
      return array;
    };
    this.h = larger(this.h, L * H);
    this.c = larger(this.c, L * H);
    this.g = larger(this.g, L * L);
    this.bits = larger(this.bits, 1);
  }

  // Put the network where it is after `count` symbols.
  goto(count) {
    const size = this.network.L * this.network.H,
      at = (count - 1) * size;
    if (count === 0) this.network.reset();
    else this.network.load(this.h.subarray(at, at + size), this.c.subarray(at, at + size));
  }

  *read(symbols, forced) {
    const { network } = this,
      { L, H } = network,
      key = String(forced);
    let t = 0;
    if (key === this.forced) {
      const shared = Math.min(this.length, symbols.length);
      while (t < shared && symbols[t] === this.symbols[t]) t++;
    }
    Object.assign(this, { symbols, forced: key, length: t });
    this.grow(symbols.length);
    this.goto(t);
    for (; t < symbols.length; t++) {
      this.bits[t] = bitsOf(network.next(t === 0), symbols[t]);
      network.step(symbols[t], forced);
      this.h.set(network.h.values, t * L * H);
      this.c.set(network.c, t * L * H);
      this.g.set(network.g, t * L * L);
      this.length = t + 1;
      if (t % PAUSE === 0) yield t;
    }
    return { bits: this.bits.slice(0, t), g: this.g.slice(0, t * L * L) };
  }
}

class Reader {
  constructor(model, allowSimd) {
    this.network = new Network(model, allowSimd);
    this.learnt = new Reading(this.network); // with the gates as they were learnt
    this.touched = new Reading(this.network); // with some of them held
    this.shown = this.learnt;
  }

  // The reading on display, and beside it the one with all gates as learnt.
  *read({ symbols, forced }) {
    const learnt = yield* this.learnt.read(symbols, null);
    this.shown = this.learnt;
    if (!forced) return { learnt, shown: learnt };
    const shown = yield* this.touched.read(symbols, heldGates(forced));
    this.shown = this.touched;
    return { learnt, shown };
  }

  // The probabilities of the next symbol after `count` symbols of the text on display.
  *look({ count }) {
    this.shown.goto(count);
    return probabilities(this.network.next(count === 0));
  }

  // Bits, and on request gates and logits, of a text of any length; nothing of it is kept.
  *score({ symbols, forced, withGates, withLogits }) {
    const { network } = this,
      gates = [],
      logits = [];
    const held = heldGates(forced),
      bits = new Float64Array(symbols.length);
    network.reset();
    for (let t = 0; t < symbols.length; t++) {
      bits[t] = bitsOf(network.next(t === 0), symbols[t]);
      network.step(symbols[t], held);
      if (withGates) gates.push(network.g.slice());
      if (withLogits) logits.push(network.next().slice());
      if (t % PAUSE === 0) yield t;
    }
    return { bits, gates, logits };
  }

  *generate({ symbols, forced, max_new, sampling, told }) {
    const { network } = this,
      held = heldGates(forced);
    const uniform = new Uniform(sampling.seed),
      drawn = [];
    network.reset();
    for (let t = 0; t < symbols.length; t++) {
      network.step(symbols[t], held);
      if (t % PAUSE === 0) yield t;
    }
    for (let n = 0; n < max_new; n++) {
      const symbol = draw(network.next(), uniform.next(), sampling);
      drawn.push(symbol);
      network.step(symbol, held);
      yield told ? { drawn: symbol } : n;
    }
    return drawn;
  }

  // How much each earlier character matters for the prediction after `count` symbols: a finite difference. The input of
  // its bytes is taken away (x = 0), the model reads on, and the two predictions are compared (Kullback-Leibler, bits).
  // `spans` are the characters as [first, behind] symbol numbers.
  *influence({ count, spans, forced }) {
    const { network, shown } = this,
      held = heldGates(forced);
    shown.goto(count);
    const p = probabilities(network.next()),
      answer = [];
    for (const [first, behind] of spans) {
      shown.goto(first);
      for (let t = first; t < count; t++) network.step(t < behind ? NO_SYMBOL : shown.symbols[t], held);
      const q = probabilities(network.next());
      const divergence = p.reduce((total, value, s) => total + (value > 0 ? value * Math.log2(value / q[s]) : 0), 0);
      answer.push(Math.max(divergence, 0));
      yield answer.length;
    }
    return answer;
  }

  *unit({ layer, unit }) {
    const { L, H } = this.network,
      { h, length } = this.shown,
      at = layer * H + unit;
    return Float64Array.from({ length }, (_, t) => h[t * L * H + at]);
  }

  // The unit that varies most over the text.
  *liveliest() {
    const { L, H } = this.network,
      { h, length } = this.shown,
      best = { spread: -1 };
    for (let at = 0; at < L * H; at++) {
      let total = 0,
        squares = 0;
      for (let t = 0; t < length; t++) {
        total += h[t * L * H + at];
        squares += h[t * L * H + at] ** 2;
      }
      const spread = squares / length - (total / length) ** 2;
      if (spread > best.spread) Object.assign(best, { layer: Math.floor(at / H), unit: at % H, spread });
    }
    return best;
  }

  // The units whose mean over the marked symbols is farthest from their mean over the rest, in standard deviations.
  *react({ first, behind, most }) {
    const { L, H } = this.network,
      { h, length } = this.shown,
      marked = behind - first,
      rest = length - marked;
    const units = [];
    for (let at = 0; at < L * H; at++) {
      let inside = 0,
        outside = 0,
        squares = 0;
      for (let t = 0; t < length; t++) {
        const value = h[t * L * H + at];
        if (t >= first && t < behind) inside += value;
        else outside += value;
        squares += value * value;
      }
      const mean = (inside + outside) / length,
        deviation = Math.sqrt(Math.max(squares / length - mean * mean, 1e-12));
      const away = (inside / marked - outside / rest) / deviation;
      units.push({ layer: Math.floor(at / H), unit: at % H, away });
      if (at % 64 === 0) yield at;
    }
    return units.sort((a, b) => Math.abs(b.away) - Math.abs(a.away)).slice(0, most);
  }

  // By how much the text's bits per byte change with every global gate held, one at a time, at `value`.
  *tryGates({ symbols, value }) {
    const { L } = this.network,
      learnt = (yield* this.learnt.read(symbols, null)).bits,
      change = [];
    for (let at = 0; at < L * L; at++) {
      const [j, i] = [Math.floor(at / L), at % L];
      if (!this.network.layers[j].sources.includes(i)) {
        change.push(null);
        continue;
      }
      const forced = Array(L * L).fill(null);
      forced[at] = value;
      const { bits } = yield* this.score({ symbols, forced });
      change.push((sum(bits) - sum(learnt)) / symbols.length);
    }
    return change;
  }
}
