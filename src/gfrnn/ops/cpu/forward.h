// All timesteps, forwards.
#pragma once
#include "packing.h"
#include "units.h"

namespace {

// All timesteps of rows [first, last): no other thread is waited for.
template <class Mode, class F = typename Mode::Number>
void forward_rows(const Forward<F>& f, const PackedLayers<Mode>& packed, bool row_table, const Parallel* split,
                  int64_t first, int64_t last) {
  const Shape& s = f.shape;
  const int64_t H = s.H, LH = s.L * H, P = s.P(), LP = s.L * P, rows = last - first;
  const auto room = factor_room<Mode>(rows, larger(s.I, LH)), past_room = factor_room<Mode>(rows, LH);
  Room<F> scaled(rows * LH), up(rows * H), transient(f.saved ? 0 : rows * LP);
  List<F*> to(rows);
  List<const F*> start(rows);
  const TileRegisters<Mode> registers;
  for (int64_t t = 0; t < s.T; t++) {
    const int64_t M = running(f.active, t, first, last), at = t * s.B + first;
    if (M == 0) break;
    const F* h_prev = t ? f.h + (at - s.B) * LH : f.h0 + first * LH;
    const F* c_prev = !s.cell() ? nullptr : t ? f.c + (at - s.B) * LH : f.c0 + first * LH;
    // Of a wiring with feedback every layer hears all of h_{t-1}: its factors are made once.
    const bool hear_all = s.wiring != STACKED && !s.apart();
    FactorRows<Mode> past = {};
    if (hear_all) past = factor_rows<Mode>(h_prev, LH, M, LH, past_room.get());
    F* activations = f.saved ? f.saved + at * LP : transient.get();
    for (int64_t j = 0; j < s.L; j++) {
      const PackedLayer<Mode>& w = packed[j];
      for (int64_t m = 0; m < M; m++) {
        to[m] = activations + m * LP + j * P;
        start[m] = w.table.get() + (row_table ? first + m : s.looks_up(j) ? f.index[at + m] : 0) * P;
      }
      // The first product over a column starts from the table, any further one from what is there.
      const F* const* from = start.data();
      auto feed = [&](const F* source, int64_t stride, const Packed<Mode>& weights) {
        apply<Mode>(weights, split, room.get(), source, stride, M, from, to.data(), 0);
        from = to.data();
      };
      if (s.sees_x(j) && !s.indices) feed(f.x + at * s.I, s.I, w.x);
      if (j > 0 && !f.masks) feed(f.h + at * LH + (j - 1) * H, LH, w.below);
      if (j > 0 && f.masks) {
        for (int64_t m = 0; m < M; m++)
          multiply_rows<F>(up.get() + m * H, f.h + (at + m) * LH + (j - 1) * H,
                           f.masks + ((at + m) * (s.L - 1) + j - 1) * H, H);
        feed(up.get(), H, w.below);
      }
      if (s.unit == GRU)  // nothing recurrent goes to its candidate, nothing of this timestep to q
        for (int64_t m = 0; m < M; m++) {
          if (from == start.data()) copy<F>(to[m], start[m], H);
          clear<F>(to[m] + s.q_at(), H);
        }
      for (int64_t p = 0; p < w.past.size(); p++) {
        const Recurrent<const F>& how = w.how[p];
        const F* source = h_prev + how.at;
        if (how.scaled) {  // comes last: the global reset gates' pre-activations are complete
          for (int64_t m = 0; m < M; m++) {
            sigmoid_row<F>(to[m] + s.global_at(), s.n());
            scale_sources<F>(s, to[m] + s.global_at(), h_prev + m * LH, scaled.get() + m * LH);
          }
          source = scaled.get();
        }
        apply<Mode>(w.past[p], split, room.get(), source, LH, M, from, to.data(), how.column, nullptr,
                    hear_all && !how.scaled ? &past : nullptr);
      }
      for (int64_t m = 0; m < M; m++) {
        const int64_t cell = m * LH + j * H;
        unit_forward<F>(s, {f.layers[j].gain, f.layers[j].b}, to[m], h_prev + cell, c_prev ? c_prev + cell : nullptr, f.h + at * LH + cell,
                        c_prev ? f.c + at * LH + cell : nullptr);
      }
    }
  }
}

template <class Mode, class F = typename Mode::Number>
void forward(const Forward<F>& f, const Parallel& parallel) {
  const Shape& s = f.shape;
  // One step of few rows reads every weight about once: packing, which does too, would double that.
  const bool step = s.T == 1 && s.B <= 4;
  const bool few = s.B < parallel.threads;
  const int64_t parts = few ? 1 : parallel.threads;
  const PackedLayers<Mode> packed(f, step ? UNPACKED : FORWARD, parallel);
  const auto bounds = split_rows(s, f.active, parts);
  if (few)
    forward_rows<Mode>(f, packed, step, &parallel, 0, s.B);
  else
    parallel(parts, [&](int64_t i) { forward_rows<Mode>(f, packed, step, nullptr, bounds[i], bounds[i + 1]); });
}
}  // namespace
