// Drawing symbols exactly as models/generate does: the same rules, in 64 bits, on the same random numbers.

const M32 = 0xffffffffn,
  M64 = (1n << 64n) - 1n,
  M128 = (1n << 128n) - 1n;

// numpy's SeedSequence(words).generate_state(4, uint64).
function seedState(words) {
  let hash = 0x43b0d7e5;
  const hashed = (value) => {
    value = (value ^ hash) >>> 0;
    hash = Math.imul(hash, 0x931e8875) >>> 0;
    value = Math.imul(value, hash) >>> 0;
    return (value ^ (value >>> 16)) >>> 0;
  };
  const mixed = (x, y) => {
    const value = (Math.imul(0xca01f9dd, x) - Math.imul(0x4973f715, y)) >>> 0;
    return (value ^ (value >>> 16)) >>> 0;
  };
  const pool = [0, 1, 2, 3].map((i) => hashed(words[i] ?? 0));
  for (let from = 0; from < 4; from++) {
    for (let to = 0; to < 4; to++) if (from !== to) pool[to] = mixed(pool[to], hashed(pool[from]));
  }
  for (const word of words.slice(4)) {
    for (let to = 0; to < 4; to++) pool[to] = mixed(pool[to], hashed(word));
  }
  let out = 0x8b51f9dd;
  const state = Array.from({ length: 8 }, (_, n) => {
    let value = (pool[n % 4] ^ out) >>> 0;
    out = Math.imul(out, 0x58f38ded) >>> 0;
    value = Math.imul(value, out) >>> 0;
    return BigInt((value ^ (value >>> 16)) >>> 0);
  });
  return [0, 2, 4, 6].map((n) => state[n] | (state[n + 1] << 32n));
}

// numpy's default_rng([seed, sample]).random: PCG64 (XSL-RR), 53 bits of each number.
class Uniform {
  constructor(seed, sample = 0) {
    const [high, low, streamHigh, streamLow] = seedState([...words32(seed), ...words32(sample)]);
    this.increment = ((((streamHigh << 64n) | streamLow) << 1n) | 1n) & M128;
    this.state = 0n;
    this.advance();
    this.state = (this.state + ((high << 64n) | low)) & M128;
    this.advance();
  }

  advance() {
    this.state = (this.state * 0x2360ed051fc65da44385df649fccf645n + this.increment) & M128;
  }

  next() {
    this.advance();
    const folded = (this.state >> 64n) ^ (this.state & M64),
      turn = this.state >> 122n;
    const turned = ((folded >> turn) | (folded << ((64n - turn) & 63n))) & M64;
    return Number(turned >> 11n) / 9007199254740992;
  }
}

function words32(number) {
  const words = [];
  for (let rest = BigInt(number); rest > 0n || words.length === 0; rest >>= 32n) words.push(Number(rest & M32));
  return words;
}

// The seed a user gave, as a BigInt, or one of 64 random bits.
function readSeed(seed) {
  if (seed === undefined || seed === null || seed === "") {
    return crypto.getRandomValues(new BigUint64Array(1))[0];
  }
  let number;
  try {
    number = BigInt(seed);
  } catch {
    throw new Error(`seed must be a whole number, got ${seed}`);
  }
  if (number < 0n) throw new Error(`seed must be 0 or more, got ${seed}`);
  return number;
}

// Options of `generate`, checked as Python's Sampling is.
function readSampling({ temperature = 1, top_k = null, top_p = null, seed = null }) {
  const off = (value) => value === null || value === undefined || value === "";
  const sampling = {
    temperature: Number(temperature),
    top_k: off(top_k) ? null : Number(top_k),
    top_p: off(top_p) ? null : Number(top_p),
    seed: readSeed(seed),
  };
  if (!(sampling.temperature >= 0 && sampling.temperature < Infinity)) {
    throw new Error(`temperature must be 0 or more, got ${temperature}`);
  }
  if (sampling.top_k !== null && !(Number.isInteger(sampling.top_k) && sampling.top_k >= 1)) {
    throw new Error(`top_k must be a whole number of 1 or more, got ${top_k}`);
  }
  if (sampling.top_p !== null && !(sampling.top_p > 0 && sampling.top_p <= 1)) {
    throw new Error(`top_p must be above 0 and at most 1, got ${top_p}`);
  }
  return sampling;
}

// One symbol from its logits, with u uniform in [0, 1).
function draw(logits, u, { temperature, top_k, top_p }) {
  const symbols = Array.from(logits, (_, s) => s);
  let best = 0;
  for (const s of symbols) if (logits[s] > logits[best]) best = s;
  if (temperature === 0) return best;
  const p = Float64Array.from(logits, (logit) => Math.exp((logit - logits[best]) / temperature));
  if (top_k !== null || top_p !== null) {
    const order = symbols.sort((a, b) => logits[b] - logits[a] || a - b);
    for (const s of order.slice(top_k ?? order.length)) p[s] = 0;
    if (top_p !== null) {
      const total = sum(p);
      let before = 0;
      for (const s of order) {
        const share = p[s] / total;
        if (before >= top_p) p[s] = 0;
        before += share;
      }
    }
  }
  const goal = u * sum(p);
  let running = 0;
  for (let s = 0; s < p.length; s++) {
    running += p[s];
    if (running > goal && p[s] > 0) return s;
  }
  return best;
}

function sum(values) {
  let total = 0;
  for (const value of values) total += value;
  return total;
}
