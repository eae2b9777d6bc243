// All timesteps, backwards: deltas (gradients of pre-activations) some steps at a time, then the weights' gradients.
#pragma once
#include "packing.h"
#include "units.h"

namespace {

// What the backward carries from step to step, for every row of the batch, and the deltas of some steps at a time.
template <class F>
struct Carried {
  Room<F> dh, dc;      // (B, L*H): gradients of h_{t-1} and c_{t-1}
  Room<F> deltas;      // (steps, B, L*P): gradients of the pre-activations
  List<Room<F>> tables;  // per layer (entries, in_columns()): gradients of PackedLayer::table
  int64_t first_step;    // the timestep of deltas[0]
  F* delta(const Shape& s, int64_t t, int64_t b) const {
    return deltas.get() + ((t - first_step) * s.B + b) * s.L * s.P();
  }
};

// Timesteps [t0, t1), backwards, of rows [first, last): deltas, and the gradients carried to t0 - 1.
template <class F>
void backward_rows(const Backward<F>& b, const PackedLayers<F>& packed, Carried<F>& carried,
                   const Parallel* split, int64_t t0, int64_t t1, int64_t first, int64_t last) {
  const Forward<F>& f = b.forward;
  const Shape& s = f.shape;
  const int64_t H = s.H, LH = s.L * H, P = s.P(), LP = s.L * P, rows = last - first;
  Room<F> now(rows * LH), d_scaled(rows * LH), d_up(rows * H), zeros(LH);
  clear<F>(zeros.get(), LH);
  List<const F*> from_zero(rows);
  List<F*> to_now(rows), to_past(rows), to_scaled(rows), to_up(rows), to_x(rows);
  for (int64_t m = 0; m < rows; m++) {
    to_now[m] = now.get() + m * LH;
    to_past[m] = carried.dh.get() + (first + m) * LH;
    to_scaled[m] = d_scaled.get() + m * LH;
    to_up[m] = d_up.get() + m * H;
    from_zero[m] = zeros.get();
  }
  for (int64_t t = t1 - 1; t >= t0; t--) {
    const int64_t M = running(f.active, t, first, last), at = t * s.B + first;
    if (M == 0) continue;
    const F* h_prev = t ? f.h + (at - s.B) * LH : f.h0 + first * LH;
    const F* c_prev = s.unit != LSTM ? nullptr : t ? f.c + (at - s.B) * LH : f.c0 + first * LH;
    for (int64_t m = 0; m < M; m++) {
      copy<F>(to_now[m], to_past[m], LH);
      if (b.dh) add_to<F>(to_now[m], b.dh + (at + m) * LH, LH);
      clear<F>(to_past[m], LH);
      if (b.dx) to_x[m] = b.dx + (at + m) * s.I;
    }
    F* deltas = carried.delta(s, t, first);
    for (int64_t j = s.L - 1; j >= 0; j--) {
      const PackedLayer<F>& w = packed[j];
      for (int64_t m = 0; m < M; m++) {
        const int64_t cell = m * LH + j * H;
        unit_backward<F>(s, f.saved + (at + m) * LP + j * P, h_prev + cell, c_prev ? c_prev + cell : nullptr,
                         c_prev ? f.c + at * LH + cell : nullptr, to_now[m] + j * H,
                         c_prev ? carried.dc.get() + (first + m) * LH + j * H : nullptr, to_past[m] + j * H,
                         deltas + m * LP + j * P);
      }
      for (int64_t p = w.past.size(); p-- > 0;) {  // the gated sum first: it yields the global reset gates' deltas
        const Recurrent<const F>& how = w.how[p];
        const F* from = deltas + j * P + how.column;
        if (!how.scaled) {
          apply<F>(w.past[p], split, from, LP, M, to_past.data(), to_past.data(), how.at);
          continue;
        }
        apply<F>(w.past[p], split, from, LP, M, from_zero.data(), to_scaled.data(), 0);
        for (int64_t m = 0; m < M; m++) {
          const F* g = f.saved + (at + m) * LP + j * P + s.global_at();
          F* d_g = deltas + m * LP + j * P + s.global_at();
          for (int64_t i = 0; i < s.L; i++) {
            vec<F> dot = {};
            const F gate = g[i], *source = h_prev + m * LH + i * H, *d = to_scaled[m] + i * H;
            F* past = to_past[m] + i * H;
            for_lanes<F>(H, [&](Lane<F> l) {
              dot += l.get(d) * l.get(source);
              l.put(past, l.get(past) + gate * l.get(d));
            });
            const F asked = b.dgates ? b.dgates[((at + m) * s.L + j) * s.L + i] : F(0);
            d_g[i] = (sum<F>(dot) + asked) * gate * (1 - gate);
          }
        }
      }
      const F* from = deltas + j * P;
      if (b.dx && s.sees_x(j)) apply<F>(w.x, split, from, LP, M, to_x.data(), to_x.data(), 0);
      if (j > 0 && !f.masks) apply<F>(w.below, split, from, LP, M, to_now.data(), to_now.data(), (j - 1) * H);
      if (j > 0 && f.masks) {
        apply<F>(w.below, split, from, LP, M, from_zero.data(), to_up.data(), 0);
        for (int64_t m = 0; m < M; m++) {
          multiply_rows<F>(to_up[m], to_up[m], f.masks + ((at + m) * (s.L - 1) + j - 1) * H, H);
          add_to<F>(to_now[m] + (j - 1) * H, to_up[m], H);
        }
      }
    }
  }
}

// Gradients of the weights from the deltas of timesteps [t0, t1): part `part` of `parts` of every matrix's rows.
// The rows (t, b) are summed in the same order whatever the number of parts.
template <class F>
void weight_gradients(const Backward<F>& b, const Carried<F>& carried, int64_t t0, int64_t t1, int64_t part,
                      int64_t parts) {
  constexpr int64_t MOST = 512;  // rows (t, b) at a time: what the caches hold packed
  const Forward<F>& f = b.forward;
  const Shape& s = f.shape;
  const int64_t H = s.H, LH = s.L * H, P = s.P(), LP = s.L * P;
  const int64_t widest = larger(LH, s.indices ? 0 : s.I);
  Room<F> room(outer_room<F>(MOST, P / parts + 1, widest)), scratch(MOST * LH);
  Rows<const F> delta, past, now, x, source, column;
  List<int64_t> where;
  auto first = [&](int64_t count) { return count * part / parts; };
  auto last = [&](int64_t count) { return count * (part + 1) / parts; };

  auto block = [&]() {
    const int64_t K = delta.size();
    source.resize(K);
    column.resize(K);
    for (int64_t j = 0; j < s.L; j++) {
      const Layer<F>& d = b.gradients[j];
      auto product = [&](int64_t from, const Rows<F>& rows, int64_t to_column, int64_t width) {
        for (int64_t k = 0; k < K; k++) column[k] = delta[k] + j * P + from;
        const int64_t R = rows.size();
        outer<F>(column.data(), first(R), last(R), source.data(), K, width, rows.data(), to_column, room.get());
      };
      for (const Recurrent<F>& how : recurrent_products<F>(s, d, j)) {
        for (int64_t k = 0; k < K; k++) {
          source[k] = past[k] + how.at;
          if (!how.scaled) continue;
          const F* g = f.saved + where[k] * LP + j * P + s.global_at();
          scale_sources<F>(s, g, past[k], scratch.get() + k * LH);
          source[k] = scratch.get() + k * LH;
        }
        product(how.column, how.rows, 0, how.K);
      }
      const Rows<F> in = input_rows<F>(s, d, j);
      if (j > 0) {
        for (int64_t k = 0; k < K; k++) {
          source[k] = now[k] + (j - 1) * H;
          if (!f.masks) continue;
          const F* mask = f.masks + (where[k] * (s.L - 1) + j - 1) * H;
          multiply_rows<F>(scratch.get() + k * H, source[k], mask, H);
          source[k] = scratch.get() + k * H;
        }
        product(0, in, s.x_width(j), H);
      }
      if (s.sees_x(j) && !s.indices) {
        source = x;
        product(0, in, 0, s.I);
      }
      const int64_t columns = s.in_columns(), from = first(columns), count = last(columns) - from;
      for (int64_t k = 0; k < K; k++) {
        const int64_t entry = s.looks_up(j) ? f.index[where[k]] : 0;
        add_to<F>(carried.tables[j].get() + entry * columns + from, delta[k] + j * P + from, count);
      }
    }
    delta.empty_out(), past.empty_out(), now.empty_out(), x.empty_out(), where.empty_out();
  };
  for (int64_t t = t1 - 1; t >= t0; t--)
    for (int64_t m = 0; m < f.active[t]; m++) {
      const int64_t at = t * s.B + m;
      delta.push(carried.delta(s, t, m));
      past.push(t ? f.h + (at - s.B) * LH : f.h0 + m * LH);
      now.push(f.h + at * LH);
      x.push(s.indices ? nullptr : f.x + at * s.I);
      where.push(at);
      if (delta.size() == MOST) block();
    }
  if (delta.size() > 0) block();
}

// The tables' gradients, handed on to the biases and, for index input, to the columns of W and w_g.
template <class F>
void table_gradients(const Shape& s, const Layer<F>& d, const F* table, int64_t j) {
  const Rows<F> in = input_rows<F>(s, d, j);
  Rows<F> bias;
  if (d.b) gate_rows<F>(s, d.b, 1, bias);
  if (d.b_g) plain_rows<F>(d.b_g, s.n(), 1, bias);
  for (int64_t k = 0; k < s.in_columns(); k++)
    for (int64_t e = 0; e < s.entries(j); e++) {
      const F value = table[e * s.in_columns() + k];
      if (s.looks_up(j)) in[k][e] += value;
      if (bias.size() > 0) *bias[k] += value;
    }
}

template <class F>
void backward(const Backward<F>& b, const Parallel& parallel) {
  const Forward<F>& f = b.forward;
  const Shape& s = f.shape;
  const int64_t LH = s.L * s.H, parts = s.B < parallel.threads ? 1 : parallel.threads;
  const int64_t steps = smaller(larger(512 / larger(s.B, 1), 1), s.T);
  const PackedLayers<F> packed(f, BACKWARD, parallel);
  const auto bounds = split_rows(s, f.active, parts);
  Carried<F> carried{Room<F>(s.B * LH), Room<F>(s.B * LH), Room<F>(steps * s.B * s.L * s.P() + Vec<F>::size), {}, 0};
  for (int64_t j = 0; j < s.L; j++) {
    carried.tables.push(Room<F>(s.entries(j) * s.in_columns()));
    clear<F>(carried.tables[j].get(), s.entries(j) * s.in_columns());
  }
  auto start = [&](F* to, const F* from) {
    if (from)
      copy<F>(to, from, s.B * LH);
    else
      clear<F>(to, s.B * LH);
  };
  start(carried.dh.get(), b.dh_n);
  start(carried.dc.get(), b.dc_n);
  for (int64_t t1 = s.T; t1 > 0; t1 -= steps) {
    const int64_t t0 = larger(0, t1 - steps);
    carried.first_step = t0;
    if (parts < parallel.threads)
      backward_rows<F>(b, packed, carried, &parallel, t0, t1, 0, s.B);
    else
      parallel(parts, [&](int64_t i) {
        backward_rows<F>(b, packed, carried, nullptr, t0, t1, bounds[i], bounds[i + 1]);
      });
    parallel(parallel.threads, [&](int64_t i) { weight_gradients<F>(b, carried, t0, t1, i, parallel.threads); });
  }
  parallel(s.L, [&](int64_t j) { table_gradients<F>(s, b.gradients[j], carried.tables[j].get(), j); });
  copy<F>(b.dh0, carried.dh.get(), s.B * LH);
  if (b.dc0) copy<F>(b.dc0, carried.dc.get(), s.B * LH);
}
}  // namespace
