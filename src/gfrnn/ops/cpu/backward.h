// All timesteps, backwards: deltas (gradients of pre-activations) some steps at a time, then the weights' gradients.
#pragma once
#include "gradients.h"

namespace {

// What the backward carries from step to step, for every row of the batch: gradients of h_{t-1} and c_{t-1}.
template <class F>
struct Carried {
  Room<F> dh, dc;  // (B, L*H)
};

// Timesteps [t0, t1), backwards, of rows [first, last): the factors of the weights' gradients, which sum over K rows
// (t, b), and the gradients carried to t0 - 1.
template <class Mode, class F = typename Mode::Number>
void backward_rows(const Backward<F>& b, const PackedLayers<Mode>& packed, Carried<F>& carried,
                   WeightGradients<Mode>& gradients, int64_t K, const Parallel* split, int64_t t0, int64_t t1,
                   int64_t first, int64_t last) {
  const Forward<F>& f = b.forward;
  const Shape& s = f.shape;
  const int64_t H = s.H, LH = s.L * H, P = s.P(), LP = s.L * P, rows = last - first;
  Room<F> now(rows * LH), deltas_room(rows * LP), d_scaled(rows * LH), d_up(rows * H), zeros(LH);
  const auto room = factor_room<Mode>(rows, P);
  F* const deltas = deltas_room.get();
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
  // What layer j's unit will read at timestep t, which the forward wrote long ago.
  Errands errands;
  auto expect = [&](int64_t t, int64_t j) {
    errands.forget();
    for (int64_t m = 0; m < running(f.active, t, first, last); m++) {
      const int64_t at = t * s.B + first + m, before = (at - s.B) * LH + j * H;
      errands.add(f.saved + at * LP + j * P, P);
      if (t == 0) continue;
      errands.add(f.h + before, H);
      if (s.cell()) errands.add(f.c + before, H);
      if (b.dh) errands.add(b.dh + before, H);
    }
  };
  const TileRegisters<Mode> registers;
  int64_t k = first;
  for (int64_t t = t1 - 1; t >= t0; k += f.active[t--]) {
    const int64_t M = running(f.active, t, first, last), at = t * s.B + first;
    if (M == 0) continue;
    const F* h_prev = t ? f.h + (at - s.B) * LH : f.h0 + first * LH;
    const F* c_prev = !s.cell() ? nullptr : t ? f.c + (at - s.B) * LH : f.c0 + first * LH;
    for (int64_t m = 0; m < M; m++) {
      copy<F>(to_now[m], to_past[m], LH);
      if (b.dh) add_to<F>(to_now[m], b.dh + (at + m) * LH, LH);
      clear<F>(to_past[m], LH);
      if (b.dx) to_x[m] = b.dx + (at + m) * s.I;
    }
    for (int64_t j = s.L - 1; j >= 0; j--) {
      const PackedLayer<Mode>& w = packed[j];
      for (int64_t m = 0; m < M; m++) {
        const int64_t cell = m * LH + j * H;
        unit_backward<F>(s, {f.layers[j].gain, f.layers[j].b}, gradients.norm_sums(j, first + m), f.saved + (at + m) * LP + j * P, h_prev + cell, c_prev ? c_prev + cell : nullptr,
                         c_prev ? f.c + at * LH + cell : nullptr, to_now[m] + j * H,
                         c_prev ? carried.dc.get() + (first + m) * LH + j * H : nullptr, to_past[m] + j * H,
                         deltas + m * LP + j * P);
      }
      if (j > 0 || t > t0) expect(j > 0 ? t : t - 1, j > 0 ? j - 1 : s.L - 1);
      for (int64_t p = w.past.size(); p-- > 0;) {  // the gated sum first: it yields the global reset gates' deltas
        const Recurrent<const F>& how = w.how[p];
        const F* from = deltas + j * P + how.column;
        if (!how.scaled) {
          apply<Mode>(w.past[p], split, room.get(), from, LP, M, to_past.data(), to_past.data(), how.at, &errands);
          continue;
        }
        apply<Mode>(w.past[p], split, room.get(), from, LP, M, from_zero.data(), to_scaled.data(), 0, &errands);
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
      if (b.dx && s.sees_x(j)) apply<Mode>(w.x, split, room.get(), from, LP, M, to_x.data(), to_x.data(), 0, &errands);
      if (j > 0 && !f.masks) apply<Mode>(w.below, split, room.get(), from, LP, M, to_now.data(), to_now.data(), (j - 1) * H, &errands);
      if (j > 0 && f.masks) {
        apply<Mode>(w.below, split, room.get(), from, LP, M, from_zero.data(), to_up.data(), 0, &errands);
        for (int64_t m = 0; m < M; m++) {
          multiply_rows<F>(to_up[m], to_up[m], f.masks + ((at + m) * (s.L - 1) + j - 1) * H, H);
          add_to<F>(to_now[m] + (j - 1) * H, to_up[m], H);
        }
      }
    }
    gradients.lay_down(K, k, M, at, h_prev, deltas, d_scaled.get());
  }
}

template <class Mode, class F = typename Mode::Number>
void backward(const Backward<F>& b, const Parallel& parallel) {
  constexpr int64_t MOST = 512;  // rows (t, b) at a time: what the caches hold of the weights' gradients' factors
  const Forward<F>& f = b.forward;
  const Shape& s = f.shape;
  const int64_t LH = s.L * s.H, parts = s.B < parallel.threads ? 1 : parallel.threads;
  const int64_t steps = smaller(larger(MOST / larger(s.B, 1), 1), s.T);
  const PackedLayers<Mode> packed(f, BACKWARD, parallel);
  const auto bounds = split_rows(s, f.active, parts);
  Carried<F> carried{Room<F>(s.B * LH), Room<F>(s.B * LH)};
  WeightGradients<Mode> gradients(b, steps * s.B);
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
    int64_t K = 0;
    for (int64_t t = t0; t < t1; t++) K += f.active[t];
    if (parts < parallel.threads)
      backward_rows<Mode>(b, packed, carried, gradients, K, &parallel, t0, t1, 0, s.B);
    else
      parallel(parts, [&](int64_t i) {
        backward_rows<Mode>(b, packed, carried, gradients, K, nullptr, t0, t1, bounds[i], bounds[i + 1]);
      });
    gradients.fill_up_sums(K);
    parallel(parallel.threads, [&](int64_t i) { gradients.add_up(K, i, parallel.threads); });
  }
  parallel(parallel.threads, [&](int64_t i) { gradients.finish(i, parallel.threads); });
  copy<F>(b.dh0, carried.dh.get(), s.B * LH);
  if (b.dc0) copy<F>(b.dc0, carried.dc.get(), s.B * LH);
}
}  // namespace
