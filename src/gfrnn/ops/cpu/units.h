// The units, one row at a time: pre-activations become activations in place, and gradients go back.
// Row layout: Shape in kernels.h. The equations are those of equations.py; a dot marks dL/d(...).
#pragma once
#include "kernels.h"
#include "norm.h"
#include "vec.h"

namespace {

using gfrnn::Shape;

template <class F>
void sigmoid_row(F* a, int64_t n) {
  for_lanes<F>(n, [&](Lane<F> l) { l.put(a, sigmoid_v<vec<F>>(l.get(a))); });
}

// One gate's activation, block `block` of a row, forwards and again backwards: where nothing is normalised it takes the place
// of its pre-activation; elsewhere what was normalised stays, and the activation is computed again (cheaper than kept).
template <class F, class Function>
GFRNN_INLINE vec<F> activate(const Shape& s, const Norm<F>& norm, F* row, int64_t block, Lane<F> l, Function function) {
  const vec<F> activation = function(norm.settled(s, row, block, l));
  if (!norm.gain) l.put(row + block * s.H, activation);
  return activation;
}

template <class F, class Function>
GFRNN_INLINE vec<F> activated(const Shape& s, const Norm<F>& norm, const F* row, int64_t block, Lane<F> l, Function function) {
  return norm.gain ? function(norm.settled(s, row, block, l)) : l.get(row + block * s.H);
}

// row: pre-activations -> activations, or, where there is a gain, what was normalised; h_prev, c_prev, h, c: this layer's H
// numbers.
template <class F>
void unit_forward(const Shape& s, const Norm<F>& norm, F* row, const F* h_prev, const F* c_prev, F* h, F* c) {
  const int64_t H = s.H;
  const F* q = row + s.q_at();
  const auto gate = [&](int64_t block, Lane<F> l) { return activate<F>(s, norm, row, block, l, sigmoid_v<vec<F>>); };
  const auto candidate = [&](Lane<F> l) { return activate<F>(s, norm, row, 0, l, tanh_v<vec<F>>); };
  if (norm.gain)
    for (int64_t block = 1; block < s.G(); block++) norm.forward(s, row, block);
  if (s.unit == gfrnn::GRU)
    for_lanes<F>(H, [&](Lane<F> l) { l.put(row, l.get(row) + gate(1, l) * l.get(q)); });
  if (norm.gain) norm.forward(s, row, 0);
  if (s.unit == gfrnn::TANH) {
    for_lanes<F>(H, [&](Lane<F> l) { l.put(h, candidate(l)); });
  } else if (s.unit == gfrnn::GRU) {
    for_lanes<F>(H, [&](Lane<F> l) {
      const vec<F> z = gate(2, l);
      l.put(h, (1 - z) * l.get(h_prev) + z * candidate(l));
    });
  } else if (s.unit == gfrnn::BOUNDED_LSTM) {
    for_lanes<F>(H, [&](Lane<F> l) {
      const vec<F> f = gate(1, l), o = gate(2, l), new_c = f * l.get(c_prev) + (1 - f) * candidate(l);
      l.put(c, new_c);
      l.put(h, o * tanh_v<vec<F>>(new_c));
    });
  } else {
    for_lanes<F>(H, [&](Lane<F> l) {
      const vec<F> i = gate(1, l), f = gate(2, l), o = gate(3, l), new_c = f * l.get(c_prev) + i * candidate(l);
      l.put(c, new_c);
      l.put(h, o * tanh_v<vec<F>>(new_c));
    });
  }
}

// dh: gradient of this h_t. dc: in, gradient of c_t from t+1; out, gradient of c_{t-1}.
// dh_prev: += what reaches h_{t-1} directly (GRU). delta: gradients of the pre-activations (all but the global gates).
// norm_sums: see Norm::backward.
template <class F>
void unit_backward(const Shape& s, const Norm<F>& norm, F* norm_sums, const F* row, const F* h_prev, const F* c_prev, const F* c, const F* dh, F* dc,
                   F* dh_prev, F* delta) {
  const int64_t H = s.H;
  const F* q = row + s.q_at();
  F *d_candidate = delta, *d_gates = delta + s.units_at(), *d_q = delta + s.q_at();
  const auto gate = [&](int64_t block, Lane<F> l) { return activated<F>(s, norm, row, block, l, sigmoid_v<vec<F>>); };
  const auto candidate = [&](Lane<F> l) { return activated<F>(s, norm, row, 0, l, tanh_v<vec<F>>); };
  if (s.unit == gfrnn::TANH) {
    for_lanes<F>(H, [&](Lane<F> l) {
      const vec<F> h = candidate(l);
      l.put(d_candidate, l.get(dh) * (1 - h * h));
    });
  } else if (s.unit == gfrnn::GRU) {
    for_lanes<F>(H, [&](Lane<F> l) {
      const vec<F> z = gate(2, l), h_tilde = candidate(l), d = l.get(dh);
      l.put(d_candidate, d * z * (1 - h_tilde * h_tilde));
      l.put(d_gates + H, d * (h_tilde - l.get(h_prev)) * z * (1 - z));
      l.put(dh_prev, l.get(dh_prev) + d * (1 - z));
    });
    if (norm.gain) norm.backward(s, row, delta, 0, norm_sums);
    for_lanes<F>(H, [&](Lane<F> l) {
      const vec<F> r = gate(1, l), d_pre = l.get(d_candidate);
      l.put(d_q, d_pre * r);
      l.put(d_gates, d_pre * l.get(q) * r * (1 - r));
    });
  } else if (s.unit == gfrnn::BOUNDED_LSTM) {
    for_lanes<F>(H, [&](Lane<F> l) {
      const vec<F> f = gate(1, l), o = gate(2, l), c_tilde = candidate(l);
      const vec<F> tanh_c = tanh_v<vec<F>>(l.get(c)), d = l.get(dh);
      const vec<F> d_c = l.get(dc) + d * o * (1 - tanh_c * tanh_c);
      l.put(d_candidate, d_c * (1 - f) * (1 - c_tilde * c_tilde));
      l.put(d_gates, d_c * (l.get(c_prev) - c_tilde) * f * (1 - f));
      l.put(d_gates + H, d * tanh_c * o * (1 - o));
      l.put(dc, d_c * f);
    });
  } else {
    for_lanes<F>(H, [&](Lane<F> l) {
      const vec<F> i = gate(1, l), f = gate(2, l), o = gate(3, l), c_tilde = candidate(l);
      const vec<F> tanh_c = tanh_v<vec<F>>(l.get(c)), d = l.get(dh);  // cheaper to compute again than to keep
      const vec<F> d_c = l.get(dc) + d * o * (1 - tanh_c * tanh_c);
      l.put(d_candidate, d_c * i * (1 - c_tilde * c_tilde));
      l.put(d_gates, d_c * c_tilde * i * (1 - i));
      l.put(d_gates + H, d_c * l.get(c_prev) * f * (1 - f));
      l.put(d_gates + 2 * H, d * tanh_c * o * (1 - o));
      l.put(dc, d_c * f);
    });
  }
  if (norm.gain)
    for (int64_t block = s.unit == gfrnn::GRU; block < s.G(); block++) norm.backward(s, row, delta, block, norm_sums);
}

// h_{t-1} scaled by the gates of one layer: to[i*H..] = g_i h^i_{t-1}.
template <class F>
void scale_sources(const Shape& s, const F* g, const F* h_prev, F* to) {
  for (int64_t i = 0; i < s.L; i++) {
    const F gate = g[i];
    for_lanes<F>(s.H, [&](Lane<F> l) { l.put(to + i * s.H, gate * l.get(h_prev + i * s.H)); });
  }
}

template <class F>
void multiply_rows(F* to, const F* a, const F* b, int64_t n) {
  for_lanes<F>(n, [&](Lane<F> l) { l.put(to, l.get(a) * l.get(b)); });
}

template <class F>
void add_to(F* to, const F* a, int64_t n) {
  for_lanes<F>(n, [&](Lane<F> l) { l.put(to, l.get(to) + l.get(a)); });
}

}  // namespace
