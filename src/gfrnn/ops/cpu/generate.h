// Text from a model, one character after the other, for a batch of one: every weight is read once per character, so what
// counts is how many bytes that is and how near they lie. The weights are packed once, each thread reads the same part
// of them at every character (so that it stays in that thread's cache), and nothing is allocated on the way.
//
// Everything recurrent depends on h_{t-1} only, and a scalar gate commutes with a matrix: U^{i->j} h^i_{t-1} of all i, j
// is one phase; then the layers from below, then the softmax. Between phases the threads meet; the cheap rest (units,
// sampling) each thread computes for itself instead of waiting once more.
#pragma once
#include "phases.h"
#include "sampler.h"
#include "units.h"

namespace {

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

// The memory one thread works in. Made before there are threads, so that none can fail while others wait for it.
struct Desk {
  Room<float> h, c, new_h, new_c, row, logits;
  Sampler sampler;
  Desk(const Shape& s, int64_t V)
      : h(s.L * s.H), c(s.L * s.H), new_h(s.L * s.H), new_c(s.L * s.H), row(s.P()), logits(V), sampler(V) {}
};

template <class W>
void generate_thread(const Generate& g, const List<Share>& shares, Barrier& start, Barrier& barrier, float* shared,
                     Desk& desk, int64_t thread) {
  const Shape& s = g.shape;
  const int64_t H = s.H, LH = s.L * H, P = s.P(), columns = s.in_columns();
  const Places at(s, g.V);
  const W* weights = reinterpret_cast<const W*>(generate_weights(g));
  auto& [h, c, new_h, new_c, row, logits, sampler] = desk;
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
  List<Desk> desks;
  for (int64_t thread = 0; thread < g.threads; thread++) desks.push(Desk(g.shape, g.V));
  Barrier start{g.threads}, barrier{g.threads};
  team(g.threads, [&](int64_t thread) {
    if (g.half)
      generate_thread<Half>(g, shares, start, barrier, shared.get(), desks[thread], thread);
    else
      generate_thread<float>(g, shares, start, barrier, shared.get(), desks[thread], thread);
  });
}

}  // namespace
