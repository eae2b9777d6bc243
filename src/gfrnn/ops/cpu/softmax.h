// The softmax over V symbols and its cost, row by row, and back: one pass over each row while it is in the first cache.
#pragma once
#include "memory.h"
#include "products.h"

namespace {

// Rows [first, last) of logits become, if `keep`, p - onehot(target): what the backward starts from. nats: -ln p(target).
template <class F>
void softmax_rows(const gfrnn::Softmax<F>& s, int64_t first, int64_t last) {
  constexpr int64_t VL = Vec<F>::size;
  const int64_t V = s.V;
  for (int64_t n = first; n < last; n++) {
    F* row = s.logits + n * V;
    F largest = row[0];
    if (V >= VL) {
      vec<F> most = load<F>(row + V - VL);  // the end of the row; whole registers from its beginning
      for (int64_t v = 0; v + VL <= V; v += VL) {
        const vec<F> x = load<F>(row + v);
        most = x > most ? x : most;
      }
      F lanes[VL];
      store<F>(lanes, most);
      for (int64_t i = 0; i < VL; i++) largest = lanes[i] > largest ? lanes[i] : largest;
    } else {
      for (int64_t v = 1; v < V; v++) largest = row[v] > largest ? row[v] : largest;
    }
    const F picked = row[s.targets[n]] - largest;
    vec<F> sums = {};
    for_lanes<F>(V, [&](Lane<F> l) {
      l.put(row, exp_v<vec<F>>(l.get(row) - largest));
      sums += l.get(row);  // read again: beyond the end are zeros
    });
    const F total = sum<F>(sums);
    s.nats[n] = (sizeof(F) == 4 ? __builtin_logf(total) : __builtin_log(total)) - picked;
    if (!s.keep) continue;
    const F share = 1 / total;
    for_lanes<F>(V, [&](Lane<F> l) { l.put(row, share * l.get(row)); });
    row[s.targets[n]] -= 1;
  }
}

// Columns [first, last) of d_logits = difference * d_nats, as factors of further products, and their sums over the rows: in
// chains, one order whatever the number of threads.
template <class Mode, class F = typename Mode::Number>
void softmax_backward_columns(const gfrnn::SoftmaxBackward<F>& s, int64_t first, int64_t last) {
  constexpr int64_t CHAIN_OF_ROWS = 256;
  const int64_t V = s.V, width = last - first;
  Room<F> part(width);
  F* const total = s.d_bias + first;
  clear<F>(total, width);
  for (int64_t n0 = 0; n0 < s.N; n0 += CHAIN_OF_ROWS) {
    clear<F>(part.get(), width);
    for (int64_t n = n0; n < smaller(n0 + CHAIN_OF_ROWS, s.N); n++) {
      const F cotangent = s.d_nats[n];
      const F* from = s.difference + n * V + first;
      F* to = s.d_logits + n * V + first;
      for_lanes<F>(width, [&](Lane<F> l) {
        const vec<F> d = Mode::values(cotangent * l.get(from));
        l.put(to, d);
        l.put(part.get(), l.get(part.get()) + d);
      });
    }
    for_lanes<F>(width, [&](Lane<F> l) { l.put(total, l.get(total) + l.get(part.get())); });
  }
}

template <class F>
void softmax(const gfrnn::Softmax<F>& s, const gfrnn::Parallel& parallel) {
  parallel(parallel.threads, [&](int64_t i) { softmax_rows<F>(s, s.N * i / parallel.threads, s.N * (i + 1) / parallel.threads); });
}

template <class F>
void softmax_backward(const gfrnn::SoftmaxBackward<F>& s, const gfrnn::Parallel& parallel) {
  constexpr int64_t VL = Vec<F>::size;
  const int64_t registers = (s.V + VL - 1) / VL;
  parallel(parallel.threads, [&](int64_t i) {
    const int64_t first = registers * i / parallel.threads * VL, last = smaller(registers * (i + 1) / parallel.threads * VL, s.V);
    if (first >= last) return;
    if constexpr (sizeof(F) == 4) {
      if (s.rounded) return softmax_backward_columns<RoundedFloats>(s, first, last);
    }
    softmax_backward_columns<Exact<F>>(s, first, last);
  });
}

}  // namespace
