// Texts from a model, one character after the other: every weight is read once per character of all texts, so what counts
// for a single one is how many bytes that is and how near they lie. The weights are packed once, nothing is allocated on
// the way. Of one text each thread reads the same part of the weights at every character (so that it stays in that
// thread's cache); of several each thread writes its own.
//
// Everything recurrent depends on h_{t-1} only, and a scalar gate commutes with a matrix: U^{i->j} h^i_{t-1} of all i, j
// is one phase; then the layers from below, then the softmax. Between phases the threads of one text meet; the cheap rest
// (units, sampling) each of them computes for itself instead of waiting once more.
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

// Rows of a matrix: the same vector of every text.
template <class T>
struct Lines {
  T* first;
  int64_t stride;
  T* operator[](int64_t m) const { return first + m * stride; }
  Lines from(int64_t m, int64_t column) const { return {first + m * stride + column, stride}; }
};

// Texts multiplied at a time: four sums of each in registers.
constexpr int TEXTS = TILE_ROWS / 2;

// One panel for some texts: two chains of sums per vector, so that the additions' latency hides behind the loads. A sum is
// the same chains in the same order however many texts there are: no text depends on its company.
template <class W, int M>
GFRNN_INLINE void gemv_panel(const W* w, Lines<const float> in, int64_t K, Lines<float> out) {
  constexpr int VL = Vec<float>::size, NR = 2 * VL;
  vec<float> even[M][2] = {}, odd[M][2] = {};
  int64_t k = 0;
  for (; k + 1 < K; k += 2, w += 2 * NR) {
    const vec<float> a0 = fetch(w), a1 = fetch(w + VL);
#pragma GCC unroll 8
    for (int m = 0; m < M; m++) {
      const vec<float> x = broadcast<float>(in[m][k]);
      even[m][0] += x * a0;
      even[m][1] += x * a1;
    }
    const vec<float> b0 = fetch(w + NR), b1 = fetch(w + NR + VL);
#pragma GCC unroll 8
    for (int m = 0; m < M; m++) {
      const vec<float> y = broadcast<float>(in[m][k + 1]);
      odd[m][0] += y * b0;
      odd[m][1] += y * b1;
    }
  }
  if (k < K) {
    const vec<float> a0 = fetch(w), a1 = fetch(w + VL);
#pragma GCC unroll 8
    for (int m = 0; m < M; m++) {
      const vec<float> x = broadcast<float>(in[m][k]);
      even[m][0] += x * a0;
      even[m][1] += x * a1;
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < M; m++) {
    store<float>(out[m], even[m][0] + odd[m][0]);
    store<float>(out[m] + VL, even[m][1] + odd[m][1]);
  }
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
List<Share> cut(const List<Phase>& all, int64_t threads) {
  constexpr int NR = TILE_COLUMNS<float>;
  List<Share> shares(all.size() * threads);
  int64_t weights = 0;
  for (int64_t p = 0; p < all.size(); p++) {
    const int64_t total = all[p].panels();
    int64_t number = 0;
    for (const Job& job : all[p].jobs)
      for (int64_t n = 0; n < job.rows.size(); n += NR, number++, weights += job.K * NR) {
        const int width = static_cast<int>(smaller(job.rows.size() - n, NR));
        shares[p * threads + number * threads / total].pieces.push({weights, job.K, job.in, job.out + n, width});
      }
  }
  return shares;
}

template <class W, int M>
void run_piece(const Share::Piece& piece, const W* weights, Lines<const float> in, Lines<float> out) {
  constexpr int NR = TILE_COLUMNS<float>;
  in = in.from(0, piece.in), out = out.from(0, piece.out);
  if (piece.width == NR) {
    gemv_panel<W, M>(weights + piece.weights, in, piece.K, out);
  } else {
    float whole[M * NR];
    gemv_panel<W, M>(weights + piece.weights, in, piece.K, {whole, NR});
    for (int m = 0; m < M; m++) copy<float>(out[m], whole + m * NR, piece.width);
  }
}

// The last texts, fewer than are multiplied at a time.
template <class W, int M = TEXTS - 1>
void run_rest(int64_t count, const Share::Piece& piece, const W* weights, Lines<const float> in, Lines<float> out) {
  if constexpr (M > 0) {
    if (count == M)
      run_piece<W, M>(piece, weights, in, out);
    else
      run_rest<W, M - 1>(count, piece, weights, in, out);
  }
}

template <class W>
void run_share(const Share& share, const W* weights, int64_t texts, Lines<const float> in, Lines<float> out) {
  for (const Share::Piece& piece : share.pieces) {
    int64_t m = 0;
    for (; m + TEXTS <= texts; m += TEXTS) run_piece<W, TEXTS>(piece, weights, in.from(m, 0), out.from(m, 0));
    run_rest<W>(texts - m, piece, weights, in.from(m, 0), out.from(m, 0));
  }
}

// The memory one thread works in. Made before there are threads, so that none can fail while others wait for it.
struct Desk {
  Room<float> h, c, new_h, new_c, row, logits;  // all but row: of every text
  Room<int64_t> symbols;
  Sampler sampler;
  Desk(const Shape& s, int64_t V, int64_t texts)
      : h(texts * s.L * s.H), c(texts * s.L * s.H), new_h(texts * s.L * s.H), new_c(texts * s.L * s.H), row(s.P()),
        logits(texts * V), symbols(texts), sampler(V) {}
};

// Who writes what: texts [first, first + texts), as number `mine` of `together` threads.
struct Task {
  int64_t first, texts, mine, together;
};

template <class W>
void generate_thread(const Generate& g, const List<Share>& shares, Barrier& start, Barrier& barrier, float* shared,
                     Desk& desk, const Task& task) {
  const Shape& s = g.shape;
  const int64_t H = s.H, LH = s.L * H, P = s.P(), columns = s.in_columns(), texts = task.texts;
  const Places at(s, g.V);
  const W* weights = reinterpret_cast<const W*>(generate_weights(g));
  auto& [h, c, new_h, new_c, row, logits, symbols, sampler] = desk;
  const Lines<float> results{shared, at.total};
  auto multiply = [&](int64_t phase, const float* in) {
    run_share<W>(shares[phase * task.together + task.mine], weights, texts, {in, LH}, results);
    barrier.wait();
  };
  copy<float>(h.get(), g.h + task.first * LH, texts * LH);
  if (g.c) copy<float>(c.get(), g.c + task.first * LH, texts * LH);
  copy<float>(logits.get(), g.logits + task.first * g.V, texts * g.V);
  start.wait();  // one of them writes g.h, g.c and g.logits again at the end
  for (int64_t step = 0; step < g.steps; step++) {
    for (int64_t m = 0; m < texts; m++) {
      const int64_t place = (task.first + m) * g.steps + step;
      symbols.get()[m] = sampler.draw(g, logits.get() + m * g.V, g.uniform[place]);
      if (task.mine == 0) g.symbols[place] = symbols.get()[m];
    }
    multiply(0, h.get());
    const float* table = reinterpret_cast<const float*>(g.packed);
    for (int64_t j = 0; j < s.L; table += s.entries(j) * columns, j++) {
      if (j > 0) multiply(j, new_h.get());
      for (int64_t m = 0; m < texts; m++) {
        // The row of pre-activations: what the table, the layer below and the past say.
        const float* said = results[m];
        copy<float>(row.get(), table + (s.looks_up(j) ? symbols.get()[m] : 0) * columns, columns);
        clear<float>(row.get() + columns, P - columns);
        if (j > 0) add_to<float>(row.get(), said + at.below + j * columns, columns);
        const int64_t first = s.wiring == gfrnn::GATED || s.unit == gfrnn::GRU ? H : 0;  // columns from the past
        const int64_t end = s.wiring == gfrnn::GATED ? columns : s.q_end();
        add_to<float>(row.get() + first, said + at.past + j * P + first, end - first);
        if (s.wiring == gfrnn::GATED) {
          sigmoid_row<float>(row.get() + s.global_at(), s.n());
          for (int64_t i = 0; i < s.L; i++) {
            const float gate = row.get()[s.global_at() + i];
            const float* part = said + at.scaled_parts + (i * s.L + j) * H;
            float* to = row.get() + s.recurrent_at();
            for_lanes<float>(H, [&](Lane<float> l) { l.put(to, l.get(to) + gate * l.get(part)); });
          }
        }
        const int64_t own = m * LH + j * H;
        unit_forward<float>(s, {g.layers[j].gain, g.layers[j].b}, row.get(), h.get() + own, c.get() + own, new_h.get() + own, new_c.get() + own);
      }
    }
    copy<float>(h.get(), new_h.get(), texts * LH);
    if (g.c) copy<float>(c.get(), new_c.get(), texts * LH);
    multiply(s.L, h.get());
    for (int64_t m = 0; m < texts; m++) {
      copy<float>(logits.get() + m * g.V, results[m] + at.logits, g.V);
      if (g.head_bias) add_to<float>(logits.get() + m * g.V, g.head_bias, g.V);
    }
  }
  if (task.mine == 0) {
    copy<float>(g.h + task.first * LH, h.get(), texts * LH);
    if (g.c) copy<float>(g.c + task.first * LH, c.get(), texts * LH);
    copy<float>(g.logits + task.first * g.V, logits.get(), texts * g.V);
  }
}

void generate(const Generate& g, const Team& team) {
  const int64_t texts = g.shape.B, together = texts == 1 ? g.threads : 1, total = Places(g.shape, g.V).total;
  const List<Share> shares = cut(phases(g), together);
  Room<float> shared(texts * total);
  List<Desk> desks;
  List<Task> tasks;
  for (int64_t thread = 0; thread < g.threads; thread++) {
    const int64_t first = together > 1 ? 0 : texts * thread / g.threads, end = texts * (thread + 1) / g.threads;
    tasks.push(together > 1 ? Task{0, 1, thread, together} : Task{first, end - first, 0, 1});
    desks.push(Desk(g.shape, g.V, tasks[thread].texts));
  }
  Barrier start{together}, barrier{together};
  team(g.threads, [&](int64_t thread) {
    float* its = shared.get() + tasks[thread].first * total;
    if (g.half)
      generate_thread<Half>(g, shares, start, barrier, its, desks[thread], tasks[thread]);
    else
      generate_thread<float>(g, shares, start, barrier, its, desks[thread], tasks[thread]);
  });
}

}  // namespace
