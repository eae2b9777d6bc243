// Text from a model, one character after the other, for a batch of one: every weight is read once per character, so what
// counts is how many bytes that is and how near they lie. The weights are packed once, each thread reads the same part
// of them at every character (so that it stays in that thread's cache), and nothing is allocated on the way.
//
// Everything recurrent depends on h_{t-1} only, and a scalar gate commutes with a matrix: U^{i->j} h^i_{t-1} of all i, j
// is one phase; then the layers from below, then the softmax. Between phases the threads meet; the cheap rest (units,
// sampling) each thread computes for itself instead of waiting once more.
#pragma once
#include "gemm.h"
#include "kernels.h"
#include "layout.h"
#include "units.h"

namespace {

using gfrnn::Generate;
using gfrnn::Shape;

struct Half {
  uint16_t bits;
};

// A vector of floats from memory, whatever it is stored as.
GFRNN_INLINE vec<float> fetch(const float* p) { return load<float>(p); }

GFRNN_INLINE vec<float> fetch(const Half* p) {
#if defined(__AVX512F__)
  return reinterpret_cast<vec<float>>(_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))));
#elif defined(__F16C__)
  return reinterpret_cast<vec<float>>(_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
#else
  // Exponent and mantissa moved into place are the number times 2^-112, subnormals included.
  Vec<float>::ints bits;
  for (int i = 0; i < Vec<float>::size; i++) bits[i] = p[i].bits;
  const Vec<float>::ints sign = (bits & 0x8000) << 16, rest = (bits & 0x7fff) << 13;
  const vec<float> magnitude = reinterpret_cast<vec<float>>(rest) * 5.192296858534828e33f;
  return reinterpret_cast<vec<float>>(reinterpret_cast<Vec<float>::ints>(magnitude) | sign);
#endif
}

// Packing: the number is exactly representable (the caller has rounded the weights).
GFRNN_INLINE void put(float* to, float x) { *to = x; }
GFRNN_INLINE void put(Half* to, float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  const uint32_t sign = bits >> 16 & 0x8000;
  float magnitude = (x < 0 ? -x : x) * 1.925929944387236e-34f;  // 2^-112
  std::memcpy(&bits, &magnitude, 4);
  to->bits = static_cast<uint16_t>(sign | bits >> 13);
}

// out[0..N) += sum_k in[k] rows[.][k]; panels of TILE_COLUMNS<float>, each [K][TILE_COLUMNS].
struct Job {
  Rows<const float> rows;
  int64_t K, in, out;
  int64_t panels() const { return round_up(rows.size(), TILE_COLUMNS<float>) / TILE_COLUMNS<float>; }
};

struct Phase {
  List<Job> jobs;
  int64_t panels() const {
    int64_t total = 0;
    for (const Job& job : jobs) total += job.panels();
    return total;
  }
};

// Vectors of one character. Offsets in floats.
struct Places {
  int64_t past, scaled_parts, below, logits, total;  // shared: written by all threads
  explicit Places(const Shape& s, int64_t V) {
    const int64_t slack = TILE_COLUMNS<float>;
    past = 0;                                            // per layer P
    scaled_parts = past + s.L * s.P() + slack;           // gated: U^{i->j} h^i, [i][j][H]
    below = scaled_parts + s.L * s.L * s.H + slack;      // per layer in_columns()
    logits = below + s.L * s.in_columns() + slack;
    total = logits + V + slack;
  }
};

// Phases 0: all that is recurrent; 1 .. L-1: W h_t^{j-1}; L: the softmax's weights.
List<Phase> phases(const Generate& g) {
  const Shape& s = g.shape;
  const Places at(s, g.V);
  List<Phase> all;
  Phase past;
  for (int64_t j = 0; j < s.L; j++)
    for (const Recurrent<const float>& how : recurrent_products<const float>(s, g.layers[j], j))
      if (!how.scaled) past.jobs.push({how.rows, how.K, how.at, at.past + j * s.P() + how.column});
  if (s.wiring == gfrnn::GATED)
    for (int64_t i = 0; i < s.L; i++) {
      Job job{{}, s.H, i * s.H, at.scaled_parts + i * s.L * s.H};
      for (int64_t j = 0; j < s.L; j++)
        for (const Recurrent<const float>& how : recurrent_products<const float>(s, g.layers[j], j))
          if (how.scaled)
            for (const float* row : how.rows) job.rows.push(row + i * s.H);
      past.jobs.push(job);
    }
  all.push(past);
  for (int64_t j = 1; j < s.L; j++) {
    Job job{input_rows<const float>(s, g.layers[j], j), s.H, (j - 1) * s.H, at.below + j * s.in_columns()};
    for (const float*& row : job.rows) row += s.x_width(j);
    Phase phase;
    phase.jobs.push(job);
    all.push(phase);
  }
  Job job{{}, g.head_width, s.L * s.H - g.head_width, at.logits};
  plain_rows<const float>(g.head, g.V, g.head_width, job.rows);
  Phase head;
  head.jobs.push(job);
  all.push(head);
  return all;
}

template <class W>
void generate_pack_as(const Generate& g, float* tables, W* to) {
  constexpr int NR = TILE_COLUMNS<float>;
  for (const Phase& phase : phases(g))
    for (const Job& job : phase.jobs)
      for (int64_t n0 = 0; n0 < job.rows.size(); n0 += NR, to += job.K * NR)
        for (int64_t n = 0; n < NR; n++)
          for (int64_t k = 0; k < job.K; k++) put(to + k * NR + n, n0 + n < job.rows.size() ? job.rows[n0 + n][k] : 0.0f);
  for (int64_t j = 0; j < g.shape.L; j++) {
    const Room<float> start = start_table<float>(g.shape, g.layers[j], j);
    for (int64_t e = 0; e < g.shape.entries(j); e++, tables += g.shape.in_columns())
      copy<float>(tables, start.get() + e * g.shape.P(), g.shape.in_columns());
  }
}

int64_t generate_table_elements(const Generate& g) {
  int64_t elements = 0;
  for (int64_t j = 0; j < g.shape.L; j++) elements += g.shape.entries(j) * g.shape.in_columns();
  return elements;
}

char* generate_weights(const Generate& g) {
  return g.packed + round_up(generate_table_elements(g) * 4, 64);
}

int64_t generate_packed_bytes(const Generate& g) {
  int64_t elements = 0;
  for (const Phase& phase : phases(g)) {
    for (const Job& job : phase.jobs) elements += job.K * job.panels() * TILE_COLUMNS<float>;
  }
  return round_up(generate_table_elements(g) * 4, 64) + round_up(elements * (g.half ? 2 : 4), 64);
}

void generate_pack(const Generate& g) {
  float* tables = reinterpret_cast<float*>(g.packed);
  if (g.half)
    generate_pack_as<Half>(g, tables, reinterpret_cast<Half*>(generate_weights(g)));
  else
    generate_pack_as<float>(g, tables, reinterpret_cast<float*>(generate_weights(g)));
}

// All threads wait here for each other. The last to come opens the door.
struct Barrier {
  int64_t threads, waiting = 0, round = 0;
  void wait() {
    if (threads == 1) return;
    const int64_t mine = __atomic_load_n(&round, __ATOMIC_ACQUIRE);
    if (__atomic_add_fetch(&waiting, 1, __ATOMIC_ACQ_REL) == threads) {
      __atomic_store_n(&waiting, 0, __ATOMIC_RELAXED);
      __atomic_store_n(&round, mine + 1, __ATOMIC_RELEASE);
      return;
    }
    for (int64_t spins = 0; __atomic_load_n(&round, __ATOMIC_ACQUIRE) == mine; spins++) {
      if (spins > 4000) gfrnn::yield_thread();
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    }
  }
};

// One panel: two chains of sums per vector, so that the additions' latency hides behind the loads.
template <class W>
GFRNN_INLINE void gemv_panel(const W* w, const float* in, int64_t K, float* out) {
  constexpr int VL = Vec<float>::size, NR = 2 * VL;
  vec<float> a0 = {}, a1 = {}, b0 = {}, b1 = {};
  int64_t k = 0;
  for (; k + 1 < K; k += 2, w += 2 * NR) {
    const vec<float> x = broadcast<float>(in[k]), y = broadcast<float>(in[k + 1]);
    a0 += x * fetch(w);
    a1 += x * fetch(w + VL);
    b0 += y * fetch(w + NR);
    b1 += y * fetch(w + NR + VL);
  }
  if (k < K) {
    const vec<float> x = broadcast<float>(in[k]);
    a0 += x * fetch(w);
    a1 += x * fetch(w + VL);
  }
  store<float>(out, a0 + b0);
  store<float>(out + VL, a1 + b1);
}

// What one thread does in a phase: panels as a flat list, cut to those whose columns exist.
struct Share {
  struct Piece {
    int64_t weights, K, in, out;  // offsets
    int width;
  };
  List<Piece> pieces;
};

// shares[phase * threads + thread]
List<Share> cut(const Generate& g, const List<Phase>& all) {
  constexpr int NR = TILE_COLUMNS<float>;
  List<Share> shares(all.size() * g.threads);
  int64_t weights = 0;
  for (int64_t p = 0; p < all.size(); p++) {
    const int64_t total = all[p].panels();
    int64_t number = 0;
    for (const Job& job : all[p].jobs)
      for (int64_t n = 0; n < job.rows.size(); n += NR, number++, weights += job.K * NR) {
        const int width = static_cast<int>(smaller(job.rows.size() - n, NR));
        shares[p * g.threads + number * g.threads / total].pieces.push({weights, job.K, job.in, job.out + n, width});
      }
  }
  return shares;
}

template <class W>
void run_share(const Share& share, const W* weights, const float* in, float* out) {
  for (const Share::Piece& piece : share.pieces) {
    if (piece.width == TILE_COLUMNS<float>) {
      gemv_panel<W>(weights + piece.weights, in + piece.in, piece.K, out + piece.out);
    } else {
      float whole[TILE_COLUMNS<float>];
      gemv_panel<W>(weights + piece.weights, in + piece.in, piece.K, whole);
      copy<float>(out + piece.out, whole, piece.width);
    }
  }
}

// Everything a thread needs for sampling; see generate.py for the definition.
struct Sampler {
  Room<double> p;
  Room<int64_t> order, other;
  Room<char> kept;
  explicit Sampler(int64_t V) : p(V + 8), order(V), other(V), kept(V) {}

  // order: symbols by falling p, ties by rising number (a stable merge sort)
  void sort(int64_t V) {
    int64_t *from = order.get(), *to = other.get();
    for (int64_t i = 0; i < V; i++) from[i] = i;
    for (int64_t run = 1; run < V; run *= 2) {
      for (int64_t start = 0; start < V; start += 2 * run) {
        int64_t a = start, b = smaller(start + run, V), k = start;
        const int64_t a_end = b, b_end = smaller(start + 2 * run, V);
        while (k < b_end) to[k++] = b == b_end || (a < a_end && p.get()[from[a]] >= p.get()[from[b]]) ? from[a++] : from[b++];
      }
      int64_t* swap = from;
      from = to, to = swap;
    }
    if (from != order.get()) copy<int64_t>(order.get(), from, V);
  }

  int64_t draw(const Generate& g, const float* logits, double u) {
    const int64_t V = g.V;
    int64_t best = 0;
    for (int64_t i = 1; i < V; i++)
      if (logits[i] > logits[best]) best = i;
    if (g.temperature == 0) return best;
    double* q = p.get();
    for (int64_t i = 0; i < V; i++) q[i] = (static_cast<double>(logits[i]) - logits[best]) / g.temperature;
    const bool cut = g.top_k > 0 && g.top_k < V;
    if (cut || g.top_p > 0) sort(V);
    for_lanes<double>(V, [&](Lane<double> l) { l.put(q, exp_v(l.get(q))); });
    const int64_t count = cut ? g.top_k : V;
    if (cut)
      for (int64_t i = count; i < V; i++) q[order.get()[i]] = 0;
    if (g.top_p > 0) {
      double total = 0, before = 0;
      for (int64_t i = 0; i < V; i++) total += q[i];
      for (int64_t i = 0; i < count; i++) {
        double& mine = q[order.get()[i]];
        const double share = mine / total;
        if (before >= g.top_p) mine = 0;
        before += share;
      }
    }
    double total = 0, running = 0;
    for (int64_t i = 0; i < V; i++) total += q[i];
    for (int64_t i = 0; i < V; i++) {
      running += q[i];
      if (running > u * total && q[i] > 0) return i;
    }
    return best;
  }
};

template <class W>
void generate_thread(const Generate& g, const List<Share>& shares, Barrier& start, Barrier& barrier,
                     float* shared, int64_t thread) {
  const Shape& s = g.shape;
  const int64_t H = s.H, LH = s.L * H, P = s.P(), columns = s.in_columns();
  const Places at(s, g.V);
  const W* weights = reinterpret_cast<const W*>(generate_weights(g));
  Room<float> h(LH), c(LH), new_h(LH), new_c(LH), row(P), logits(g.V);
  Sampler sampler(g.V);
  copy<float>(h.get(), g.h, LH);
  if (g.c) copy<float>(c.get(), g.c, LH);
  copy<float>(logits.get(), g.logits, g.V);
  start.wait();  // thread 0 writes g.h, g.c and g.logits again at the end
  for (int64_t step = 0; step < g.steps; step++) {
    const int64_t symbol = sampler.draw(g, logits.get(), g.uniform[step]);
    if (thread == 0) g.symbols[step] = symbol;
    run_share<W>(shares[thread], weights, h.get(), shared);
    barrier.wait();
    const float* table = reinterpret_cast<const float*>(g.packed);
    for (int64_t j = 0; j < s.L; j++) {
      if (j > 0) {
        run_share<W>(shares[j * g.threads + thread], weights, new_h.get(), shared);
        barrier.wait();
      }
      // The row of pre-activations: what the table, the layer below and the past say.
      const float* begin = table + (s.looks_up(j) ? symbol : 0) * columns;
      table += s.entries(j) * columns;
      copy<float>(row.get(), begin, columns);
      clear<float>(row.get() + columns, P - columns);
      if (j > 0) add_to<float>(row.get(), shared + at.below + j * columns, columns);
      const int64_t first = s.wiring == gfrnn::GATED || s.unit == gfrnn::GRU ? H : 0;  // columns from the past
      const int64_t end = s.wiring == gfrnn::GATED ? columns : s.unit == gfrnn::GRU ? P : columns;
      add_to<float>(row.get() + first, shared + at.past + j * P + first, end - first);
      if (s.wiring == gfrnn::GATED) {
        sigmoid_row<float>(row.get() + s.global_at(), s.n());
        for (int64_t i = 0; i < s.L; i++) {
          const float gate = row.get()[s.global_at() + i];
          const float* part = shared + at.scaled_parts + (i * s.L + j) * H;
          float* to = row.get() + s.recurrent_at();
          for_lanes<float>(H, [&](Lane<float> l) { l.put(to, l.get(to) + gate * l.get(part)); });
        }
      }
      unit_forward<float>(s, row.get(), h.get() + j * H, c.get() + j * H, new_h.get() + j * H, new_c.get() + j * H);
    }
    copy<float>(h.get(), new_h.get(), LH);
    if (g.c) copy<float>(c.get(), new_c.get(), LH);
    run_share<W>(shares[s.L * g.threads + thread], weights, h.get(), shared);
    barrier.wait();
    copy<float>(logits.get(), shared + at.logits, g.V);
    if (g.head_bias) add_to<float>(logits.get(), g.head_bias, g.V);
  }
  if (thread == 0) {
    copy<float>(g.h, h.get(), LH);
    if (g.c) copy<float>(g.c, c.get(), LH);
    copy<float>(g.logits, logits.get(), g.V);
  }
}

void generate(const Generate& g, const Team& team) {
  const List<Share> shares = cut(g, phases(g));
  Room<float> shared(Places(g.shape, g.V).total);
  Barrier start{g.threads}, barrier{g.threads};
  team(g.threads, [&](int64_t thread) {
    if (g.half)
      generate_thread<Half>(g, shares, start, barrier, shared.get(), thread);
    else
      generate_thread<float>(g, shares, start, barrier, shared.get(), thread);
  });
}

}  // namespace
