// Attention of packed rows over paged KV, one pass per layer, no temporaries in memory beyond the caches.
//
// Keys are cut at multiples of kChunk positions. A row walks its chunks in the order of their positions and
// keeps a running softmax (the peak, the sum of weights, the weighted values). Neighbouring rows whose tables
// name the same blocks for a chunk read it once: it is laid out for the products once, then all of them
// multiply with it. What a row computes, and in which order, depends on its own position and keys alone; so do
// its bits, in any batch, for any number of threads.
#include <algorithm>
#include <cstdlib>
#include <limits>

#include "products.h"

namespace branchwise {

constexpr int kChunk = 64;          // keys
constexpr int kChunkVectors = kChunk / kLanes;
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
  const void* kv;     // [2, pool_blocks, kv_heads, block_size, dim]
  void* out;          // [rows, heads * dim], rows `out_stride` values apart
  int64_t query_stride;
  int64_t out_stride;
};

// Work memory of one thread, about 300 KB: laid-out keys and values, and the state of a tile's queries.
struct alignas(64) Bench {
  uint32_t keys[kMaxDim * kChunk];
  uint32_t values[kChunk * kMaxDim];
  uint32_t queries[kTileQueries * kMaxDim];
  float sums[kTileQueries * kMaxDim];
  uint32_t weights[8 * kChunk];
  float peak[kTileQueries];
  float total[kTileQueries];
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
      work.total[q] = 0.0f;
    }
    std::memset(work.sums, 0, sizeof(float) * queries * step.dim);
  }

  void write_results() {
    for (int q = 0; q < rows * group(); q++) {
      Value* to = static_cast<Value*>(layer.out) + (first_row + q / group()) * layer.out_stride +
                  (head * group() + q % group()) * step.dim;
      Floats total = spread(work.total[q]);
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
      int vectors = lay_out(furthest, chunk, from);
      attend(first - first_row, last - first_row, chunk, vectors);
      first = last;
    }
  }

  // Keys `from <= k <= position[row]` of the chunk as the products read them; zeros around them, for what
  // lies there may be another sequence's or a NaN. Returns how many vectors of keys there are.
  int lay_out(int row, int chunk, int from) {
    alignas(64) static const Value zeros[kMaxDim] = {};
    const Value *keys[kChunk], *values[kChunk];
    int base = chunk * kChunk, known = std::min(step.position[row] - base + 1, kChunk);
    int vectors = (known + kLanes - 1) / kLanes;
    int64_t plane = step.pool_blocks * step.kv_heads * step.block_size * step.dim;
    for (int k = 0; k < vectors * kLanes; k++) {
      if (k >= known || base + k < from) {
        keys[k] = values[k] = zeros;
        continue;
      }
      int64_t block = table(row)[(base + k) / step.block_size];
      int64_t slot = (block * step.kv_heads + head) * step.block_size + (base + k) % step.block_size;
      keys[k] = static_cast<const Value*>(layer.kv) + slot * step.dim;
      values[k] = keys[k] + plane;
    }
    for (int v = 0; v < vectors; v++) lay_out_keys(keys + v * kLanes, work.keys + v * kLanes);
    for (int k = 0; k < vectors * kLanes; k += Unit::kValues)
      for (int d = 0; d < step.dim; d += kLanes)
        store(work.values + k / Unit::kValues * step.dim + d,
              Unit::join(load(values[k] + d), load(values[k + Unit::kValues - 1] + d)));
    return vectors;
  }

  void lay_out_keys(const Value* const* keys, uint32_t* to) {
    for (int first = 0; first < units(); first += kLanes) {
      int count = std::min(kLanes, units() - first);
      Bits lanes[kLanes];
      for (int k = 0; k < kLanes; k++) {
        const Value* from = keys[k] + first * Unit::kValues;
        if (count == kLanes) {
          lanes[k] = Unit::read(from);
        } else {
          lanes[k] = Bits{};
          std::memcpy(&lanes[k], from, count * 4);  // only pairs can be short: dim is a multiple of 16
        }
      }
      transpose(lanes);
      for (int u = 0; u < count; u++) store(to + (first + u) * kChunk, lanes[u]);
    }
  }

  void attend(int first, int last, int chunk, int vectors) {
    switch (vectors) {
      case 1: return attend_with<1>(first * group(), last * group(), chunk);
      case 2: return attend_with<2>(first * group(), last * group(), chunk);
      case 3: return attend_with<3>(first * group(), last * group(), chunk);
      default: return attend_with<4>(first * group(), last * group(), chunk);
    }
  }

  template <int kVectors>
  void attend_with(int first, int last, int chunk) {
    int q = first;
    for (; q + 6 <= last; q += 6) fold<6, kVectors>(q, chunk);
    for (; q + 3 <= last; q += 3) fold<3, kVectors>(q, chunk);
    for (; q < last; q++) fold<1, kVectors>(q, chunk);
  }

  // Fold one chunk into the state of the queries `first <= q < first + kQueries`.
  template <int kQueries, int kVectors>
  void fold(int first, int chunk) {
    Floats scores[kQueries][kVectors] = {};
    accumulate<Unit, kQueries, kVectors>(
        work.queries + first * units(), units(), work.keys, kChunk, units(), scores);
    float kept[kQueries];
    for (int q = 0; q < kQueries; q++) kept[q] = weigh(first + q, chunk, scores[q], work.weights + q * kChunk);
    for (int d = 0; d < step.dim;) {
      int left = (step.dim - d) / kLanes;
      if (left >= kMaxVectors) d = add_values<kQueries, kVectors, kMaxVectors>(first, d, kept);
      else if (left >= 2) d = add_values<kQueries, kVectors, 2>(first, d, kept);
      else d = add_values<kQueries, kVectors, 1>(first, d, kept);
    }
  }

  // Turns scores into weights under the new peak. Returns the factor for what was summed before.
  template <int kVectors>
  float weigh(int q, int chunk, Floats (&scores)[kVectors], uint32_t* weights) {
    int row = first_row + q / group(), base = chunk * kChunk;
    int behind = step.position[row] - base, before = first_key(row) - base;
    constexpr float kHidden = -std::numeric_limits<float>::infinity();
    Floats peaks = spread(kHidden);
    for (int v = 0; v < kVectors; v++) {
      scores[v] *= step.scale;
      if (behind < (v + 1) * kLanes - 1 || before > v * kLanes) {
        Words key = ramp() + v * kLanes;
        scores[v] = ((key > behind) | (key < before)) ? spread(kHidden) : scores[v];
      }
      peaks = larger(peaks, scores[v]);
    }
    float peak = std::max(work.peak[q], largest(peaks));
    Floats sums{};
    for (int v = 0; v < kVectors; v++) {
      Floats weight = exponential(scores[v] - peak);
      sums += weight;
      Unit::put_weights(weights, v * kLanes, weight);
    }
    float factor = peak == work.peak[q] ? 1.0f : exponential(spread(work.peak[q] - peak))[0];
    work.total[q] = work.total[q] * factor + sum(sums);
    work.peak[q] = peak;
    return factor;
  }

  template <int kQueries, int kVectors, int kDims>
  int add_values(int first, int d, const float* kept) {
    Floats sums[kQueries][kDims];
    for (int q = 0; q < kQueries; q++)
      for (int v = 0; v < kDims; v++)
        sums[q][v] = load(work.sums + (first + q) * step.dim + d + v * kLanes) * kept[q];
    accumulate<Unit, kQueries, kDims>(
        work.weights, kChunk, work.values + d, step.dim, kVectors * kLanes / Unit::kValues, sums);
    for (int q = 0; q < kQueries; q++)
      for (int v = 0; v < kDims; v++) store(work.sums + (first + q) * step.dim + d + v * kLanes, sums[q][v]);
    return d + kDims * kLanes;
  }
};

template <class Value, class Unit>
static void attend(const Step& step, const Layer& layer) {
  int largest_tile = std::max(1, kTileQueries / (step.heads / step.kv_heads));
  // Several tiles per thread, so that they end at about the same time.
  int wanted = (step.rows * step.kv_heads + 4 * step.threads - 1) / (4 * step.threads);
  int rows = step.threads == 1 ? largest_tile : std::min(largest_tile, std::max(wanted, 4));
  int tiles = (step.rows + rows - 1) / rows;
#pragma omp parallel for schedule(dynamic) num_threads(step.threads) if (step.threads > 1)
  for (int item = 0; item < tiles * step.kv_heads; item++) {
    int first = item / step.kv_heads * rows;
    Tile<Value, Unit>{step, layer, *bench(), item % step.kv_heads, first, std::min(rows, step.rows - first)}.run();
  }
}

}  // namespace branchwise

extern "C" void branchwise_attend(const branchwise::Step* step, const void* query, int64_t query_stride,
                                  const void* kv, void* out, int64_t out_stride) {
  branchwise::Layer layer{query, kv, out, query_stride, out_stride};
  if (!step->is_bfloat) return branchwise::attend<float, branchwise::FloatUnit>(*step, layer);
#if defined(__AVX512BF16__)
  branchwise::attend<branchwise::Bfloat, branchwise::PairUnit>(*step, layer);
#else
  branchwise::attend<branchwise::Bfloat, branchwise::FloatUnit>(*step, layer);
#endif
}
