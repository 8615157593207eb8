// Attention of packed rows over paged KV, one pass per layer, no temporaries in memory beyond the caches.
//
// The pool lies as the products read it (see groups.h), so nothing is rearranged. Keys are cut at multiples of
// kChunk positions. A row walks its chunks in the order of their positions and keeps a running softmax (the
// peak, the sum of weights, the weighted values). Neighbouring rows whose tables name the same blocks for a
// chunk multiply with it together. What a row computes, and in which order, depends on its own position and
// keys alone; so do its bits, in any batch, for any number of threads.
#include <algorithm>
#include <cstdlib>
#include <limits>

#include "groups.h"
#include "products.h"
#include "team.h"

namespace branchwise {

constexpr int kChunk = 64;          // keys
constexpr int kChunkGroups = kChunk / kLanes;
constexpr int kTileQueries = 96;    // queries of one KV head whose state is kept at once: what the caches hold
constexpr int kMaxDim = 256;
constexpr int kMaxVectors = 4;      // vectors of sums per query; 6 queries times 4 fill the registers

// What all layers of a step share. Field order and types are those of `_Step` in attention.py.
struct Step {
  const int64_t* tables;       // block ids, one row per span
  const int32_t* span_of_row;  // by packed row
  const int32_t* position;     // by packed row
  int64_t table_stride;
  int64_t pool_blocks;
  int32_t rows;
  int32_t heads;
  int32_t kv_heads;
  int32_t dim;
  int32_t block_size;
  int32_t window;              // positions; 0 for full attention
  int32_t is_bfloat;
  int32_t threads;
  float scale;
};

struct Layer {
  const void* query;  // [rows, heads, dim], rows `query_stride` values apart
  const void* kv;     // [2, pool_blocks, kv_heads, block_size / kLanes] groups
  void* out;          // [rows, heads * dim], rows `out_stride` values apart
  int64_t query_stride;
  int64_t out_stride;
};

// Work memory of one thread, about 220 KB: the state of a tile's queries.
struct alignas(64) Bench {
  uint32_t values[2][kLanes * kMaxDim];
  uint32_t queries[kTileQueries * kMaxDim];
  float sums[kTileQueries * kMaxDim];
  uint32_t weights[8 * kChunk];
  float peak[kTileQueries];
  float totals[kTileQueries * kLanes];
};

static Bench* bench() {
  struct Freed {
    Bench* memory = static_cast<Bench*>(std::aligned_alloc(64, sizeof(Bench)));
    ~Freed() { std::free(memory); }
  };
  static thread_local Freed mine;
  return mine.memory;
}

template <class Value, class Unit>
struct Tile {
  const Step& step;
  const Layer& layer;
  Bench& work;
  int head;  // of the KV heads
  int first_row;
  int rows;

  int group() const { return step.heads / step.kv_heads; }
  float scale() const { return step.scale * 1.44269504f; }  // weights are powers of two
  int units() const { return step.dim / Unit::kValues; }
  const int64_t* table(int row) const { return step.tables + step.span_of_row[row] * step.table_stride; }
  int first_key(int row) const { return step.window ? std::max(0, step.position[row] - step.window + 1) : 0; }

  void run() {
    int first_chunk = std::numeric_limits<int>::max(), last_chunk = 0;
    for (int row = first_row; row < first_row + rows; row++) {
      first_chunk = std::min(first_chunk, first_key(row) / kChunk);
      last_chunk = std::max(last_chunk, step.position[row] / kChunk);
    }
    read_queries();
    for (int chunk = first_chunk; chunk <= last_chunk; chunk++) walk(chunk);
    write_results();
  }

  void read_queries() {
    int queries = rows * group();
    for (int q = 0; q < queries; q++) {
      const Value* from = static_cast<const Value*>(layer.query) + (first_row + q / group()) * layer.query_stride +
                          (head * group() + q % group()) * step.dim;
      for (int d = 0; d < units(); d += kLanes) {
        if (d + kLanes <= units()) store(work.queries + q * units() + d, Unit::read(from + d * Unit::kValues));
        else std::memcpy(work.queries + q * units() + d, from + d * Unit::kValues, (units() - d) * 4);
      }
      work.peak[q] = -std::numeric_limits<float>::infinity();
      store(work.totals + q * kLanes, Floats{});
    }
    std::memset(work.sums, 0, sizeof(float) * queries * step.dim);
  }

  void write_results() {
    for (int q = 0; q < rows * group(); q++) {
      Value* to = static_cast<Value*>(layer.out) + (first_row + q / group()) * layer.out_stride +
                  (head * group() + q % group()) * step.dim;
      Floats total = spread(sum(load(work.totals + q * kLanes)));
      for (int d = 0; d < step.dim; d += kLanes) store(to + d, load(work.sums + q * step.dim + d) / total);
    }
  }

  bool meets(int row, int chunk) const {
    return chunk >= first_key(row) / kChunk && chunk <= step.position[row] / kChunk;
  }

  // Whether two rows name the same blocks for the chunk as far as both look into it.
  bool shares(int row, int other, int chunk) const {
    if (step.span_of_row[row] == step.span_of_row[other]) return true;
    int last = std::min({step.position[row], step.position[other], (chunk + 1) * kChunk - 1}) / step.block_size;
    for (int block = last; block >= chunk * kChunk / step.block_size; block--)
      if (table(row)[block] != table(other)[block]) return false;
    return true;
  }

  // Cut the rows that meet the chunk into runs that share its blocks.
  void walk(int chunk) {
    int end = first_row + rows;
    for (int first = first_row; first < end;) {
      if (!meets(first, chunk)) {
        first++;
        continue;
      }
      int furthest = first, from = first_key(first), last = first + 1;
      for (; last < end && meets(last, chunk) && shares(last, furthest, chunk); last++) {
        from = std::min(from, first_key(last));
        if (step.position[last] > step.position[furthest]) furthest = last;
      }
      attend(first - first_row, last - first_row, find(furthest, chunk, from));
      first = last;
    }
  }

  // The groups of a chunk that hold the keys which any row of a run sees.
  struct Chunk {
    int base;  // position of the first key of the first group
    int groups;
    const uint32_t* keys[kChunkGroups];
    const uint32_t* values[kChunkGroups];
  };

  int64_t group_units() const { return int64_t{units()} * kLanes; }

  // Keys `from <= k <= position[row]` of the chunk.
  Chunk find(int row, int chunk, int from) {
    int first = std::max(chunk * kChunk, from), end = std::min(step.position[row] + 1, (chunk + 1) * kChunk);
    Chunk found{first / kLanes * kLanes, 0, {}, {}};
    int64_t plane = step.pool_blocks * step.kv_heads * step.block_size / kLanes * group_units();
    for (int base = found.base; base < end; base += kLanes) {
      int64_t block = table(row)[base / step.block_size];
      int64_t slot = (block * step.kv_heads + head) * step.block_size + base % step.block_size;
      const uint32_t* keys = static_cast<const uint32_t*>(layer.kv) + slot / kLanes * group_units();
      bool whole = first <= base && base + kLanes <= end;
      found.keys[found.groups] = keys;
      found.values[found.groups] = whole ? keys + plane : cut(keys + plane, first - base, end - base, found.groups != 0);
      found.groups++;
    }
    return found;
  }

  // A copy of a group of values with zeros before `first` and from `end` on: what lies there may be a NaN, and
  // a weight of zero does not hide it.
  const uint32_t* cut(const uint32_t* values, int first, int end, int copy) {
    uint32_t* to = work.values[copy];
    for (int p = 0; p < kLanes / Unit::kValues; p++) {
      uint32_t kept = 0;
      for (int i = 0; i < Unit::kValues; i++) {
        int lane = p * Unit::kValues + i;
        if (first <= lane && lane < end) kept |= Unit::kMask << i * 16;
      }
      for (int d = 0; d < step.dim; d += kLanes) store(to + p * step.dim + d, load(values + p * step.dim + d) & kept);
    }
    return to;
  }

  void attend(int first, int last, const Chunk& chunk) {
    switch (chunk.groups) {
      case 1: return attend_with<1>(first * group(), last * group(), chunk);
      case 2: return attend_with<2>(first * group(), last * group(), chunk);
      case 3: return attend_with<3>(first * group(), last * group(), chunk);
      default: return attend_with<4>(first * group(), last * group(), chunk);
    }
  }

  template <int kGroups>
  void attend_with(int first, int last, const Chunk& chunk) {
    int q = first;
    for (; q + 6 <= last; q += 6) fold<6, kGroups>(q, chunk);
    for (; q + 3 <= last; q += 3) fold<3, kGroups>(q, chunk);
    for (; q < last; q++) fold<1, kGroups>(q, chunk);
  }

  // Fold one chunk into the state of the queries `first <= q < first + kQueries`.
  template <int kQueries, int kGroups>
  void fold(int first, const Chunk& chunk) {
    const uint32_t* keys[kGroups];
    std::copy_n(chunk.keys, kGroups, keys);
    Floats scores[kQueries][kGroups] = {};
    accumulate<Unit, kQueries, kGroups>(
        work.queries + first * units(), units(), keys, kLanes, units(), scores);
    float kept[kQueries];
    for (int q = 0; q < kQueries; q++) kept[q] = weigh(first + q, chunk.base, scores[q], work.weights + q * kChunk);
    for (int d = 0; d < step.dim;) {
      int left = (step.dim - d) / kLanes;
      if (left >= kMaxVectors) d = add_values<kQueries, kGroups, kMaxVectors>(first, d, chunk, kept);
      else if (left >= 2) d = add_values<kQueries, kGroups, 2>(first, d, chunk, kept);
      else d = add_values<kQueries, kGroups, 1>(first, d, chunk, kept);
    }
  }

  // Turns scores into weights under the new peak. Returns the factor for what was summed before.
  template <int kGroups>
  float weigh(int q, int base, Floats (&scores)[kGroups], uint32_t* weights) {
    int row = first_row + q / group();
    int behind = step.position[row] - base, before = first_key(row) - base;
    constexpr float kHidden = -std::numeric_limits<float>::infinity();
    Floats peaks = spread(kHidden);
    for (int v = 0; v < kGroups; v++) {
      if (behind < (v + 1) * kLanes - 1 || before > v * kLanes) {
        Words key = ramp() + v * kLanes;
        scores[v] = ((key > behind) | (key < before)) ? spread(kHidden) : scores[v];
      }
      peaks = larger(peaks, scores[v]);
    }
    float factor = 1.0f, peak = work.peak[q];
    if (any(peaks > peak)) {
      float last_peak = peak;
      peak = work.peak[q] = largest(peaks);
      factor = power_of_two(spread((last_peak - peak) * scale()))[0];
    }
    Floats sums = load(work.totals + q * kLanes) * factor;
    for (int v = 0; v < kGroups; v++) {
      Floats weight = power_of_two((scores[v] - peak) * scale());
      sums += weight;
      Unit::put_weights(weights, v * kLanes, weight);
    }
    store(work.totals + q * kLanes, sums);
    return factor;
  }

  template <int kQueries, int kGroups, int kDims>
  int add_values(int first, int d, const Chunk& chunk, const float* kept) {
    Floats sums[kQueries][kDims];
    for (int q = 0; q < kQueries; q++)
      for (int v = 0; v < kDims; v++)
        sums[q][v] = load(work.sums + (first + q) * step.dim + d + v * kLanes) * kept[q];
    for (int g = 0; g < kGroups; g++) {
      const uint32_t* values[kDims];
      for (int v = 0; v < kDims; v++) values[v] = chunk.values[g] + d + v * kLanes;
      accumulate<Unit, kQueries, kDims>(
          work.weights + g * kLanes / Unit::kValues, kChunk, values, step.dim, kLanes / Unit::kValues, sums);
    }
    for (int q = 0; q < kQueries; q++)
      for (int v = 0; v < kDims; v++) store(work.sums + (first + q) * step.dim + d + v * kLanes, sums[q][v]);
    return d + kDims * kLanes;
  }
};

template <class Value, class Unit>
static void attend(const Step& step, const Layer& layer) {
  int largest_tile = std::max(1, kTileQueries / (step.heads / step.kv_heads));
  // Several tiles per thread, so that they end at about the same time.
  int wanted = (step.rows * step.kv_heads + 8 * step.threads - 1) / (8 * step.threads);
  int rows = step.threads == 1 ? largest_tile : std::min(largest_tile, std::max(wanted, 4));
  int tiles = (step.rows + rows - 1) / rows;
  parallel_for(tiles * step.kv_heads, step.threads, 1, [&](int item) {
    int first = item / step.kv_heads * rows;
    Tile<Value, Unit>{step, layer, *bench(), item % step.kv_heads, first, std::min(rows, step.rows - first)}.run();
  });
}

}  // namespace branchwise

extern "C" void branchwise_attend(const branchwise::Step* step, const void* query, int64_t query_stride,
                                  const void* kv, void* out, int64_t out_stride) {
  branchwise::Layer layer{query, kv, out, query_stride, out_stride};
  if (!step->is_bfloat) return branchwise::attend<float, branchwise::FloatUnit>(*step, layer);
  branchwise::attend<branchwise::Bfloat, branchwise::PairUnit>(*step, layer);
}
