// Matrix times vector, where all the time goes: out += A x.
//
// A (R rows, K columns) is kept in 32 bits, which hold its 16-bit weights exactly; x and `out` are 64-bit floats, and
// so are all products and sums: the page is to agree with Python, not with the rounding of some order of sums.
// A lies in panels of 8 rows, column after column: what one x[k] multiplies is side by side. Rows are filled up with
// zeros to a multiple of 8, so a product may add zeros to 7 numbers behind `out`. Places are in bytes.

const PANEL = 8;

// The kernel as WebAssembly with SIMD, assembled here: the page needs no compiler, and the reader no binary.
// The names are those of the specification's text format.
const WASM = {
  i32: 0x7f, v128: 0x7b, none: 0x40,
  block: 0x02, loop: 0x03, end: 0x0b, br: 0x0c, br_if: 0x0d,
  get: 0x20, set: 0x21, constant: 0x41, eqz: 0x45, add: 0x6a, subtract: 0x6b,
  v128_load: [0xfd, 0x00], v128_load64_zero: [0xfd, 0x5d], v128_load64_splat: [0xfd, 0x0a], v128_store: [0xfd, 0x0b],
  f64x2_add: [0xfd, 0xf0, 0x01], f64x2_mul: [0xfd, 0xf2, 0x01], f64x2_promote_low_f32x4: [0xfd, 0x5f],
};

function assembled() {
  const { get, set, constant, add, subtract } = WASM;
  const [A, x, out, panels, K, k, at, factor] = [0, 1, 2, 3, 4, 5, 6, 7], sums = [8, 9, 10, 11];
  const number = (n) => (n < 64 ? [n] : [(n & 127) | 128, n >> 7]);  // LEB128 of what is below 8192
  const address = (offset) => [2, ...number(offset)];                 // aligned to 4 bytes
  const advance = (name, bytes) => [get, name, constant, ...number(bytes), add, set, name];
  const addProducts = sums.flatMap((sum, n) => [
    get, A, ...WASM.v128_load64_zero, ...address(8 * n), ...WASM.f64x2_promote_low_f32x4,
    get, factor, ...WASM.f64x2_mul, get, sum, ...WASM.f64x2_add, set, sum,
  ]);
  const body = [
    WASM.block, WASM.none, WASM.loop, WASM.none,  // for every panel
    get, panels, WASM.eqz, WASM.br_if, 1,
    ...sums.flatMap((sum, n) => [get, out, ...WASM.v128_load, ...address(16 * n), set, sum]),
    get, x, set, at, get, K, set, k,
    WASM.block, WASM.none, WASM.loop, WASM.none,  // for every column
    get, k, WASM.eqz, WASM.br_if, 1,
    get, at, ...WASM.v128_load64_splat, ...address(0), set, factor,
    ...addProducts,
    ...advance(A, 4 * PANEL), ...advance(at, 8),
    get, k, constant, 1, subtract, set, k, WASM.br, 0,
    WASM.end, WASM.end,
    ...sums.flatMap((sum, n) => [get, out, get, sum, ...WASM.v128_store, ...address(16 * n)]),
    ...advance(out, 8 * PANEL),
    get, panels, constant, 1, subtract, set, panels, WASM.br, 0,
    WASM.end, WASM.end, WASM.end,
  ];
  const section = (id, bytes) => [id, ...number(bytes.length), ...bytes];
  const text = (word) => [word.length, ...[...word].map((letter) => letter.charCodeAt(0))];
  const code = [2, 2, WASM.i32, 5, WASM.v128, ...body];
  return new Uint8Array([
    0, 0x61, 0x73, 0x6d, 1, 0, 0, 0,
    ...section(1, [1, 0x60, 5, WASM.i32, WASM.i32, WASM.i32, WASM.i32, WASM.i32, 0]),
    ...section(2, [1, ...text("page"), ...text("memory"), 2, 0, 1]),
    ...section(3, [1, 0]),
    ...section(7, [1, ...text("multiply"), 0, 0]),
    ...section(10, [1, ...number(code.length), ...code]),
  ]);
}

// One block of memory for weights and states; `multiply` is the kernel over it, by SIMD where there is any.
class Memory {
  constructor(bytes, allowSimd = true) {
    this.used = 16;
    const pages = Math.ceil(bytes / 65536) + 1;
    try {
      if (!allowSimd) throw new Error("plain JavaScript was asked for");
      const memory = new WebAssembly.Memory({ initial: pages });
      const module = new WebAssembly.Module(assembled());
      this.kernel = new WebAssembly.Instance(module, { page: { memory } }).exports.multiply;
      this.buffer = memory.buffer;
    } catch {
      this.kernel = null;
      this.buffer = new ArrayBuffer(pages * 65536);
    }
    this.floats = new Float32Array(this.buffer);
    this.doubles = new Float64Array(this.buffer);
  }

  // `count` new numbers, with room behind them for the zeros of a last panel.
  vector(count, Kind = Float64Array) {
    const at = this.used;
    this.used += Math.ceil(((count + PANEL) * Kind.BYTES_PER_ELEMENT) / 16) * 16;
    if (this.used > this.buffer.byteLength) throw new Error("the model needs more memory than was set aside");
    return { at, values: new Kind(this.buffer, at, count) };
  }

  // The panels of a matrix given by its rows.
  matrix(rows, K) {
    const panels = Math.ceil(rows.length / PANEL);
    const { at, values } = this.vector(panels * PANEL * K, Float32Array);
    rows.forEach((row, r) => {
      const start = Math.floor(r / PANEL) * PANEL * K + (r % PANEL);
      for (let k = 0; k < K; k++) values[start + k * PANEL] = row[k];
    });
    return { at, panels, K };
  }

  multiply(A, x, out) {
    if (this.kernel) this.kernel(A.at, x, out, A.panels, A.K);
    else plainMultiply(this.floats, this.doubles, A, x / 8, out / 8);
  }
}

// The same in plain JavaScript.
function plainMultiply(f, s, { at, panels, K }, x, out) {
  for (let p = at / 4, end = out + panels * PANEL; out < end; out += PANEL) {
    let a = s[out], b = s[out + 1], c = s[out + 2], d = s[out + 3];
    let e = s[out + 4], g = s[out + 5], h = s[out + 6], i = s[out + 7];
    for (let k = x, last = x + K; k < last; k++, p += PANEL) {
      const v = s[k];
      a += f[p] * v; b += f[p + 1] * v; c += f[p + 2] * v; d += f[p + 3] * v;
      e += f[p + 4] * v; g += f[p + 5] * v; h += f[p + 6] * v; i += f[p + 7] * v;
    }
    s[out] = a; s[out + 1] = b; s[out + 2] = c; s[out + 3] = d;
    s[out + 4] = e; s[out + 5] = g; s[out + 6] = h; s[out + 7] = i;
  }
}
