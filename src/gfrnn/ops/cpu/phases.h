// What is multiplied for one character, in which order, and the weights packed so that it is read in that order.
#pragma once
#include "half.h"
#include "packing.h"

namespace {

using gfrnn::Generate;
using gfrnn::Shape;

// out[0..N) += sum_k in[k] rows[.][k]; panels of TILE_COLUMNS<float>, each [K][TILE_COLUMNS].
struct Job {
  Rows<const float> rows;
  int64_t K, in, out;
  int64_t panels() const { return round_up(rows.size(), TILE_COLUMNS<float>) / TILE_COLUMNS<float>; }
};

struct Phase {
  List<Job> jobs;
  int64_t panels() const {
    int64_t total = 0;
    for (const Job& job : jobs) total += job.panels();
    return total;
  }
};

// Vectors of one character. Offsets in floats.
struct Places {
  int64_t past, scaled_parts, below, logits, total;  // shared: written by all threads
  explicit Places(const Shape& s, int64_t V) {
    const int64_t slack = TILE_COLUMNS<float>;
    past = 0;                                            // per layer P
    scaled_parts = past + s.L * s.P() + slack;           // gated: U^{i->j} h^i, [i][j][H]
    below = scaled_parts + s.L * s.L * s.H + slack;      // per layer in_columns()
    logits = below + s.L * s.in_columns() + slack;
    total = logits + V + slack;
  }
};

// Phases 0: all that is recurrent; 1 .. L-1: W h_t^{j-1}; L: the softmax's weights.
List<Phase> phases(const Generate& g) {
  const Shape& s = g.shape;
  const Places at(s, g.V);
  List<Phase> all;
  Phase past;
  for (int64_t j = 0; j < s.L; j++)
    for (const Recurrent<const float>& how : recurrent_products<const float>(s, g.layers[j], j))
      if (!how.scaled) past.jobs.push({how.rows, how.K, how.at, at.past + j * s.P() + how.column});
  if (s.wiring == gfrnn::GATED)
    for (int64_t i = 0; i < s.L; i++) {
      Job job{{}, s.H, i * s.H, at.scaled_parts + i * s.L * s.H};
      for (int64_t j = 0; j < s.L; j++)
        for (const Recurrent<const float>& how : recurrent_products<const float>(s, g.layers[j], j))
          if (how.scaled)
            for (const float* row : how.rows) job.rows.push(row + i * s.H);
      past.jobs.push(job);
    }
  all.push(past);
  for (int64_t j = 1; j < s.L; j++) {
    Job job{input_rows<const float>(s, g.layers[j], j), s.H, (j - 1) * s.H, at.below + j * s.in_columns()};
    for (const float*& row : job.rows) row += s.x_width(j);
    Phase phase;
    phase.jobs.push(job);
    all.push(phase);
  }
  Job job{{}, g.head_width, s.L * s.H - g.head_width, at.logits};
  plain_rows<const float>(g.head, g.V, g.head_width, job.rows);
  Phase head;
  head.jobs.push(job);
  all.push(head);
  return all;
}

template <class W>
void generate_pack_as(const Generate& g, float* tables, W* to) {
  constexpr int NR = TILE_COLUMNS<float>;
  for (const Phase& phase : phases(g))
    for (const Job& job : phase.jobs)
      for (int64_t n0 = 0; n0 < job.rows.size(); n0 += NR, to += job.K * NR)
        for (int64_t n = 0; n < NR; n++)
          for (int64_t k = 0; k < job.K; k++) put(to + k * NR + n, n0 + n < job.rows.size() ? job.rows[n0 + n][k] : 0.0f);
  for (int64_t j = 0; j < g.shape.L; j++) {
    const Room<float> start = start_table<Exact<float>>(g.shape, g.layers[j], j);
    for (int64_t e = 0; e < g.shape.entries(j); e++, tables += g.shape.in_columns())
      copy<float>(tables, start.get() + e * g.shape.P(), g.shape.in_columns());
  }
}

int64_t generate_table_elements(const Generate& g) {
  int64_t elements = 0;
  for (int64_t j = 0; j < g.shape.L; j++) elements += g.shape.entries(j) * g.shape.in_columns();
  return elements;
}

char* generate_weights(const Generate& g) {
  return g.packed + round_up(generate_table_elements(g) * 4, 64);
}

int64_t generate_packed_bytes(const Generate& g) {
  int64_t elements = 0;
  for (const Phase& phase : phases(g)) {
    for (const Job& job : phase.jobs) elements += job.K * job.panels() * TILE_COLUMNS<float>;
  }
  return round_up(generate_table_elements(g) * 4, 64) + round_up(elements * (g.half ? 2 : 4), 64);
}

void generate_pack(const Generate& g) {
  float* tables = reinterpret_cast<float*>(g.packed);
  if (g.half)
    generate_pack_as<Half>(g, tables, reinterpret_cast<Half*>(generate_weights(g)));
  else
    generate_pack_as<float>(g, tables, reinterpret_cast<float*>(generate_weights(g)));
}

}  // namespace
