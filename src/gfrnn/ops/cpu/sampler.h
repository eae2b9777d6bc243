// One symbol drawn from its logits.
#pragma once
#include "kernels.h"
#include "memory.h"
#include "vec.h"

namespace {

using gfrnn::Generate;

// Everything a thread needs for sampling; models/generation.py has the definition.
struct Sampler {
  Room<double> p;
  Room<int64_t> order, other;
  Room<char> kept;
  explicit Sampler(int64_t V) : p(V + 8), order(V), other(V), kept(V) {}

  // order: symbols by falling p, ties by rising number (a stable merge sort)
  void sort(int64_t V) {
    int64_t *from = order.get(), *to = other.get();
    for (int64_t i = 0; i < V; i++) from[i] = i;
    for (int64_t run = 1; run < V; run *= 2) {
      for (int64_t start = 0; start < V; start += 2 * run) {
        int64_t a = start, b = smaller(start + run, V), k = start;
        const int64_t a_end = b, b_end = smaller(start + 2 * run, V);
        while (k < b_end) to[k++] = b == b_end || (a < a_end && p.get()[from[a]] >= p.get()[from[b]]) ? from[a++] : from[b++];
      }
      int64_t* swap = from;
      from = to, to = swap;
    }
    if (from != order.get()) copy<int64_t>(order.get(), from, V);
  }

  int64_t draw(const Generate& g, const float* logits, double u) {
    const int64_t V = g.V;
    int64_t best = 0;
    for (int64_t i = 1; i < V; i++)
      if (logits[i] > logits[best]) best = i;
    if (g.temperature == 0) return best;
    double* q = p.get();
    for (int64_t i = 0; i < V; i++) q[i] = (static_cast<double>(logits[i]) - logits[best]) / g.temperature;
    const bool cut = g.top_k > 0 && g.top_k < V;
    if (cut || g.top_p > 0) sort(V);
    for_lanes<double>(V, [&](Lane<double> l) { l.put(q, exp_v(l.get(q))); });
    const int64_t count = cut ? g.top_k : V;
    if (cut)
      for (int64_t i = count; i < V; i++) q[order.get()[i]] = 0;
    if (g.top_p > 0) {
      double total = 0, before = 0;
      for (int64_t i = 0; i < V; i++) total += q[i];
      for (int64_t i = 0; i < count; i++) {
        double& mine = q[order.get()[i]];
        const double share = mine / total;
        if (before >= g.top_p) mine = 0;
        before += share;
      }
    }
    double total = 0, running = 0;
    for (int64_t i = 0; i < V; i++) total += q[i];
    for (int64_t i = 0; i < V; i++) {
      running += q[i];
      if (running > u * total && q[i] > 0) return i;
    }
    return best;
  }
};

}  // namespace
