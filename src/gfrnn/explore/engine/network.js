// One timestep of a gated-feedback network, as equations.py has it; the names are the paper's.
//
// L layers   H units per layer   V symbols
// G gates of the unit: tanh 1, GRU 3 (r, z, candidate), LSTM 4 (i, f, candidate, o), bounded LSTM 3 (f, candidate, o)
// g[j * L + i] is g^{i->j}. Unit-wise gates come before the candidate here, whatever the order in the file.

const GATES = { tanh: 1, gru: 3, lstm: 4, "bounded-lstm": 3 };
const CANDIDATE = { tanh: 0, gru: 2, lstm: 2, "bounded-lstm": 1 };
const NO_SYMBOL = -1; // x_t = 0: a character taken away

const sigmoid = (a) => 1 / (1 + Math.exp(-a));
const tanh = (a) => 2 / (1 + Math.exp(-2 * a)) - 1; // saturates

class Network {
  constructor(model, allowSimd = true) {
    Object.assign(this, model.config);
    this.L = this.num_layers;
    this.H = this.hidden_size;
    this.V = this.vocabulary.length;
    this.G = GATES[this.unit];
    const tensors = unpacked(model);
    const elements = [...tensors.values()].reduce((sum, { rows, K }) => sum + (rows + 2 * PANEL) * (K + 1), 0);
    const states = this.L * this.H;
    this.memory = new Memory(4 * elements + 128 * (states + this.V) + 16384, allowSimd);
    this.h = this.memory.vector(states); // h_{t-1}, after a step h_t
    this.c = new Float64Array(states);
    this.h_new = this.memory.vector(states);
    this.g = new Float64Array(this.L * this.L);
    this.gated_h = this.memory.vector(states); // g^{i->j} h_{t-1}^i of the sources of one layer
    this.sum = this.memory.vector(this.H); // sum_i g^{i->j} U^{i->j} h_{t-1}^i
    this.a = this.memory.vector(this.G * this.H + this.L); // pre-activations of one layer, and of its global gates
    this.layers = Array.from({ length: this.L }, (_, j) => this.packLayer(tensors, j));
    const head = tensors.get("head.weight");
    this.head = this.memory.matrix(head.all(), head.K);
    this.head_bias = tensors.get("head.bias").values;
    this.features = this.output === "all" ? this.h.at : this.h.at + 8 * (this.L - 1) * this.H;
    this.logits = this.memory.vector(this.V);
  }

  get simd() {
    return this.memory.kernel !== null;
  }

  packLayer(tensors, j) {
    const { H, L, G, V, memory } = this;
    const named = (name) => tensors.get(`layer.${name}_l${j}`);
    const candidate = CANDIDATE[this.unit];
    const order = Array.from({ length: G }, (_, k) => k)
      .filter((k) => k !== candidate)
      .concat(candidate);
    const inOrder = (tensor) => order.flatMap((k) => tensor.all().slice(k * H, (k + 1) * H));
    const W = inOrder(named("weight_ih"));
    const w_g = named("weight_ig")?.all() ?? [];
    const rows = [...W, ...w_g];
    const bias = named("bias"),
      gateBias = named("bias_g");
    const ofUnits = (vector) =>
      Array.from({ length: G * H }, (_, r) => vector?.values[order[Math.floor(r / H)] * H + (r % H)] ?? 0);
    const gain = named("gain") ? ofUnits(named("gain")) : null;
    const first = gain ? Array(G * H).fill(0) : ofUnits(bias); // a normalised sum gets its bias afterwards
    const b = [...first, ...w_g.map((_, i) => gateBias?.values[i] ?? 0)];
    const seesX = j === 0 || this.input_skip;
    const U = named("weight_hh"),
      U_candidate = named("weight_fb");
    const blocks = U_candidate ? null : inOrder(U);
    const unitWise = U_candidate ? U.all() : blocks.slice(0, (G - 1) * H);
    const own = this.wiring === "stacked" || this.gates_see === "own";
    return {
      table: this.packTable(rows, b, seesX),
      gain,
      bias: gain ? ofUnits(bias) : null,
      seesX,
      up:
        j === 0
          ? null
          : memory.matrix(
              rows.map((row) => row.subarray(seesX ? V : 0)),
              H,
            ),
      U: unitWise.length ? memory.matrix(unitWise, U.K) : null,
      seen: own ? this.h.at + 8 * j * H : this.h.at,
      U_candidate: memory.matrix(U_candidate ? U_candidate.all() : blocks.slice((G - 1) * H), U_candidate?.K ?? U.K),
      u_g: named("weight_hg") ? memory.matrix(named("weight_hg").all(), L * H) : null,
      sources: this.wiring === "stacked" ? [j] : Array.from({ length: L }, (_, i) => i),
    };
  }

  // W x_t + b for every one-hot x_t, and as a last row b alone.
  packTable(rows, b, seesX) {
    const { V } = this,
      width = rows.length,
      table = new Float64Array((V + 1) * width);
    for (let x = 0; x <= V; x++) {
      for (let r = 0; r < width; r++) table[x * width + r] = b[r] + (seesX && x < V ? rows[r][x] : 0);
    }
    return table;
  }

  reset() {
    this.h.values.fill(0);
    this.c.fill(0);
  }

  load(h, c) {
    this.h.values.set(h);
    this.c.set(c);
  }

  // Read one symbol. `forced` holds values for global gates in place of the learnt ones; NaN leaves a gate as learnt.
  step(symbol, forced) {
    const { L, H, G, memory, g } = this;
    g.fill(0);
    for (let j = 0; j < L; j++) {
      const layer = this.layers[j],
        a = this.a.values,
        width = layer.u_g ? G * H + L : G * H;
      const row = (symbol === NO_SYMBOL || !layer.seesX ? this.V : symbol) * width;
      a.set(layer.table.subarray(row, row + width));
      if (layer.up) memory.multiply(layer.up, this.h_new.at + 8 * (j - 1) * H, this.a.at);
      if (layer.u_g) memory.multiply(layer.u_g, this.h.at, this.a.at + 8 * G * H);
      this.globalResetGates(j, layer, forced);
      this.gatedSum(j, layer);
      if (layer.U) memory.multiply(layer.U, layer.seen, this.a.at);
      if (layer.gain) this.normalise(layer);
      UNITS[this.unit](this, j * H);
    }
    this.h.values.set(this.h_new.values);
  }

  // g^{i->j} = sigma(w_g^{i->j} h_t^{j-1} + u_g^{i->j} h*_{t-1}), 1 where the wiring has no gates
  globalResetGates(j, { u_g, sources }, forced) {
    const { L, g } = this,
      first = this.G * this.H;
    for (const i of sources) {
      const at = j * L + i;
      g[at] = u_g ? sigmoid(this.a.values[first + i]) : 1;
      if (forced && !Number.isNaN(forced[at])) g[at] = forced[at];
    }
  }

  // sum_i g^{i->j} U^{i->j} h_{t-1}^i
  gatedSum(j, { sources, U_candidate }) {
    const { H, L, g } = this,
      h = this.h.values,
      to = this.gated_h.values;
    sources.forEach((i, n) => {
      const gate = g[j * L + i];
      for (let k = 0; k < H; k++) to[n * H + k] = gate * h[i * H + k];
    });
    this.sum.values.fill(0);
    this.memory.multiply(U_candidate, this.gated_h.at, this.sum.at);
  }

  // gain a / rms(a) + b for every gate; the candidate comes last, with the gated sum (a GRU's: let in by r) in it.
  normalise({ gain, bias }) {
    const { H, G, a, sum } = this;
    for (let block = 0; block < G; block++) {
      const at = block * H;
      if (block === G - 1) {
        for (let k = 0; k < H; k++) {
          a.values[at + k] += (this.unit === "gru" ? sigmoid(a.values[k]) : 1) * sum.values[k];
        }
        sum.values.fill(0);
      }
      let squares = 0;
      for (let k = at; k < at + H; k++) squares += a.values[k] ** 2;
      const inverse = 1 / Math.sqrt(squares / H + this.epsilon);
      for (let k = at; k < at + H; k++) a.values[k] = gain[k] * a.values[k] * inverse + bias[k];
    }
  }

  // The logits of the next symbol; before the first symbol they are the bias alone.
  next(first = false) {
    this.logits.values.set(this.head_bias);
    if (!first) this.memory.multiply(this.head, this.features, this.logits.at);
    return this.logits.values;
  }
}

// Each writes h_t (and c_t) of the layer whose units begin at `at`, from the pre-activations and the gated sum.
const UNITS = {
  tanh({ H, a, sum, h_new }, at) {
    for (let k = 0; k < H; k++) h_new.values[at + k] = tanh(a.values[k] + sum.values[k]);
  },

  gru({ H, a, sum, h, h_new }, at) {
    for (let k = 0; k < H; k++) {
      const r = sigmoid(a.values[k]);
      const z = sigmoid(a.values[H + k]);
      const h_tilde = tanh(a.values[2 * H + k] + r * sum.values[k]);
      h_new.values[at + k] = (1 - z) * h.values[at + k] + z * h_tilde;
    }
  },

  lstm({ H, a, sum, c, h_new }, at) {
    for (let k = 0; k < H; k++) {
      const i = sigmoid(a.values[k]);
      const f = sigmoid(a.values[H + k]);
      const o = sigmoid(a.values[2 * H + k]);
      const c_tilde = tanh(a.values[3 * H + k] + sum.values[k]);
      c[at + k] = f * c[at + k] + i * c_tilde;
      h_new.values[at + k] = o * tanh(c[at + k]);
    }
  },

  "bounded-lstm"({ H, a, sum, c, h_new }, at) {
    for (let k = 0; k < H; k++) {
      const f = sigmoid(a.values[k]);
      const o = sigmoid(a.values[H + k]);
      c[at + k] = f * c[at + k] + (1 - f) * tanh(a.values[2 * H + k] + sum.values[k]);
      h_new.values[at + k] = o * tanh(c[at + k]);
    }
  },
};

// The tensors of the page's model by name: matrices are stored in 16 bits, vectors in 32.
function unpacked({ tensors, data }) {
  const text = atob(data),
    bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return new Map(
    tensors.map(({ name, shape, bits, at }) => {
      const count = shape.reduce((a, b) => a * b, 1);
      const values =
        bits === 16
          ? fromHalf(new Uint16Array(bytes.buffer, at, count))
          : new Float32Array(bytes.buffer.slice(at, at + 4 * count));
      const [rows, K] = shape.length > 1 ? shape : [1, count];
      const all = () => Array.from({ length: rows }, (_, r) => values.subarray(r * K, (r + 1) * K));
      return [name, { values, rows, K, all }];
    }),
  );
}

function fromHalf(halves) {
  const table = new Float32Array(65536);
  for (let n = 0; n < 65536; n++) {
    const exponent = (n >> 10) & 31,
      fraction = n & 1023,
      sign = n & 32768 ? -1 : 1;
    const size = exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -24 * fraction;
    table[n] = sign * (exponent === 31 ? (fraction ? NaN : Infinity) : size);
  }
  return Float32Array.from(halves, (n) => table[n]);
}
