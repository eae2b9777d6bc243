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

// row: pre-activations -> activations, normalised first where there is a gain; h_prev, c_prev, h, c: this layer's H numbers.
template <class F>
void unit_forward(const Shape& s, const Norm<F>& norm, F* row, const F* h_prev, const F* c_prev, F* h, F* c) {
  const int64_t H = s.H;
  F *candidate = row, *gates = row + s.units_at(), *q = row + s.q_at();
  if (norm.gain) {
    for (int64_t block = 1; block < s.G(); block++) norm.forward(s, row, block);
    if (s.unit == gfrnn::GRU)
      for_lanes<F>(H, [&](Lane<F> l) { l.put(candidate, l.get(candidate) + sigmoid_v<vec<F>>(l.get(gates)) * l.get(q)); });
    norm.forward(s, row, 0);
  }
  if (s.unit == gfrnn::TANH) {
    for_lanes<F>(H, [&](Lane<F> l) {
      const vec<F> new_h = tanh_v<vec<F>>(l.get(candidate));
      l.put(candidate, new_h);
      l.put(h, new_h);
    });
  } else if (s.unit == gfrnn::GRU) {
    F *r_row = gates, *z_row = gates + H;
    for_lanes<F>(H, [&](Lane<F> l) {
      const vec<F> r = sigmoid_v<vec<F>>(l.get(r_row)), z = sigmoid_v<vec<F>>(l.get(z_row));
      const vec<F> h_tilde = tanh_v<vec<F>>(norm.gain ? l.get(candidate) : l.get(candidate) + r * l.get(q));
      l.put(r_row, r);
      l.put(z_row, z);
      l.put(candidate, h_tilde);
      l.put(h, (1 - z) * l.get(h_prev) + z * h_tilde);
    });
  } else if (s.unit == gfrnn::BOUNDED_LSTM) {
    F *f_row = gates, *o_row = gates + H;
    for_lanes<F>(H, [&](Lane<F> l) {
      const vec<F> f = sigmoid_v<vec<F>>(l.get(f_row)), o = sigmoid_v<vec<F>>(l.get(o_row));
      const vec<F> c_tilde = tanh_v<vec<F>>(l.get(candidate)), new_c = f * l.get(c_prev) + (1 - f) * c_tilde;
      l.put(f_row, f);
      l.put(o_row, o);
      l.put(candidate, c_tilde);
      l.put(c, new_c);
      l.put(h, o * tanh_v<vec<F>>(new_c));
    });
  } else {
    F *i_row = gates, *f_row = gates + H, *o_row = gates + 2 * H;
    for_lanes<F>(H, [&](Lane<F> l) {
      const vec<F> i = sigmoid_v<vec<F>>(l.get(i_row)), f = sigmoid_v<vec<F>>(l.get(f_row));
      const vec<F> o = sigmoid_v<vec<F>>(l.get(o_row)), c_tilde = tanh_v<vec<F>>(l.get(candidate));
      const vec<F> new_c = f * l.get(c_prev) + i * c_tilde;
      l.put(i_row, i);
      l.put(f_row, f);
      l.put(o_row, o);
      l.put(candidate, c_tilde);
      l.put(c, new_c);
      l.put(h, o * tanh_v<vec<F>>(new_c));
    });
  }
}

// dh: gradient of this h_t. dc: in, gradient of c_t from t+1; out, gradient of c_{t-1}.
// dh_prev: += what reaches h_{t-1} directly (GRU). delta: gradients of the pre-activations (all but the global gates).
// d_norm: see Norm::backward.
template <class F>
void unit_backward(const Shape& s, const Norm<F>& norm, F* d_norm, const F* row, const F* h_prev, const F* c_prev, const F* c, const F* dh, F* dc,
                   F* dh_prev, F* delta) {
  const int64_t H = s.H;
  const F *candidate = row, *gates = row + s.units_at(), *q = row + s.q_at();
  F *d_candidate = delta, *d_gates = delta + s.units_at(), *d_q = delta + s.q_at();
  if (s.unit == gfrnn::TANH) {
    for_lanes<F>(H, [&](Lane<F> l) {
      const vec<F> h = l.get(candidate);
      l.put(d_candidate, l.get(dh) * (1 - h * h));
    });
  } else if (s.unit == gfrnn::GRU) {
    for_lanes<F>(H, [&](Lane<F> l) {
      const vec<F> z = l.get(gates + H), h_tilde = l.get(candidate), d = l.get(dh);
      l.put(d_candidate, d * z * (1 - h_tilde * h_tilde));
      l.put(d_gates + H, d * (h_tilde - l.get(h_prev)) * z * (1 - z));
      l.put(dh_prev, l.get(dh_prev) + d * (1 - z));
    });
    if (norm.gain) norm.backward(s, row, delta, 0, d_norm);
    for_lanes<F>(H, [&](Lane<F> l) {
      const vec<F> r = l.get(gates), d_pre = l.get(d_candidate);
      l.put(d_q, d_pre * r);
      l.put(d_gates, d_pre * l.get(q) * r * (1 - r));
    });
  } else if (s.unit == gfrnn::BOUNDED_LSTM) {
    for_lanes<F>(H, [&](Lane<F> l) {
      const vec<F> f = l.get(gates), o = l.get(gates + H), c_tilde = l.get(candidate);
      const vec<F> tanh_c = tanh_v<vec<F>>(l.get(c)), d = l.get(dh);
      const vec<F> d_c = l.get(dc) + d * o * (1 - tanh_c * tanh_c);
      l.put(d_candidate, d_c * (1 - f) * (1 - c_tilde * c_tilde));
      l.put(d_gates, d_c * (l.get(c_prev) - c_tilde) * f * (1 - f));
      l.put(d_gates + H, d * tanh_c * o * (1 - o));
      l.put(dc, d_c * f);
    });
  } else {
    for_lanes<F>(H, [&](Lane<F> l) {
      const vec<F> i = l.get(gates), f = l.get(gates + H), o = l.get(gates + 2 * H), c_tilde = l.get(candidate);
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
    for (int64_t block = s.unit == gfrnn::GRU; block < s.G(); block++) norm.backward(s, row, delta, block, d_norm);
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
