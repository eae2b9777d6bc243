// Which rows of which matrix make which columns of a layer's row (Shape in kernels.h), for all units and wirings.
#pragma once
#include "kernels.h"
#include "products.h"

namespace {

using namespace gfrnn;

template <class F>
using Rows = List<F*>;

// The rows of one layer's matrices in the order of our columns: candidate, unit-wise gates, global reset gates.
template <class F>
void gate_rows(const Shape& s, F* matrix, int64_t width, Rows<F>& rows) {
  const int64_t G = s.G(), candidate = gfrnn::UNITS[s.unit].candidate;
  for (int64_t r = 0; r < s.H; r++) rows.push(matrix + (candidate * s.H + r) * width);
  for (int64_t g = 0; g < G; g++)
    if (g != candidate)
      for (int64_t r = 0; r < s.H; r++) rows.push(matrix + (g * s.H + r) * width);
}

template <class F>
void plain_rows(F* matrix, int64_t count, int64_t width, Rows<F>& rows) {
  for (int64_t r = 0; r < count; r++) rows.push(matrix + r * width);
}

// W and w_g: in_columns() rows of I_j.
template <class F>
Rows<F> input_rows(const Shape& s, const Layer<F>& w, int64_t j) {
  Rows<F> rows;
  gate_rows(s, w.W, s.in_width(j), rows);
  if (s.n()) plain_rows(w.w_g, s.n(), s.in_width(j), rows);
  return rows;
}

// A product with part of the past: columns [column, column + rows.size()) of a layer's row, from h_{t-1} at [at, at + K).
template <class F>
struct Recurrent {
  Rows<F> rows;
  int64_t column, at, K;
  bool scaled;  // the sources are multiplied by their global reset gates first
};

// All products of layer j with the past, as few as the wiring allows.
template <class F>
List<Recurrent<F>> recurrent_products(const Shape& s, const Layer<F>& w, int64_t j) {
  const int64_t H = s.H, all = s.L * H, S = s.S(), own_at = j * H, hears_at = s.wiring == STACKED ? own_at : 0;
  const bool scaled = s.wiring == GATED;
  Rows<F> candidate, units, global;
  if (s.apart()) {
    plain_rows(w.U_candidate, H, all, candidate);
    plain_rows(w.U, (s.G() - 1) * H, H, units);
  } else {
    Rows<F> rows;
    gate_rows(s, w.U, S, rows);
    for (int64_t r = 0; r < rows.size(); r++) (r < H ? candidate : units).push(rows[r]);
  }
  if (s.n()) plain_rows(w.u_g, s.n(), all, global);

  List<Recurrent<F>> products;
  if (!scaled && !s.apart()) {  // everything hears the same: one product over candidate and unit-wise gates
    Rows<F> rows = s.unit == GRU ? units : candidate;
    const Rows<F>& second = s.unit == GRU ? candidate : units;
    rows.append(second);
    products.push({rows, s.unit == GRU ? s.units_at() : 0, hears_at, S, false});
    return products;
  }
  if (s.apart()) {
    products.push({units, s.units_at(), own_at, H, false});
    if (s.n()) products.push({global, s.global_at(), 0, all, false});
  } else {
    units.append(global);
    products.push({units, s.units_at(), 0, all, false});
  }
  products.push({candidate, s.recurrent_at(), 0, all, scaled});
  return products;
}

// The bias that column k starts from; where pre-activations are normalised, theirs comes after it.
template <class F>
F first_bias(const Shape& s, const Rows<const F>& bias, int64_t k) {
  return bias.size() == 0 || (s.normed() && k < s.global_at()) ? F(0) : *bias[k];
}

// (entries, P): what a row starts from, the bias, or for index input the bias plus the column of W of each index.
template <class Mode, class F = typename Mode::Number>
Room<F> start_table(const Shape& s, const Layer<const F>& w, int64_t j) {
  constexpr int VL = Vec<F>::size;
  const Rows<const F> in = input_rows<const F>(s, w, j);
  Rows<const F> bias;
  if (w.b) gate_rows<const F>(s, w.b, 1, bias);
  if (w.b_g) plain_rows<const F>(w.b_g, s.n(), 1, bias);
  const int64_t columns = s.in_columns(), entries = s.entries(j), P = s.P();
  Room<F> table(entries * P), start(columns);
  clear<F>(table.get(), entries * P);
  for (int64_t k = 0; k < columns; k++) start.get()[k] = first_bias<F>(s, bias, k);
  if (!s.looks_up(j)) {
    copy<F>(table.get(), start.get(), columns);  // the only entry
    return table;
  }
  for_lanes<F>(entries, [&](Lane<F> e) {
    for_lanes<F>(columns, [&](Lane<F> k) {
      vec<F> square[VL];
#pragma GCC unroll 16
      for (int i = 0; i < VL; i++) square[i] = i < k.count ? Mode::values(e.get(in[k.at + i])) : vec<F>{};
      transpose<F>(square);
      for (int i = 0; i < e.count; i++) k.put(table.get() + (e.at + i) * P, k.get(start.get()) + square[i]);
    });
  });
  return table;
}

// (B, P): what each row of the batch starts from, for a single timestep: no table is made for rows to be read once.
template <class Mode, class F = typename Mode::Number>
Room<F> start_rows(const Shape& s, const Layer<const F>& w, int64_t j, const int64_t* index) {
  const Rows<const F> in = input_rows<const F>(s, w, j);
  Rows<const F> bias;
  if (w.b) gate_rows<const F>(s, w.b, 1, bias);
  if (w.b_g) plain_rows<const F>(w.b_g, s.n(), 1, bias);
  Room<F> rows(s.B * s.P());
  clear<F>(rows.get(), s.B * s.P());
  for (int64_t b = 0; b < s.B; b++)
    for (int64_t k = 0; k < s.in_columns(); k++)
      rows.get()[b * s.P() + k] = first_bias<F>(s, bias, k) + (s.looks_up(j) ? Mode::value(in[k][index[b]]) : 0);
  return rows;
}

}  // namespace
