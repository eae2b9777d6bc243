// The weights' gradients: sums over the rows (t, b) of a delta times what the weight was multiplied with.
// While the deltas of some timesteps are computed, both factors are laid down as the tiles read them (factors.h): each row
// by the thread that has just computed it and still holds it in its cache, and each factor once, however many products
// it enters. Then the threads share the products. Every sum runs over the rows in the same order, whoever computes it.
#pragma once
#include "factors.h"
#include "units.h"

namespace {

// to[m][column + n] += sum_k delta[k][m] source[k][n] for the deltas of tiles [first, last) of a layer; without a source,
// the deltas themselves are added to the rows of the layer's table.
template <class F>
struct GradientProduct {
  int64_t layer, source, first, last;
  Rows<F> to;
  int64_t column;
};

template <class Mode>
class WeightGradients {
  using F = typename Mode::Number;
  using Factor = typename Mode::Factor;

 public:
  // most: rows (t, b) at a time, at most
  WeightGradients(const Backward<F>& b, int64_t most) : b_(b), s_(b.forward.shape), deltas_(s_.L), entries_(most) {
    for (int64_t j = 0; j < s_.L; j++) {
      tables_.push(Room<F>(s_.entries(j) * s_.in_columns()));
      clear<F>(tables_[j].get(), s_.entries(j) * s_.in_columns());
      split_deltas(j);
      list_products(j);
    }
    norm_sums_ = Room<F>(s_.B * s_.L * norm_width());
    clear<F>(norm_sums_.get(), s_.B * s_.L * norm_width());
    const int64_t layer_size = round_up(s_.P() * padded<Mode>(most), 64);
    int64_t size = s_.L * layer_size;
    for (const auto& source : sources_) size += packed_size<Mode>(most, source.N);
    memory_ = Room<Factor>(size);
    Factor* next = memory_.get();
    for (auto& deltas : deltas_) {
      deltas.data = next;
      next += layer_size;
    }
    for (auto& source : sources_) {
      source.panels = next;
      next += packed_size<Mode>(most, source.N);
    }
  }

  // M rows, from the k-th of K on: the rows from at = t * B + b on of the tensors, their deltas (M, L*P) and h_{t-1}
  // (M, L*H). scratch: (M, L*H).
  void lay_down(int64_t K, int64_t k, int64_t M, int64_t at, const F* past, const F* deltas, F* scratch) {
    const Forward<F>& f = b_.forward;
    const int64_t L = s_.L, H = s_.H, LH = L * H, P = s_.P();
    if (s_.indices)
      for (int64_t m = 0; m < M; m++) entries_[k + m] = f.index[at + m];
    for (int64_t j = 0; j < L; j++) deltas_[j].lay_down(K, k, M, deltas + j * P, L * P);
    for (const auto& source : sources_) {
      const int64_t j = source.at;
      if (source.kind == PAST) source.lay_down(K, k, M, past + source.at, LH);
      if (source.kind == INPUT) source.lay_down(K, k, M, f.x + at * s_.I, s_.I);
      if (source.kind == SCALED) {
        for (int64_t m = 0; m < M; m++)
          scale_sources<F>(s_, f.saved + ((at + m) * L + j) * P + s_.global_at(), past + m * LH, scratch + m * LH);
        source.lay_down(K, k, M, scratch, LH);
      }
      if (source.kind != BELOW) continue;
      const F* below = f.h + at * LH + (j - 1) * H;
      if (f.masks)
        for (int64_t m = 0; m < M; m++)
          multiply_rows<F>(scratch + m * LH, below + m * LH, f.masks + ((at + m) * (L - 1) + j - 1) * H, H);
      source.lay_down(K, k, M, f.masks ? scratch : below, LH);
    }
  }

  // The gradients of layer j's gain, and of its bias behind it, by row b of the batch.
  F* norm_sums(int64_t j, int64_t b) { return s_.normed() ? norm_sums_.get() + (b * s_.L + j) * norm_width() : nullptr; }

  // Once K rows are there.
  void fill_up_sums(int64_t K) {
    if (s_.indices) sort_by_entry(K);
    for (const auto& deltas : deltas_)
      for (int64_t i = 0; i < deltas.tiles.size(); i++) fill_up<Mode>(deltas.tile(K, i), deltas.tiles[i].rows, K);
    for (const auto& source : sources_)
      for (int64_t n = 0; n < source.N; n += TILE_COLUMNS<F>)
        fill_up<Mode>(source.panels + n * padded<Mode>(K), TILE_COLUMNS<F>, K);
  }

  // Adds up the products of K rows: part `part` of `parts` of the work.
  void add_up(int64_t K, int64_t part, int64_t parts) {
    int64_t total = 0, before = 0;
    for (const auto& product : products_) total += work(product);
    for (const auto& product : products_) {
      const int64_t all = work(product), tiles = product.last - product.first;
      // the tiles whose beginning lies in this part of the work
      auto bound = [&](int64_t p) {
        const int64_t wanted = total * p / parts - before;
        return product.first + smaller(tiles, larger(0, (wanted * tiles + all - 1) / larger(all, 1)));
      };
      const int64_t first = bound(part), last = part + 1 == parts ? product.last : bound(part + 1);
      before += all;
      if (first >= last) continue;
      if (product.source < 0)
        add_to_table(product, K, first, last);
      else
        multiply(product, K, first, last);
    }
  }

  // The tables' gradients, handed on to the biases and, for index input, to the columns of W and w_g.
  void finish(int64_t part, int64_t parts) {
    constexpr int VL = Vec<F>::size;
    const int64_t columns = s_.in_columns(), first = columns * part / parts, last = columns * (part + 1) / parts;
    for (int64_t j = 0; j < s_.L; j++) {
      const Layer<F>& d = b_.gradients[j];
      const Rows<F> in = input_rows<F>(s_, d, j);
      Rows<F> bias;
      if (d.b) gate_rows<F>(s_, d.b, 1, bias);
      if (d.b_g) plain_rows<F>(d.b_g, s_.n(), 1, bias);
      auto has_bias = [&](int64_t k) { return bias.size() > 0 && !(s_.normed() && k < s_.global_at()); };
      for_lanes<F>(last - first, [&](Lane<F> some) {
        const Lane<F> k{first + some.at, some.count};
        F totals[VL] = {};
        for (int i = 0; i < k.count; i++)
          if (has_bias(k.at + i)) totals[i] = *bias[k.at + i];
        vec<F> total = load<F>(totals);
        for_lanes<F>(s_.entries(j), [&](Lane<F> e) {
          vec<F> square[VL];
#pragma GCC unroll 16
          for (int i = 0; i < VL; i++) {
            square[i] = i < e.count ? k.get(tables_[j].get() + (e.at + i) * columns) : vec<F>{};
            total += square[i];
          }
          if (!s_.looks_up(j)) return;
          transpose<F>(square);
          for (int i = 0; i < k.count; i++) e.put(in[k.at + i], e.get(in[k.at + i]) + square[i]);
        });
        store<F>(totals, total);
        for (int i = 0; i < k.count; i++)
          if (has_bias(k.at + i)) *bias[k.at + i] = totals[i];
      });
      if (s_.normed() && part == 0) finish_norm(j);
    }
  }

 private:
  const Backward<F>& b_;
  const Shape s_;
  List<Deltas<Mode>> deltas_;
  struct Run {
    int64_t entry, begin, end;
  };
  List<int64_t> entries_;   // of row k: its index, and the row of a table
  List<int64_t> by_entry_;  // the rows k, those of one index together, in their order
  List<Run> runs_;          // and where those are
  List<Source<Mode>> sources_;
  List<GradientProduct<F>> products_;
  List<Room<F>> tables_;  // per layer (entries, in_columns()): gradients of PackedLayer::table
  Room<Factor> memory_;
  Room<F> norm_sums_;  // (B, L, norm_width())

  // Rows of one index are added up in a register: a table would be read and written for each of them.
  void sort_by_entry(int64_t K) {
    List<int64_t> ends(s_.I);
    for (int64_t entry = 0; entry < s_.I; entry++) ends[entry] = 0;
    for (int64_t k = 0; k < K; k++) ends[entries_[k]]++;
    by_entry_.resize(K);
    runs_.empty_out();
    int64_t begin = 0;
    for (int64_t entry = 0; entry < s_.I; entry++) {
      const int64_t count = ends[entry];
      if (count) runs_.push({entry, begin, begin + count});
      ends[entry] = begin;
      begin += count;
    }
    for (int64_t k = 0; k < K; k++) by_entry_[ends[entries_[k]]++] = k;
  }

  int64_t norm_width() const { return s_.normed() ? 2 * s_.G() * s_.H : 0; }

  void finish_norm(int64_t j) {
    const Layer<F>& d = b_.gradients[j];
    for (int64_t b = 0; b < s_.B; b++)
      for (int64_t block = 0; block < s_.G(); block++) {
        const int64_t at = Norm<F>::place(s_, block);
        const F* sums = norm_sums(j, b) + block * s_.H;
        add_to<F>(d.gain + at, sums, s_.H);
        if (d.b) add_to<F>(d.b + at, sums + s_.G() * s_.H, s_.H);
      }
  }

  // Tiles end where a product's columns do: a product takes whole tiles.
  void split_deltas(int64_t j) {
    Deltas<Mode>& deltas = deltas_[j];
    deltas.add_columns(0, s_.H);
    if (s_.apart()) deltas.add_columns(s_.units_at(), s_.global_at());
    deltas.add_columns(s_.apart() ? s_.global_at() : s_.units_at(), s_.q_at());
    deltas.add_columns(s_.q_at(), s_.q_end());
  }

  int64_t find_source(SourceKind kind, int64_t at, int64_t N) {
    for (int64_t i = 0; i < sources_.size(); i++)
      if (sources_[i].kind == kind && sources_[i].at == at && sources_[i].N == N) return i;
    sources_.push({kind, at, N, nullptr});
    return sources_.size() - 1;
  }

  void list_products(int64_t j) {
    const Layer<F>& d = b_.gradients[j];
    auto add = [&](int64_t source, int64_t from, const Rows<F>& to, int64_t column) {
      products_.push({j, source, deltas_[j].tile_of(from), deltas_[j].tile_of(from + to.size()), to, column});
    };
    for (const Recurrent<F>& how : recurrent_products<F>(s_, d, j))
      add(how.scaled ? find_source(SCALED, j, how.K) : find_source(PAST, how.at, how.K), how.column, how.rows, 0);
    const Rows<F> in = input_rows<F>(s_, d, j);
    if (j > 0) add(find_source(BELOW, j, s_.H), 0, in, s_.x_width(j));
    if (s_.sees_x(j) && !s_.indices) add(find_source(INPUT, 0, s_.I), 0, in, 0);
    add(-1, 0, in, 0);
  }

  int64_t work(const GradientProduct<F>& product) const {
    constexpr int64_t TABLE = 20;  // columns of a product that cost as much as adding to a table
    return product.to.size() * (product.source < 0 ? TABLE : round_up(sources_[product.source].N, Vec<F>::size));
  }

  void multiply(const GradientProduct<F>& product, int64_t K, int64_t first, int64_t last) {
    constexpr int NR = TILE_COLUMNS<F>;
    const Deltas<Mode>& deltas = deltas_[product.layer];
    const Source<Mode>& source = sources_[product.source];
    if constexpr (Mode::TILED) {  // two tiles of deltas at a time
      const TileRegisters<Mode> registers;
      const int64_t stride = padded<Mode>(K);
      const Room<Factor> columns(2 * SIDE * stride);
      for (int64_t i = first; i < last; i += 2) {
        int64_t rows = 0;
        for (int64_t two = i; two < smaller(i + 2, last); two++) {
          turn(deltas.tile(K, two), deltas.tiles[two].rows, K, columns.get() + rows * stride);
          rows += deltas.tiles[two].rows;
        }
        F* const* to = product.to.data() + (deltas.tiles[i].column - deltas.tiles[product.first].column);
        multiply_tiles(rows, source.N, columns.get(), stride, source.panels, K, to, to, product.column);
      }
      return;
    }
    const int64_t share = Ahead<Mode>::share(last - first);
    for (int64_t n = 0; n < source.N; n += NR) {
      const int width = static_cast<int>(smaller(source.N - n, NR));
      const Factor* panel = source.panels + n * padded<Mode>(K);
      for (int64_t i = first; i < last; i++) {
        const auto& tile = deltas.tiles[i];
        F* const* to = product.to.data() + (tile.column - deltas.tiles[product.first].column);
        if (i + 1 < last) call_for<F>(to + tile.rows, to + tile.rows, deltas.tiles[i + 1].rows, product.column + n);
        tile_rows<Mode, true>(tile.rows, deltas.tile(K, i), 0, panel, K, to, to, product.column + n, width,
                              Ahead<Mode>::after(panel, K, i - first, share));
      }
    }
  }

  void add_to_table(const GradientProduct<F>& product, int64_t K, int64_t first, int64_t last) {
    constexpr int64_t SOON = 8;  // a table's rows lie far apart: each is called for so many before its turn
    const int64_t j = product.layer, columns = s_.in_columns();
    for (int64_t i = first; i < last; i++) {
      const auto& tile = deltas_[j].tiles[i];
      const Factor* deltas = deltas_[j].tile(K, i);
      F* to = tables_[j].get() + tile.column;
      for_lanes<F>(tile.rows, [&](Lane<F> l) {
        if (s_.looks_up(j)) {
          for (int64_t i = 0; i < runs_.size(); i++) {
            const Run& run = runs_[i];
            if (i + SOON < runs_.size()) __builtin_prefetch(to + runs_[i + SOON].entry * columns + l.at, 1);
            vec<F> sum = {};
            for (int64_t n = run.begin; n < run.end; n++) sum += values_at<Mode>(l, deltas, tile.rows, by_entry_[n]);
            F* row = to + run.entry * columns;
            l.put(row, l.get(row) + sum);
          }
        } else {
          vec<F> sum = l.get(to);
          for (int64_t k = 0; k < K; k++) sum += values_at<Mode>(l, deltas, tile.rows, k);
          l.put(to, sum);
        }
      });
    }
  }
};
}  // namespace
