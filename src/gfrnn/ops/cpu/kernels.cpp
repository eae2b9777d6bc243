// Forward and backward through time. README.md beside this file has the derivation, the layout and the threads.
// Compiled once per instruction set; everything but the table at the end has internal linkage, so that no
// function built for one instruction set can be linked into another.
#include "kernels.h"

#include "gemm.h"
#include "units.h"

namespace {

using namespace gfrnn;

template <class F>
struct Packed {
  Room<F> room;
  int64_t K = 0, N = 0;
};

template <class F>
using Rows = List<F*>;

// The rows of one layer's matrices in the order of our columns: candidate, unit-wise gates, global reset gates.
template <class F>
void gate_rows(const Shape& s, F* matrix, int64_t width, Rows<F>& rows) {
  // state_dict: LSTM i, f, candidate, o; GRU r, z, candidate: the candidate is third
  const int64_t G = s.G(), third = G == 1 ? 0 : 2;
  for (int64_t r = 0; r < s.H; r++) rows.push(matrix + (third * s.H + r) * width);
  for (int64_t g = 0; g < G; g++)
    if (g != third)
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

template <class F>
Packed<F> pack(const Rows<const F>& rows, int64_t offset, int64_t width, bool transposed) {
  Rows<const F> shifted(rows);
  for (auto& row : shifted) row += offset;
  const int64_t R = rows.size();
  Packed<F> packed;
  packed.K = transposed ? width : R;
  packed.N = transposed ? R : width;
  packed.room = Room<F>(packed_size<F>(packed.K, packed.N));
  if (transposed)
    pack_transposed<F>(shifted.data(), R, width, packed.room.get());
  else
    pack_straight<F>(shifted.data(), R, width, packed.room.get());
  return packed;
}

// A layer's weights, packed for one direction of the computation.
template <class F>
struct PackedLayer {
  Packed<F> x, below;                  // of W and w_g: the part for x_t (dense input), the part for h_t^{j-1}
  List<Packed<F>> past;         // of recurrent_products
  List<Recurrent<const F>> how;  // and what each of them is
  Room<F> table;  // (entries, P): what a row starts from, the bias, or the bias plus the column of W for each index
};

template <class F>
PackedLayer<F> pack_layer(const Forward<F>& f, int64_t j, bool forward) {
  const Shape& s = f.shape;
  const Layer<const F>& w = f.layers[j];
  const Rows<const F> in = input_rows<const F>(s, w, j);
  PackedLayer<F> packed;
  if (s.sees_x(j) && !s.indices) packed.x = pack<F>(in, 0, s.I, forward);
  if (j > 0) packed.below = pack<F>(in, s.x_width(j), s.H, forward);
  packed.how = recurrent_products<const F>(s, w, j);
  for (const auto& product : packed.how) packed.past.push(pack<F>(product.rows, 0, product.K, forward));
  if (!forward) return packed;

  Rows<const F> bias;
  if (w.b) gate_rows<const F>(s, w.b, 1, bias);
  if (w.b_g) plain_rows<const F>(w.b_g, s.n(), 1, bias);
  const int64_t columns = s.in_columns(), entries = s.entries(j), P = s.P();
  packed.table = Room<F>(entries * P);
  clear<F>(packed.table.get(), entries * P);
  constexpr int64_t BLOCK = 16;
  for (int64_t e0 = 0; e0 < entries; e0 += BLOCK)
    for (int64_t k = 0; k < columns; k++) {
      const F start = bias.size() == 0 ? 0 : *bias[k];
      for (int64_t e = e0; e < smaller(e0 + BLOCK, entries); e++)
        packed.table.get()[e * P + k] = start + (s.looks_up(j) ? in[k][e] : 0);
    }
  return packed;
}

template <class F>
List<PackedLayer<F>> pack_layers(const Forward<F>& f, bool forward, const Parallel& parallel) {
  List<PackedLayer<F>> packed(f.shape.L);
  parallel(f.shape.L, [&](int64_t j) { packed[j] = pack_layer<F>(f, j, forward); });
  return packed;
}

// Contiguous ranges of rows with about equally many running steps each.
List<int64_t> split_rows(const Shape& s, const int64_t* active, int64_t parts) {
  int64_t total = 0, done = 0, t = s.T;
  for (int64_t i = 0; i < s.T; i++) total += active[i];
  List<int64_t> bounds;
  bounds.push(0);
  for (int64_t b = 0; b < s.B; b++) {
    while (t > 0 && active[t - 1] <= b) t--;  // the length of row b, which falls with b
    done += t;
    if (done * parts >= total * bounds.size() && bounds.size() < parts)
      bounds.push(b + 1);
  }
  while (bounds.size() <= parts) bounds.push(s.B);
  return bounds;
}

int64_t running(const int64_t* active, int64_t t, int64_t first, int64_t last) {
  return larger(0, smaller(active[t] - first, last - first));
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

// All timesteps of rows [first, last): no other thread is waited for.
template <class F>
void forward_rows(const Forward<F>& f, const List<PackedLayer<F>>& packed, int64_t first, int64_t last) {
  const Shape& s = f.shape;
  const int64_t H = s.H, LH = s.L * H, P = s.P(), LP = s.L * P, rows = last - first, columns = s.in_columns();
  Room<F> scaled(rows * LH), up(rows * H), transient(f.saved ? 0 : rows * LP);
  List<F*> to(rows);
  List<const F*> start(rows);
  for (int64_t t = 0; t < s.T; t++) {
    const int64_t M = running(f.active, t, first, last), at = t * s.B + first;
    if (M == 0) break;
    const F* h_prev = t ? f.h + (at - s.B) * LH : f.h0 + first * LH;
    const F* c_prev = s.unit != LSTM ? nullptr : t ? f.c + (at - s.B) * LH : f.c0 + first * LH;
    F* activations = f.saved ? f.saved + at * LP : transient.get();
    for (int64_t j = 0; j < s.L; j++) {
      const PackedLayer<F>& w = packed[j];
      for (int64_t m = 0; m < M; m++) {
        to[m] = activations + m * LP + j * P;
        start[m] = w.table.get() + (s.looks_up(j) ? f.index[at + m] : 0) * P;
      }
      // The first product over a column starts from the table, any further one from what is there.
      const F* const* from = start.data();
      auto feed = [&](const F* source, int64_t stride, const Packed<F>& weights) {
        multiply<F>(source, stride, M, weights.room.get(), weights.K, columns, from, to.data(), 0);
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
        multiply<F>(source, LH, M, w.past[p].room.get(), how.K, w.past[p].N, from, to.data(), how.column);
      }
      for (int64_t m = 0; m < M; m++) {
        const int64_t cell = m * LH + j * H;
        unit_forward<F>(s, to[m], h_prev + cell, c_prev ? c_prev + cell : nullptr, f.h + at * LH + cell,
                        c_prev ? f.c + at * LH + cell : nullptr);
      }
    }
  }
}

template <class F>
void forward(const Forward<F>& f, const Parallel& parallel) {
  const int64_t parts = larger(1, smaller(parallel.threads, f.shape.B));
  const auto packed = pack_layers<F>(f, true, parallel);
  const auto bounds = split_rows(f.shape, f.active, parts);
  parallel(parts, [&](int64_t i) { forward_rows<F>(f, packed, bounds[i], bounds[i + 1]); });
}

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
void backward_rows(const Backward<F>& b, const List<PackedLayer<F>>& packed, Carried<F>& carried, int64_t t0,
                   int64_t t1, int64_t first, int64_t last) {
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
          multiply<F>(from, LP, M, w.past[p].room.get(), w.past[p].K, how.K, to_past.data(), to_past.data(), how.at);
          continue;
        }
        multiply<F>(from, LP, M, w.past[p].room.get(), w.past[p].K, how.K, from_zero.data(), to_scaled.data(), 0);
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
      if (b.dx && s.sees_x(j))
        multiply<F>(from, LP, M, w.x.room.get(), s.in_columns(), s.I, to_x.data(), to_x.data(), 0);
      if (j > 0 && !f.masks)
        multiply<F>(from, LP, M, w.below.room.get(), s.in_columns(), H, to_now.data(), to_now.data(), (j - 1) * H);
      if (j > 0 && f.masks) {
        multiply<F>(from, LP, M, w.below.room.get(), s.in_columns(), H, from_zero.data(), to_up.data(), 0);
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
  const int64_t LH = s.L * s.H, parts = larger(1, smaller(parallel.threads, s.B));
  const int64_t steps = smaller(larger(512 / larger(s.B, 1), 1), s.T);
  const auto packed = pack_layers<F>(f, false, parallel);
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
    parallel(parts, [&](int64_t i) { backward_rows<F>(b, packed, carried, t0, t1, bounds[i], bounds[i + 1]); });
    parallel(parallel.threads, [&](int64_t i) { weight_gradients<F>(b, carried, t0, t1, i, parallel.threads); });
  }
  parallel(s.L, [&](int64_t j) { table_gradients<F>(s, b.gradients[j], carried.tables[j].get(), j); });
  copy<F>(b.dh0, carried.dh.get(), s.B * LH);
  if (b.dc0) copy<F>(b.dc0, carried.dc.get(), s.B * LH);
}

}  // namespace

namespace gfrnn {
#define GFRNN_STRING_(x) #x
#define GFRNN_STRING(x) GFRNN_STRING_(x)
#define GFRNN_JOIN_(a, b) a##b
#define GFRNN_JOIN(a, b) GFRNN_JOIN_(a, b)
extern const Kernels GFRNN_JOIN(kernels_, GFRNN_ISA);
const Kernels GFRNN_JOIN(kernels_, GFRNN_ISA) = {GFRNN_STRING(GFRNN_ISA), forward<float>, forward<double>,
                                                 backward<float>, backward<double>};
}  // namespace gfrnn
